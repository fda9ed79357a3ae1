"""The weights of a model by block, with names: which weight belongs to which label, input and transition."""

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
    """Weights that belong together: an array of places in w, and a name for each index of each of its axes."""

    name: str
    axes: tuple[tuple[str, ...], ...]
    places: Indices

    def values(self, w: Array) -> Array:
        """The weights of the block, in its shape."""
        return np.asarray(w)[self.places]

    def feature_names(self) -> list[str]:
        """A name for each of its entries, row by row: "transition[a, b]"."""
        return [f"{self.name}[{', '.join(labels)}]" for labels in product(*self.axes)]


def make_blocks(
    *parts: tuple[str, Sequence[Sequence[str]]], begin: int = 0
) -> list[Block]:
    """Blocks that follow each other in w, row by row."""
    blocks = []
    for name, axes in parts:
        shape = tuple(len(axis) for axis in axes)
        size = int(np.prod(shape))
        places = np.arange(begin, begin + size, dtype=np.intp).reshape(shape)
        blocks.append(Block(name, tuple(tuple(axis) for axis in axes), places))
        begin += size
    return blocks


def feature_names(blocks: Sequence[Block], n_features: int) -> list[str]:
    """(d,) the name of each weight; of names that share a weight the first."""
    names = [""] * n_features
    for block in blocks:
        for place, name in reversed(
            list(zip(block.places.ravel(), block.feature_names(), strict=True))
        ):
            names[place] = name
    return names


def input_names(names: Sequence[object] | None, n_inputs: int) -> list[str]:
    """The names of the input features, checked; x0, x1, … where none are given."""
    if names is None:
        return [f"x{i}" for i in range(n_inputs)]
    given = [str(name) for name in check_list(names, "input_names")]
    if len(given) != n_inputs:
        raise InputError(
            f"{len(given)} input names are given; expected {n_inputs}, one for each input feature"
        )
    return given
