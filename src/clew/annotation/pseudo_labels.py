"""Pseudo-labels: almost certain predictions of the initial weights count as annotated.

People are asked about odd events, and weights that explain a few of those explain little
else: without pseudo-labels (Lee 2013), one answer about HeLa nuclei led to weights that
miss a fifth of all events.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from clew.learning.task import Array, Indices
from clew.models.highs_solver import Program


def fill_pseudo_labels(
    x: Program, certain: Indices, annotated: Mapping[int, int]
) -> dict[int, int]:
    """Add pseudo-labels for cells that annotations leave open.

    An annotated event fixes its cells. If an almost certain event did not happen, all
    cells that might take the place of its cells are open again. So are all that an open
    cell might go to or come from if it is annotated not to end. Any other open cell can
    end, so that some output agrees with all labels.

    Parameters
    ----------
    x : Program
    certain : ndarray of shape (m,)
        Variables that are almost certain.
    annotated : mapping of int to int
        {variable: 1 if it happened, 0 if not}.

    Returns
    -------
    dict of int to int
        The annotations with pseudo-labels.
    """
    happened = _count_cells(x, [row for row, value in annotated.items() if value])
    denied = np.array(
        [row for row, value in annotated.items() if not value], dtype=np.intp
    )
    surprising = _count_cells(x, denied[np.isin(denied, certain)].tolist())
    n_cells = np.diff(x.A.tocsc().indptr)
    cannot_end = _count_cells(x, denied[n_cells[denied] == 1].tolist())
    is_open = happened + _reachable_cells(x, surprising)
    while True:
        free = certain[x.A[:, certain].T @ is_open == 0]
        is_stuck = (cannot_end > 0) & (happened == 0)
        is_stuck &= _count_cells(x, free.tolist()) == 0
        reached = is_open + _reachable_cells(x, is_stuck.astype(float))
        if not ((reached > 0) & (is_open == 0)).any():
            return {int(variable): 1 for variable in free} | dict(annotated)
        is_open = reached


def _reachable_cells(x: Program, cells: Array) -> Array:
    """How many events of some cells each cell might take part in, (n_cells,)."""
    return np.asarray(x.A @ (x.A.T @ cells > 0).astype(float))


def _count_cells(x: Program, variables: list[int]) -> Array:
    """How many of some events each cell takes part in, (n_cells,)."""
    return np.asarray(x.A[:, variables].sum(axis=1), dtype=float)
