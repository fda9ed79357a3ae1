"""The report: one HTML page with everything in it that a person looks at after tracking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from clew.errors import InputError
from clew.tracking.evaluation.evaluate import Evaluation
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.doubts import render_doubts
from clew.tracking.report.figures import make_weight_rows, plot_events, plot_weights
from clew.tracking.report.forest import Forest
from clew.tracking.report.markup import escape_text, format_count, format_number
from clew.tracking.report.palette import render_svg
from clew.tracking.report.scores import render_evaluation
from clew.tracking.report.style import STYLE
from clew.tracking.report.tree import plot_lineage
from clew.tracking.training.calibration import expected_wrong

MAX_TRACKS = 120
"""Lines in the picture of the lineage."""


def make_report(
    lineage: Lineage,
    *,
    movie: Movie | None = None,
    weights: Mapping[str, float] | None = None,
    evaluation: Evaluation | None = None,
    title: str = "",
    facts: Mapping[str, str] | None = None,
    uncertain: int = 12,
) -> str:
    """A self-contained HTML page: summary, lineage, events over time, least certain events, weights.

    `weights` maps names such as "divide: angle of the daughters" to values, `facts` is shown as it is (how the weights
    were learned), and of `movie` only the frames of the `uncertain` least certain events are read.
    """
    if movie is not None and (movie.n_frames, movie.ndim) != (
        lineage.n_frames,
        lineage.position.shape[1],
    ):
        raise InputError(
            f"the lineage has {lineage.n_frames} frames in {lineage.position.shape[1]} dimensions, the movie "
            f"{movie.name} has {movie.n_frames} in {movie.ndim}; a report needs the movie that was tracked"
        )
    heading = title or (movie.name if movie is not None else "") or "Lineage"
    parts = [
        _summary(lineage, facts or {}),
        render_evaluation(evaluation),
        _tree(lineage),
        _over_time(lineage),
        render_doubts(lineage, movie, uncertain),
        _weights(weights),
    ]
    source = (
        f"<p>{escape_text(movie.name)}: {escape_text(movie.source)}</p>"
        if movie is not None
        else ""
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape_text(heading)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{escape_text(heading)}</h1>{source}</header>{''.join(parts)}"
        "<footer>Frames count from 0. An event that begins in frame t is counted at t. Made by clew.</footer>"
        "</main></body></html>\n"
    )


def _summary(lineage: Lineage, facts: Mapping[str, str]) -> str:
    """What there is, how much of it happened, and how it was learned."""
    cells, counts = len(lineage.frame), lineage.counts().sum(axis=0)
    tiles = [
        ("frames", lineage.n_frames),
        ("cells in all frames", cells),
        ("tracks", len(lineage.tracks)),
        ("divisions", int(counts[Event.DIVIDE])),
    ]
    tiled = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{value:,}</dd></div>"
        for name, value in tiles
    )
    rows = [
        (str(event), f"{counts[event]:,}", *_sureness(lineage, event))
        for event in Event
    ]
    events = markup.render_table(
        ["event", "count", "wrong, expected", "least confidence", "median"], rows
    )
    learned = (
        f"<div><h3>How it was made</h3>{markup.render_facts(facts.items())}</div>"
        if facts
        else ""
    )
    note = (
        "An event's confidence is the score that is lost if the event is forbidden, so that the next best explanation "
        "has to be taken; ∞ where there is none."
    )
    if lineage.probability is not None:
        note = f"By the probability that each is right, {expected_wrong(lineage.probability)}. {note}"
    return (
        f'<dl class="tiles">{tiled}</dl><div class="columns"><div><h3>Events</h3>{events}</div>{learned}</div>'
        f'<p class="note">{escape_text(note)}</p>'
    )


def _sureness(lineage: Lineage, event: Event) -> tuple[str, str, str]:
    """Of one kind of event how many are expected to be wrong, and the least and the median confidence."""
    mine = lineage.events.event == event
    of = lineage.confidence[mine]
    if not len(of):
        return "–", "–", "–"
    wrong = (
        "–"
        if lineage.probability is None
        else f"{(1 - lineage.probability[mine]).sum():.1f}"
    )
    return (
        wrong,
        format_number(float(of.min())),
        format_number(float(np.percentile(of, 50, method="lower"))),
    )


def _tree(lineage: Lineage) -> str:
    """The largest families."""
    if not len(lineage.frame):
        return markup.render_section(
            "Lineage", markup.render_lead("There are no cells in any frame.")
        )
    forest = Forest(lineage, MAX_TRACKS)
    label = f"Lineage trees. {forest.describe()}"
    return markup.render_section(
        "Lineage",
        markup.render_lead(
            f"{forest.describe()} Time runs to the right; numbers are tracks."
        ),
        markup.render_picture(
            render_svg(plot_lineage(lineage, MAX_TRACKS), label, "tree")
        ),
    )


def _over_time(lineage: Lineage) -> str:
    """Counts of cells and events."""
    absent = [
        str(event)
        for event, n in zip(Event, lineage.counts().sum(axis=0), strict=True)
        if not n
    ]
    never = f" Events that never happen: {', '.join(absent)}." if absent else ""
    label = "Cells in each frame, and counts of each event, over time"
    return markup.render_section(
        "Events over time",
        markup.render_lead(
            f"How many cells there are in each frame, and how often each event happens from it to the next.{never}"
        ),
        markup.render_picture(render_svg(plot_events(lineage), label, "time")),
    )


def _weights(weights: Mapping[str, float] | None) -> str:
    """What was learned."""
    if not weights:
        return ""
    names, values = list(weights), list(weights.values())
    label = f"Learned weights of {format_count(len(names), 'feature')}, by event"
    return markup.render_section(
        "Learned weights",
        markup.render_lead(
            "By event and feature, the largest first. Features have no unit, so that weights can be compared."
        ),
        markup.render_picture(
            render_svg(plot_weights(names, values), label, "weights")
        ),
        markup.render_details(
            "The same as a table",
            markup.render_table(
                ["event", "feature", "weight"],
                [
                    (row.event, row.feature, format_number(row.weight, 4))
                    for row in make_weight_rows(names, values)
                ],
                words=2,
            ),
        ),
    )
