"""Blocks of any length give what the whole movie gives: the same events, track ids and bytes."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError, StoreError
from clew.parallel import ThreadExecutor
from clew.tracking.blocks import (
    BYTES_OF_PROCESS,
    BlockProblem,
    MovieProblem,
    StoredLineage,
    block_arrays,
    block_length,
    parse_memory,
    read_block,
    split_pairs,
)
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import DetectionTable
from clew.tracking.events import NONE, Event, EventTable
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.lineage import build
from clew.tracking.lineage.build import SolvedBlock, join_movie
from clew.tracking.lineage.gaps import GapLinks
from clew.tracking.lineage.lineage import parts_of
from clew.tracking.lineage.links import MovieLinks, NodeEvents
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.profile import estimate_profile
from clew.tracking.training.generic_weights import generic_weights

from ..helpers.effort import examples
from ..helpers.tracking import track


@pytest.fixture(scope="module")
def work(simulated):
    """A movie with splits and merges, so that counts and identities go over the borders of blocks."""
    source = measure_movie(simulated.movie, cache=None)
    pairs = FramePairBuilder(
        source, estimate_profile(source, source.has, events=ALL_EVENTS)
    )
    return MovieProblem(pairs, generic_weights(feature_names(source.has)))


@pytest.fixture(scope="module")
def whole(work):
    return track(work.builder, work.w, pairs_per_block=1000)


def assert_same(one, other):
    for name in ("frame", "label", "position", "confidence", "probability", "track"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(one.events.row_keys(), other.events.row_keys())
    assert np.array_equal(one.tracks.table(), other.tracks.table())


@pytest.mark.parametrize(("per_block", "jobs"), [(1, 1), (2, 3), (5, 2), (16, 1)])
def test_blocks_of_any_length_give_the_same_lineage(work, whole, per_block, jobs):
    assert set(np.unique(whole.events.event)) >= {Event.MERGE, Event.SPLIT}
    assert_same(
        track(work.builder, work.w, n_jobs=jobs, pairs_per_block=per_block), whole
    )


def assert_parts_are(parts, tracks, whole):
    for name in ("frame", "label", "position"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(part.nodes, name) for part in parts]),
            getattr(whole, name),
        )
    np.testing.assert_array_equal(
        np.concatenate([part.track for part in parts]), whole.track
    )
    np.testing.assert_array_equal(
        EventTable.join([part.events for part in parts]).row_keys(),
        whole.events.row_keys(),
    )
    np.testing.assert_array_equal(
        np.concatenate([part.confidence for part in parts]), whole.confidence
    )
    np.testing.assert_array_equal(
        np.concatenate([part.probability for part in parts]), whole.probability
    )
    assert np.array_equal(tracks.table(), whole.tracks.table())


@pytest.mark.parametrize("per_block", [1, 3, 4, 13])
def test_joined_at_the_borders_they_have_the_ids_of_the_whole(work, whole, per_block):
    problems = MovieProblem(work.builder, work.w, None, per_block).blocks()
    movie = join_movie([problem.solve() for problem in problems])
    assert_parts_are(list(parts_of(movie)), movie.tracks, whole)


# ---- random lineages: every kind of event anywhere, also across borders


@st.composite
def lineages(draw):
    """A random legal movie: cells of each frame are taken up by events of the six kinds in a random order."""
    n_frames = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cells, rows = [int(rng.integers(0, 7))], []
    for t in range(n_frames - 1):
        here, there, new = list(rng.permutation(cells[-1]) + 1), 0, []
        while here:
            kind = Event(int(rng.choice(6, p=[0.35, 0.15, 0.05, 0.1, 0.15, 0.2])))
            if len(here) < kind.arity[0]:
                kind = Event.MOVE
            sources = [here.pop() for _ in range(kind.arity[0])]
            targets = list(range(there + 1, there + 1 + kind.arity[1]))
            there += kind.arity[1]
            new.append((kind, sources, targets))
            if there > 10:
                new += [(Event.DISAPPEAR, [label], []) for label in here]
                here = []
        if rng.random() < 0.3:
            there += 1
            new.append((Event.APPEAR, [], [there]))
        relabel = rng.permutation(there) + 1
        rows += [
            (t, kind, sources, [int(relabel[k - 1]) for k in targets])
            for kind, sources, targets in new
        ]
        cells.append(there)
    frame = np.repeat(np.arange(n_frames), cells)
    label = np.concatenate([np.arange(1, n + 1) for n in cells])
    n, events = len(frame), EventTable.of(rows)
    lead = np.where(
        np.isin(events.event, [Event.SPLIT, Event.DIVIDE]),
        rng.normal(0, 0.1, len(events)),
        np.nan,
    )
    lead[rng.random(len(events)) < 0.2] = np.nan
    columns = {"volume": rng.uniform(1, 2, n)} if rng.random() < 0.7 else {}
    return (
        n_frames,
        frame,
        label,
        rng.uniform(0, 9, (n, 2)),
        columns,
        events,
        rng.exponential(1, len(events)),
        lead,
    )


def near_border(sure):
    """Any numbers from 0 to 1."""
    return (7 * sure) % 1


def cut_up(movie, per_block):
    """A random movie as solved blocks."""
    n_frames, frame, label, position, columns, events, sure, lead = movie
    begin = np.searchsorted(frame, np.arange(n_frames + 2))

    def rows_in_frames(labels, frames):
        rows = np.full(labels.shape, -1, dtype=np.int32)
        for (i, j), wanted in np.ndenumerate(labels):
            if wanted != NONE:
                here = label[begin[frames[i]] : begin[frames[i] + 1]]
                rows[i, j] = np.searchsorted(here, wanted)
        return rows

    sources = rows_in_frames(events.sources, events.frame)
    targets = rows_in_frames(events.targets, events.frame + 1)
    is_move = events.event == Event.MOVE
    node = begin[events.frame[is_move]] + sources[is_move, 0]
    successor = np.full(len(frame), -1, dtype=np.int32)
    successor[node] = begin[events.frame[is_move] + 1] + targets[is_move, 0]
    move_confidence, move_context = np.zeros((2, len(frame)), dtype=np.float32)
    move_confidence[node] = sure[is_move]
    move_context[node] = near_border(sure)[is_move]
    before, after = begin[events.frame][:, None], begin[events.frame + 1][:, None]
    others = NodeEvents(
        events.frame.astype(np.int32),
        events.event,
        np.where(sources < 0, -1, sources + before).astype(np.int32),
        np.where(targets < 0, -1, targets + after).astype(np.int32),
        sure,
        lead,
        near_border(sure),
    )
    links = MovieLinks(
        begin[: n_frames + 1],
        label,
        position,
        columns,
        successor,
        move_confidence,
        move_context,
        NodeEvents.join([others[~is_move]]),
        1.0,
        1.5,
        np.array([[0.0, 0.0], [9.0, 9.0]]),
    )
    ranges = split_pairs(n_frames, per_block)
    blocks = []
    for pairs in ranges:
        frames = range(pairs.start, pairs.stop + (pairs is ranges[-1]))
        part = links.window(frames)
        part = replace(part, label=part.label[: len(part)])
        blocks.append(SolvedBlock(frames, part, 0))
    return blocks


def gaps_of(links):
    """Cells that disappear before a frame and appear after it, as many as there are of both, as gaps."""
    others, source, target = links.others, [], []
    for t in range(links.n_frames - 2):
        gone = others.sources[
            (others.frame == t) & (others.kind == Event.DISAPPEAR), 0
        ].tolist()
        back = others.targets[
            (others.frame == t + 1) & (others.kind == Event.APPEAR), 0
        ].tolist()
        n = min(len(gone), len(back))
        source += gone[:n]
        target += back[:n]
    nodes = np.array([source, target], dtype=np.int32)
    return GapLinks(*nodes, np.arange(len(source)) / 7, np.ones(len(source)))


@examples(150)
@given(lineages(), st.integers(1, 9))
def test_any_lineage_cut_anywhere_is_joined_to_itself(movie, per_block):
    with patch.object(build, "find_gaps", lambda links, *_, **__: gaps_of(links)):
        expected = join_movie(cut_up(movie, 1000)).lineage()
        joined = join_movie(cut_up(movie, per_block))
    assert_same(joined.lineage(), expected)
    assert_parts_are(list(parts_of(joined)), joined.tracks, expected)


# ---- checkpoints


def test_finished_blocks_are_not_solved_again(work, whole, tmp_path, monkeypatch):
    problems = MovieProblem(work.builder, work.w, None, 4)
    kept = Checkpoints.for_output(tmp_path / "out")
    assert len(kept) == 0
    fail_at, solved, solve = 2, [], BlockProblem.solve

    def interrupted(self):
        if len(solved) == fail_at:
            raise KeyboardInterrupt
        solved.append(self.pairs)
        return solve(self)

    monkeypatch.setattr(BlockProblem, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        StoredLineage.of(problems, ThreadExecutor(1), kept)
    assert len(kept) == fail_at
    fail_at = 1000
    tracked = StoredLineage.of(problems, ThreadExecutor(1), kept)
    assert solved == [problem.pairs for problem in problems.blocks()]  # each once
    assert (tracked.n_solved, len(tracked), tracked.n_cells) == (
        len(problems.blocks()) - 2,
        4,
        len(whole.frame),
    )
    assert_same(tracked.lineage(), whole)
    assert_parts_are(list(parts_of(tracked)), tracked.tracks, whole)
    kept.delete_all()
    assert not kept.folder.exists()
    assert_same(tracked.lineage(), whole)


def test_a_damaged_checkpoint_is_solved_anew(work, whole, tmp_path):
    kept = Checkpoints.for_output(tmp_path)
    problems = MovieProblem(work.builder, work.w, None, 5)
    StoredLineage.of(problems, ThreadExecutor(1), kept)
    file = sorted(kept.folder.iterdir())[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    again = StoredLineage.of(problems, ThreadExecutor(1), kept)
    assert again.n_solved == 1
    assert_same(again.lineage(), whole)


def test_other_weights_settings_annotations_and_pixels_have_other_names(
    work, simulated
):
    def names(pairs=work.builder, w=work.w, annotations=None, per_block=4):
        return [
            problem.key()
            for problem in MovieProblem(pairs, w, annotations, per_block).blocks()
        ]

    plain = names()
    assert len(set(plain)) == len(plain)
    assert names() == plain
    source = measure_movie(simulated.movie, cache=None)
    assert (
        names(
            FramePairBuilder(
                source, estimate_profile(source, source.has, events=ALL_EVENTS)
            )
        )
        == plain
    )  # measured again
    for other in (
        names(w=work.w + 1e-9),
        names(per_block=5),
        names(
            FramePairBuilder(source, estimate_profile(source, source.has, reach=1.0))
        ),
        names(
            FramePairBuilder(
                source,
                estimate_profile(source, source.has, events=ALL_EVENTS - {Event.SPLIT}),
            )
        ),
    ):
        assert not set(other) & set(plain)
    annotated = names(annotations=simulated.some)
    assert all(a != b for a, b in zip(annotated, plain, strict=True))


def test_a_block_is_the_same_after_it_was_stored(work):
    block = MovieProblem(work.builder, work.w, None, 3).blocks()[1].solve()
    arrays = block_arrays(block)
    again = read_block(arrays)
    assert again.frames == range(3, 6)
    assert again.links.weight_norm == block.links.weight_norm
    for name, array in block_arrays(again).items():
        np.testing.assert_array_equal(array, arrays[name])
    assert set(block_arrays(again)) == set(arrays)
    del arrays["other.context"]
    with pytest.raises(StoreError, match="block"):
        read_block(arrays)


def test_gaps_over_borders_in_files_and_in_memory(work, tmp_path):
    w = work.w.copy()
    names = feature_names(work.builder.profile.groups)
    # many cells are lost and found again, over borders too
    for name in ("appear", "disappear"):
        w[names.index(f"{name}: bias")] += 0.25
    whole = track(work.builder, w, pairs_per_block=1000)
    assert (whole.events.event == Event.GAP).sum() > 3
    for per_block in (1, 3):
        tracked = StoredLineage.of(
            MovieProblem(work.builder, w, None, per_block),
            ThreadExecutor(1),
            Checkpoints.for_output(tmp_path / f"{per_block}"),
        )
        assert_same(tracked.lineage(), whole)
        assert_parts_are(list(parts_of(tracked)), tracked.tracks, whole)
        frames, some = tracked.sample(1)
        kinds = some.events[some.events.event == Event.GAP]
        assert set(kinds.shift_frames(frames.start)) <= set(whole.events)


# ---- cutting


@given(st.integers(0, 60), st.integers(1, 20))
def test_every_pair_is_in_one_block(n_frames, per_block):
    blocks = split_pairs(n_frames, per_block)
    assert [pair for block in blocks for pair in block] == list(
        range(max(n_frames - 1, 0))
    )
    assert len(blocks) >= 1
    assert all(len(block) <= per_block for block in blocks)


def test_blocks_shrink_with_memory_and_too_little_is_told():
    lengths = [
        block_length(BYTES_OF_PROCESS + extra * 10**6, 10_000)
        for extra in (389, 395, 405, 1000)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] >= 1
    assert lengths[0] < lengths[-1]
    with pytest.raises(InputError, match="MiB; expected at least"):
        block_length(BYTES_OF_PROCESS, 10_000)
    with pytest.raises(InputError, match="expected at least 1"):
        split_pairs(5, 0)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("4GB", 4 * 10**9),
        ("512MiB", 2**29),
        ("2e9", 2 * 10**9),
        (" 1.5 gib ", 3 * 2**29),
    ],
)
def test_memory_is_read_as_people_write_it(text, n):
    assert parse_memory(text) == n


@pytest.mark.parametrize(
    "text", ["", "lots", "-3GB", "0", "1.2.3GB", "nan", "4 gallons"]
)
def test_what_is_no_memory_is_refused(text):
    with pytest.raises(InputError, match="expected bytes"):
        parse_memory(text)


# ---- windows


def test_a_window_has_its_frames_under_their_numbers_and_no_others(work):
    source = work.builder.source
    for whole in (
        source,
        DetectionTable(
            np.repeat(np.arange(6), 2), [1, 2] * 6, np.arange(24).reshape(12, 2)
        ),
    ):
        part = whole.window(2, 4)
        assert part.n_frames == whole.n_frames
        for t in (2, 3, 4):
            a, b = whole.detections(t), part.detections(t)
            np.testing.assert_array_equal(a.label, b.label)
            np.testing.assert_array_equal(a.position, b.position)
            assert whole.content(t) == part.content(t)
        for t in (1, 5, -1):
            with pytest.raises(InputError, match="frames are 2 to 4"):
                part.detections(t)
        again = part.window(3, 3) if whole is source else part
        assert len(again.detections(3)) == len(whole.detections(3))


def test_a_window_of_arrays_in_memory_holds_its_frames_only(simulated):
    from clew.tracking.movie import Movie

    labels = np.stack([simulated.movie.label(t) for t in range(6)])
    part = Movie.from_arrays(labels).window(2, 3)
    assert part.n_frames == 6
    np.testing.assert_array_equal(part.label(3), labels[3])
    for t in (1, 4):
        with pytest.raises(IndexError):
            part.label(t)
