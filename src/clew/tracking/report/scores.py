"""The part of the report that compares a result with the truth."""

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
    "missing_edges": "links missing",
    "wrong_edges": "links of the wrong kind",
}


def render_evaluation(evaluation: Evaluation | None) -> str:
    """Loss by event, the scores of the Cell Tracking Challenge, AOGM and divisions; nothing without a truth."""
    if evaluation is None:
        return ""
    loss = evaluation.loss
    n, wrong = (
        int((loss.annotated + loss.denied).sum()),
        int((loss.missed + loss.invented).sum()),
    )
    sentence = (
        f"Task loss {100 * loss.total:.2f} %: of {format_count(n, 'event')} that the truth determines, the result "
        f"contradicts {wrong:,}. Its events were taken from {evaluation.events_from}."
    )
    figures = [*_scores(evaluation), *_divisions(evaluation)]
    right = (
        f"<div><h3>Scores</h3>{markup.render_table(['score', 'value'], figures)}</div>"
    )
    left = f"<div><h3>Task loss by event</h3>{_by_event(loss)}<h3>AOGM</h3>{_aogm(evaluation)}</div>"
    return markup.render_section(
        "Against the truth",
        markup.render_lead(sentence),
        f'<div class="columns">{left}{right}</div>',
    )


def _by_event(loss: TaskLoss) -> str:
    """Annotated and missed events of each kind, and what was predicted instead."""
    with_denied = bool(loss.denied.any())
    head = [
        "event",
        "annotated",
        "missed",
        "loss",
        *(["denied", "invented"] if with_denied else []),
        "taken for",
    ]

    def row(name: str, counts: NDArray[np.int64], instead: str) -> list[str]:
        annotated, missed, denied, invented = counts.tolist()
        share = (
            f"{100 * (missed + invented) / (annotated + denied):.2f} %"
            if annotated + denied
            else "–"
        )
        more = [f"{denied:,}", f"{invented:,}"] if with_denied else []
        return [name, f"{annotated:,}", f"{missed:,}", share, *more, instead]

    counts = np.column_stack([loss.annotated, loss.missed, loss.denied, loss.invented])
    rows = [row(str(event), counts[event], _instead(loss, event)) for event in PAIRWISE]
    return markup.render_table(head, [*rows, row("total", counts.sum(axis=0), "")])


def _instead(loss: TaskLoss, event: Event) -> str:
    """What was predicted most often where an event of this kind was missed."""
    counts = loss.confusion[event]
    if not counts.any():
        return "–"
    most = int(counts.argmax())
    name = (
        "nothing"
        if most == NOTHING
        else "other cells"
        if most == event
        else str(Event(most))
    )
    return f"{name} ({counts[most]:,})"


def _aogm(evaluation: Evaluation) -> str:
    """The cost of making the result the truth, and the operations that it takes."""
    parts = [
        (name, f"{getattr(evaluation.aogm, part):,}")
        for part, name in AOGM_PARTS.items()
    ]
    sums = [
        ("AOGM, the weighted sum", format_number(evaluation.aogm.total)),
        (
            "of which these detections allow to avoid",
            format_number(evaluation.aogm.avoidable),
        ),
    ]
    return markup.render_table(["operation", "count"], [*parts, *sums])


def _scores(evaluation: Evaluation) -> list[tuple[str, str]]:
    """The challenge's scores; without masks of the result's own, TRA alone, which follows from AOGM."""
    if evaluation.scores is None:
        return [("TRA, tracking", f"{evaluation.aogm.score:.4f}")]
    return [
        (
            f"{name}, {SCORE_NAMES[name]}" if name in SCORE_NAMES else name,
            "–" if value is None else f"{value:.4f}",
        )
        for name, value in evaluation.scores.items()
    ]


def _divisions(evaluation: Evaluation) -> list[tuple[str, str]]:
    """F1 of the divisions by tolerance and, where there are any, of the gaps, with what it comes from."""
    named = [
        (
            "division F1, "
            + (
                "exact frame"
                if tolerance == 0
                else f"± {format_count(tolerance, 'frame')}"
            ),
            found,
        )
        for tolerance, found in evaluation.divisions.items()
    ]
    if not evaluation.gaps.is_empty:
        named.append(("gap F1", evaluation.gaps))
    return [
        (
            f"{name} ({found.right:,} right, {found.false:,} false, {found.missed:,} missed)",
            f"{found.f1:.4f}",
        )
        for name, found in named
    ]
