"""Files for TrackMate and Mastodon: read by clew, by geff, and against a project."""

import os
import warnings
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import geff
import numpy as np
import pytest
from geff.convert import from_trackmate_xml_to_geff

from clew.tracking.events import Event, EventTable
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.mastodon import encode_model, read_model, write_mastodon
from clew.tracking.io.trackmate import write_trackmate
from clew.tracking.lineage.lineage import Lineage


def make_lineage():
    """A cell that is missing in a frame, and then divides; another that moves."""
    events = EventTable.of(
        [
            (0, Event.GAP, [1], [1]),
            (2, Event.DIVIDE, [1], [2, 3]),
            (0, Event.MOVE, [5], [5]),
            (1, Event.DISAPPEAR, [5], []),
        ]
    )
    frame = np.array([0, 0, 1, 2, 3, 3])
    label = np.array([1, 5, 5, 1, 2, 3])
    position = np.array([[0.0, 0], [9, 0], [9, 1], [0, 2], [0, 3], [2, 3]])
    return Lineage(4, frame, label, position, events, np.ones(4))


@pytest.mark.parametrize(
    ("write", "name"), [(write_trackmate, "a.xml"), (write_mastodon, "a.mastodon")]
)
def test_file_is_read_again(tmp_path, write, name):
    lineage = make_lineage()
    write(tmp_path / name, lineage)
    found = open_lineage(tmp_path / name)
    assert np.bincount(
        found.tracks.child_count(found.tracks.parent_row())
    ).tolist() == [
        3,
        1,
        1,
    ]
    assert sorted(found.position.tolist()) == sorted(lineage.position.tolist())
    assert found.frame.tolist() == lineage.frame.tolist()


def test_converter_of_geff_reads_the_file(tmp_path):
    write_trackmate(tmp_path / "a.xml", make_lineage())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from_trackmate_xml_to_geff(tmp_path / "a.xml", tmp_path / "a.geff")
    graph, _ = geff.read(tmp_path / "a.geff", backend="networkx")
    assert sorted(graph.edges) == [(0, 3), (1, 2), (3, 4), (3, 5)]


def test_settings_have_the_size_of_the_movie(tmp_path):
    write_trackmate(tmp_path / "a.xml", make_lineage())
    image = ElementTree.parse(tmp_path / "a.xml").find("Settings/ImageData")
    size = [int(image.get(name)) for name in ("width", "height", "nslices", "nframes")]
    assert size == [4, 10, 1, 4]


@pytest.mark.skipif("CLEW_DATA" not in os.environ, reason="needs CLEW_DATA")
def test_model_is_encoded_as_mastodon_does():
    path = Path(os.environ["CLEW_DATA"]) / "ascidian" / "Pm03.mastodon"
    with zipfile.ZipFile(path) as archive:
        stored = archive.read("model.raw")
    spots, links = read_model(path)
    mark = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp"
    text = stored[stored.index(mark) + len(mark) + 4 :]
    names = []
    while text:
        end = 2 + int.from_bytes(text[:2], "big")
        names.append(text[2:end].decode())
        text = text[end:]
    encoded = encode_model(spots, links, names)
    assert len(encoded) == len(stored)
    # Mastodon has the numbers of names in another order
    first = stored.index(b"[IM") + 19
    last = first + 4 * len(names)
    assert encoded[:first] == stored[:first]
    assert encoded[last:] == stored[last:]
