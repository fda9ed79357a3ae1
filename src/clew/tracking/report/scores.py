"""The section of the report that compares a result with the truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.tracking.evaluation.evaluate import Evaluation
from clew.tracking.evaluation.task_loss import NOTHING, TaskLoss
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.report import markup
from clew.tracking.report.markup import format_count, format_number

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
        share = markup.NOTHING
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
        return markup.NOTHING
    kind = int(counts.argmax())
    if kind == NOTHING:
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
        rows.append((title, markup.NOTHING if value is None else f"{value:.4f}"))
    return rows


def _list_f1(evaluation: Evaluation) -> list[tuple[str, str]]:
    """F1 of divisions and gaps, with counts."""
    named = []
    for tolerance, counts in evaluation.divisions.items():
        frames = f"± {format_count(tolerance, 'frame')}" if tolerance else "exact frame"
        named.append((f"division F1, {frames}", counts))
    if not evaluation.gaps.is_empty:
        named.append(("gap F1", evaluation.gaps))
    rows = []
    for name, counts in named:
        figures = f"{counts.right:,} right, {counts.false:,} false, "
        figures += f"{counts.missed:,} missed"
        rows.append((f"{name} ({figures})", f"{counts.f1:.4f}"))
    return rows
