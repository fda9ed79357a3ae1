"""One edit of a label image: some of its pixels are another cell's from now on, or nobody's.

Merging gives a cell's pixels to another one, cutting a part of them to a new one, deleting gives them to the
background, adding gives pixels of the background to a new cell. So an edit is always a set of pixels and one label, and
applying it is a pure function of a label image. Edits are kept by their pixels and not by the strokes that led to
them: what a person saw stays as it was, whatever later versions would make of the same stroke.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

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
    """Pixels of one frame that are given to a label."""

    frame: int
    kind: EditKind
    label: int
    """That the pixels have afterwards; 0 is the background."""
    touched: tuple[int, ...]
    """Labels of the cells that are other ones afterwards, with new ones and without the background; ascending."""
    pixels: str
    """Which ones: gaps and lengths of the runs along the flat image, deflated, in base64. See `indices`."""

    base: str = ""
    """A digest of the frame as the movie's own masks have it: an edit of other masks is not applied to these."""

    @classmethod
    def of(
        cls, frame: int, kind: EditKind, labels: LabelImage, pixels: Indices, label: int
    ) -> Self:
        """Give `pixels`, flat and ascending, of a label image to a label."""
        touched = {int(found) for found in np.unique(labels.reshape(-1)[pixels])} | {
            label
        }
        return cls(frame, kind, label, tuple(sorted(touched - {0})), _pack(pixels))

    def indices(self) -> Indices:
        """(m,) the pixels, as places in the flat image, ascending."""
        return _unpack(self.pixels)

    def to_json(self) -> dict[str, Any]:
        """Plain content, for a file."""
        return {
            "frame": self.frame,
            "kind": str(self.kind),
            "label": self.label,
            "touched": self.touched,
            "pixels": self.pixels,
            "base": self.base,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """What `to_json` gave; anything else raises a ValueError."""
        label, touched = (
            int(content["label"]),
            tuple(int(one) for one in content["touched"]),
        )
        kind, pixels, base = (
            EditKind(content["kind"]),
            str(content["pixels"]),
            str(content["base"]),
        )
        edit = cls(int(content["frame"]), kind, label, touched, pixels, base)
        edit.indices()
        return edit

    def __str__(self) -> str:
        cells = " and ".join(map(str, self.touched))
        return f"{self.kind} of cell{'s' if len(self.touched) > 1 else ''} {cells} in frame {self.frame}"


def apply(labels: LabelImage, edits: Iterable[Edit]) -> LabelImage:
    """A label image after some edits, one after the other; the one given stays as it is."""
    edited: NDArray[np.integer[Any]] | None = None
    for edit in edits:
        at = edit.indices()
        if len(at) and at[-1] >= labels.size:
            raise InputError(
                f"{edit}: its pixels lie beyond an image of {labels.shape}"
            )
        edited = labels.copy() if edited is None else edited
        edited.reshape(-1)[at] = edit.label
    return labels if edited is None else edited


def free_label(labels: LabelImage, used: Iterable[int] = ()) -> int:
    """A label that no cell of a frame has, nor ever had by an edit: the next one, or the first free one.

    `used` are those of edits, among them edits that were undone and may come back.
    """
    taken = {int(label) for label in np.unique(labels)} | set(used)
    largest = int(np.iinfo(labels.dtype).max)
    following = max(taken, default=0) + 1
    if following <= largest:
        return following
    free = np.setdiff1d(
        np.arange(1, min(largest, len(taken) + 1) + 1), np.fromiter(taken, np.int64)
    )
    if not len(free):
        raise InputError(
            f"all labels up to {largest} are in use, and the masks are stored as {labels.dtype}"
        )
    return int(free[0])


def _pack(pixels: Indices) -> str:
    """Runs of consecutive places, by the gap before each and its length."""
    at = np.asarray(pixels, dtype=np.int64)
    begins = np.flatnonzero(np.diff(at, prepend=-2) != 1)
    length = np.diff(np.append(begins, len(at)))
    start = at[begins]
    gap = np.diff(start, prepend=0) - np.append(0, length[:-1])[: len(start)]
    runs = np.column_stack([gap, length]).astype("<i8")
    return base64.b64encode(zlib.compress(runs.tobytes(), 6)).decode()


def _unpack(text: str) -> Indices:
    """The places of `_pack`."""
    try:
        runs = np.frombuffer(
            zlib.decompress(base64.b64decode(text, validate=True)), "<i8"
        ).reshape(-1, 2)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the pixels of an edit cannot be read ({error})") from error
    gap, length = runs.T
    if (gap < 0).any() or (length <= 0).any():
        raise ValueError("the runs of an edit are no runs")
    start = np.cumsum(gap) + np.append(0, np.cumsum(length)[:-1])[: len(gap)]
    ends = np.cumsum(length)
    return np.asarray(
        np.arange(ends[-1] if len(ends) else 0)
        + np.repeat(start - (ends - length), length)
    )
