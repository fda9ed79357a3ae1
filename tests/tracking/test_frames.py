"""Frames of arrays, and views of some of them."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.frames import (
    ArrayFrames,
    Excerpt,
    FrameWindow,
    select_frames,
    take_window,
)
from clew.tracking.movie import Movie

STACK = np.arange(5 * 2 * 3, dtype=np.uint16).reshape(5, 2, 3)


def test_frames_of_a_list_are_alike():
    with pytest.raises(InputError, match="frame 1 of labels has shape"):
        Movie.from_arrays([np.zeros((3, 3), int), np.zeros((3, 4), int)])
    with pytest.raises(InputError, match="frame 1 of images has shape"):
        Movie.from_arrays(
            np.zeros((2, 3, 3), int), [np.zeros((3, 3)), np.zeros((3, 3), int)]
        )
    assert Movie.from_arrays([np.zeros((3, 3), int)] * 2).n_frames == 2


def test_some_of_the_frames_count_from_0_and_know_their_number():
    part = select_frames(ArrayFrames.from_data(STACK, "labels"), range(2, 4), "labels")
    assert (len(part), part.shape, part.dtype, part.first) == (
        2,
        (2, 3),
        np.dtype(np.uint16),
        2,
    )
    np.testing.assert_array_equal(part[1], STACK[3])
    assert Excerpt(part, range(1, 2)).first == 3
    for which in (range(3, 6), range(2, 2)):
        with pytest.raises(InputError, match="labels has the frames 0 to 4"):
            select_frames(ArrayFrames.from_data(STACK, "labels"), which, "labels")


@pytest.mark.parametrize(
    "data", [STACK, list(STACK), tuple(STACK)], ids=["array", "list", "tuple"]
)
def test_a_window_keeps_the_numbers_of_its_frames_and_holds_no_others(data):
    part = take_window(ArrayFrames.from_data(data, "labels"), 1, 3)
    assert isinstance(part, FrameWindow)
    assert (len(part), len(part.frames)) == (5, 3)
    for t in (1, 2, 3):
        np.testing.assert_array_equal(part[t], STACK[t])
    for t in (0, 4, -1):
        with pytest.raises(IndexError, match=f"frame {t} is not in this window"):
            part[t]


def test_frames_that_are_not_in_memory_have_no_window():
    view = Excerpt(ArrayFrames.from_data(STACK, "labels"), range(4))
    assert take_window(view, 1, 2) is view
