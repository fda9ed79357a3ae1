"""The report: one HTML page that shows what tracking found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from clew.errors import InputError
from clew.tracking.evaluation.evaluate import Evaluation
from clew.tracking.events import Event
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.doubts import render_doubts
from clew.tracking.report.figures import make_weight_rows, plot_events, plot_weights
from clew.tracking.report.forest import Forest
from clew.tracking.report.markup import (
    NOTHING,
    escape_text,
    format_count,
    format_number,
)
from clew.tracking.report.scores import render_evaluation
from clew.tracking.report.theme import STYLE, render_svg
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
    """Make a self-contained HTML page.

    Parameters
    ----------
    lineage : Lineage
    movie : Movie, optional
        The tracked movie; only the frames of uncertain events are read.
    weights : mapping, optional
        Learned weights by names such as "divide: angle of the daughters".
    evaluation : Evaluation, optional
        Comparison with the truth.
    title : str
        Name of the movie by default.
    facts : mapping, optional
        How the lineage was made, shown unchanged.
    uncertain : int
        Number of least certain events to show.

    Returns
    -------
    page : str
    """
    ndim = lineage.position.shape[1]
    if movie is not None and (movie.n_frames, movie.ndim) != (lineage.n_frames, ndim):
        raise InputError(
            f"the lineage has {lineage.n_frames} frames in {ndim} dimensions, the "
            f"movie {movie.name} has {movie.n_frames} in {movie.ndim}; a report needs "
            "the movie that was tracked"
        )
    movie = add_recovered(movie, lineage.recovered)
    name = movie.name if movie is not None else ""
    heading = escape_text(title or name or "Lineage")
    source = ""
    if movie is not None:
        source = f"<p>{escape_text(movie.name)}: {escape_text(movie.source)}</p>"
    sections = [
        _render_summary(lineage, facts or {}),
        render_evaluation(evaluation),
        _render_tree(lineage),
        _render_timeline(lineage),
        render_doubts(lineage, movie, uncertain),
        _render_weights(weights or {}),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{heading}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{heading}</h1>{source}</header>{''.join(sections)}"
        "<footer>Frames are counted from 0. An event from frame t to t + 1 is counted "
        "at t. Made by clew.</footer></main></body></html>\n"
    )


def _render_summary(lineage: Lineage, facts: Mapping[str, str]) -> str:
    """Counts of cells, tracks and events, and how the lineage was made."""
    counts = lineage.counts().sum(axis=0)
    tiles = {
        "frames": lineage.n_frames,
        "cells in all frames": len(lineage.frame),
        "tracks": len(lineage.tracks),
        "divisions": int(counts[Event.DIVIDE]),
    }
    tile_list = "".join(
        f"<div><dt>{name}</dt><dd>{value:,}</dd></div>" for name, value in tiles.items()
    )
    head = ["event", "count", "expected errors", "lowest confidence", "median"]
    rows = [
        (str(event), f"{counts[event]:,}", *_describe_confidence(lineage, event))
        for event in Event
    ]
    columns = f"<div><h3>Events</h3>{markup.render_table(head, rows)}</div>"
    if facts:
        fact_list = markup.render_facts(facts.items())
        columns += f"<div><h3>How it was made</h3>{fact_list}</div>"
    note = (
        "Confidence is the score that is lost if the event is forbidden and the next "
        "best explanation is taken; ∞ if there is none."
    )
    if lineage.probability is not None:
        expected = expected_wrong(lineage.probability)
        note = f"By the probability that each event is right, {expected}. {note}"
    return (
        f'<dl class="tiles">{tile_list}</dl><div class="columns">{columns}</div>'
        f'<p class="note">{escape_text(note)}</p>'
    )


def _describe_confidence(lineage: Lineage, event: Event) -> tuple[str, str, str]:
    """Expected errors, and lowest and median confidence, of one kind of event."""
    is_kind = lineage.events.event == event
    confidence = lineage.confidence[is_kind]
    if not len(confidence):
        return NOTHING, NOTHING, NOTHING
    errors = NOTHING
    if lineage.probability is not None:
        errors = f"{(1 - lineage.probability[is_kind]).sum():.1f}"
    median = float(np.percentile(confidence, 50, method="lower"))
    return errors, format_number(float(confidence.min())), format_number(median)


def _render_tree(lineage: Lineage) -> str:
    """The largest families as trees."""
    if not len(lineage.frame):
        lead = markup.render_lead("There are no cells in any frame.")
        return markup.render_section("Lineage", lead)
    shown = Forest(lineage, MAX_TRACKS).describe()
    figure = plot_lineage(lineage, MAX_TRACKS)
    svg = render_svg(figure, f"Lineage trees. {shown}", "tree")
    return markup.render_section(
        "Lineage",
        markup.render_lead(f"{shown} Time runs to the right; numbers are track ids."),
        markup.render_picture(svg),
    )


def _render_timeline(lineage: Lineage) -> str:
    """Counts of cells and events by frame."""
    counts = lineage.counts().sum(axis=0)
    absent = [str(event) for event in Event if not counts[event]]
    lead = "Cells in each frame, and events from each frame to the next."
    if absent:
        lead += f" Events that never happen: {', '.join(absent)}."
    label = "Cells in each frame, and counts of each event, over time"
    svg = render_svg(plot_events(lineage), label, "time")
    return markup.render_section(
        "Events over time", markup.render_lead(lead), markup.render_picture(svg)
    )


def _render_weights(weights: Mapping[str, float]) -> str:
    """Learned weights, as a figure and as a table."""
    if not weights:
        return ""
    names = list(weights)
    values = list(weights.values())
    label = f"Learned weights of {format_count(len(names), 'feature')}, by event"
    svg = render_svg(plot_weights(names, values), label, "weights")
    rows = [
        (row.event, row.feature, format_number(row.weight, 4))
        for row in make_weight_rows(names, values)
    ]
    table = markup.render_table(["event", "feature", "weight"], rows, n_words=2)
    return markup.render_section(
        "Learned weights",
        markup.render_lead(
            "By event and feature, the largest first. Features have no unit, so "
            "weights can be compared."
        ),
        markup.render_picture(svg),
        markup.render_details("The same as a table", table),
    )
