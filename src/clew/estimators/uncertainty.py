"""Uncertainty sampling: select the parts of outputs to annotate next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clew.learning.task import Array


class Query(NamedTuple):
    """A part of an output that is worth annotating."""

    example: int
    part: int
    """Index in the output: the node, the row or the variable."""
    margin: float
    """Score that is lost if the part is forced to differ from the prediction."""


def select_least_certain(
    margins: Sequence[Array], n: int, per_example: int | None
) -> list[Query]:
    """Select the parts with the smallest margins (Lewis & Gale 1994).

    Parameters
    ----------
    margins : sequence of ndarray of shape (n_parts,)
        Margins of each example; infinite for parts that are known or have no
        alternative.
    n : int
        Number of parts.
    per_example : int or None
        Most parts of one example.
    """
    counts = [len(values) for values in margins]
    example = np.repeat(np.arange(len(margins)), counts)
    part = np.concatenate([np.zeros(0, np.intp), *map(np.arange, counts)])
    margin = np.concatenate([np.zeros(0), *margins])
    order = np.argsort(margin, kind="stable")
    order = order[np.isfinite(margin[order])]
    if per_example is not None:
        # rank of a part among those of its example, the least certain first
        grouped = order[np.argsort(example[order], kind="stable")]
        first = np.searchsorted(example[grouped], example[grouped])
        rank = np.empty(len(margin), np.intp)
        rank[grouped] = np.arange(len(grouped)) - first
        order = order[rank[order] < per_example]
    return [Query(int(example[k]), int(part[k]), float(margin[k])) for k in order[:n]]
