"""Splits told from divisions by what happened before and by the sizes of their parts, tried on kinds left out.

    python benchmarks/split_odds.py --folder F [--movies 24] [--write]

Every event with one source and two targets that generic weights find in simulated movies, and that is a true split or
a true division, is a row: its lead by scores, whether cells merged into its source before, and the rank of its smaller
part (`lineage/splits.py`). The table has the log loss and the mistakes of logistic regressions that were fitted to the
other kinds, without ranks and with them. `--write` puts the one of all kinds into generic_weights.json.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generic_calibration import Sequence
from generic_file import update_generic
from rich.console import Console
from rich.progress import track as bar
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from clew.learning.task import Array
from clew.simulation.kinds import KINDS
from clew.tracking.candidates.features import feature_names
from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.build import SolvedBlock, join_blocks
from clew.tracking.lineage.splits import (
    TYPICAL_RANK,
    count_cells,
    find_torn_events,
    split_margin_from_rank,
)
from clew.tracking.solve import solve_frame_pair
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import weights_by_name


class SplitOdds(NamedTuple):
    """Whether an event with one source and two targets is a split: log-odds are slope × (lead + shift + rank term)."""

    merged: float
    """The shift if the source is known to hold several cells,"""
    not_merged: float
    """and if it is not."""
    rank: float
    """What is added, times the rank of the smaller part beyond the usual one."""
    slope: float

    @classmethod
    def of(cls, rows: Array) -> SplitOdds:
        """By logistic regression on rows (n, 4) of leads, merges, ranks and what it was."""
        model = LogisticRegression(C=100.0).fit(rows[:, :3], rows[:, 3])
        slope, merged, rank = model.coef_[0].tolist()
        base = float(model.intercept_[0])
        return cls((merged + base) / slope, base / slope, rank / slope, slope)

    def section(self) -> dict[str, float]:
        """The section of generic_weights.json."""
        return {
            "merged_before": round(self.merged, 4),
            "not_merged_before": round(self.not_merged, 4),
            "part_rank": round(self.rank, 4),
            "slope": round(self.slope, 2),
        }


def rows_of(tracker: Tracker, movie: Sequence) -> Array:
    """(n, 4) the lead by scores, whether the source is merged, the rank beyond the usual one, and whether it split."""
    builder = tracker.pairs(movie.source, tracker.groups_for(movie.source))
    w = weights_by_name(tracker, feature_names(builder.profile.groups))
    true = movie.truth.events.row_keys()
    solutions, ranks = [], [np.zeros(0)]
    for frame in range(len(builder)):
        pair = builder.build(frame)
        solution = solve_frame_pair(pair, w)
        assert solution.assignment is not None
        ranks.append(pair.part_ranks(solution.assignment.chosen))
        solutions.append(solution)
    frames = range(builder.source.n_frames)
    block = SolvedBlock.of(builder.source, frames, solutions)
    links = join_blocks([block])
    others = links.others
    torn = find_torn_events(others.kind, others.sources, others.targets)
    counted = count_cells(links, torn)
    every = EventTable.join([solution.events for solution in solutions])
    margins = [solution.split_score_margin for solution in solutions]
    lead = np.concatenate([np.zeros(0), *margins]) / np.linalg.norm(w)
    rank = np.concatenate(ranks)
    merged = np.zeros(len(every), dtype=bool)
    rows = np.flatnonzero(every.event != Event.MOVE)
    merged[rows[np.argsort(every.frame[rows], kind="stable")]] = counted.is_merged
    by_score = lead - split_margin_from_rank(rank)
    # the same cells under both names
    split, divided = (
        np.isin(replace(every, event=np.full_like(every.event, kind)).row_keys(), true)
        for kind in (Event.SPLIT, Event.DIVIDE)
    )
    known = np.isfinite(lead) & (split | divided)
    return np.column_stack([by_score, merged, rank - TYPICAL_RANK, split])[known]


def judged(fitted: Array, tried: Array, columns: list[int]) -> tuple[float, int]:
    """The log loss and the mistakes on some rows of a regression that was fitted to others."""
    model = LogisticRegression(C=100.0).fit(fitted[:, columns], fitted[:, 3])
    chance, split = model.predict_proba(tried[:, columns])[:, 1], tried[:, 3] > 0
    loss = -np.log(np.where(split, chance, 1 - chance)).sum()
    return float(loss), int(((chance > 0.5) != split).sum())


def main() -> None:
    from training_movies import simulated  # which imports this module

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where simulated movies are kept"
    )
    parser.add_argument("--movies", type=int, default=24, help="of each kind")
    parser.add_argument(
        "--write", action="store_true", help="put the odds into the sources"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console, tracker = Console(width=120), Tracker.generic(n_jobs=1)
    wanted = [(kind, seed) for kind in KINDS for seed in range(options.movies)]
    found: dict[str, list[Array]] = {kind: [np.zeros((0, 4))] for kind in KINDS}
    for kind, seed in bar(wanted, "tracking", console=console):
        found[kind].append(rows_of(tracker, simulated(kind, seed, options.folder)))
    rows = {kind: np.concatenate(parts) for kind, parts in found.items()}
    table = Table(
        "kind left out",
        "divisions",
        "splits",
        *("log loss", "mistakes", "log loss with ranks", "mistakes"),
    )
    for kind, mine in rows.items():
        others = np.concatenate([each for other, each in rows.items() if other != kind])
        if len(mine):
            figures = [judged(others, mine, columns) for columns in ([0, 1], [0, 1, 2])]
            split = int(mine[:, 3].sum())
            shown = [
                part
                for loss, mistakes in figures
                for part in (f"{loss:.1f}", str(mistakes))
            ]
            table.add_row(kind, str(len(mine) - split), str(split), *shown)
    odds = SplitOdds.of(np.concatenate(list(rows.values())))
    console.print(table, odds)
    if options.write:
        update_generic(splits=odds.section())


if __name__ == "__main__":
    main()
