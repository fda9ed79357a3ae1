"""One edit of a label image: a set of pixels, and the label that they receive.

Merging gives the pixels of a cell to another one, cutting gives a part of them to a
new one, deleting gives them to the background, and adding gives pixels of the
background to a new cell. Edits are stored by their pixels, not by the strokes that led
to them: what a person saw stays, whatever later versions make of the same stroke.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.measurement.regions import LabelImage


class EditKind(StrEnum):
    """What a person did."""

    MERGE = "merge"
    CUT = "cut"
    DELETE = "delete"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class Edit:
    """Pixels of one frame that receive a label."""

    frame: int
    kind: EditKind
    label: int
    """Of the pixels after the edit; 0 is the background."""
    touched: tuple[int, ...]
    """Labels of all cells that the edit changes, new ones included; ascending."""
    pixels: str
    """Gaps and lengths of the runs in the flat image, deflated, in base64."""
    base: str = ""
    """A digest of the movie's own masks in this frame: the edit belongs to these."""

    @classmethod
    def of(
        cls, frame: int, kind: EditKind, labels: LabelImage, pixels: Indices, label: int
    ) -> Self:
        """Return the edit that gives pixels of a label image to a label.

        Parameters
        ----------
        frame : int
        kind : EditKind
        labels : ndarray
            The label image before the edit.
        pixels : ndarray of shape (m,)
            Places in the flat image, ascending.
        label : int
        """
        before = np.unique(labels.reshape(-1)[pixels]).tolist()
        touched = sorted({*before, label} - {0})
        return cls(frame, kind, label, tuple(touched), _encode_runs(pixels))

    def indices(self) -> Indices:
        """Return (m,) the pixels as places in the flat image, ascending."""
        return _decode_runs(self.pixels)

    def to_json(self) -> dict[str, Any]:
        """Return the content of a file."""
        return {**asdict(self), "kind": str(self.kind)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Return the edit of `to_json`; raise ValueError for anything else."""
        edit = cls(
            int(content["frame"]),
            EditKind(content["kind"]),
            int(content["label"]),
            tuple(int(label) for label in content["touched"]),
            str(content["pixels"]),
            str(content["base"]),
        )
        edit.indices()
        return edit

    def __str__(self) -> str:
        """Return words: "merge of cells 3 and 5 in frame 7"."""
        labels = " and ".join(map(str, self.touched))
        noun = "cells" if len(self.touched) > 1 else "cell"
        return f"{self.kind} of {noun} {labels} in frame {self.frame}"


def apply_edits(labels: LabelImage, edits: Iterable[Edit]) -> LabelImage:
    """Return a label image after some edits; the one given does not change."""
    edited = labels
    for edit in edits:
        pixels = edit.indices()
        if len(pixels) and pixels[-1] >= labels.size:
            raise InputError(f"{edit}: pixels outside an image of {labels.shape}")
        if edited is labels:
            edited = labels.copy()
        edited.reshape(-1)[pixels] = edit.label
    return edited


def find_free_label(labels: LabelImage, used: Iterable[int] = ()) -> int:
    """Return a label that no cell of a frame has, or had by an edit.

    Parameters
    ----------
    labels : ndarray
        The label image.
    used : iterable of int
        Labels of edits, also of those that were undone and may return.

    Returns
    -------
    label : int
        One more than the largest, or the first free one.
    """
    taken = {int(label) for label in np.unique(labels)} | set(used)
    largest = int(np.iinfo(labels.dtype).max)
    following = max(taken, default=0) + 1
    if following <= largest:
        return following
    possible = np.arange(1, min(largest, len(taken) + 1) + 1)
    free = np.setdiff1d(possible, np.fromiter(taken, np.int64))
    if not len(free):
        raise InputError(
            f"all labels up to {largest} are in use, and the masks are stored as "
            f"{labels.dtype}"
        )
    return int(free[0])


def _encode_runs(pixels: Indices) -> str:
    """Encode runs of consecutive pixels by the gap before each and its length."""
    places = np.asarray(pixels, dtype=np.int64)
    begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    length = np.diff(np.append(begins, len(places)))
    start = places[begins]
    previous_length = np.append(0, length[:-1])[: len(start)]
    gap = np.diff(start, prepend=0) - previous_length
    runs = np.column_stack([gap, length]).astype("<i8")
    return base64.b64encode(zlib.compress(runs.tobytes(), 6)).decode()


def _decode_runs(text: str) -> Indices:
    """Return the pixels of `_encode_runs`."""
    try:
        content = zlib.decompress(base64.b64decode(text, validate=True))
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the pixels of an edit cannot be read ({error})") from error
    gap, length = np.frombuffer(content, "<i8").reshape(-1, 2).T
    if (gap < 0).any() or (length <= 0).any():
        raise ValueError("the pixels of an edit are invalid runs")
    ends = np.cumsum(length)
    begins = ends - length
    start = np.cumsum(gap) + begins
    n_pixels = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(n_pixels) + np.repeat(start - begins, length))
