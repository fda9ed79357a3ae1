"""What several frames add to frame pairs: counts, gaps as a second pass, and gaps with a say in the pairs.

    python benchmarks/several_frames.py --folder F [--draws 3] [--missed 0.02] [--test SEQUENCE …]

Short simulated movies of every kind are drawn at random (`random_settings`) with masks that miss cells at a set rate,
and kept in the folder. Frame pairs are solved once, with the generic weights, and then joined in four ways:

- pairs: as the frame pairs have them
- counts: splits told from divisions by how many cells merged before (`linking/counts.py`)
- second pass: and gaps closed between cells that the pairs let disappear and appear
- joint: and gaps that may change what the pairs had chosen, at the score that this costs them (`model/loose_ends.py`)

Missed are true events of frame pairs, where a gap is a disappearance and an appearance, so that all four are compared
by the same events; gaps have columns of their own. Generic weights know the kinds, from other movies. `--test` adds
real sequences with a truth beside them (…/01). CPU is that of joining over that of solving the pairs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from generic_calibration import Sequence as Measured
from generic_weights import open_sequence
from rich.console import Console
from rich.progress import track as bar
from rich.table import Table

from clew.simulation.kinds import KINDS, random_settings
from clew.simulation.write import write_simulation
from clew.tracking.assignment.gaps import find_gaps
from clew.tracking.assignment.loose_ends import Ends, LooseEnds
from clew.tracking.candidates.features import feature_names
from clew.tracking.evaluation.task_loss import compute_task_loss, count_gaps
from clew.tracking.events import Event, EventTable
from clew.tracking.lineage.gaps import Joined, close_gaps
from clew.tracking.solve import SolvedPair, join_events, nodes_of, solve_pair
from clew.tracking.tracker import Tracker
from clew.tracking.training.prior import weights_by_name

FRAMES, CELLS = 20, 50
WAYS = ("pairs", "counts", "second pass", "joint")


def at_no_cost(ends: Ends) -> Ends:
    """Cells that the pair leaves alone anyway."""
    rows = np.flatnonzero(ends.cost == 0)
    cells = ends.cells
    columns = {name: column[rows] for name, column in cells.columns.items()}
    some = replace(
        cells, label=cells.label[rows], position=cells.position[rows], columns=columns
    )
    alone = {name: column[rows] for name, column in ends.alone.items()}
    return Ends(some, alone, ends.cost[rows], {})


def ends_of(solved: Sequence[SolvedPair], way: str) -> list[tuple[int, LooseEnds]]:
    found = [(one.frame, one.ends) for one in solved if one.ends is not None]
    if way == "joint":
        return found
    return [
        (t, replace(ends, gone=at_no_cost(ends.gone), back=at_no_cost(ends.back)))
        for t, ends in found
    ]


def joined(solved: Sequence[SolvedPair]) -> Joined:
    return Joined(
        EventTable.join([one.events for one in solved]),
        np.concatenate([one.confidence for one in solved]),
        np.concatenate([one.lead for one in solved if one.lead is not None]),
    )


def rows(movie: Measured, table: Table, sums: dict[str, list[int]]) -> None:
    source, truth = movie.source, movie.truth
    tracker = Tracker.generic(n_jobs=1)
    groups = tracker.groups_for(source)
    decided = tracker.pairs(source, groups)
    pairs = replace(decided, events=decided.events | {Event.GAP})
    w = weights_by_name(tracker, feature_names(groups))
    started = time.process_time()
    solved = [solve_pair(pairs, w, frame) for frame in range(len(pairs))]
    pairwise = time.process_time() - started
    nodes, told = nodes_of(source, range(source.n_frames)), joined(solved)
    cells = []
    for way in WAYS:
        started = time.process_time()
        ends = ends_of(solved, way) if way in WAYS[2:] else []
        lead = (
            told._replace(lead=np.full(len(told.lead), np.nan))
            if way == "pairs"
            else told
        )
        lineage = join_events(
            source.n_frames, nodes, *close_gaps(lead, *find_gaps(ends)), solved[0].unit
        )
        seconds = time.process_time() - started
        missed, gaps = (
            int(compute_task_loss(truth, lineage).missed.sum()),
            count_gaps(truth, lineage),
        )
        of = f"{gaps.right} / {gaps.false} / {gaps.missed}"
        cells += [
            f"{missed}",
            *([of, f"{seconds / pairwise:.0%}"] if way in WAYS[2:] else []),
        ]
        for k, value in enumerate((missed, gaps.right, gaps.false, gaps.missed)):
            sums.setdefault(way, [0, 0, 0, 0])[k] += value
    on = "on" if Event.GAP in decided.events else "off"
    table.add_row(movie.name, f"{len(truth.to_pairwise())}", on, *cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where simulated movies are kept"
    )
    parser.add_argument("--draws", type=int, default=3, help="movies of each kind")
    parser.add_argument(
        "--missed", type=float, default=0.02, help="the share of masks that are missed"
    )
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--test", nargs="*", type=Path, default=[], metavar="SEQUENCE")
    options = parser.parse_args()
    console = Console(width=150)
    names = (
        "movie",
        "events",
        "auto",
        "pairs",
        "counts",
        "second pass",
        "gaps",
        "CPU",
        "joint",
        "gaps",
        "CPU",
    )
    table = Table(
        *names,
        title="Events missed; gaps right / false / missed; whether gaps are on by themselves",
    )
    simulated: dict[str, list[int]] = {}
    wanted = [(kind, seed) for kind in options.kinds for seed in range(options.draws)]
    for kind, seed in bar(wanted, "simulated movies", console=console):
        place = options.folder / f"{kind}{seed}-{options.missed:g}"
        if not place.exists():
            settings = random_settings(
                kind,
                700 + seed,
                seed=7000 + seed,
                frames=FRAMES,
                cells=CELLS,
                missed=options.missed,
            )
            write_simulation(place, settings)
        rows(
            open_sequence(place / "01", kind, options.folder / "measured" / place.name),
            table,
            simulated,
        )
    table.add_section()
    real: dict[str, list[int]] = {}
    for path in options.test:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # a real truth has a cell with three daughters
            rows(
                open_sequence(
                    path, "real", options.folder / "measured" / path.parent.name
                ),
                table,
                real,
            )
    console.print(table)
    for what, sums in (("simulated", simulated), ("real", real)):
        for way, (missed, *gaps) in sums.items():
            console.print(
                f"{what}, {way}: {missed} events missed; gaps {' / '.join(map(str, gaps))}"
            )


if __name__ == "__main__":
    main()
