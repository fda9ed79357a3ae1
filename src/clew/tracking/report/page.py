"""The report: one HTML page with counts, scores, trees and the least certain events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.tracking.events import LINEAGE_KINDS, PAIRWISE, Event
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.doubts import render_doubts
from clew.tracking.report.figures import (
    Forest,
    make_weight_rows,
    plot_events,
    plot_lineage,
    plot_weights,
)
from clew.tracking.report.markup import (
    NOTHING,
    STYLE,
    escape_text,
    format_count,
    format_number,
    render_svg,
)
from clew.tracking.training.calibration import expected_wrong

if TYPE_CHECKING:  # not needed where there is no truth
    from clew.tracking.evaluation.evaluate import Evaluation
    from clew.tracking.evaluation.task_loss import TaskLoss

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page loads nothing and runs nothing, whatever the names in it say."""
MAX_TRACKS = 120
"""Lines in the picture of the lineage."""
SCORE_NAMES = {
    "DET": "detection",
    "SEG": "segmentation",
    "TRA": "tracking",
    "LNK": "linking",
    "BIO": "biological",
    "CT": "complete tracks",
    "TF": "track fractions",
    "BC": "branching correctness",
    "CCA": "cell cycle accuracy",
}
AOGM_PARTS = {
    "split_vertices": "cells that share a detection",
    "missing_vertices": "cells not detected",
    "false_vertices": "false detections",
    "false_edges": "false links",
    "missing_edges": "missing links",
    "wrong_edges": "links of the wrong kind",
}


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
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}"/>'
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
        for event in LINEAGE_KINDS
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
    absent = [str(event) for event in LINEAGE_KINDS if not counts[event]]
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


def render_evaluation(evaluation: Evaluation | None) -> str:
    """Render loss by event, AOGM, divisions and scores; nothing without a truth."""
    if evaluation is None:
        return ""
    loss = evaluation.loss
    lead = (
        f"Task loss {100 * loss.total:.2f} %: the result contradicts "
        f"{loss.n_errors:,} of {format_count(loss.n_annotations, 'event')} that the "
        f"truth determines. Its events come from {evaluation.events_from}."
    )
    scores = markup.render_table(
        ["score", "value"], [*_list_scores(evaluation), *_list_f1(evaluation)]
    )
    losses = _render_losses(loss)
    aogm = _render_aogm(evaluation)
    left = f"<div><h3>Task loss by event</h3>{losses}<h3>AOGM</h3>{aogm}</div>"
    right = f"<div><h3>Scores</h3>{scores}</div>"
    return markup.render_section(
        "Comparison with the truth",
        markup.render_lead(lead),
        f'<div class="columns">{left}{right}</div>',
    )


def _render_losses(loss: TaskLoss) -> str:
    """Annotated and missed events of each kind, and what was predicted instead."""
    has_denied = bool(loss.denied.any())
    head = ["event", "annotated", "missed", "loss"]
    if has_denied:
        head += ["denied", "invented"]
    head.append("predicted instead")

    def make_row(name: str, counts: NDArray[np.int64], instead: str) -> list[str]:
        annotated, missed, denied, invented = counts.tolist()
        share = NOTHING
        if annotated + denied:
            share = f"{100 * (missed + invented) / (annotated + denied):.2f} %"
        row = [name, f"{annotated:,}", f"{missed:,}", share]
        if has_denied:
            row += [f"{denied:,}", f"{invented:,}"]
        return [*row, instead]

    counts = np.column_stack([loss.annotated, loss.missed, loss.denied, loss.invented])
    rows = [
        make_row(str(event), counts[event], _describe_confusion(loss, event))
        for event in PAIRWISE
    ]
    rows.append(make_row("total", counts.sum(axis=0), ""))
    return markup.render_table(head, rows)


def _describe_confusion(loss: TaskLoss, event: Event) -> str:
    """What was predicted most often for missed events of a kind."""
    counts = loss.confusion[event]
    if not counts.any():
        return NOTHING
    kind = int(counts.argmax())
    if kind == len(Event):
        name = "nothing"
    elif kind == event:
        name = "other cells"
    else:
        name = str(Event(kind))
    return f"{name} ({counts[kind]:,})"


def _render_aogm(evaluation: Evaluation) -> str:
    """Operations that turn the result into the truth, and their cost."""
    aogm = evaluation.aogm
    if aogm is None:
        return ""
    rows = [(name, f"{getattr(aogm, part):,}") for part, name in AOGM_PARTS.items()]
    rows.append(("AOGM, the weighted sum", format_number(aogm.total)))
    rows.append(("avoidable with these detections", format_number(aogm.avoidable)))
    return markup.render_table(["operation", "count"], rows)


def _list_scores(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Scores of the challenge; without masks only TRA, which follows from AOGM."""
    if evaluation.aogm is None:
        return [] if evaluation.sparse is None else evaluation.sparse.rows()
    if evaluation.scores is None:
        return [("TRA, tracking", f"{evaluation.aogm.score:.4f}")]
    rows = []
    for name, value in evaluation.scores.items():
        title = f"{name}, {SCORE_NAMES[name]}" if name in SCORE_NAMES else name
        rows.append((title, NOTHING if value is None else f"{value:.4f}"))
    return rows


def _list_f1(evaluation: Evaluation) -> list[tuple[str, str]]:
    """F1 of divisions and gaps, with counts."""
    named = []
    for tolerance, counts in evaluation.divisions.items():
        frames = f"± {format_count(tolerance, 'frame')}" if tolerance else "exact frame"
        named.append((f"division F1, {frames}", counts))
    if not evaluation.gaps.is_empty:
        named.append(("gap F1", evaluation.gaps))
    return [(f"{name} ({counts})", f"{counts.f1:.4f}") for name, counts in named]
