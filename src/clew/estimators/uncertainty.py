"""Which parts of which outputs to annotate next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.learning.task import Array


class Query(NamedTuple):
    """A part of an output that is worth annotating."""

    example: int
    part: int
    """Its place in the output: the node, the row or the variable."""
    margin: float
    """The score that is lost when it is forced to be other than predicted."""


def least_certain(
    margins: Sequence[Array], n: int, per_example: int | None
) -> list[Query]:
    """The n parts with the smallest margins (uncertainty sampling, Lewis & Gale 1994).

    `margins` are (parts,) for each example, infinite for what is known or has no alternative. No example gets more than
    `per_example` questions.
    """
    example = np.repeat(np.arange(len(margins)), [len(m) for m in margins])
    part = np.concatenate([np.zeros(0, np.intp), *(np.arange(len(m)) for m in margins)])
    every = np.concatenate([np.zeros(0), *margins])
    order = np.argsort(every, kind="stable")
    order = order[np.isfinite(every[order])]
    if per_example is not None:
        # a part's place among those of its own example, the least certain first
        grouped = order[np.argsort(example[order], kind="stable")]
        place = np.empty(len(every), np.intp)
        place[grouped] = np.arange(len(grouped)) - np.searchsorted(
            example[grouped], example[grouped]
        )
        order = order[place[order] < per_example]
    return [Query(int(example[k]), int(part[k]), float(every[k])) for k in order[:n]]
