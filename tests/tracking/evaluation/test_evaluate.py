"""Task loss, AOGM, divisions and the challenge's scores, by hand and against py-ctcmetrics."""

import json
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clew.errors import InputError, MissingExtra
from clew.tracking.evaluation.aogm import Found, aogm, divisions, graph_of
from clew.tracking.evaluation.evaluate import NOTHING, ctc_scores, evaluate, task_loss
from clew.tracking.evaluation.truth import Held
from clew.tracking.events import PAIRWISE, Annotations, Event, EventTable
from clew.tracking.formats import tiff
from clew.tracking.formats.ctc import open_truth, write_result, write_tracks
from clew.tracking.formats.events_csv import write_events
from clew.tracking.formats.names import MANIFEST
from clew.tracking.formats.tracks_csv import write_track_table
from clew.tracking.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.tracks import Tracks

MOVE, DIVIDE, APPEAR, DISAPPEAR, SPLIT, MERGE, GAP = Event


def held(tracks, n_frames, names=None):
    """Frames in which each true cell is held by the track `names(t, cell)`, by its own where not given."""
    frames = []
    for t in range(n_frames):
        cells = np.sort(tracks.id[(tracks.begin <= t) & (t <= tracks.end)])
        holders = np.array([names(t, int(cell)) if names else cell for cell in cells], dtype=np.int64)
        frames.append(Held(cells, holders, holders > 0))
    return frames


# task loss


def test_task_loss_by_hand():
    truth = Annotations.of(
        EventTable.of([
            (0, MOVE, [1], [1]), (0, MOVE, [2], [2]), (0, DIVIDE, [3], [3, 4]), (0, APPEAR, [], [9]),
            (1, MERGE, [5, 6], [7]), (0, MOVE, [8], [8]), (1, MOVE, [1], [2]), (1, APPEAR, [], [3]),
        ]),
        [True, True, True, True, True, True, False, False],
    )  # fmt: skip
    predicted = EventTable.of([
        (0, MOVE, [1], [1]), (0, MOVE, [2], [9]), (0, MOVE, [3], [3]), (0, APPEAR, [], [4]), (1, MOVE, [1], [2]),
        (1, MOVE, [5], [7]), (1, DISAPPEAR, [6], []),
    ])  # fmt: skip
    loss = task_loss(truth, predicted)
    assert loss.annotated[list(PAIRWISE)].tolist() == [3, 1, 1, 0, 0, 1]
    assert loss.missed[list(PAIRWISE)].tolist() == [2, 1, 1, 0, 0, 1]
    assert loss.denied[list(PAIRWISE)].tolist() == [1, 0, 1, 0, 0, 0]
    assert loss.invented[list(PAIRWISE)].tolist() == [1, 0, 0, 0, 0, 0]
    assert loss.total == 6 / 8
    expected = np.zeros((len(Event), NOTHING + 1), dtype=int)
    expected[MOVE, MOVE] = 1  # 2 went elsewhere
    expected[MOVE, NOTHING] = 1  # nobody said a word of 8
    expected[DIVIDE, MOVE] = 1
    expected[APPEAR, MOVE] = 1  # 9 did not appear, it was 2
    expected[MERGE, MOVE] = expected[MERGE, DISAPPEAR] = 1
    assert loss.confusion.tolist() == expected.tolist()
    assert json.loads(json.dumps(loss.to_dict()))["events"]["merge"]["instead"] == {"move": 1, "disappear": 1}


def test_nothing_annotated_nothing_lost():
    assert task_loss(Annotations.of(EventTable.empty()), EventTable.empty()).total == 0.0
    one = Annotations.of(EventTable.of([(0, MOVE, [10**12], [1])]))
    assert task_loss(one, EventTable.empty()).total == 1.0
    assert task_loss(one, one.events).total == 0.0


cells = st.integers(1, 3)
events = st.one_of(
    st.tuples(st.integers(0, 1), st.just(MOVE), st.tuples(cells), st.tuples(cells)),
    st.tuples(st.integers(0, 1), st.just(APPEAR), st.just(()), st.tuples(cells)),
    st.tuples(st.integers(0, 1), st.just(DISAPPEAR), st.tuples(cells), st.just(())),
    *(
        st.tuples(st.integers(0, 1), st.just(kind), st.tuples(cells), st.sampled_from([(1, 2), (1, 3), (2, 3)]))
        for kind in (DIVIDE, SPLIT)
    ),
    st.tuples(st.integers(0, 1), st.just(MERGE), st.sampled_from([(1, 2), (1, 3), (2, 3)]), st.tuples(cells)),
)


@given(st.lists(events, max_size=6, unique=True), st.lists(events, max_size=12, unique=True), st.data())
def test_task_loss_by_brute_force(said, candidates, data):
    predicted, taken = [], set()
    for frame, kind, sources, targets in candidates:  # one fate and one history each
        ends = {(frame, 0, c) for c in sources} | {(frame, 1, c) for c in targets}
        if not ends & taken:
            predicted.append((frame, kind, sources, targets))
            taken |= ends
    happened = data.draw(st.lists(st.booleans(), min_size=len(said), max_size=len(said)))
    loss = task_loss(Annotations.of(EventTable.of(said), happened), EventTable.of(predicted))
    wrong = sum((event in predicted) != did for event, did in zip(said, happened, strict=True))
    assert loss.total == pytest.approx(wrong / len(said) if said else 0)
    for kind in PAIRWISE:
        missed = [e for e, did in zip(said, happened, strict=True) if did and e[1] == kind and e not in predicted]
        assert loss.missed[kind] == len(missed)
        for instead in PAIRWISE:
            times = sum(
                p[0] == e[0] and p[1] == instead and (cell in p[3] if kind == APPEAR else cell in p[2])
                for e in missed
                for cell in (e[3] if kind == APPEAR else e[2])
                for p in predicted
            )
            assert loss.confusion[kind, instead] == times


# AOGM and divisions

#  truth     1 ── 1 ─┬─ 2 ── 2        result   1 ── 1 ── 1 ── 1     (the division is missed: 3 comes of nothing)
#                    └─ 3 ── 3                            3 ── 3
TRUE = Tracks.of([[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 3, 1]])
MISSED = Tracks.of([[1, 0, 3, 0], [3, 2, 3, 0]])


def test_graph():
    graph = graph_of(TRUE)
    assert list(zip(graph.frame.tolist(), graph.track.tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
        (2, 2),
        (2, 3),
        (3, 2),
        (3, 3),
    ]
    edges = {(s, t, c) for s, t, c in zip(*(x.tolist() for x in graph[2:]), strict=True)}
    assert edges == {(0, 1, False), (2, 4, False), (3, 5, False), (1, 2, True), (1, 3, True)}


def test_aogm_by_hand():
    same = aogm(TRUE, TRUE, held(TRUE, 4))
    assert (same.total, same.score, same.vertices, same.edges) == (0.0, 1.0, 6, 5)
    found = aogm(TRUE, MISSED, held(TRUE, 4, lambda t, cell: 1 if cell == 2 else cell))
    # 1 → 3 is to be added, and 1 → 2 leads to a child
    assert (found.missing_edges, found.wrong_edges, found.false_edges, found.false_vertices) == (1, 1, 0, 0)
    assert found.total == found.avoidable == 1.5 + 1
    # nothing holds 3, and the track 3 holds nothing
    found = aogm(TRUE, MISSED, held(TRUE, 4, lambda t, cell: {1: 1, 2: 1, 3: 0}[cell]))
    assert (found.missing_vertices, found.false_vertices, found.missing_edges, found.wrong_edges) == (2, 2, 2, 1)
    # both daughters in one detection: links to it do not count
    found = aogm(TRUE, Tracks.of([[1, 0, 3, 0]]), held(TRUE, 4, lambda t, cell: 1))
    assert (found.split_vertices, found.missing_vertices, found.missing_edges, found.false_edges) == (2, 0, 4, 0)
    # a link that is not there
    two = Tracks.of([[1, 0, 0, 0], [2, 1, 1, 0]])
    found = aogm(two, Tracks.of([[1, 0, 1, 0]]), held(two, 2, lambda t, cell: 1))
    assert (found.false_edges, found.total) == (1, 1.0)


def test_nothing_found():
    nothing = aogm(TRUE, Tracks.of([]), held(TRUE, 4, lambda t, cell: 0))
    assert (nothing.missing_vertices, nothing.missing_edges, nothing.score) == (6, 5, 0.0)
    assert nothing.avoidable == 0


def test_divisions_by_hand():
    #  the result divides one frame late: 1 goes on as track 1 for one more frame, in place of 2
    late = Tracks.of([[1, 0, 2, 0], [4, 3, 3, 1], [5, 3, 3, 1], [6, 2, 2, 0]])
    names = {(2, 2): 6, (2, 3): 1, (3, 2): 4, (3, 3): 5}
    frames = held(TRUE, 4, lambda t, cell: names.get((t, cell), cell))
    assert divisions(TRUE, late, frames, 0) == Found(0, 1, 1)
    assert divisions(TRUE, late, frames, 1) == Found(1, 0, 0)
    assert divisions(TRUE, TRUE, held(TRUE, 4), 0) == Found(1, 0, 0)
    assert divisions(TRUE, MISSED, held(TRUE, 4), 1) == Found(0, 0, 1)
    assert divisions(MISSED, TRUE, held(MISSED, 4), 1) == Found(0, 1, 0)


def test_figures_of_what_was_found():
    found = Found(right=3, false=1, missed=2)
    assert (found.precision, found.recall) == (0.75, 0.6)
    assert found.f1 == pytest.approx(2 / 3)
    assert Found(0, 0, 0).f1 == Found(0, 0, 0).precision == Found(0, 0, 0).recall == 1.0
    assert Found(0, 0, 1).f1 == 0.0


@st.composite
def some_tracks(draw, n_frames=5):
    rows = []
    for id in range(1, draw(st.integers(1, 6)) + 1):
        begin = draw(st.integers(0, n_frames - 1)) if id > 1 else 0
        end = draw(st.integers(begin, n_frames - 1)) if id > 1 else n_frames - 2
        # three daughters are rare, but real
        free = [p for p, _, e, _ in rows if e < begin and sum(row[3] == p for row in rows) < 3]
        rows.append([id, begin, end, draw(st.sampled_from([0, *free, *free, *free]))])
    return Tracks.of(rows)


@given(some_tracks(), some_tracks(), st.data())
def test_aogm_and_divisions_against_py_ctcmetrics(truth, result, data):
    pytest.importorskip("ctc_metrics", reason="py-ctcmetrics is not installed")
    from ctc_metrics.metrics.biological.bc import raw_division_metrics
    from ctc_metrics.utils.representations import count_acyclic_graph_correction_operations

    present = [np.sort(result.id[(result.begin <= t) & (t <= result.end)]).tolist() for t in range(5)]

    def holder(t, cell):
        same = [cell] * 6 if cell in present[t] else []
        return data.draw(st.sampled_from([0, *present[t], *same]))

    frames = held(truth, 5, holder)
    assume(any(frame.holder.any() for frame in frames))
    reference = [frame.cell.tolist() for frame in frames]
    mapped = [[side[frame.holder > 0].tolist() for side in frame[:2]] for frame in frames]
    mapped = list(map(list, zip(*mapped, strict=True)))
    theirs = count_acyclic_graph_correction_operations(truth.table(), result.table(), reference, present, *mapped)
    ours = aogm(truth, result, frames)
    vertices = (ours.split_vertices, ours.missing_vertices, ours.false_vertices, ours.vertices)
    assert vertices == tuple(theirs[name] for name in ("NS", "FN", "FP", "num_vertices"))
    edges = (ours.false_edges, ours.missing_edges, ours.wrong_edges, ours.edges)
    assert edges == tuple(theirs[name] for name in ("ED", "EA", "EC", "num_edges"))
    for tolerance in (0, 1):
        found = divisions(truth, result, frames, tolerance)
        counted = raw_division_metrics(result.table(), truth.table(), *mapped, tolerance)
        assert (found.right, found.false, found.missed) == counted


@given(some_tracks(), some_tracks(), st.data())
def test_what_the_masks_allow_is_a_bound_that_right_links_attain(truth, result, data):
    present = [np.sort(result.id[(result.begin <= t) & (t <= result.end)]).tolist() for t in range(5)]
    found = aogm(truth, result, held(truth, 5, lambda t, cell: data.draw(st.sampled_from([0, *present[t]]))))
    assert found.avoidable >= 0
    assert found.unreachable_edges <= found.missing_edges
    # the true links on detections that miss some cells and hold others together
    alive = [truth.id[(truth.begin <= t) & (t <= truth.end)].tolist() for t in range(5)]
    lost = [data.draw(st.sets(st.sampled_from(ids))) if ids else set() for ids in alive]
    into = [data.draw(st.sampled_from([0, *(set(ids) - gone)])) for ids, gone in zip(alive, lost, strict=True)]
    best = aogm(truth, truth, held(truth, 5, lambda t, cell: into[t] if cell in lost[t] else cell))
    assert best.avoidable == 0
    assert best.total == best.unavoidable


# whole results


def images(*rows):
    """A label image of two equal rows for each row of digits; dots are background."""
    return [np.array([[int(pixel) for pixel in row.replace(".", "0")]] * 2, dtype=np.uint16) for row in rows]


# 1 divides into 4 and 5; what was detected is one in the second frame where 1 and 2 touch
MASKS = images("11.22.3", "1122..3", "4.5.223")
TABLE = Tracks.of([[1, 0, 1, 0], [2, 0, 2, 0], [3, 0, 2, 0], [4, 2, 2, 1], [5, 2, 2, 1]])
LABELS = images("88.99.1", "8888..1", "7.6.992")
EVENTS = [
    (0, MERGE, [8, 9], [8]), (0, MOVE, [1], [1]),
    (1, SPLIT, [8], [6, 9]), (1, APPEAR, [], [7]), (1, MOVE, [1], [2]),
]  # fmt: skip


@pytest.fixture
def truth(tmp_path):
    for folder in ("01_GT/TRA", "01_GT/SEG"):
        (tmp_path / folder).mkdir(parents=True)
    for t, mask in enumerate(MASKS):
        tiff.write_frame(tmp_path / f"01_GT/TRA/man_track{t:03}.tif", mask)
    tiff.write_frame(tmp_path / "01_GT/SEG/man_seg001.tif", MASKS[1])
    write_tracks(tmp_path / "01_GT/TRA/man_track.txt", TABLE)
    return tmp_path / "01_GT/TRA"


@pytest.fixture
def movie():
    return Movie.from_arrays(LABELS)


@pytest.fixture
def result():
    labels = [np.setdiff1d(frame, 0) for frame in LABELS]
    frame = np.repeat(range(3), [len(names) for names in labels])
    label = np.concatenate(labels)
    position = np.array([np.argwhere(LABELS[t] == name).mean(axis=0) for t, name in zip(frame, label, strict=True)])
    table = EventTable.of(EVENTS)
    return Lineage(3, frame, label, position, table, np.ones(len(table)), {"volume": np.full(len(frame), 4.0)})


def test_a_lineage(truth, movie, result):
    found = evaluate(result, truth, movie)
    # 8 and 9 merge, and 1 moves; of the second pair only the third cell is certain: three cells come of 8
    assert found.loss.annotated[list(PAIRWISE)].tolist() == [2, 0, 0, 0, 0, 1]
    assert found.loss.total == 0
    assert found.aogm.split_vertices == 1
    assert (found.aogm.missing_vertices, found.aogm.false_vertices) == (0, 0)
    assert found.scores is None
    assert found.divisions[0] == Found(0, 0, 1)
    with pytest.raises(InputError, match="pass `movie`"):
        evaluate(result, truth)
    with pytest.raises(InputError, match="need a result with masks"):
        evaluate(result, truth, movie, scores=True)
    with pytest.raises(InputError, match="frame 0: the lineage lacks label 5"):
        evaluate(result, truth, Movie.from_arrays([np.where(LABELS[0] == 8, 5, LABELS[0]), *LABELS[1:]]))


def test_a_folder_with_its_tables_and_without(tmp_path, truth, movie, result):
    folder = tmp_path / "result"
    write_result(folder, movie, result)
    by_tracks = evaluate(folder, truth)
    # the tracks cannot tell the merge: one of the two cells is said to disappear
    assert by_tracks.loss.missed[list(PAIRWISE)].tolist() == [0, 0, 0, 0, 0, 1]
    assert by_tracks.loss.confusion[MERGE][[*PAIRWISE, NOTHING]].tolist() == [1, 0, 0, 1, 0, 0, 0]
    assert "tracks" in by_tracks.events_from
    (folder / MANIFEST).unlink()  # a folder from elsewhere, which says nothing of its files
    write_events(folder / "events.csv", result)
    write_track_table(folder / "tracks.csv", result)
    by_events = evaluate(folder, truth)
    assert by_events.events_from == "events.csv"
    assert by_events.loss.to_dict() == evaluate(result, truth, movie).loss.to_dict()
    assert by_events.aogm == by_tracks.aogm == evaluate(result, truth, movie).aogm
    told = json.loads(json.dumps(by_events.to_dict(), allow_nan=False))
    assert told["aogm"]["total"] == by_events.aogm.total
    assert dict(by_events.rows())["merge missed"] == "0 of 1"
    # tables of another result
    (folder / "tracks.csv").write_text("frame,label,track\n0,1,1\n")
    with pytest.raises(InputError, match="different results"):
        evaluate(folder, truth)
    write_track_table(folder / "tracks.csv", result)
    (folder / "events.csv").write_text("frame,event,sources,targets\n0,move,1,77\n")
    with pytest.raises(InputError, match=r"move 1 → 77 .*does not have"):
        evaluate(folder, truth)


def test_scores(tmp_path, truth, movie, result):
    pytest.importorskip("ctc_metrics", reason="py-ctcmetrics is not installed")
    from ctc_metrics.scripts.evaluate import evaluate_sequence

    folder = tmp_path / "result"
    write_result(folder, movie, result)
    scores = ctc_scores(folder, truth)
    theirs = evaluate_sequence(str(folder), str(truth.parent), threads=1)
    assert theirs["Valid"] == 1
    for name in ("DET", "SEG", "TRA", "LNK", "CT", "TF", "CCA"):
        assert scores[name] == (None if theirs[name] is None else pytest.approx(theirs[name])), name
    assert scores["BIO"] == pytest.approx(theirs["BIO(0)"])
    assert scores["BC"] == pytest.approx(theirs["BC(0)"])
    assert evaluate(folder, truth).aogm.total == pytest.approx(theirs["AOGM"])
    assert evaluate(folder, truth).aogm.score == pytest.approx(theirs["TRA"])
    assert evaluate(folder, truth).scores == scores
    perfect = ctc_scores(truth, truth)
    assert {name for name, value in perfect.items() if value is not None and value < 1} == set()
    assert perfect["SEG"] == 1


def test_scores_without_py_ctcmetrics(truth, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctc_metrics", None)
    with pytest.raises(MissingExtra, match=r"pip install 'clew\[evaluate\]'"):
        ctc_scores(truth, truth)


def test_sliced_segmentation_in_3d(tmp_path):
    tra, seg = tmp_path / "01_GT/TRA", tmp_path / "01_GT/SEG"
    tra.mkdir(parents=True)
    seg.mkdir()
    volume = np.zeros((3, 4, 4), dtype=np.uint16)
    volume[1, 1:3, 1:3] = 1
    for t in range(2):
        tiff.write_frame(tra / f"man_track{t:03}.tif", volume)
    reference = volume[1].copy()
    reference[1, 1] = 0
    tiff.write_frame(seg / "man_seg_001_001.tif", reference)
    write_tracks(tra / "man_track.txt", Tracks.of([[1, 0, 1, 0]]))
    assert ctc_scores(tra, tra)["SEG"] == 0.75


def test_hela_against_itself(clew_data):
    """The first six frames: vertices are the labels of the masks, and nothing is to be mended."""
    folder = clew_data / "Fluo-N2DL-HeLa/01_GT/TRA"
    truth = open_truth(folder)
    few = Tracks(truth.tracks.id, truth.tracks.begin, np.minimum(truth.tracks.end, 5), truth.tracks.parent)
    few = few[few.begin <= 5]
    frames = held(few, 6)
    assert aogm(few, few, frames).total == 0
    assert len(graph_of(few).frame) == sum(len(np.unique(truth.masks[t])) - 1 for t in range(6))
