"""Named blocks of a model's weights: which weight belongs to which label and input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from clew.errors import InputError
from clew.learning.task import Array, Indices
from clew.utils.validation import check_list


@dataclass(frozen=True)
class Block:
    """An array of places in w, with a name for each index of each axis."""

    name: str
    axes: tuple[tuple[str, ...], ...]
    places: Indices

    def values(self, w: Array) -> Array:
        """Return the weights of the block, in its shape."""
        return np.asarray(w)[self.places]

    def feature_names(self) -> list[str]:
        """Return a name for each entry, row by row: "transition[a, b]"."""
        return [f"{self.name}[{', '.join(labels)}]" for labels in product(*self.axes)]


def make_blocks(
    *parts: tuple[str, Sequence[Sequence[str]]], begin: int = 0
) -> list[Block]:
    """Return blocks that follow each other in w.

    Parameters
    ----------
    *parts : (str, sequence of sequences of str)
        Name of the block, and the names of each axis.
    begin : int
        Place of the first weight.
    """
    blocks = []
    for name, axes in parts:
        names = tuple(tuple(axis) for axis in axes)
        shape = tuple(len(axis) for axis in names)
        end = begin + int(np.prod(shape))
        places = np.arange(begin, end, dtype=np.intp).reshape(shape)
        blocks.append(Block(name, names, places))
        begin = end
    return blocks


def feature_names(blocks: Sequence[Block], n_features: int) -> list[str]:
    """(d,) the name of each weight; the first where several share a weight."""
    names = [""] * n_features
    for block in blocks:
        for place, name in zip(
            block.places.ravel(), block.feature_names(), strict=True
        ):
            if not names[place]:
                names[place] = name
    return names


def input_names(names: Sequence[object] | None, n_inputs: int) -> list[str]:
    """Return the names of the input features; x0, x1, … if there are none."""
    if names is None:
        return [f"x{i}" for i in range(n_inputs)]
    strings = [str(name) for name in check_list(names, "input_names")]
    if len(strings) != n_inputs:
        raise InputError(
            f"{len(strings)} input names are given; expected {n_inputs}, one for "
            "each input feature"
        )
    return strings
