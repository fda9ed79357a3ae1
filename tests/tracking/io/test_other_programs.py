"""Other programs open what clew writes, each where it is installed."""

import warnings

import numpy as np
import pytest

from clew.parallel import ThreadExecutor
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.results import write_and_count
from clew.tracking.tracker import Tracker

FORMATS = ("ctc", "csv", "geff", "zarr")


@pytest.fixture(scope="module")
def result(simulated, tmp_path_factory):
    """A folder of results, and the lineage in it."""
    folder = tmp_path_factory.mktemp("result")
    lineage = Tracker.generic(n_jobs=1, cache=None).track(simulated.movie)
    write_and_count(folder, lineage, simulated.movie, FORMATS, ThreadExecutor(1))
    return folder, lineage


@pytest.fixture(autouse=True)
def _ignore_warnings():
    """Those of other programs are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_tracksdata_opens_graph_and_masks(result):
    graphs = pytest.importorskip("tracksdata").graph
    folder, lineage = result
    n_links = len(lineage.edges[0])
    graph, _ = graphs.IndexedRXGraph.from_geff(folder / "lineage.geff")
    assert (graph.num_nodes(), graph.num_edges()) == (len(lineage.frame), n_links)
    graph = graphs.InMemoryGraph.from_ctc(folder)
    assert graph.num_nodes() == len(lineage.frame)


def test_funtracks_opens_graph_with_masks(result, simulated, tmp_path):
    funtracks = pytest.importorskip("funtracks.import_export")
    folder, lineage = result
    # labels of nodes are those of the movie; masks of a result have ids of tracks
    by_track = {"time": "t", "pos": ["y", "x"], "seg_id": "track_id"}
    masks = np.stack(
        [simulated.movie.label(t) for t in range(simulated.movie.n_frames)]
    )
    # recovered cells have no mask in the movie
    given = Tracker.generic(n_jobs=1, cache=None, fill=False).track(simulated.movie)
    write_and_count(tmp_path, given, simulated.movie, ("geff",), ThreadExecutor(1))
    for where, cells, segmentation, names in (
        (tmp_path, given, masks, None),
        (folder, lineage, folder / "tracks.zarr" / "0", by_track),
    ):
        tracks = funtracks.import_from_geff(
            where / "lineage.geff", node_name_map=names, segmentation_path=segmentation
        )
        assert tracks.graph.num_nodes() == len(cells.frame)
        assert tracks.segmentation is not None


def test_laptrack_links_the_table_of_cells(result, tmp_path):
    laptrack = pytest.importorskip("laptrack")
    pandas = pytest.importorskip("pandas")
    folder, lineage = result
    tracker = laptrack.LapTrack(cutoff=15**2, splitting_cutoff=15**2)
    cells, splits, _ = tracker.predict_dataframe(
        pandas.read_csv(folder / "tracks.csv"),
        coordinate_cols=["y", "x"],
        only_coordinate_cols=False,
    )
    cells.reset_index(drop=False).to_csv(tmp_path / "cells.csv", index=False)
    splits.to_csv(tmp_path / "cells_split.csv", index=False)
    found = open_lineage(tmp_path / "cells.csv")
    assert len(found.frame) == len(lineage.frame)
    theirs = cells["track_id"].nunique()
    assert len(np.setdiff1d(found.tracks.id, found.continued)) == theirs
    parents = found.tracks.parent[~np.isin(found.tracks.id, found.continued)]
    assert (parents != 0).sum() == len(splits)


def test_trackpy_links_the_table_of_cells(result, tmp_path):
    trackpy = pytest.importorskip("trackpy")
    pandas = pytest.importorskip("pandas")
    folder, lineage = result
    trackpy.quiet()
    cells = trackpy.link(pandas.read_csv(folder / "tracks.csv"), search_range=10)
    cells.to_csv(tmp_path / "cells.csv", index=False)
    found = open_lineage(tmp_path / "cells.csv")
    assert len(found.frame) == len(lineage.frame)
    assert len(found.tracks) == cells["particle"].nunique()


def test_btrack_takes_masks_and_its_tracks_are_read(result, tmp_path):
    btrack = pytest.importorskip("btrack")
    tifffile = pytest.importorskip("tifffile")
    folder, lineage = result
    masks = [tifffile.imread(path) for path in sorted(folder.glob("mask*.tif"))]
    cells = btrack.utils.segmentation_to_objects(np.stack(masks), num_workers=1)
    assert len(cells) == len(lineage.frame)
    by_label: dict[int, list] = {}
    places = zip(
        lineage.frame.tolist(), lineage.position.tolist(), lineage.track, strict=True
    )
    for row, (t, (y, x), track) in enumerate(places):
        values = {"ID": row, "t": t, "y": y, "x": x, "z": 0.0}
        cell = btrack.btypes.PyTrackObject.from_dict(values)
        by_label.setdefault(int(track), []).append(cell)
    tracks = [btrack.btypes.Tracklet(*entry) for entry in by_label.items()]
    for track in tracks:
        track.parent = track.root = track.ID
        track.fate = btrack.constants.Fates.UNDEFINED
    path = tmp_path / "tracks.h5"
    with btrack.io.HDF5FileHandler(path, "w", obj_type="obj_type_1") as file:
        file.write_tracks(tracks)
    found = open_lineage(path)
    assert len(found.frame) == len(lineage.frame)
    assert len(found.tracks) == len(tracks)
