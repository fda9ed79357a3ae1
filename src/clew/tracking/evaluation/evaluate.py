"""How good a result is: the task loss by event, AOGM, divisions, and the scores of the Cell Tracking Challenge."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import DataWarning, InputError
from clew.executors import Executor
from clew.tracking.evaluation.challenge import score_matched_frames
from clew.tracking.evaluation.matching import (
    FEW,
    count_matched_cells,
    make_cell_reader,
    match_positions,
)
from clew.tracking.evaluation.metrics import (
    Aogm,
    MatchCounts,
    compute_aogm,
    count_divisions,
)
from clew.tracking.evaluation.result_events import read_result_events
from clew.tracking.evaluation.task_loss import TaskLoss, compute_task_loss, count_gaps
from clew.tracking.evaluation.truth import (
    FrameMatch,
    LabelSource,
    Progress,
    ResultMasks,
    derive_events,
    match_frames,
)
from clew.tracking.events import NONE, PAIRWISE, Annotations
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.track_tables import PointLineage, open_lineage
from clew.tracking.lineage.lineage import Lineage
from clew.utils.extras import is_installed
from clew.utils.validation import check_bool

TOLERANCES = (0, 1)
"""How many frames too early or late a division may be found."""
NONE_TO_FIND = MatchCounts(0, 0, 0)
MASKS = "masks"


@dataclass(frozen=True)
class Evaluation:
    """Everything that is measured of a result."""

    loss: TaskLoss
    aogm: Aogm
    divisions: Mapping[int, MatchCounts]
    """By tolerance in frames."""
    scores: Mapping[str, float | None] | None
    """Of the challenge, as py-ctcmetrics computes them; None where the result or the truth has no masks of its own."""
    events_from: str
    """Where the result's events were taken from, in words."""
    gaps: MatchCounts = NONE_TO_FIND
    matched_by: str = MASKS
    """How detections and true cells were matched, in words."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "task_loss": self.loss.to_dict(),
            "aogm": {
                "total": self.aogm.total,
                "unavoidable": self.aogm.unavoidable,
                "avoidable": self.aogm.avoidable,
                "score": self.aogm.score,
                **asdict(self.aogm),
            },
            "divisions": {
                str(tolerance): _figures(found)
                for tolerance, found in self.divisions.items()
            },
            "gaps": _figures(self.gaps),
            "scores": None if self.scores is None else dict(self.scores),
            "events_from": self.events_from,
            "matched_by": self.matched_by,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Names and figures for a table."""
        loss = self.loss
        missed, n = (
            loss.missed.sum() + loss.invented.sum(),
            loss.annotated.sum() + loss.denied.sum(),
        )
        rows = [("task loss", f"{loss.total:.2%} ({missed} of {n})")]
        rows += [
            (f"{event} missed", f"{loss.missed[event]} of {loss.annotated[event]}")
            for event in PAIRWISE
            if loss.annotated[event]
        ]
        allow = MASKS if self.matched_by == MASKS else "detections"
        rows += [
            ("AOGM", f"{self.aogm.total:g}"),
            (f"AOGM above what the {allow} allow", f"{self.aogm.avoidable:g}"),
        ]
        rows += [
            (f"division F1, ± {tolerance} frames", _in_words(found))
            for tolerance, found in self.divisions.items()
        ]
        if not self.gaps.is_empty:
            rows.append(("gap F1", _in_words(self.gaps)))
        return rows + [
            (name, f"{value:.4f}")
            for name, value in (self.scores or {}).items()
            if value is not None
        ]


def _figures(found: MatchCounts) -> dict[str, float]:
    """For JSON."""
    return {
        **asdict(found),
        "precision": found.precision,
        "recall": found.recall,
        "f1": found.f1,
    }


def _in_words(found: MatchCounts) -> str:
    return f"{found.f1:.3f} ({found.right} right, {found.false} false, {found.missed} missed)"


def evaluate(
    result: str | Path | Lineage,
    truth: str | Path | CtcLineage | PointLineage,
    movie: LabelSource | None = None,
    *,
    scores: bool | None = None,
    progress: Progress | None = None,
    frames: range | None = None,
    executor: Executor | None = None,
    distance: float | None = None,
    spacing: Sequence[float] | None = None,
) -> Evaluation:
    """Measure a result against a true lineage: a folder with masks and tracks, a table of tracks, or a `Lineage`.

    Masks of both are matched by what they share; a `Lineage` comes with its movie for that. Where one side has no
    masks, or a `distance` is given, positions are matched, at most so far apart (see `positions.py`); those of the
    truth, and of a result's masks, are multiplied by `spacing` (by default what the result was tracked with, if it
    says so), while clew's tables of results are in physical units.
    A folder's events are those of its tables where it has them, else what its tracks mean; merges cannot be told by
    tracks. `scores` says whether py-ctcmetrics is asked: by default where it is installed and masks are matched. With
    `frames` these alone count, of the truth, and of the result too unless it is of just so many. Masks are matched by
    `executor`, in threads or on a cluster.
    """
    true = open_lineage(truth) if isinstance(truth, str | Path) else truth
    if frames is not None:
        true = _cut(true, frames)
    if scores is not None:
        check_bool(scores, "scores")
    own = result if isinstance(result, Lineage) else open_lineage(result)
    if isinstance(own, Lineage):
        events, events_from = own.events, "the lineage"
    else:
        events, events_from = read_result_events(own)
        shorter = own.n_frames < len(
            frames or ()
        )  # as a table is whose last frames are empty
        if (
            frames is not None
            and own.n_frames != len(frames)
            and not (shorter and isinstance(own, PointLineage))
        ):
            own, events = (
                _cut(own, frames),
                Annotations.of(events).restrict_to(frames).events,
            )
    if (
        isinstance(true, PointLineage)
        or isinstance(own, PointLineage)
        or distance is not None
    ):
        n = _common_length(true, own)
        spacing = (
            own.spacing
            if spacing is None and isinstance(own, PointLineage)
            else spacing
        )
        # clew's tables of results are in physical units
        of_result = make_cell_reader(
            own, spacing if isinstance(own, CtcLineage) else None
        )
        matched, within = match_positions(
            make_cell_reader(true, spacing), of_result, n, distance, progress
        )
        matched_by = f"positions, at most {within:.3g} apart"
    elif isinstance(own, CtcLineage):
        matched, matched_by = (
            match_frames(true, ResultMasks(own), progress, executor),
            MASKS,
        )
    elif movie is None:
        raise InputError(
            "a lineage is evaluated with the movie that it is of: pass `movie`"
        )
    else:
        matched, matched_by = match_frames(true, movie, progress, executor), MASKS
    if matched_by == MASKS:
        _warn_of_masks(matched)
    by_track = _in_tracks(matched, own) if isinstance(own, Lineage) else matched
    annotations = Annotations.of(derive_events(true.tracks, matched))
    return Evaluation(
        compute_task_loss(annotations, events),
        compute_aogm(true.tracks, own.tracks, by_track),
        {
            tolerance: count_divisions(true.tracks, own.tracks, by_track, tolerance)
            for tolerance in TOLERANCES
        },
        _scores_if(scores, own, true, by_track if matched_by == MASKS else None),
        events_from,
        count_gaps(annotations, events),
        matched_by,
    )


def _warn_of_masks(frames: list[FrameMatch]) -> None:
    """Tell where hardly any true cell is covered by a detection: figures are then about very few events."""
    held, n = count_matched_cells(frames)
    if held < FEW * n:
        warnings.warn(
            f"only {held} of {n} true cells are covered by more than half by a mask of the result. Are its masks of "
            "another kind, discs or markers? A distance (--distance) matches positions instead",
            DataWarning,
            stacklevel=3,
        )


def _scores_if(
    wanted: bool | None,
    result: CtcLineage | PointLineage | Lineage,
    truth: CtcLineage | PointLineage,
    by_masks: list[FrameMatch] | None,
) -> dict[str, float | None] | None:
    """The challenge's scores where they are asked for, or can be had by default: of masks that were matched."""
    if (
        by_masks is not None
        and isinstance(result, CtcLineage)
        and isinstance(truth, CtcLineage)
    ):
        asked = is_installed("evaluate") if wanted is None else wanted
        return score_matched_frames(result, truth, by_masks) if asked else None
    if wanted:
        raise InputError(
            "the challenge's scores need a result with masks: write it, and evaluate the folder"
        )
    return None


def _common_length(
    truth: CtcLineage | PointLineage, result: CtcLineage | PointLineage | Lineage
) -> int:
    """How many frames both have; the last ones of a table may be empty, so that it may seem to have fewer."""
    n = max(truth.n_frames, result.n_frames)
    for name, side in (("truth", truth), ("result", result)):
        if not isinstance(side, PointLineage) and side.n_frames < n:
            raise InputError(
                f"the {name} has {side.n_frames} frames, but there are cells in frame {n - 1} of the other side; "
                "expected both to be of the same movie, and to count frames from 0"
            )
    return n


def _cut(
    lineage: CtcLineage | PointLineage, frames: range
) -> CtcLineage | PointLineage:
    """Some frames of a lineage, if it has them."""
    if frames.stop > lineage.n_frames:
        raise InputError(
            f"{lineage.source} has no frames {frames.start} to {frames.stop - 1}; it has 0 to {lineage.n_frames - 1}"
        )
    return lineage[frames.start : frames.stop]


def _in_tracks(frames: list[FrameMatch], lineage: Lineage) -> list[FrameMatch]:
    """The same cells, held by tracks instead of labels."""
    starts = np.searchsorted(lineage.frame, np.arange(lineage.n_frames + 1))
    renamed = []
    for t, held in enumerate(frames):
        labels = np.append(lineage.label[starts[t] : starts[t + 1]], 0)
        tracks = np.append(lineage.track[starts[t] : starts[t + 1]], 0)
        at = np.searchsorted(labels[:-1], held.holder)
        unknown = (labels[at] != held.holder) & (held.holder != NONE)
        if unknown.any():
            raise InputError(
                f"frame {t}: the lineage lacks label {held.holder[unknown][0]} of the movie"
            )
        renamed.append(
            held._replace(holder=np.where(held.holder == NONE, NONE, tracks[at]))
        )
    return renamed
