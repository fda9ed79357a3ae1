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
    n_parts = [len(values) for values in margins]
    example_of = np.repeat(np.arange(len(margins)), n_parts)
    begins = np.cumsum(n_parts) - n_parts
    margin = np.concatenate([np.zeros(0), *margins])
    n_selected = np.zeros(len(margins), dtype=np.intp)
    queries: list[Query] = []
    for place in np.argsort(margin, kind="stable"):
        if len(queries) == n or not np.isfinite(margin[place]):
            break
        example = int(example_of[place])
        if per_example is None or n_selected[example] < per_example:
            n_selected[example] += 1
            part = int(place - begins[example])
            queries.append(Query(example, part, float(margin[place])))
    return queries
