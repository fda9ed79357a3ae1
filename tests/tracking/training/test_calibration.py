"""From margins to probabilities, and how many events are expected to be wrong."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.build import build_lineage
from clew.tracking.solve import PairSolution, mark_torn_events
from clew.tracking.tracker import Tracker
from clew.tracking.training.calibration import (
    INTERVAL,
    SMALL_MARGIN,
    Calibration,
    MovieMargins,
    expected_wrong,
)

from ...helpers.tracking import solve_one

ROOT = Path(__file__).parents[3]
KINDS = np.array([int(event) for event in Event], dtype=np.int8)


@given(st.floats(0, 5), st.floats(0, 5), st.floats(0.1, 100))
def test_a_larger_margin_is_no_less_likely_right_whatever_the_unit(first, second, unit):
    calibration = Calibration.generic()
    low, high = sorted([first, second])
    less, more = (
        calibration.probability(KINDS, np.full(len(Event), unit * margin), unit)
        for margin in (low, high)
    )
    assert ((less >= 0) & (less <= more) & (more <= 1)).all()
    np.testing.assert_allclose(
        less, calibration.probability(KINDS, np.full(len(Event), low), 1.0), rtol=1e-9
    )


def test_what_cannot_be_otherwise_is_certain():
    assert (
        Calibration.generic().probability(KINDS, np.full(len(Event), np.inf), 1.0) == 1
    ).all()


def moves(margins):
    return MovieMargins.of(
        np.full(len(margins), Event.MOVE, dtype=np.int8),
        np.asarray(margins, dtype=float),
        1.0,
    )


def odds(calibration, event, margin=0.2, **near):
    p = calibration.probability(
        np.array([event], dtype=np.int8), np.array([margin]), 1.0, **near
    )[0]
    return p / (1 - p)


@given(
    st.lists(st.tuples(st.sampled_from(list(Event)), st.floats(0, 1)), max_size=30),
    st.integers(0, 30),
)
def test_the_parts_of_a_movie_add_up_to_the_whole(events, at):
    kind, margin = (
        np.array([int(e) for e, _ in events], dtype=np.int8),
        np.array([m for _, m in events]),
    )
    parts = [
        MovieMargins.of(kind[rows], margin[rows], 1.0)
        for rows in (slice(at, None), slice(at))
    ]
    whole, joined = MovieMargins.of(kind, margin, 1.0), MovieMargins.sum(parts)
    np.testing.assert_array_equal(whole.kinds, joined.kinds)
    np.testing.assert_array_equal(whole.small, joined.small)
    assert whole.small.sum() == sum(
        e is Event.MOVE and m < SMALL_MARGIN for e, m in events
    )


def test_margins_near_zero_tell_how_sure_margins_are():
    """Signed margins with the density exp(α s): the rank of those that are right or wrong alike gives α back."""
    rng = np.random.default_rng(0)
    generic, slopes = Calibration.generic(), []
    for alpha in (0.0, 1.0, 2.0, 4.0):
        signed = (
            np.log(
                rng.uniform(
                    *np.exp(alpha * np.array([-SMALL_MARGIN, SMALL_MARGIN])), 200_000
                )
            )
            / alpha
            if alpha
            else (rng.uniform(-SMALL_MARGIN, SMALL_MARGIN, 200_000))
        )
        seen = moves(np.abs(signed))
        # of |s| the density is cosh(α s)
        grid = (np.arange(2000) + 0.5) / 2000
        density = np.cosh(alpha * SMALL_MARGIN * grid)
        assert seen.mean_rank() == pytest.approx(
            grid @ density / density.sum(), abs=0.004
        )
        slopes.append(generic.of_movie(seen).slope)
    assert slopes == sorted(slopes)
    assert slopes[0] < slopes[-1]


def test_a_movie_without_doubtful_moves_is_a_usual_one():
    assert moves([]).mean_rank() == moves([0.9, np.inf]).mean_rank()
    usual = Calibration.generic().of_movie(moves([]))
    few, many = (Calibration.generic().of_movie(moves([0.001] * n)) for n in (1, 1000))
    assert usual.slope > few.slope > many.slope >= 0


def test_the_odds_of_a_division_follow_its_share():
    counts = [100, 5, 0, 0, 3, 7, 2, 0, 0]
    seen = [
        MovieMargins.of(np.repeat(KINDS, [n, *rest]), np.ones(n + sum(rest)), 1.0)
        for n, *rest in (
            counts,
            [100 - 6, 5 + 6, *counts[2:]],
            [100 - 11, 5, 0, 0, 3 + 11, 7, 2, 0, 0],
        )
    ]
    rare, common, faulty = (Calibration.generic().of_movie(each) for each in seen)
    assert odds(common, Event.DIVIDE) == pytest.approx(
        2 * odds(rare, Event.DIVIDE)
    )  # 5 + 1 of them, and 11 + 1
    for event in (Event.SPLIT, Event.MERGE):  # 10 + 1 together, and 21 + 1
        assert odds(faulty, event) == pytest.approx(2 * odds(rare, event))
    for event in (Event.MOVE, Event.APPEAR, Event.DISAPPEAR, Event.GAP):
        assert odds(common, event) == odds(faulty, event) == odds(rare, event)


def test_what_a_movie_tells_counts_once():
    seen = moves([0.05, 0.3, 0.35])
    once = Calibration.generic().of_movie(seen)
    twice = once.of_movie(moves([0.01] * 50))
    assert twice.slope == once.slope
    np.testing.assert_array_equal(twice.intercept, once.intercept)
    assert twice.border == once.border


def test_cells_appear_and_disappear_at_the_border_and_torn_masks_are_mistakes():
    generic = Calibration.generic()
    for event in set(Event) - {Event.MOVE}:
        ratio = odds(generic, event, context=np.ones(1)) / odds(
            generic, event, context=np.zeros(1)
        )
        counts = {
            Event.APPEAR: generic.border,
            Event.DISAPPEAR: generic.border,
            Event.FALSE_BEGIN: generic.border,
            Event.FALSE_END: generic.border,
            Event.GAP: 0,
        }
        assert ratio == pytest.approx(np.exp(counts.get(event, generic.torn)))
    assert generic.border > 0 > generic.torn


def test_a_move_that_might_be_a_swap_is_as_sure_as_margin_or_clearness():
    generic = Calibration.generic()
    assert generic.clearness > 0

    def odds_of(margin, clearness):
        return odds(generic, Event.MOVE, margin, context=np.array([clearness]))

    alone = odds_of(0.01, 0.0)
    assert odds_of(0.01, 1e-3) == pytest.approx(alone, rel=0.2)
    clear = odds_of(0.01, 2.0)
    assert clear == pytest.approx(np.exp(generic.swap + 2 * generic.clearness))
    assert clear > 10 * alone
    assert odds_of(1.0, 1e-3) == odds_of(1.0, 0.0)
    older = replace(generic, clearness=0.0)
    context = np.array([2.0])
    assert odds(older, Event.MOVE, 0.01, context=context) == pytest.approx(alone)


def test_the_pairs_around_tell_of_torn_masks():
    """One cell in two pieces for one frame, among cells that move: such events are doubted and not counted."""
    torn = [
        [(Event.DIVIDE, [1], [2, 3])],
        [(Event.MERGE, [2, 3], [1])],
        [(Event.MOVE, [1], [1])],
    ]
    pairs = [
        PairSolution(
            t,
            EventTable.of([(t, *one) for one in [*here, (Event.MOVE, [9], [9])]]),
            np.array([0.3, 0.3]),
        )
        for t, here in enumerate(torn)
    ]
    assert [one.is_torn.tolist() for one in mark_torn_events(pairs[::-1])] == [
        [False] * 2,
        [True, False],
        [True, False],
    ]
    assert mark_torn_events([]) == []
    seen = MovieMargins.sum(one.margins() for one in mark_torn_events(pairs))
    assert seen.kinds.tolist() == [4, *[0] * 8]
    calibration = Calibration.generic().of_movie(seen)
    for alone, around in zip(pairs[:2], mark_torn_events(pairs)[:2], strict=True):
        (less, same), (more, again) = (
            around.probability(calibration),
            alone.probability(calibration),
        )
        assert less < more
        assert same == again
    cells = {t: [1, 9] for t in range(4)} | {1: [2, 3, 9]}
    frame = np.repeat(list(cells), [len(labels) for labels in cells.values()])
    label = np.concatenate(list(cells.values()))
    source = DetectionTable(frame, label, np.zeros((len(frame), 2)))
    lineage = build_lineage(source, pairs)
    by_event = dict(zip(lineage.events, lineage.probability, strict=True))
    for pair in mark_torn_events(pairs):
        for event, value in zip(
            pair.events, pair.probability(calibration), strict=True
        ):
            same = by_event[event] == pytest.approx(value, rel=1e-6)  # single precision
            assert same or event[1] is Event.DIVIDE


def test_events_know_how_near_the_border_their_cell_is(simulated):
    tracker = Tracker.generic(cache=None, n_jobs=1)
    source = tracker.measure(simulated.movie)
    pairs = tracker.pairs(source, tracker.groups_for(source))
    ends = 0
    for frame in range(len(pairs)):
        solved = solve_one(pairs, tracker.coef_, frame)
        for (_, event, sources, targets), near in zip(
            solved.events, solved.context, strict=True
        ):
            if event not in (Event.APPEAR, Event.DISAPPEAR):
                assert near == 0 or (near > 0 and event is Event.MOVE)
                continue
            cells = source.detections(frame + (event is Event.APPEAR))
            at = np.flatnonzero(cells.label == (*sources, *targets)[0])[0]
            away = cells.columns["border_distance"][at] / pairs.profile.scales.diameter
            assert near == pytest.approx(np.exp(-away))
            ends += 1
    assert ends


def test_the_expected_number_is_the_sum_of_the_doubts():
    found = expected_wrong(np.array([0.5, 0.9, 1.0]), spread=0.0)
    assert found.number == pytest.approx(0.6)
    assert found.n_events == 3
    sd = np.sqrt(0.25 + 0.09)
    assert found.low == 0.0
    z = NormalDist().inv_cdf((1 + INTERVAL) / 2)
    assert found.high == pytest.approx(0.6 + z * sd)
    many = expected_wrong(np.full(20000, 0.5), spread=0.0)
    low, high = (10_000 + sign * z * np.sqrt(5000) for sign in (-1, 1))
    assert str(many) == (
        f"about 10,000 of 20,000 events are wrong ({100 * INTERVAL:.0f} % interval "
        f"{low:,.0f} to {high:,.0f})"
    )
    wider = expected_wrong(np.full(100, 0.9), spread=0.5)
    narrow = expected_wrong(np.full(100, 0.9), spread=0.0)
    assert wider.low < narrow.low < 10 < narrow.high < wider.high
    assert str(narrow).startswith("about 10 of 100 events are wrong (")


@pytest.mark.parametrize(
    "path",
    [
        "src/clew/app/static/index.html",
        "src/clew/app/static/panels.js",
        "docs/annotate.md",
        "docs/first-movie.md",
        "docs/how-tracking-works.md",
    ],
)
def test_the_page_and_the_guides_name_the_interval(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    said = set(re.findall(r"(\d+) % interval", text))
    assert said == {f"{100 * INTERVAL:.0f}"}


def test_without_events_nothing_is_wrong():
    assert expected_wrong(np.zeros(0)).number == 0.0


def test_generic_tracking_of_a_movie_that_nobody_learned_from(simulated):
    lineage = Tracker.generic(cache=None, n_jobs=1).track(simulated.movie)
    assert lineage.probability.shape == lineage.confidence.shape
    loss = compute_task_loss(simulated.known, lineage.without_recovered())
    told = expected_wrong(lineage.probability)
    assert told.low <= loss.missed.sum() <= told.high
