"""What commands show of a lineage: the report, and figures on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from clew.tracking.blocks.parts import TrackedMovie
    from clew.tracking.blocks.track import TrackedBlocks
    from clew.tracking.detections import DetectionTable
    from clew.tracking.evaluation.evaluate import Evaluation
    from clew.tracking.io.label_layers import EventCounts
    from clew.tracking.lineage.lineage import Lineage
    from clew.tracking.movie import Movie
    from clew.tracking.tracker import Tracker

NO_SCORES = "not computed: pip install clew-learn[evaluate]"
NO_MASKS = "not computed: they need masks"


def no_scores(found: Evaluation) -> str:
    """Why the challenge's scores are missing."""
    from clew.tracking.evaluation.evaluate import MASKS

    return NO_SCORES if found.matched_by == MASKS else NO_MASKS


def report_page(
    lineage: Lineage,
    movie: Movie | DetectionTable,
    tracker: Tracker,
    facts: dict[str, str],
    evaluation: Evaluation | None = None,
) -> bytes:
    """The content of report.html."""
    from clew.tracking.movie import Movie
    from clew.tracking.report import make_report

    page = make_report(
        lineage,
        movie=movie if isinstance(movie, Movie) else None,
        title=movie.name,
        facts=facts,
        weights=dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True)),
        evaluation=evaluation,
    )
    return page.encode()


REPORTED = 2_000_000
"""Cells up to which the report is about the whole movie; of a larger one it shows frames from its middle."""


def sampled_report(
    tracked: TrackedBlocks,
    movie: Movie | DetectionTable,
    tracker: Tracker,
    facts: dict[str, str],
) -> bytes:
    """The content of report.html, about a part of the movie if it is very large."""
    if tracked.n_cells <= REPORTED:
        return report_page(tracked.lineage(), movie, tracker, facts)
    frames, lineage = tracked.sample(REPORTED)
    facts |= {
        "sample": f"frames {frames[0]} to {frames[-1]} of {tracked.n_frames}, {len(lineage.frame):,} of "
        f"{tracked.n_cells:,} cells; frames are counted from the first of these"
    }
    return report_page(lineage, movie[frames.start : frames.stop], tracker, facts)


def print_lineage(lineage: Lineage, seconds: float) -> None:
    """What was found, in figures."""
    from clew.executors import Threads
    from clew.tracking.blocks.parts import InMemory
    from clew.tracking.io.label_layers import write_label_images

    tracked = InMemory(lineage)
    print_counts(tracked, write_label_images(Path(), None, tracked, Threads()), seconds)


def print_counts(tracked: TrackedMovie, tally: EventCounts, seconds: float) -> None:
    """What was found and counted, in figures."""
    from clew.tracking.events import Event

    table = Table(show_header=False, title="Lineage", title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in (
        ("frames", tracked.n_frames),
        ("cells", tracked.n_cells),
        ("tracks", len(tracked.tracks)),
    ):
        table.add_row(name, f"{value:,}")
    table.add_section()
    for event in Event:
        table.add_row(str(event), f"{tally.kinds[event]:,}")
    table.add_section()
    table.add_row("seconds", f"{seconds:.1f}")
    out = Console(highlight=False)
    out.print(table)
    if (wrong := tally.expected_wrong()) is not None:
        out.print(f"By the probability that each is right, {wrong}.", soft_wrap=True)


def print_evaluation(found: Evaluation, title: str) -> None:
    """The figures of an evaluation."""
    table = Table(show_header=False, title=Text(title), title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    missing = [("DET, SEG, TRA …", no_scores(found))] if found.scores is None else []
    for name, value in found.rows() + missing:
        table.add_row(name, Text(value))
    Console().print(table)
