"""What the page gets to see, as plain JSON content: cells, frame pairs, questions, families."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clew.annotation.cell_positions import DIGITS, CellPositions
from clew.annotation.questions import Question
from clew.learning.task import Array
from clew.tracking.events import Annotations, EventIndex, EventTable
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.solve import SolvedPair

Json = dict[str, Any]


def event_view(event: str, sources: Sequence[int], targets: Sequence[int]) -> Json:
    """An event, without its frame."""
    return {"event": event, "sources": list(sources), "targets": list(targets)}


def pair_view(
    frame: int,
    cells: tuple[CellPositions, CellPositions],
    solved: SolvedPair,
    here: Annotations,
    scale: float,
) -> Json:
    """A frame pair with its predicted events; `here` are its annotations, `scale` as for `certainty`."""
    pinned = np.isin(solved.events.row_keys(), here.events.row_keys()[here.happened])
    events = [
        event_view(str(event), sources, targets)
        | {
            "confidence": sure if math.isfinite(sure) else None,
            "certainty": share,
            "pinned": True if pin else None,
        }
        for (_, event, sources, targets), sure, share, pin in zip(
            solved.events,
            solved.confidence.tolist(),
            certainty(solved.confidence, scale),
            pinned.tolist(),
            strict=True,
        )
    ]
    denied = [
        event_view(str(event), sources, targets)
        for _, event, sources, targets in here.events[~here.happened]
    ]
    return {
        "frame": frame,
        "a": cells[0].view(),
        "b": cells[1].view(),
        "events": events,
        "denied": denied,
    }


def certainty(confidence: Array, scale: float) -> list[float]:
    """Confidences as shares of the usual one of the movie, at most 1: what the page's words and lines go by.

    The words of `queries.TIE` and `queries.UNSURE` go by the same shares, so that both say the same.
    """
    shares: list[float] = np.round(np.clip(confidence / scale, 0.0, 1.0), 4).tolist()
    return shares


def question_view(
    question: Question,
    cells: tuple[CellPositions, CellPositions],
    solved: SolvedPair | None,
) -> Json:
    """A question with its place in the picture, and how sure the proposed event is if it is the predicted one."""
    where = np.vstack(
        [cells[0].of_labels(question.sources), cells[1].of_labels(question.targets)]
    )
    centre = (
        np.round(where.mean(axis=0)[::-1][:2], DIGITS).tolist()
        if len(where)
        else [0.0, 0.0]
    )
    return {
        "frame": question.frame,
        **event_view(str(question.event), question.sources, question.targets),
        "reason": question.reason,
        "confidence": _confidence(question, solved),
        "centre": centre,
    }


def _confidence(question: Question, solved: SolvedPair | None) -> float | None:
    if solved is None:
        return None
    asked = EventTable.of(
        [(question.frame, question.event, question.sources, question.targets)]
    )
    at = np.flatnonzero(solved.events.row_keys() == asked.row_keys())
    return (
        float(solved.confidence[at[0]])
        if len(at) and np.isfinite(solved.confidence[at[0]])
        else None
    )


def family_view(lineage: Lineage, frame: int, label: int, scale: float) -> Json:
    """The tracks of a cell's family, from its first ancestor on.

    Each cell is [frame, label, certainty of what happens to it next], with None in the last frame.
    """
    node = np.flatnonzero((lineage.frame == frame) & (lineage.label == label))
    if not len(node):
        return {"tracks": [], "selected": None}
    tracks, own = lineage.tracks, int(lineage.track[node[0]])
    root = row = int(np.flatnonzero(tracks.id == own)[0])
    above = tracks.parent_row()
    while (row := int(above[row])) >= 0:
        root = row
    family = np.isin(
        tracks.id, [tracks.id[root], *lineage.descendants(int(tracks.id[root]))]
    )
    by_track: dict[int, list[list[Any]]] = {}
    mine = np.flatnonzero(np.isin(lineage.track, tracks.id[family]))
    fate = EventIndex(lineage.events).find_cell(
        lineage.frame[mine], np.zeros(len(mine), bool), lineage.label[mine]
    )
    sure = np.array(certainty(lineage.confidence, scale) or [0.0])
    for one, event in zip(mine.tolist(), fate.tolist(), strict=True):
        cell = [
            int(lineage.frame[one]),
            int(lineage.label[one]),
            None if event < 0 else float(sure[event]),
        ]
        by_track.setdefault(int(lineage.track[one]), []).append(cell)
    return {
        "tracks": [
            {
                "id": name,
                "begin": begin,
                "end": end,
                "parent": parent,
                "cells": by_track.get(name, []),
            }
            for name, begin, end, parent in tracks[family].table().tolist()
        ],
        "selected": {"track": own, "frame": frame},
    }
