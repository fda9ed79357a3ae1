"""Tables of detections, and of tracks."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from clew.errors import DataWarning, InputError
from clew.tracking.events import Event, EventTable
from clew.tracking.io.formats import is_table
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.io.tables import read_detections
from clew.tracking.lineage.lineage import Lineage

PLAIN = """frame,label,y,x,area,intensity_mean,note
0,2,1.5,2.5,10,100,=HYPERLINK("x")
0,1,3,4,12,90,
2,7,5,6,9,80.5,last
"""


def written(folder, content, name="cells.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check_plain(table):
    assert table.n_frames == 3
    assert table.ndim == 2
    assert {"size", "intensity"} <= table.has
    first = table.detections(0)
    assert first.label.tolist() == [1, 2]
    assert first.position.tolist() == [[3, 4], [1.5, 2.5]]
    assert first.columns["volume"].tolist() == [12, 10]
    assert first.columns["intensity"].tolist() == [90, 100]
    assert len(table.detections(1)) == 0
    assert table.detections(2).label.tolist() == [7]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff" + PLAIN.replace("\n", "\r\n").replace(",", "\t"),
        PLAIN.replace(",", ";"),
        PLAIN.replace("frame,label", "T,ID").replace("area", "Volume"),
        "# by hand\n\n" + PLAIN.replace("0,2,", "0.0,2.0,"),
        PLAIN.replace("y,x", "centroid-y,Centroid X"),
        PLAIN.replace("y,x", "centroid-0,centroid-1"),
    ],
)
def test_the_same_table_however_it_is_written(tmp_path, text):
    check_plain(read_detections(written(tmp_path, text)))


def test_numbered_centroids_in_3d_begin_with_z(tmp_path):
    table = read_detections(
        written(tmp_path, "frame,label,centroid-0,centroid-1,centroid-2\n0,1,7,8,9\n")
    )
    assert table.detections(0).position.tolist() == [[7, 8, 9]]


def test_numbered_centroids_stand_back_where_axes_are_named(tmp_path):
    table = read_detections(
        written(tmp_path, "frame,label,centroid-0,centroid-1,y,x\n0,1,7,8,1,2\n")
    )
    assert table.detections(0).position.tolist() == [[1, 2]]


TRACKMATE = """LABEL,ID,TRACK_ID,QUALITY,POSITION_X,POSITION_Y,POSITION_Z,POSITION_T,FRAME,RADIUS,AREA
Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,Radius,Area
Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,R,Area
,,,(quality),(micron),(micron),(micron),(sec),,(micron),(micron^2)
ID17,17,0,1.0,2.5,1.5,0.0,0.0,0,5.0,10
ID18,18,0,1.0,4.5,3.5,0.0,300.0,1,5.0,12
"""


def test_the_spots_of_trackmate(tmp_path):
    table = read_detections(written(tmp_path, TRACKMATE))
    assert table.n_frames == 2
    assert [table.detections(t).label.tolist() for t in (0, 1)] == [[17], [18]]
    assert table.detections(1).position.tolist() == [[3.5, 4.5]]  # z is 0 in 2D
    deep = read_detections(written(tmp_path, TRACKMATE.replace("3.5,0.0", "3.5,2.0")))
    assert deep.detections(1).position.tolist() == [[2, 3.5, 4.5]]
    with pytest.raises(InputError, match="row 6: frame is 'one'"):
        read_detections(written(tmp_path, TRACKMATE.replace("300.0,1,", "300.0,one,")))


def test_the_first_spot_of_trackmate_is_0_and_all_others_keep_their_ids(tmp_path):
    table = read_detections(written(tmp_path, TRACKMATE.replace("ID17,17", "ID0,0")))
    assert [table.detections(t).label.tolist() for t in (0, 1)] == [[19], [18]]


@pytest.mark.parametrize(
    "header", ["t,y,x", "axis-0,axis-1,axis-2", "frame,centroid-0,centroid-1"]
)
def test_points_without_labels_are_numbered_by_rows_in_each_frame(tmp_path, header):
    table = read_detections(
        written(tmp_path, f"{header}\n1,5,6\n0,1,2\n1,3,4\n0,9,9\n")
    )
    assert [table.detections(t).label.tolist() for t in (0, 1)] == [[1, 2], [1, 2]]
    assert table.detections(0).position.tolist() == [[1, 2], [9, 9]]
    assert table.detections(1).position.tolist() == [[5, 6], [3, 4]]
    assert "without labels" in table.source
    assert "without labels" not in read_detections(written(tmp_path, PLAIN)).source


def test_points_of_napari_in_3d(tmp_path):
    table = read_detections(
        written(tmp_path, "index,axis-0,axis-1,axis-2,axis-3\n0,0,7,8,9\n1,1,7,8,9\n")
    )
    assert (table.ndim, table.n_frames) == (3, 2)
    assert table.detections(1).position.tolist() == [[7, 8, 9]]


def test_descriptions_of_columns_without_any_cell(tmp_path):
    with pytest.raises(InputError, match="no row"):
        read_detections(
            written(tmp_path, "".join(TRACKMATE.splitlines(keepends=True)[:4]))
        )


def test_parquet(tmp_path):
    path = tmp_path / "cells.parquet"
    table = pa.csv.read_csv(written(tmp_path, PLAIN))
    pa.parquet.write_table(table.rename_columns({"frame": "Frame"}), path)
    check_plain(read_detections(path))


def test_parquet_faults_have_rows(tmp_path):
    path = tmp_path / "cells.parquet"
    faulty = {
        "frame": [0, 0, 0],
        "label": [1, None, 3],
        "y": [0.0] * 3,
        "x": [0.0, 1.0, np.nan],
    }
    pa.parquet.write_table(pa.table(faulty), path)
    with pytest.raises(InputError, match=r"(?s)row 2: label is 'None'.*row 3: x is"):
        read_detections(path)


def test_damaged_parquet(tmp_path):
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_detections(written(tmp_path, b"PAR1 no", "cells.parquet"))
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_detections(tmp_path / "none.parquet")


def test_a_column_of_parquet_whose_name_is_no_text(tmp_path):
    path = tmp_path / "cells.parquet"
    pa.parquet.write_table(
        pa.table([pa.array([0])], schema=pa.schema([pa.field("frame", pa.int64())])),
        path,
    )
    path.write_bytes(path.read_bytes().replace(b"frame", b"fr\xd5me"))
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_detections(path)


def test_spacing_makes_positions_and_volumes_physical(tmp_path):
    path = written(tmp_path, "t,id,z,y,x,volume\n0,1,1,2,3,10\n")
    cells = read_detections(path, spacing=(4, 0.5, 0.25)).detections(0)
    assert cells.position.tolist() == [[4, 1, 0.75]]
    assert cells.columns["volume"].tolist() == [5]


@pytest.mark.parametrize("spacing", [(1, 1), (1, 1, 0), (1, 1, -1), (1, 1, np.nan)])
def test_spacing_must_fit(tmp_path, spacing):
    with pytest.raises(InputError, match="spacing"):
        read_detections(written(tmp_path, "t,id,z,y,x\n0,1,1,2,3\n"), spacing)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0,1,9,9,9,9", "label 1 of frame 0 stands in row 2 already"),
        ("-1,5,9,9,9,9", "frame is '-1'; it must be 0 or more"),
        ("1.5,5,9,9,9,9", "frame is '1.5'; it must be an integer"),
        ("1e15,5,9,9,9,9", "frame is '1e15'; it must be less than 1,000,000"),
        ("1,0,9,9,9,9", "label is '0'; it must be 1 or more"),
        ("1,a,9,9,9,9", "label is 'a'; it must be an integer"),
        ("1,5,nan,9,9,9", "y is 'nan'; it must be a number"),
        ("1,5,,9,9,9", "y is ''; it must be a number"),
        ("1,5,9,inf,9,9", "x is 'inf'; it must be finite"),
        ("1,5,9,9,-1,9", "volume is '-1'; it must be more than 0"),
        ("1,5,9,9,0,9", "volume is '0'; it must be more than 0"),
        ("1,5,9,9,9,bright", "intensity is 'bright'; it must be a number"),
        ("1,5,9,9,9,9,7", "7 values for 6 columns"),
    ],
)
def test_a_fault_is_named_with_file_and_row(tmp_path, line, words):
    path = written(tmp_path, f"frame,label,y,x,area,intensity\n0,1,1,1,1,1\n{line}\n")
    with pytest.raises(InputError) as caught:
        read_detections(path)
    assert str(path) in str(caught.value)
    assert "row 3: " in str(caught.value)
    assert words in str(caught.value)


def test_a_negative_border_distance(tmp_path):
    with pytest.raises(InputError, match=r"row 2: border_distance is '-1'"):
        read_detections(written(tmp_path, "t,id,y,x,border_distance\n0,1,1,1,-1\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ('"\n"', "is empty"),
        ("frame,label,y,x\n", "has no rows"),
        ("frame,label,y\n0,1,1\n", "there is no column x or centroid_x"),
        ("label,y,x\n1,1,1\n", "there is no column frame or t"),
    ],
)
def test_a_file_that_is_no_table(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_detections(written(tmp_path, text))


def test_the_names_of_tables():
    assert is_table("a/cells.CSV")
    assert is_table("cells.parquet")
    assert not is_table("a/01")
    assert not is_table("masks.tif")


def test_the_table_of_tracks(tmp_path):
    events = EventTable.of(
        [
            (0, Event.DIVIDE, [1], [1, 2]),
            (1, Event.MOVE, [1], [3]),
            (1, Event.DISAPPEAR, [2], []),
            (1, Event.APPEAR, [], [4]),
        ]
    )
    position = np.array([[0, 0], [1, 0.5], [2, 0], [3, 0], [4, 0]])
    lineage = Lineage(
        3,
        np.array([0, 1, 1, 2, 2]),
        np.array([1, 1, 2, 3, 4]),
        position,
        events,
        np.zeros(4),
    )
    write_track_table(tmp_path / "tracks.csv", lineage)
    assert (tmp_path / "tracks.csv").read_text().splitlines() == [
        "frame,label,track,parent,y,x,generation,piece,recovered,false",
        "0,1,1,0,0.0,0.0,0,1,0,0",
        "1,1,2,1,1.0,0.5,1,2,0,0",
        "1,2,3,1,2.0,0.0,1,3,0,0",
        "2,3,2,1,3.0,0.0,1,2,0,0",
        "2,4,4,0,4.0,0.0,0,4,0,0",
    ]


def packed_cells(z_step):
    """Rows of cells that keep a distance, whose z counts slices."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), -1).reshape(-1, 3)
    position = (20 * grid + rng.uniform(-4, 4, grid.shape)) / [z_step, 1, 1]
    return "frame,z,y,x\n" + "".join(
        f"0,{z:.3f},{y:.3f},{x:.3f}\n" for z, y, x in position
    )


def test_coarse_slices_of_points_are_noticed(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(packed_cells(8))
    with pytest.warns(DataWarning, match="times as far apart"):
        table = read_detections(path)
    assert 6 < table.spacing[0] < 11
    assert read_detections(path, (1, 1, 1)).spacing == (1, 1, 1)


@pytest.mark.filterwarnings("error")
def test_slices_as_fine_as_pixels_need_no_factor(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(packed_cells(1))
    assert read_detections(path).spacing is None
