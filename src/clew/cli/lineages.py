"""Show a lineage: the report, and tables on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from clew.cli.options import make_cell

if TYPE_CHECKING:
    from clew.tracking.blocks import StoredLineage
    from clew.tracking.detections import DetectionTable
    from clew.tracking.evaluation.evaluate import Evaluation
    from clew.tracking.io.label_layers import EventCounts
    from clew.tracking.lineage.lineage import Lineage, TrackedMovie
    from clew.tracking.movie import Movie
    from clew.tracking.tracker import Tracker

NO_SCORES = "not computed: install the extra evaluate"
NO_MASKS = "not computed: they need masks"


def explain_missing_scores(found: Evaluation) -> str:
    """Explain why the scores of the Challenge are missing."""
    from clew.tracking.evaluation.evaluate import MASKS

    return NO_SCORES if found.matched_by == MASKS else NO_MASKS


def make_report_page(
    lineage: Lineage,
    movie: Movie | DetectionTable,
    tracker: Tracker,
    facts: dict[str, str],
    evaluation: Evaluation | None = None,
) -> bytes:
    """Return the content of report.html."""
    from clew.tracking.measurement.label_faults import NO_FAULTS
    from clew.tracking.movie import Movie
    from clew.tracking.report import make_report
    from clew.tracking.tracker import Origin

    if getattr(tracker, "label_faults_", NO_FAULTS).is_unreliable:
        # probabilities say nothing about labels that are no cells
        lineage = replace(lineage, probability=None)
    weights = None
    if tracker.origin_ is not Origin.GENERIC:
        weights = dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True))
    page = make_report(
        lineage,
        movie=movie if isinstance(movie, Movie) else None,
        title=movie.name,
        facts=facts,
        weights=weights,
        evaluation=evaluation,
    )
    return page.encode()


REPORTED = 2_000_000
"""The report of a movie with more cells shows frames from its middle only."""


def make_sampled_report(
    tracked: StoredLineage,
    movie: Movie | DetectionTable,
    tracker: Tracker,
    facts: dict[str, str],
) -> bytes:
    """Return the content of report.html, for a part of the movie if it is very large."""
    if tracked.n_cells <= REPORTED:
        return make_report_page(tracked.lineage(), movie, tracker, facts)
    frames, lineage = tracked.sample(REPORTED)
    facts |= {
        "sample": f"frames {frames[0]} to {frames[-1]} of {tracked.n_frames}, {len(lineage.frame):,} of "
        f"{tracked.n_cells:,} cells; frames count from the first of these"
    }
    return make_report_page(lineage, movie[frames.start : frames.stop], tracker, facts)


def print_lineage(lineage: Lineage, seconds: float) -> None:
    """Print the numbers of cells, tracks and events of a lineage."""
    from clew.parallel import ThreadExecutor
    from clew.tracking.io.label_layers import write_label_images
    from clew.tracking.lineage.lineage import LineageInParts

    tracked = LineageInParts(lineage)
    print_counts(
        tracked, write_label_images(Path(), None, tracked, ThreadExecutor()), seconds
    )


def print_counts(
    tracked: TrackedMovie,
    tally: EventCounts,
    seconds: float,
    *,
    is_reliable: bool = True,
) -> None:
    """Print the numbers of cells, tracks and events.

    Parameters
    ----------
    tracked : TrackedMovie
    tally : EventCounts
    seconds : float
    is_reliable : bool
        Whether each label is a cell; otherwise no number of wrong events is printed.
    """
    from clew.tracking.events import LINEAGE_KINDS
    from clew.tracking.lineage.tracks import find_false_detections

    table = Table(show_header=False, title="Lineage", title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in (
        ("frames", tracked.n_frames),
        ("cells", tracked.n_cells),
        ("tracks", len(tracked.tracks)),
    ):
        table.add_row(name, f"{value:,}")
    if n_false := int(find_false_detections(tracked.tracks).sum()):
        table.add_row("probably false detections", f"{n_false:,}")
    table.add_section()
    for event in LINEAGE_KINDS:
        table.add_row(str(event), f"{tally.kinds[event]:,}")
    table.add_section()
    table.add_row("seconds", f"{seconds:.1f}")
    out = Console(highlight=False)
    out.print(table)
    if not is_reliable:
        out.print(
            "How many events are wrong cannot be estimated: see the warning about "
            "labels.",
            soft_wrap=True,
        )
    elif (wrong := tally.expected_wrong()) is not None:
        out.print(f"By their probabilities, {wrong}.", soft_wrap=True)


def print_evaluation(found: Evaluation, title: str) -> None:
    """Print the figures of an evaluation."""
    missing = (
        [("DET, SEG, TRA …", explain_missing_scores(found))]
        if found.scores is None and found.aogm is not None
        else []
    )
    print_figures(found.rows() + missing, title)


def print_figures(rows: list[tuple[str, str]], title: str) -> None:
    """Print names and figures as a table."""
    table = Table(show_header=False, title=make_cell(title), title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, make_cell(value))
    Console().print(table)
