"""Frame pairs in tiles: the choice is that of one programme, for any size of tiles, and prices prove it."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InfeasibleAnnotation
from clew.models.highs_solver import KeptProgram
from clew.tracking.assignment import assignment
from clew.tracking.assignment.assignment import (
    assign,
    incidence,
    n_detections,
    takes_part,
    undominated,
)
from clew.tracking.assignment.tiles import TiledProgram, boxes
from clew.tracking.candidates.candidates import candidates
from clew.tracking.detections import Detections
from clew.tracking.events import Event

from ...helpers.effort import examples


def random_pair(seed, n, dims, crowded):
    """Candidates between two frames of cells that move by about their spacing, with noisy scores; places of all."""
    rng = np.random.default_rng(seed)
    side = n ** (1 / dims)
    before = rng.uniform(0, side, (n, dims))
    after = np.concatenate([before[n // 10 :], rng.uniform(0, side, (n // 8, dims))])
    after += rng.normal(0, 0.5, after.shape)
    a, b = (
        Detections(t, np.arange(1, len(p) + 1), p, {})
        for t, p in enumerate((before, after))
    )
    found = candidates(a, b, reach=2.0, neighbours=3)
    # where appearing costs much, long chains of cells depend on each other: hard for tiles
    lone = {Event.APPEAR: -crowded, Event.DISAPPEAR: -crowded, Event.MOVE: 1.0}
    scores = np.array([lone.get(Event(event), -crowded / 2) for event in found.event])
    return (
        found,
        scores + rng.normal(0, 0.7, len(found)),
        np.concatenate([before, after]),
    )


@examples(25)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 120),
    dims=st.sampled_from([2, 3]),
    size=st.integers(1, 120),
    crowded=st.sampled_from([0.5, 2.0, 6.0]),
)
def test_tiles_have_the_value_of_one_programme_and_cover_each_detection_once(
    seed, n, dims, size, crowded
):
    found, scores, position = random_pair(seed, n, dims, crowded)
    kept = np.flatnonzero(undominated(found, scores))
    A, rows = incidence(found, kept), takes_part(found, kept)
    whole, _ = TiledProgram(A, rows, scores[kept]).solve(
        [np.arange(n_detections(found))]
    )
    tiles = boxes(position, size)
    chosen, prices = TiledProgram(A, rows, scores[kept]).solve(tiles)
    assert (A @ chosen == 1).all()
    assert scores[kept] @ chosen == pytest.approx(scores[kept] @ whole, abs=1e-5)
    assert np.array_equal(
        chosen, whole
    )  # the scores are of a continuous distribution: there are no ties
    # by weak duality no choice scores more than this, and the prices prove the choice where the LP is integral
    bound = prices.sum() + np.maximum(scores[kept] - A.T @ prices, 0).sum()
    assert scores[kept] @ chosen <= bound + 1e-6


def integral(found, scores):
    """Whether the LP of all candidates has an integral answer."""
    A = incidence(found)
    one, n = np.ones(A.shape[0]), len(found)
    return np.isin(
        KeptProgram(A, one, one, np.zeros(n), np.ones(n)).maximise_relaxed(scores),
        [0, 1],
    ).all()


@examples(25)
@given(seed=st.integers(0, 10_000), dims=st.sampled_from([2, 3]))
def test_prices_hold_for_candidates_that_were_left_out_too(seed, dims):
    found, scores, position = random_pair(seed, 50, dims, 0.5)
    answer = assign(found, scores, position=position)
    if integral(found, scores):
        assert answer.reduced.max() < 1e-6
        np.testing.assert_allclose(answer.reduced[answer.chosen], 0, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [8, 25])
def test_confidences_in_tiles_are_those_of_one_programme(monkeypatch, seed, size):
    found, scores, position = random_pair(seed, 50, 2, 0.5)
    whole = assign(found, scores, position=position).confidence()
    monkeypatch.setattr(assignment, "LARGEST_PROGRAM", size)
    np.testing.assert_allclose(
        assign(found, scores, position=position).confidence(), whole, atol=1e-6
    )


@examples(15)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 60))
def test_what_is_pinned_holds_in_tiles(seed, size):
    found, scores, position = random_pair(seed, 60, 2, 2.0)
    rng = np.random.default_rng(seed)
    free = assign(found, scores)
    pinned = {int(row): 0 for row in rng.choice(free.chosen, 4)}
    other = np.setdiff1d(
        np.arange(*found.of_event(Event.MOVE).indices(len(found))), free.chosen
    )
    pinned[int(rng.choice(other))] = 1
    whole = tiled = None
    with suppress(InfeasibleAnnotation):
        whole = assign(found, scores, pinned, position)
    with pytest.MonkeyPatch.context() as patch, suppress(InfeasibleAnnotation):
        patch.setattr(assignment, "LARGEST_PROGRAM", size)
        tiled = assign(found, scores, pinned, position)
    assert (whole is None) == (tiled is None)
    if whole is not None and tiled is not None:
        assert np.array_equal(tiled.chosen, whole.chosen)


@given(
    n=st.integers(0, 200),
    size=st.integers(1, 60),
    dims=st.sampled_from([2, 3]),
    seed=st.integers(0, 100),
)
def test_boxes_have_each_row_once_and_are_no_larger_than_asked(n, size, dims, seed):
    position = np.random.default_rng(seed).normal(size=(n, dims))
    found = boxes(position, size)
    assert max(map(len, found)) <= size
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(n))
    assert len(found) == 1 or n > size


def test_cells_in_one_place_are_cut_too():
    assert sorted(map(len, boxes(np.zeros((10, 2)), 3))) == [2, 2, 3, 3]
