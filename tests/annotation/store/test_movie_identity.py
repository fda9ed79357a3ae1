"""Which movie a store belongs to, and that another one is noticed."""

import json

import numpy as np
import pytest

from clew.annotation.store.movie_identity import N_HASHED_FRAMES, MovieIdentity
from clew.annotation.store.store import Store
from clew.errors import StoreError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event
from clew.tracking.movie import Movie


def movie(**changes) -> Movie:
    labels = np.zeros((12, 8, 8), np.uint16)
    labels[:, 2:5, 2:5] = 1
    return Movie.from_arrays(**({"labels": labels, "name": "cells"} | changes))


def test_the_identity_is_that_of_the_masks():
    whole = MovieIdentity.of(movie())
    assert (whole.name, whole.n_frames, whole.ndim, whole.shape) == (
        "cells",
        12,
        2,
        (8, 8),
    )
    assert MovieIdentity.of(movie()) == whole
    assert (
        MovieIdentity.of(movie(labels=np.asarray(movie().labels.data, np.int64)))
        == whole
    )
    assert MovieIdentity.of(movie(spacing=(2, 2), images=np.ones((12, 8, 8)))) == whole
    assert MovieIdentity.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    for t in (0, 11):  # the first and the last are among those looked at
        changed = movie().labels.data.copy()
        changed[t, 0, 0] = 1
        assert MovieIdentity.of(movie(labels=changed)) != whole


def test_the_identity_reads_few_frames():
    class Counting(np.ndarray):
        read = 0

        def __getitem__(self, t):
            Counting.read += 1
            return np.zeros((4, 4), np.uint8)

    MovieIdentity.of(movie(labels=np.zeros((500, 4, 4), np.uint8).view(Counting)))
    assert Counting.read == N_HASHED_FRAMES


def test_a_measured_movie_and_a_table_have_identities():
    class Measured:
        movie = movie()

    assert MovieIdentity.of(Measured()) == MovieIdentity.of(movie())
    tables = [
        DetectionTable([0, 1, 2], [1, 1, label], np.ones((3, 2)), name="t")
        for label in (1, 1, 2)
    ]
    same, again, other = map(MovieIdentity.of, tables)
    assert same == again != other
    assert (same.shape, same.n_frames, same.ndim) == ((), 3, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.ones((11, 8, 8), int)}, "it has 12 frames, this one 11"),
        (
            {"labels": np.ones((12, 8, 9), int)},
            "its frames are 8 × 8, those of this one 8 × 9",
        ),
        ({"labels": np.ones((12, 8, 8), int)}, "other cells are in its masks"),
    ],
)
def test_the_store_of_another_movie_is_refused_with_the_difference(
    tmp_path, changes, message
):
    path = tmp_path / "store"
    with Store.open(path, movie=MovieIdentity.of(movie())) as store:
        store.answer(1, Event.MOVE, [1], [1], key="a")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=f"another movie, cells, not to other: .*{message}"
    ):
        Store.open(path, movie=MovieIdentity.of(movie(name="other", **changes)))
    assert path.read_bytes() == before
    with Store.open(path, movie=MovieIdentity.of(movie(name="renamed"))) as store:
        assert len(store) == 1
