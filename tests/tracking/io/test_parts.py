"""Results in parts: every format has the same bytes whether a movie is written whole or block by block."""

import hashlib
from itertools import pairwise

import numpy as np
import pyarrow.parquet
import pytest

from clew.errors import InputError, MissingExtra
from clew.parallel import ThreadExecutor
from clew.tracking.blocks import MovieProblem, StoredLineage
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.events import Event
from clew.tracking.io import names, parquet
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.io.results import check_formats, write_and_count, write_results
from clew.tracking.lineage.lineage import (
    LineageInParts,
    LineagePart,
    as_parts,
    parts_of,
)
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_frames
from clew.tracking.profile import estimate_profile
from clew.tracking.training.calibration import expected_wrong
from clew.tracking.training.generic_weights import generic_weights

from ...helpers.tracking import track


@pytest.fixture(scope="module")
def problems(simulated):
    source = measure_movie(simulated.movie, cache=None)
    pairs = FramePairBuilder(
        source, estimate_profile(source, source.has, events=ALL_EVENTS)
    )
    return MovieProblem(pairs, generic_weights(feature_names(source.has)), None, 3)


@pytest.fixture(scope="module")
def tracked(problems, tmp_path_factory):
    return StoredLineage.of(
        problems,
        ThreadExecutor(1),
        Checkpoints.for_output(tmp_path_factory.mktemp("run")),
    )


@pytest.fixture(scope="module")
def lineage(problems):
    return track(problems.builder, problems.w)


def content(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def result(simulated, lineage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "result"
    write_results(folder, lineage, simulated.movie, list(names.FORMATS))
    return folder


@pytest.mark.parametrize("jobs", [1, 3])
def test_blocks_have_the_bytes_of_the_whole(
    simulated, tracked, lineage, result, tmp_path, jobs
):
    written, tally = write_and_count(
        tmp_path, tracked, simulated.movie, list(names.FORMATS), ThreadExecutor(jobs)
    )
    assert content(tmp_path) == content(result)
    assert set(written) == {*names.BESIDE_MASKS, "mask*.tif"} - {names.REPORT}
    np.testing.assert_array_equal(tally.kinds, lineage.counts().sum(axis=0))
    ours, theirs = tally.expected_wrong(), expected_wrong(lineage.probability)
    assert ours.n_events == theirs.n_events
    assert (ours.number, ours.high) == pytest.approx((theirs.number, theirs.high))


def test_parts_of_any_length_have_the_same_cells_and_events(
    simulated, lineage, result, tmp_path
):
    write_results(
        tmp_path, LineageInParts(lineage, 1), simulated.movie, list(names.FORMATS)
    )
    assert content(tmp_path) == content(result)
    cells = np.concatenate(
        [part.nodes.frame for part in parts_of(LineageInParts(lineage, 4))]
    )
    np.testing.assert_array_equal(cells, lineage.frame)
    assert as_parts(lineage).n_cells == len(lineage.frame)


def test_parquet_holds_what_the_lineage_does(lineage, result):
    events = pyarrow.parquet.read_table(result / names.EVENTS_PARQUET)
    assert events["event"].to_pylist() == [
        str(Event(kind)) for kind in lineage.events.event
    ]
    assert events["frame"].to_pylist() == lineage.events.frame.tolist()
    for k, suffix in enumerate(("", "_2")):
        for side, labels in (
            ("source", lineage.events.sources),
            ("target", lineage.events.targets),
        ):
            assert events[side + suffix].to_pylist() == [
                label or None for label in labels[:, k].tolist()
            ]
    np.testing.assert_array_equal(events["confidence"].to_numpy(), lineage.confidence)
    np.testing.assert_array_equal(events["probability"].to_numpy(), lineage.probability)
    cells = pyarrow.parquet.read_table(result / names.TRACKS_PARQUET)
    np.testing.assert_array_equal(cells["piece"].to_numpy(), lineage.track)
    row = np.searchsorted(lineage.tracks.id, lineage.track)
    np.testing.assert_array_equal(
        cells["generation"].to_numpy(), lineage.generations[row]
    )
    np.testing.assert_array_equal(cells["y"].to_numpy(), lineage.position[:, 0])


def test_row_groups_end_with_a_frame_wherever_parts_end(lineage, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS", 50)
    sizes = []
    for per_part in (1, 5, 100):
        parquet.write_parquet(
            tmp_path / "e", tmp_path / "t", LineageInParts(lineage, per_part)
        )
        file = pyarrow.parquet.ParquetFile(tmp_path / "t")
        groups = [
            file.read_row_group(k)["frame"].to_pylist()
            for k in range(file.num_row_groups)
        ]
        assert all(len(group) >= 50 for group in groups[:-1])
        assert all(a[-1] < b[0] for a, b in pairwise(groups))
        sizes.append([len(group) for group in groups])
    assert sizes[0] == sizes[1] == sizes[2]
    assert len(sizes[0]) > 2


def test_a_zarr_layer_is_read_back_with_its_spacing(simulated, lineage, result):
    frames = open_frames(result / names.LABELS)
    assert len(frames) == simulated.movie.n_frames
    assert frames.spacing == simulated.movie.spacing
    masks = open_frames(result)
    for t in (0, len(frames) - 1):
        np.testing.assert_array_equal(frames[t], masks[t])


def test_a_sample_is_consecutive_frames_from_the_middle(tracked, lineage):
    frames, part = tracked.sample(len(lineage.frame) // 3)
    assert 0 < frames.start <= lineage.n_frames // 2 <= frames.stop
    assert len(frames) == part.n_frames < lineage.n_frames
    inside = (lineage.frame >= frames.start) & (lineage.frame < frames.stop)
    np.testing.assert_array_equal(part.label, lineage.label[inside])
    whole = tracked.sample(10**9)
    assert whole[0] == range(lineage.n_frames)
    assert np.array_equal(whole[1].events.row_keys(), lineage.events.row_keys())
    assert len(tracked.sample(0)[1].frame) > 0


def test_parquet_without_arrow_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        "clew.utils.extras._can_be_found", lambda package: package != "pyarrow"
    )
    with pytest.raises(MissingExtra, match="parquet"):
        check_formats(["csv", "parquet"])


def test_a_movie_of_another_length_is_refused(simulated, lineage, tmp_path):
    with pytest.raises(InputError, match="the lineage is of 14 frames"):
        write_results(tmp_path, lineage, simulated.movie[:5], ["zarr"])
    assert list(tmp_path.iterdir()) == []


def test_an_empty_part_has_columns(lineage, tmp_path):
    none = np.zeros(0, dtype=np.intp)
    first = next(parts_of(LineageInParts(lineage)))
    nodes = type(first.nodes)(
        first.nodes.frame[none], first.nodes.label[none], first.nodes.position[none], {}
    )
    empty = LineagePart(
        (0, 0), nodes, none, first.events[none], np.zeros(0), np.zeros(0)
    )
    with (tmp_path / "e").open("wb") as file:
        rows = parquet.RowGroups(file)
        rows.add(parquet._make_event_columns(empty))
        rows.add(parquet._make_event_columns(empty))
        rows.close()
    assert pyarrow.parquet.read_table(tmp_path / "e").num_rows == 0
