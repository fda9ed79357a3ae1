"""Which tracks the picture of a lineage shows, and in which rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.markup import format_count

FAMILY_SPACE = 0.7
"""Rows between two families."""


@dataclass(frozen=True)
class Forest:
    """The largest families of a lineage, up to `max_tracks` tracks."""

    lineage: Lineage
    max_tracks: int

    @cached_property
    def parent(self) -> Indices:
        """(n,) rows of the parents of tracks; -1 for none."""
        return self.lineage.tracks.parent_row()

    @cached_property
    def founder(self) -> Indices:
        """(n,) rows of the first ancestors of tracks."""
        founder = np.where(self.parent < 0, np.arange(len(self.parent)), self.parent)
        while True:
            further = founder[founder]  # twice as many generations each time
            if np.array_equal(further, founder):
                return founder
            founder = further

    @cached_property
    def n_families(self) -> int:
        """Number of families in all."""
        return int((self.parent < 0).sum())

    @cached_property
    def shown(self) -> Indices:
        """(k,) rows of the tracks that are drawn, by family, mothers first.

        Of a family that is too large, the tracks that begin first.
        """
        tracks = self.lineage.tracks
        founder = self.founder
        size = np.bincount(founder, minlength=len(tracks))
        length = tracks.end - tracks.begin + 1
        lifetime = np.bincount(founder, weights=length, minlength=len(tracks))
        order = np.lexsort((tracks.begin, founder, -lifetime[founder], -size[founder]))
        ends = np.flatnonzero(np.diff(founder[order], append=-1)) + 1
        fitting = ends[ends <= self.max_tracks]
        return order[: fitting[-1] if len(fitting) else self.max_tracks]

    @cached_property
    def row(self) -> Array:
        """(n,) row of each track, NaN if it is not drawn.

        Tracks without daughters have a row each; mothers are amid their daughters.
        """
        rows = np.full(len(self.parent), np.nan)
        children: dict[int, list[int]] = {}
        for track in self.shown.tolist():
            children.setdefault(int(self.parent[track]), []).append(track)
        next_row = 0.0
        for founder in children.get(-1, []):
            family = _list_family(founder, children)
            for track in family:
                if track not in children:
                    rows[track] = next_row
                    next_row += 1
            for track in reversed(family):
                if track in children:
                    rows[track] = np.mean(rows[children[track]])
            next_row += FAMILY_SPACE
        return rows

    def describe(self) -> str:
        """Say what is drawn and what is left out."""
        n = len(self.parent)
        n_shown = len(self.shown)
        n_families = len(np.unique(self.founder[self.shown]))
        if n_shown == n:
            families = format_count(n_families, "family", "families")
            return f"{format_count(n, 'track')} in {families}, all of them."
        size = int((self.founder == self.founder[self.shown[0]]).sum())
        if n_shown < size:
            n_others = self.n_families - 1
            others = format_count(n_others, "other family", "other families")
            return (
                f"The first {n_shown:,} tracks of the largest family, which has "
                f"{size:,}. Left out: its later tracks and {others}, {n - n_shown:,} "
                "tracks in all."
            )
        n_hidden = self.n_families - n_families
        return (
            f"The largest {n_families:,} of {self.n_families:,} families, with "
            f"{n_shown:,} of {n:,} tracks; left out: "
            f"{format_count(n_hidden, 'family', 'families')} with "
            f"{format_count(n - n_shown, 'track')}."
        )


def _list_family(founder: int, children: dict[int, list[int]]) -> list[int]:
    """List a family in depth-first order."""
    family = []
    stack = [founder]
    while stack:
        track = stack.pop()
        family.append(track)
        stack += reversed(children.get(track, []))
    return family
