"""Layers from results and back; these tests need no napari."""

import shutil
from pathlib import Path

import geff
import networkx as nx
import numpy as np
import pytest

from clew.errors import InputError
from clew.napari.layers import read_lineage_layer
from clew.napari.reader import can_read, get_reader, read_layers
from clew.napari.sample import make_sample
from clew.napari.writer import write_result_folder, write_tracks_layer
from clew.tracking.events import Event
from clew.tracking.io.geff_lineage import find_geff
from clew.tracking.io.napari import make_napari_tracks
from clew.tracking.io.results import write_results
from clew.tracking.tracker import Tracker

FORMATS = ["ctc", "csv", "geff", "napari", "zarr"]


@pytest.fixture(scope="module")
def lineage(simulated):
    return Tracker.generic().set_params(cache=None, n_jobs=1).track(simulated.movie)


@pytest.fixture(scope="module")
def result(simulated, lineage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "tracked"
    write_results(folder, lineage, simulated.movie, FORMATS)
    return folder


def read(path):
    reader = get_reader(str(path))
    assert reader is not None
    return {kind: (data, arguments) for data, arguments, kind in reader(str(path))}


def events_by_cell(data, properties):
    cells = zip(data[:, 1].astype(int), properties["label"], strict=True)
    return dict(zip(cells, properties["event"], strict=True))


def test_result_folder_has_masks_and_tracks(result, lineage, simulated):
    layers = read(result)
    data, properties, graph = make_napari_tracks(lineage)
    tracks, arguments = layers["tracks"]
    np.testing.assert_allclose(tracks, data, atol=1e-6)
    assert arguments["graph"] == graph
    for name in ("label", "track", "event"):
        np.testing.assert_array_equal(arguments["properties"][name], properties[name])
    np.testing.assert_allclose(
        arguments["properties"]["probability"], properties["probability"], atol=1e-6
    )
    masks, arguments = layers["labels"]
    assert masks.shape == (simulated.movie.n_frames, *simulated.movie.shape)
    frame = data[:, 1].astype(int)
    for t in range(len(masks)):
        expected = np.unique(properties["track"][frame == t])
        np.testing.assert_array_equal(np.setdiff1d(masks[t], [0]), expected)


@pytest.mark.parametrize("name", ["lineage.geff", "tracks.csv", "napari.csv"])
def test_file_of_a_result_has_the_same_tracks(result, lineage, name):
    data, properties, graph = make_napari_tracks(lineage)
    tracks, arguments = read(result / name)["tracks"]
    assert len(tracks) == len(data)
    assert len(arguments["graph"]) == len(graph)
    expected = events_by_cell(data, properties)
    assert events_by_cell(tracks, arguments["properties"]) == expected
    assert set(expected.values()) >= {-1, Event.MOVE, Event.DIVIDE, Event.APPEAR}


def test_probability_is_read_from_tables(result):
    for name in ("tracks.csv", "napari.csv"):
        properties = read(result / name)["tracks"][1]["properties"]
        probability = properties["probability"]
        assert probability.min() >= 0
        assert probability.min() < probability.max() <= 1


def test_zarr_of_masks_is_a_labels_layer(result, simulated):
    masks, arguments = read(result / "tracks.zarr")["labels"]
    np.testing.assert_array_equal(masks, read(result)["labels"][0])
    assert arguments["scale"] == (1.0, *simulated.movie.spacing)


def test_truth_of_the_challenge_has_divisions(simulated):
    layers = read(simulated.truth)
    data, arguments = layers["tracks"]
    codes = arguments["properties"]["event"]
    assert (codes == Event.DIVIDE).sum() == 2 * len(
        {tuple(parents) for parents in arguments["graph"].values()}
    )
    inside = layers["labels"][0][
        tuple(np.round(data[:, 1:] / [1, *simulated.movie.spacing]).astype(int).T)
    ]
    assert (inside == data[:, 0]).mean() > 0.95


def test_other_files_are_left_to_others(tmp_path, simulated):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "broken.csv").write_bytes(b"\xff\xfe\x00")
    assert not can_read(tmp_path / "table.csv")
    assert not can_read(tmp_path / "broken.csv")
    assert not can_read(tmp_path)
    assert get_reader([str(simulated.path)]) is None


@pytest.mark.parametrize("name", ["out.geff", "out.csv"])
def test_written_tracks_are_read_again(result, tmp_path, name):
    data, arguments = read(result)["tracks"]
    paths = write_tracks_layer(str(tmp_path / name), data, arguments)
    assert all((tmp_path / path).exists() for path in paths)
    again, same = read(tmp_path / name)["tracks"]
    assert events_by_cell(again, same["properties"]) == events_by_cell(
        data, arguments["properties"]
    )
    assert len(same["graph"]) == len(arguments["graph"])


def test_written_result_folder_is_read_again(result, tmp_path):
    layers = read(result)
    data, _ = layers["tracks"]
    full = [(*layers[kind], kind) for kind in ("labels", "tracks")]
    folder = tmp_path / "saved"
    assert write_result_folder(str(folder), full) == [str(folder)]
    again = read(folder)
    np.testing.assert_allclose(
        np.sort(again["tracks"][0][:, 2]), np.sort(data[:, 2]), atol=1e-6
    )
    assert (again["labels"][0] > 0).sum() == (layers["labels"][0] > 0).sum()


def test_scaled_tracks_are_written_in_physical_units(result, tmp_path):
    data, arguments = read(result)["tracks"]
    scaled = {**arguments, "scale": (1.0, 2.0, 2.0)}
    write_tracks_layer(str(tmp_path / "out.csv"), data, scaled)
    again, _ = read(tmp_path / "out.csv")["tracks"]
    np.testing.assert_allclose(
        np.sort(again[:, -1]), 2 * np.sort(data[:, -1]), atol=1e-6
    )


def test_tracks_of_other_cells_are_rejected(result):
    layers = read(result)
    data, arguments = layers["tracks"]
    masks = layers["labels"][0].copy()
    masks[3][masks[3] == masks[3].max()] = 0
    with pytest.raises(InputError, match="not those of the Labels layer"):
        read_lineage_layer(data, arguments["properties"], arguments["graph"], masks)


def test_sample_has_images_and_masks():
    from clew.simulation.simulate import NucleiSettings

    image, labels = make_sample(NucleiSettings(frames=3, cells=5, seed=1))
    assert image[2] == "image"
    assert labels[2] == "labels"
    assert image[0].shape == labels[0].shape
    assert labels[0].max() >= 4


def test_table_of_tracks_with_a_gap_is_read(tmp_path):
    path = tmp_path / "tracks.csv"
    rows = ["0,4,1,0,1,2", "1,7,2,1,1,2", "1,8,3,1,3,2", "3,1,2,1,2,2"]
    path.write_text("\n".join(["frame,label,track,parent,y,x", *rows]))
    ((data, options, _),) = read_layers(str(path))
    assert len(data) == len(rows)
    generations = dict(
        zip(data[:, 0], options["properties"]["generation"], strict=True)
    )
    assert generations[1] < generations[2]


FOREIGN = Path(__file__).parents[1] / "tracking" / "io" / "foreign"


@pytest.mark.parametrize(
    "name",
    [
        "mastodon-1-from-specification.mastodon",
        "trackmate-7-from-specification.xml",
        "tracksdata-0.1.0rc12.geff.zip",
    ],
)
def test_lineage_of_another_program_is_a_tracks_layer(tmp_path, name):
    path = FOREIGN / name
    if path.suffix == ".zip":
        shutil.unpack_archive(path, tmp_path / path.stem)
        path = find_geff(tmp_path / path.stem)
    data, arguments = read(path)["tracks"]
    assert data.shape == (36, 4)
    parents = list(arguments["graph"].values())
    assert len(parents) == 2
    assert parents[0] == parents[1]


def test_graph_without_labels_is_a_tracks_layer(tmp_path):
    graph = nx.DiGraph()
    for t in range(3):
        graph.add_node(t, t=t, y=1.0 * t, x=2.0)
    graph.add_edges_from([(0, 1), (1, 2)])
    axes = {"axis_names": ["t", "y", "x"], "axis_types": ["time", "space", "space"]}
    geff.write(graph, tmp_path / "a.geff", **axes)
    data, _ = read(tmp_path / "a.geff")["tracks"]
    assert data[:, 1:].tolist() == [[0, 0, 2], [1, 1, 2], [2, 2, 2]]
