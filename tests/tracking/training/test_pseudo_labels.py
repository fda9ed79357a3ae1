"""Pseudo-labels: what the prior is almost certain about is learned from, and never judged by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.annotation.sampling import sample
from clew.errors import InfeasibleAnnotation, InputError
from clew.estimators import svm as estimator
from clew.estimators.svm import StructuredSVM
from clew.learning.task import Subset
from clew.tracking.assignment.assignment import assign
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Event
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.profile import estimate_profile
from clew.tracking.tracker import Tracker
from clew.tracking.training.calibration import GENERIC_CALIBRATION
from clew.tracking.training.examples import MODEL, build_examples
from clew.tracking.training.prior import prior_calibration
from clew.tracking.training.pseudo_labels import (
    PROBABILITY,
    PseudoLabeledProgram,
    PseudoLabels,
    add_pseudo_labels,
    fill_pseudo_labels,
)


@pytest.fixture(scope="module")
def labelled(simulated, training_pairs):
    """Examples of a movie with their pseudo-labels, and those."""
    pairs, prior = training_pairs
    pseudo = PseudoLabels.of(pairs, prior, GENERIC_CALIBRATION)
    return build_examples(pairs, simulated.some, prior, pseudo), pseudo


def test_most_events_of_an_easy_movie_are_almost_certain_and_doubtful_ones_are_not(
    labelled,
):
    examples, pseudo = labelled
    for one in examples:
        answer = assign(one.pair.candidates, one.pair.scores(pseudo.w))
        unit = float(np.linalg.norm(pseudo.w))
        sure = np.isin(answer.chosen, one.program.certain)
        assert np.isin(one.program.certain, answer.chosen).all()
        p = pseudo.calibration.probability(answer.events, answer.confidence(), unit)
        lone = np.isin(
            answer.events, (Event.APPEAR, Event.DISAPPEAR)
        )  # the border counts for these
        np.testing.assert_array_equal(sure[~lone], p[~lone] >= PROBABILITY)
    assert (
        np.mean([len(one.program.certain) / len(one.pair.a) for one in examples]) > 0.5
    )


def test_annotations_stay_and_no_pseudo_label_is_about_their_cells(labelled):
    examples, _ = labelled
    for one, labels in zip(
        examples, add_pseudo_labels(*_inputs(examples)), strict=True
    ):
        assert one.annotated.items() <= labels.items()
        cells = one.pair.candidates.detections_of()
        about = [
            cells[row][cells[row] >= 0] for row, happened in labels.items() if happened
        ]
        together = np.concatenate(about)
        assert len(together) == len(np.unique(together))
        assert set(labels) - set(one.annotated) <= set(one.program.certain.tolist())


def test_cells_that_lost_their_pseudo_label_and_may_not_end_find_something_else(
    labelled,
):
    """A move that crosses sure ones frees their other cells; told not to end, these need a partner that is free too."""
    checked = 0
    for one in labelled[0]:
        table, cells = one.pair.candidates, one.pair.candidates.detections_of()
        ends = {
            int(cells[row].max()): int(row)
            for row in np.flatnonzero((cells >= 0).sum(axis=1) == 1)
        }
        for row in np.setdiff1d(
            np.flatnonzero(table.event == Event.MOVE), one.program.certain
        ):
            crossed = [
                c
                for c in cells[one.program.certain]
                if np.isin(c[c >= 0], cells[row]).any()
            ]
            freed = {int(cell) for c in crossed for cell in c[c >= 0]} - set(
                cells[row].tolist()
            )
            told = {int(row): 1} | {ends[cell]: 0 for cell in freed}
            try:
                assign(table, np.zeros(len(table)), told)
            except InfeasibleAnnotation:
                continue
            assign(
                table,
                np.zeros(len(table)),
                fill_pseudo_labels(one.program, one.program.certain, told),
            )
            checked += bool(freed)
    assert checked > 10


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_there_is_always_an_output_that_agrees_with_what_is_told_and_the_pseudo_labels(
    labelled, data
):
    """Whatever of the best choice did happen or did not, and of the other candidates."""
    examples, _ = labelled
    one = data.draw(st.sampled_from(examples))
    rows = data.draw(
        st.lists(st.integers(0, len(one.pair.candidates) - 1), max_size=4, unique=True)
    )
    told = {row: data.draw(st.integers(0, 1)) for row in rows}
    scores = np.zeros(len(one.pair.candidates))
    try:
        assign(one.pair.candidates, scores, told)
    except InfeasibleAnnotation:
        return  # it contradicts itself
    assign(
        one.pair.candidates,
        scores,
        fill_pseudo_labels(one.program, one.program.certain, told),
    )


def test_what_was_almost_certain_and_did_not_happen_leaves_its_cells_and_their_rivals_open(
    labelled,
):
    examples, _ = labelled
    one = examples[0]
    cells = one.pair.candidates.detections_of()
    denied = next(
        int(row) for row in one.program.certain if (cells[row] >= 0).sum() > 1
    )
    labels = fill_pseudo_labels(one.program, one.program.certain, {denied: 0})
    mine = cells[denied][cells[denied] >= 0]
    rivals = np.flatnonzero(np.isin(cells, mine).any(axis=1))
    near = np.setdiff1d(cells[rivals], [-1])
    assert labels.pop(denied) == 0
    assert not np.isin(cells[list(labels)], near).any()
    far = [
        row
        for row in one.program.certain.tolist()
        if not np.isin(cells[row], near).any()
    ]
    assert sorted(labels) == sorted(far)


def test_weights_are_judged_by_annotations_alone(simulated, monkeypatch):
    """However many pseudo-labels there are, each annotation is held out once, and nothing else is."""
    seen = {"given": 0, "train": 0, "test": 0}
    folds = estimator.make_folds

    def looked_at(data, *args):
        made = folds(data, *args)
        seen["given"] = sum(map(len, data.Y))
        for fold in made:
            for name in ("train", "test"):
                seen[name] += sum(one.n_parts for one in _examples(getattr(fold, name)))
        return made

    monkeypatch.setattr(estimator, "make_folds", looked_at)
    tracker = Tracker(cache=None, n_jobs=1).fit(simulated.movie, simulated.some)
    assert (
        seen["test"] == seen["given"] < 1.1 * len(simulated.some)
    )  # a gap has two ends
    assert seen["train"] > 2 * (tracker.svm_.folds - 1) * len(simulated.some)


def test_what_adds_pseudo_labels_must_be_callable(labelled):
    with pytest.raises(InputError, match="pseudo_labels"):
        StructuredSVM(MODEL, lam=1.0).fit(*_inputs(labelled[0]), pseudo_labels=3)


def test_the_prior_tells_how_sure_it_is(simulated):
    first = Tracker(lam=1.0, cache=None, n_jobs=1).fit(simulated.movie, simulated.some)
    assert prior_calibration(first) is first.calibration_
    assert prior_calibration("generic") is GENERIC_CALIBRATION
    again = Tracker(lam=1.0, prior=first, cache=None, n_jobs=1).fit(
        simulated.movie, simulated.some
    )
    assert again.n_annotated_ == len(simulated.some)


def test_without_a_prior_there_are_none(simulated):
    tracker = Tracker(prior=None, lam=1.0, cache=None, n_jobs=1)
    source = tracker.measure(simulated.movie)
    pairs = FramePairBuilder(source, estimate_profile(source, source.has))
    assert not any(
        isinstance(one.program, PseudoLabeledProgram)
        for one in build_examples(pairs, simulated.some)
    )
    tracker.fit(simulated.movie, simulated.some)


def test_few_annotations_with_odd_ones_among_them_do_no_harm(clew_data):
    """Of HeLa, drawn by kinds of events.

    Without pseudo-labels, 62 more of 8,434 events were missed after these than by generic weights.
    """
    movie = open_movie(clew_data / "Fluo-N2DL-HeLa/01")
    source = measure_movie(movie, cache=None, n_jobs=1)
    known = derive_annotations(
        open_ctc_lineage(clew_data / "Fluo-N2DL-HeLa/01_GT/TRA"), movie
    )
    few = sample(known, rng=np.random.default_rng([4, 5]), number=25)

    def missed(tracker):
        return (
            ~np.isin(known.events.row_keys(), tracker.track(source).events.row_keys())
        ).sum()

    learned = Tracker(n_jobs=1, random_state=4).fit(source, few)
    assert missed(learned) <= missed(Tracker.generic(n_jobs=1)) + 10


def _inputs(examples):
    return [one.program for one in examples], [one.annotated for one in examples]


def _examples(task):
    """Those of a task, or of a part of one."""
    return (
        [task.task.examples[n] for n in task.examples]
        if isinstance(task, Subset)
        else task.examples
    )
