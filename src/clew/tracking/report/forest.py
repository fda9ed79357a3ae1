"""Which tracks the picture of a lineage shows, and where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.markup import format_count


@dataclass(frozen=True)
class Forest:
    """Which tracks are drawn, and where: the largest families, as many as there is room for."""

    lineage: Lineage
    max_tracks: int

    @cached_property
    def parent(self) -> Indices:
        """(n,) rows of the tracks' parents, -1 for none."""
        return self.lineage.tracks.parent_row()

    @cached_property
    def founder(self) -> Indices:
        """(n,) rows of the tracks' first ancestors."""
        founder = np.where(self.parent < 0, np.arange(len(self.parent)), self.parent)
        while not np.array_equal(
            further := founder[founder], founder
        ):  # twice as far each time
            founder = further
        return founder

    @cached_property
    def n_families(self) -> int:
        """How many there are in all."""
        return int((self.parent < 0).sum())

    @cached_property
    def shown(self) -> Indices:
        """(k,) rows of the tracks that are drawn, family by family, mothers before daughters.

        Of a family that is too large by itself, the tracks that begin first.
        """
        tracks = self.lineage.tracks
        n = len(tracks)
        size = np.bincount(self.founder, minlength=n)
        lifetime = np.bincount(
            self.founder, weights=tracks.end - tracks.begin + 1, minlength=n
        )
        order = np.lexsort(
            (tracks.begin, self.founder, -lifetime[self.founder], -size[self.founder])
        )
        families = self.founder[order]
        ends = np.flatnonzero(np.diff(families, append=-1)) + 1
        whole = ends[ends <= self.max_tracks]
        return order[: whole[-1] if len(whole) else self.max_tracks]

    @cached_property
    def row(self) -> Array:
        """(n,) where each track is drawn, NaN if it is not: leaves one below the other, mothers amid daughters."""
        height = np.full(len(self.parent), np.nan)
        children: dict[int, list[int]] = {}
        for track in self.shown.tolist():
            children.setdefault(int(self.parent[track]), []).append(track)
        next_row = 0.0
        for founder in children.get(-1, []):
            ordered, waiting = [], [founder]
            while waiting:
                ordered.append(track := waiting.pop())
                waiting += reversed(children.get(track, []))
            for track in ordered:
                if track not in children:
                    height[track], next_row = next_row, next_row + 1
            for track in reversed(ordered):
                if track in children:
                    height[track] = np.mean(height[children[track]])
            next_row += 0.7  # a little air between two families
        return height

    def describe(self) -> str:
        """What is drawn and what is left out, in words."""
        n, shown, families = (
            len(self.parent),
            len(self.shown),
            len(np.unique(self.founder[self.shown])),
        )
        if shown == n:
            return f"{format_count(n, 'track')} in {format_count(families, 'family', 'families')}, all of them."
        size = int((self.founder == self.founder[self.shown[0]]).sum())
        if shown < size:
            return (
                f"The first {shown:,} tracks of the largest family, which has {size:,}. Left out: its later tracks and "
                f"{format_count(self.n_families - 1, 'other family', 'other families')}, {n - shown:,} tracks in all."
            )
        return (
            f"The largest {families:,} of {self.n_families:,} families, with {shown:,} of {n:,} tracks; left out: "
            f"{format_count(self.n_families - families, 'family', 'families')} with {format_count(n - shown, 'track')}."
        )
