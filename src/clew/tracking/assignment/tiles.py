"""The best choice in frame pairs of very many cells: tile by tile, and yet that of the whole.

A tile is a box of cells. Its programme has its own detections and a **halo**: those within `HOPS` candidates of them.
What lies beyond is free for it, so that the programme is a relaxation of the whole one. Tiles are solved in turns. Each
decides about its own detections, and what it took the next ones cannot take: every detection has exactly one event.

Whether that is the best choice of the whole is seen from the prices. By the duality of linear programmes, a choice is
best if there are prices of detections such that no candidate scores more than its detections' prices and none of the
chosen less. Within a tile its own programme sees to that, unless its LP is fractional. Candidates across a **seam**,
whose detections were priced by different programmes, break it most: prices there are balanced first, since they are not
unique. Where a candidate still scores more, at a seam or not, the surroundings are solved anew, at the prices of all
that is around them. If that programme would rather have a candidate that leads out, it was too small: it takes twice
the hops, in the end the whole frame pair. So the halo is a matter of speed, and the choice is that of one programme.

Prices with nothing left over also make confidences those of one programme: their search is exact with any prices, and
cut off where it would take long, which good prices make rare.

A frame pair that is no larger than a tile is one tile: it has no seam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from clew.learning.task import Array, Indices, Mask
from clew.models.highs_solver import KeptProgram
from clew.tracking.assignment.search_records import search_records

HOPS = 2
"""Of a tile's halo. What a tile takes beside its own detections lies one candidate away, and what that touches two: so
the programme knows of everything that its choice leaves less to."""
TOLERANCE = 1e-7
"""Relative to the largest score: by how much a candidate may exceed its prices; the simplex method's is 1e-9."""


def boxes(position: Array, size: int) -> list[Indices]:
    """The rows of positions (n, ndim) in boxes of at most `size`: halved at the median of the longest side."""
    found, open_ = [], [np.arange(len(position))]
    while open_:
        rows = open_.pop()
        if len(rows) <= size:
            found.append(rows)
            continue
        place = position[rows]
        order = np.argsort(place[:, np.argmax(np.ptp(place, axis=0))], kind="stable")
        open_ += [
            np.sort(rows[order[len(rows) // 2 :]]),
            np.sort(rows[order[: len(rows) // 2]]),
        ]
    return found


class TiledProgram:
    """max ⟨scores, y⟩ over choices y of columns that cover each of n detections once."""

    def __init__(self, A: Any, rows: Indices, scores: Array) -> None:
        """`A` is (n, m) CSR, `rows` (m, k) the same as the detections of each column, −1 filled in."""
        self.A, self.scores, self.n = A, scores, A.shape[0]
        self.rows = rows  # −1 is the last place of what has n + 1, which stands for no detection
        self.chosen = np.zeros(len(scores), dtype=bool)
        self.prices = np.zeros(self.n + 1)
        self.priced_by = np.full(self.n + 1, -1)

    def solve(self, tiles: Sequence[Indices]) -> tuple[Mask, Array] | None:
        """The best choice (m,) and its prices (n,); None where there is no choice at all. Tiles have all detections."""
        taken = np.zeros(self.n + 1, dtype=bool)
        for number, own in enumerate(tiles):
            if not self._decide(own, number, taken):
                return None if len(tiles) == 1 else self._solved_as_one()
        if len(tiles) > 1 and not self._mend_seams():
            return self._solved_as_one()
        return self.chosen, self.prices[:-1]

    def _solved_as_one(self) -> tuple[Mask, Array] | None:
        """Without tiles, where these cannot be solved or mended: annotations may leave a detection few events."""
        return TiledProgram(self.A, self.rows, self.scores).solve([np.arange(self.n)])

    def _decide(self, own: Indices, number: int, taken: Mask) -> bool:
        """Choose what covers a tile's own detections, as far as they are not taken; False where nothing can."""
        mine = np.zeros(self.n + 1, dtype=bool)
        mine[own] = True
        inside = self._grown(mine, HOPS) & ~taken
        columns = self._touching(inside)
        columns = columns[~taken[self.rows[columns]].any(axis=1)]
        answer = self._programme(inside, columns, self.scores[columns])
        if answer is None:
            return False
        chosen = columns[answer[0]]
        chosen = chosen[mine[self.rows[chosen]].any(axis=1)]
        self.chosen[chosen] = True
        decided = self._detections(chosen)
        taken |= decided
        self._price(inside, answer[1], (mine | decided) & inside, number)
        return True

    def _mend_seams(self) -> bool:
        """Make the choice the best of the whole; False where a programme has no answer."""
        seams = self._seams()
        if not len(seams):
            return True
        near = self._detections(seams)
        ends = (
            self._detections(
                np.flatnonzero(self.chosen)[near[self.rows[self.chosen]].any(axis=1)]
            )
            | near
        )
        around = self._touching(ends)
        chosen = np.flatnonzero(self.chosen[around])
        self.prices[:-1] += search_records(
            self.rows[around], self.n, chosen, self._reduced(around)
        )[1]["price"]
        # not at seams alone: a tile's own LP may be fractional where that of the whole is not
        unsettled, hops = (
            self._detections(
                np.flatnonzero(self._violated(np.arange(len(self.scores))))
            ),
            HOPS,
        )
        while unsettled.any():
            found = self._solved_anew(unsettled, hops)
            if found is None:
                return False
            unsettled, hops = found, 2 * hops
        return True

    def _solved_anew(self, centre: Mask, hops: int) -> Mask | None:
        """Solve the surroundings of some detections anew, all else at its prices.

        What would rather have a candidate that leads out stays as it was, with all that depends on it, and is given
        back: it needs larger surroundings. None where there is no answer.
        """
        inside = self._grown(centre, hops)
        columns = self._touching(inside)
        inside |= self._detections(columns[self.chosen[columns]])
        columns = self._touching(inside)
        beyond = ~inside
        beyond[-1] = False
        rows = self.rows[columns]
        leaving = beyond[rows].any(axis=1)
        outside = np.where(beyond[rows], self.prices[rows], 0.0).sum(axis=1)
        answer = self._programme(
            inside,
            columns,
            self.scores[columns] - outside - leaving * self._tolerance(),
        )
        if answer is None:
            return None
        part, of_column = self._parts(inside, columns)
        open_ = np.unique(of_column[answer[0] & leaving])
        settled = ~np.isin(of_column, open_) & ~leaving
        self.chosen[columns[settled]] = answer[0][settled]
        self._price(inside, answer[1], inside & ~np.isin(part, open_), -1)
        return inside & np.isin(part, open_)

    def _parts(self, inside: Mask, columns: Indices) -> tuple[Indices, Indices]:
        """Which independent part of the inside each detection is in, (n + 1,), −1 outside, and each column."""
        links = self.A[:, columns][np.flatnonzero(inside[:-1])]
        _, part = connected_components(
            sp.block_array([[None, links], [links.T, None]]), directed=False
        )
        of_detection = np.full(self.n + 1, -1)
        of_detection[np.flatnonzero(inside)] = part[: links.shape[0]]
        return of_detection, part[links.shape[0] :]

    def _programme(
        self, inside: Mask, columns: Indices, scores: Array
    ) -> tuple[Mask, Array] | None:
        """The best of these columns that cover the inside once, (len(columns),), and the prices of the inside."""
        detections = np.flatnonzero(inside[:-1])
        part = self.A if len(columns) == self.A.shape[1] else self.A[:, columns]
        one, n = np.ones(len(detections)), len(columns)
        part = part if len(detections) == self.n else part[detections]
        prices = np.zeros(self.n + 1)
        if (
            np.diff(part.indptr) == 1
        ).all():  # one column for each detection leaves nothing to choose
            rows = self.rows[columns]
            mine = inside[rows]
            count = mine.sum(axis=1)
            prices[rows[mine]] = np.repeat(scores / np.maximum(count, 1), count)
            return np.ones(n, dtype=bool), prices[detections]
        answer = KeptProgram(
            part, one, one, np.zeros(n), np.ones(n)
        ).maximise_with_prices(scores)
        if answer is None:
            return None
        chosen = answer[0] == 1
        prices[detections] = answer[1]
        self._raise(prices, inside, self.rows[columns[chosen]], scores[chosen])
        return chosen, prices[detections]

    @staticmethod
    def _raise(prices: Array, inside: Mask, rows: Indices, scores: Array) -> None:
        """Raise the prices of the inside, (n + 1,), until chosen columns, (c, k), score no more than theirs, in place.

        The LP has bounds y ≤ 1 with prices of their own. As prices of detections these hold for all columns, also those
        that were left out since others are at least as good. Each detection is in one chosen column.
        """
        mine = inside[rows]
        excess = np.maximum(scores - np.where(mine, prices[rows], 0.0).sum(axis=1), 0.0)
        share = np.repeat(excess / mine.sum(axis=1), mine.sum(axis=1))
        prices[rows[mine]] += share

    def _price(self, inside: Mask, prices: Array, which: Mask, number: int) -> None:
        """Keep the prices of some of the inside, and which programme they are of."""
        self.prices[which] = prices[which[inside]]
        self.priced_by[which] = number

    def _grown(self, detections: Mask, hops: int) -> Mask:
        """The detections within so many columns of some."""
        for _ in range(hops):
            detections = detections | self._detections(self._touching(detections))
        return detections

    def _touching(self, detections: Mask) -> Indices:
        """The columns of some detections, ascending."""
        if detections[:-1].all():
            return np.arange(len(self.scores))
        return np.unique(self.A[np.flatnonzero(detections[:-1])].indices).astype(
            np.intp
        )

    def _detections(self, columns: Indices) -> Mask:
        """(n + 1,) those of some columns; the last is never one."""
        found = np.zeros(self.n + 1, dtype=bool)
        found[self.rows[columns]] = True
        found[-1] = False
        return found

    def _seams(self) -> Indices:
        """Columns whose detections have prices of different programmes."""
        by = self.priced_by[self.rows]
        least = np.where(self.rows >= 0, by, np.iinfo(np.intp).max).min(axis=1)
        return np.flatnonzero(by.max(axis=1, where=self.rows >= 0, initial=-1) > least)

    def _reduced(self, columns: Indices) -> Array:
        """Scores less prices."""
        return np.asarray(
            self.scores[columns] - self.prices[self.rows[columns]].sum(axis=1)
        )

    def _violated(self, columns: Indices) -> Mask:
        """Which of these score more than their prices, or less though they are chosen."""
        reduced, chosen = self._reduced(columns), self.chosen[columns]
        return np.where(
            chosen, reduced < -self._tolerance(), reduced > self._tolerance()
        )

    def _tolerance(self) -> float:
        return TOLERANCE * max(float(np.abs(self.scores).max(initial=0.0)), 1e-12)
