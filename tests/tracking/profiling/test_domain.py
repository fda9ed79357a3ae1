"""What weights know: movies like those learned from are familiar, and other masks are not."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage.morphology import disk

from clew import load
from clew.errors import DataWarning, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.movie import Movie
from clew.tracking.profiling.domain import ECCENTRICITY, ENOUGH, LEVELS, SIZE, Domain
from clew.tracking.tracker import Tracker


def markers(movie, radius=2):
    """The same cells as small discs at their centres."""
    shape = disk(radius)
    frames = []
    for t in range(movie.n_frames):
        mask, small = movie.label(t), np.zeros(movie.shape, dtype=np.uint16)
        for label in np.setdiff1d(mask, [0]):
            y, x = (round(float(c.mean())) for c in np.nonzero(mask == label))
            y, x = np.clip([y, x], radius, np.array(movie.shape) - radius - 1)
            small[y - radius : y + radius + 1, x - radius : x + radius + 1][
                shape > 0
            ] = label
        frames.append(small)
    return Movie.from_arrays(
        np.stack(frames),
        np.stack([movie.image(t) for t in range(movie.n_frames)]),
        name="discs",
    )


def test_markers_in_place_of_whole_cells_are_told(simulated, learned):
    discs = markers(simulated.movie[:6])
    with pytest.warns(
        DataWarning,
        match=f"discs do not look like .*{SIZE}.*markers in place of whole cells",
    ):
        learned.track(discs)
    assert ECCENTRICITY in learned.unfamiliar_


def test_the_movie_itself_is_familiar(simulated, learned):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        learned.track(simulated.movie)
        Tracker.generic(cache=None, n_jobs=1).track(simulated.movie)
    assert learned.unfamiliar_ == ""


def test_cells_that_hardly_change_are_no_reason_to_warn(simulated):
    movie = simulated.movie
    often = [t // 3 for t in range(12)]  # as if taken three times as often
    same = Movie.from_arrays(
        np.stack([movie.label(t) for t in often]),
        np.stack([movie.image(t) for t in often]),
    )
    tracker = Tracker.generic(cache=None, n_jobs=1)
    tracker.track(same)
    assert tracker.unfamiliar_ == ""


def test_a_table_of_positions_is_judged_by_what_it_has(simulated, learned):
    lineage = learned.track(simulated.movie)
    table = DetectionTable(lineage.frame, lineage.label, lineage.position)
    tracker = Tracker.generic(n_jobs=1)
    tracker.track(table)
    assert SIZE not in tracker.unfamiliar_


@given(
    st.lists(st.floats(-10, 10), min_size=ENOUGH, max_size=60),
    st.lists(st.floats(-10, 10), min_size=ENOUGH, max_size=60),
)
def test_no_movie_that_was_learned_from_is_outside(one, other):
    looks = [{SIZE: np.array(one)}, {SIZE: np.array(other)}]
    domain = Domain.of(looks)
    assert list(domain.quantiles[SIZE]) == sorted(domain.quantiles[SIZE])
    for look in looks:
        assert not domain.unfamiliar(look)


def test_movies_count_alike_and_few_cells_tell_nothing():
    many, few = {SIZE: np.zeros(10_000)}, {SIZE: np.ones(ENOUGH)}
    domain = Domain.of([many, few])
    assert domain.quantiles[SIZE][0] == 0
    assert domain.quantiles[SIZE][-1] == 1
    assert not Domain.of([many]).unfamiliar({SIZE: np.ones(ENOUGH - 1)})
    assert Domain.of([many]).unfamiliar({SIZE: np.ones(ENOUGH)})
    assert not Domain.of([]).warning(few, "any")


def test_what_is_known_is_kept_in_a_file(learned, tmp_path):
    learned.save(tmp_path / "w.clew")
    again = load(tmp_path / "w.clew")
    assert {SIZE, ECCENTRICITY, "distance"} <= set(again.domain_.quantiles)
    for name, values in learned.domain_.quantiles.items():
        assert list(again.domain_.quantiles[name]) == pytest.approx(list(values))


@pytest.mark.parametrize(
    "values", [[1.0], [2.0, 1.0, 3.0, 4.0, 5.0], [1.0] * (len(LEVELS) + 1)]
)
def test_a_file_with_other_quantiles_is_refused(learned, tmp_path, values, monkeypatch):
    monkeypatch.setattr(learned, "domain_", Domain({SIZE: values}))
    learned.save(tmp_path / "w.clew")
    with pytest.raises(InputError, match="ascending"):
        load(tmp_path / "w.clew")
