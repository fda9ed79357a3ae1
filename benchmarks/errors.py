"""What the errors on a real movie are: missed and wrong events that share cells, in groups, by what they are.

    CLEW_DATA=… python benchmarks/errors.py [--movie PhC-C2DL-PSC] [--examples 3]

A group whose true events are only ends and beginnings of tracks, and whose predicted ones are moves and divisions, may
be an error of either. If the outlines that clew connects lie on each other, the truth lost a track, or the parent of
two: cells do not vanish in the frame in which others come into being in their place. The last column counts those.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Event, EventTable
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker

MOVIES = {
    "Fluo-N2DL-HeLa": "01_ST/SEG",
    "Fluo-N2DH-SIM+": None,
    "PhC-C2DL-PSC": "01_ST/SEG",
    "bacteria": None,
}
"""Folders of CLEW_DATA, with that of the masks where these are not those of the truth."""

ENDS = {Event.APPEAR, Event.DISAPPEAR}
LINKS = {Event.MOVE, Event.DIVIDE}
SAME_PLACE = 0.5
"""The share of the smaller of two areas that both have, from which on they are one place."""


class Group(NamedTuple):
    """Missed and wrong events that share cells."""

    missed: list[int]
    wrong: list[int]


def groups(missed: EventTable, wrong: EventTable) -> list[Group]:
    """Rows of two tables, connected by the cells that they share."""
    at = defaultdict(list)
    for row, (frame, _, sources, targets) in enumerate([*missed, *wrong]):
        for side, cells in enumerate((sources, targets)):
            for cell in cells:
                at[frame, side, cell].append(row)
    edges = [(rows[0], row) for rows in at.values() for row in rows]
    n = len(missed) + len(wrong)
    first, second = np.array(edges, dtype=int).reshape(-1, 2).T
    _, group = connected_components(
        coo_array((np.ones(len(edges)), (first, second)), shape=(n, n)), directed=False
    )
    found: dict[int, Group] = defaultdict(lambda: Group([], []))
    for row, number in enumerate(group.tolist()):
        found[number][row >= len(missed)].append(
            row if row < len(missed) else row - len(missed)
        )
    return list(found.values())


def in_place(movie: Movie, events: EventTable) -> bool:
    """Whether all of these moves and divisions connect outlines that lie on each other."""
    for frame, _, sources, targets in events:
        before, after = (
            np.isin(movie.label(t), cells)
            for t, cells in ((frame, sources), (frame + 1, targets))
        )
        if (before & after).sum() < SAME_PLACE * min(before.sum(), after.sum()):
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--movie", nargs="+", choices=MOVIES, default=list(MOVIES))
    parser.add_argument(
        "--examples", type=int, default=0, help="groups of each kind that are listed"
    )
    options = parser.parse_args()
    table = Table(
        "movie", "true", "predicted", "groups", "missed", "in place", "of them missed"
    )
    for name in options.movie:
        path = Path(os.environ["CLEW_DATA"]) / name / "01"
        movie = open_movie(path)
        truth = derive_annotations(
            open_ctc_lineage(path.with_name("01_GT") / "TRA"), movie
        ).to_pairwise()
        true = truth.events[truth.happened]
        events = Tracker.generic(n_jobs=1).track(movie).events.to_pairwise()
        missed, wrong = (
            true[~np.isin(true.row_keys(), events.row_keys())],
            events[~np.isin(events.row_keys(), true.row_keys())],
        )
        kinds: dict[tuple[str, str], list[tuple[Group, bool]]] = defaultdict(list)
        for group in groups(missed, wrong):
            words = [
                _counted(events.event[rows])
                for events, rows in ((missed, group.missed), (wrong, group.wrong))
            ]
            ends = (
                set(missed.event[group.missed]) <= ENDS
                and set(wrong.event[group.wrong]) <= LINKS
            )
            doubtful = (
                ends and bool(group.missed) and in_place(movie, wrong[group.wrong])
            )
            kinds[words[0], words[1]].append((group, doubtful))
        for (before, after), found in sorted(
            kinds.items(), key=lambda kind: -len(kind[1])
        ):
            lost = [len(group.missed) for group, _ in found]
            doubtful = [
                len(group.missed) for group, is_doubtful in found if is_doubtful
            ]
            table.add_row(
                name,
                before,
                after,
                *map(str, (len(found), sum(lost), len(doubtful), sum(doubtful))),
            )
            for group, _ in found[: options.examples]:
                said = [f"missed {missed.describe(row)}" for row in group.missed]
                print(
                    f"{name}: "
                    + "; ".join(
                        said + [f"found {wrong.describe(row)}" for row in group.wrong]
                    )
                )
        every = [
            (len(group.missed), doubtful)
            for found in kinds.values()
            for group, doubtful in found
        ]
        total = (
            len(every),
            sum(n for n, _ in every),
            sum(d for _, d in every),
            sum(n for n, d in every if d),
        )
        table.add_row(
            name,
            "all",
            f"of {len(true)} true events",
            *map(str, total),
            end_section=True,
        )
    Console(width=140).print(table)


def _counted(events: np.ndarray) -> str:
    """Kinds of events with how many of each."""
    counts = Counter(events.tolist())
    return (
        ", ".join(f"{n} {Event(event)}" for event, n in sorted(counts.items())) or "–"
    )


if __name__ == "__main__":
    main()
