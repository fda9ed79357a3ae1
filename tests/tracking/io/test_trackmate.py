"""Files of TrackMate: their spots, and what is no such file."""

import pytest

from clew.errors import InputError
from clew.tracking.io.tables import read_detections

FILE = """<?xml version="1.0" encoding="UTF-8"?>
<TrackMate version="7.11.1">
  <Model spatialunits="micron" timeunits="sec">
    <AllSpots nspots="4">
      <SpotsInFrame frame="0">
        <Spot ID="0" name="ID0" FRAME="0" VISIBILITY="1" RADIUS="5" POSITION_T="0" POSITION_X="2.5" POSITION_Y="1.5"
          POSITION_Z="0.0" MEAN_INTENSITY_CH1="10" AREA="70" ROI_N_POINTS="3">0 0 1 1 0 1</Spot>
        <Spot ID="7" name="a &lt; b" FRAME="0" VISIBILITY="0" POSITION_X="9" POSITION_Y="9" POSITION_Z="0.0"/>
      </SpotsInFrame>
      <SpotsInFrame frame="2">
        <Spot ID="4" name="ID4" FRAME="2" POSITION_X="4.5" POSITION_Y="3.5" POSITION_Z="0.0" MEAN_INTENSITY_CH1="12"
          AREA="71"/>
        <Spot ID="3" name="ID3" FRAME="2" POSITION_X="6" POSITION_Y="5" POSITION_Z="0.0" MEAN_INTENSITY_CH1="13"
          AREA="69"/>
      </SpotsInFrame>
    </AllSpots>
    <AllTracks><Track TRACK_ID="0"><Edge SPOT_SOURCE_ID="0" SPOT_TARGET_ID="4"/></Track></AllTracks>
  </Model>
</TrackMate>
"""


def written(folder, text):
    (folder / "spots.xml").write_text(text)
    return folder / "spots.xml"


def test_spots_that_are_visible_with_their_ids(tmp_path):
    table = read_detections(written(tmp_path, FILE))
    assert (table.n_frames, table.ndim) == (3, 2)
    assert [table.detections(t).label.tolist() for t in range(3)] == [
        [5],
        [],
        [3, 4],
    ]  # 0 is the background
    assert table.detections(2).position.tolist() == [[5, 6], [3.5, 4.5]]
    assert table.detections(2).columns["intensity"].tolist() == [13, 12]
    assert table.detections(0).columns["volume"].tolist() == [70]


def test_what_not_all_spots_have_is_left_out(tmp_path):
    table = read_detections(
        written(
            tmp_path,
            FILE.replace('AREA="71"', "").replace('POSITION_Z="0.0"', 'POSITION_Z="2"'),
        )
    )
    assert "size" not in table.has
    assert "intensity" in table.has
    assert table.ndim == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            FILE.replace('FRAME="2" POSITION_X="6"', 'FRAME="two" POSITION_X="6"'),
            "row 13: frame is 'two'",
        ),
        (FILE.replace('POSITION_X="6"', ""), "row 13: x is ''; it must be a number"),
        (
            FILE.replace('ID="3" name', 'ID="4" name'),
            "label 4 of frame 2 stands in row 11 already",
        ),
        (FILE[:600], "cannot be read as XML"),
        (
            "<Tracks><particle/></Tracks>",
            "XML of another kind, <Tracks>; expected the file that TrackMate saves",
        ),
        ("<TrackMate></TrackMate>", "has no spots"),
        ("spots", "cannot be read as XML"),
        ("", "cannot be read as XML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        read_detections(written(tmp_path, text))
    assert words in str(caught.value)
    assert "spots.xml" in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        '<!DOCTYPE TrackMate [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE TrackMate [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE TrackMate SYSTEM "http://127.0.0.1:9/x.dtd">',
    ],
)
def test_no_entity_is_expanded(tmp_path, kind):
    text = FILE.replace("<TrackMate ", f"{kind}<TrackMate ").replace(
        "0 0 1 1 0 1", "&b;"
    )
    with pytest.raises(InputError, match="has a document type"):
        read_detections(written(tmp_path, text))


@pytest.mark.parametrize("encoding", ["utf-7", "rot13", "punycode", "none"])
def test_unknown_encoding_is_refused(tmp_path, encoding):
    text = f'<?xml version="1.0" encoding="{encoding}"?><TrackMate/>'
    with pytest.raises(InputError, match="cannot be read as XML"):
        read_detections(written(tmp_path, text))


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_detections(tmp_path / "none.xml")
