"""Evaluate a result: task loss by event, AOGM, divisions, scores of the challenge."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import DataWarning, InputError
from clew.parallel import Executor, Progress
from clew.tracking.evaluation.attachment import find_completeness
from clew.tracking.evaluation.challenge import Scores, score_matched_frames
from clew.tracking.evaluation.matching import (
    MIN_MATCHED_SHARE,
    FileLineage,
    FrameMatch,
    LabelSource,
    ResultMasks,
    count_matched_cells,
    estimate_distance,
    make_cell_reader,
    match_frames,
    match_positions,
)
from clew.tracking.evaluation.metrics import (
    Aogm,
    MatchCounts,
    compute_aogm,
    count_divisions,
)
from clew.tracking.evaluation.result_events import (
    ResultEvents,
    read_result_events,
    remove_recovered,
)
from clew.tracking.evaluation.sparse import DISTANCE, SparseScore, evaluate_sparse
from clew.tracking.evaluation.task_loss import TaskLoss, compute_task_loss, count_gaps
from clew.tracking.evaluation.truth import derive_known_events
from clew.tracking.events import NONE, PAIRWISE, Annotations
from clew.tracking.io.ctc import CtcLineage, split_at_gaps
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import MissingFromMask
from clew.utils.extras import is_installed
from clew.utils.validation import check_bool

TOLERANCES = (0, 1)
"""Frames by which a division may be early or late."""
COMPLETE_TRUTH = 0.8
"""A truth with this share of the cells of a result counts as complete; a result may
have false cells."""
NO_GAPS = MatchCounts(0, 0, 0)
MASKS = "masks"


@dataclass(frozen=True)
class Evaluation:
    """All measures of a result.

    Attributes
    ----------
    loss : TaskLoss
    aogm : Aogm or None
        None if the truth is partial, since AOGM counts cells that it does not have.
    divisions : mapping from tolerance in frames to MatchCounts
        Empty if the truth is partial.
    scores : mapping or None
        Of the challenge; None if the result or the truth has no masks.
    events_from : str
        Where the events of the result come from, in words.
    gaps : MatchCounts
    matched_by : str
        How detections and true cells were matched, in words.
    truth_is : str
        Whether the truth is complete or partial and why, in words.
    sparse : SparseScore or None
        If the truth is partial.
    """

    loss: TaskLoss
    aogm: Aogm | None
    divisions: Mapping[int, MatchCounts]
    scores: Mapping[str, float | None] | None
    events_from: str
    gaps: MatchCounts = NO_GAPS
    matched_by: str = MASKS
    truth_is: str = ""
    sparse: SparseScore | None = None

    def to_dict(self) -> dict[str, Any]:
        """All figures for JSON."""
        return {
            "task_loss": self.loss.to_dict(),
            "aogm": None if self.aogm is None else _list_costs(self.aogm),
            "divisions": {
                str(tolerance): _list_figures(counts)
                for tolerance, counts in self.divisions.items()
            },
            "gaps": _list_figures(self.gaps),
            "scores": None if self.scores is None else dict(self.scores),
            "events_from": self.events_from,
            "matched_by": self.matched_by,
            "truth_is": self.truth_is,
            "sparse": None if self.sparse is None else self.sparse.to_dict(),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Names and figures for a table."""
        loss = self.loss
        figures = f"{loss.total:.2%} ({loss.n_errors} of {loss.n_annotations})"
        rows = [("task loss", figures)]
        for event in PAIRWISE:
            if loss.annotated[event]:
                figures = f"{loss.missed[event]} of {loss.annotated[event]}"
                rows.append((f"{event} missed", figures))
        limit = MASKS if self.matched_by == MASKS else "detections"
        if self.aogm is not None:
            total = f"{self.aogm.total:g}"
            avoidable = f"{self.aogm.avoidable:g}"
            rows.append(("AOGM", total))
            rows.append((f"AOGM above what the {limit} allow", avoidable))
        for tolerance, counts in self.divisions.items():
            name = f"division F1, ± {tolerance} frames"
            rows.append((name, f"{counts.f1:.3f} ({counts})"))
        if not self.gaps.is_empty:
            rows.append(("gap F1", f"{self.gaps.f1:.3f} ({self.gaps})"))
        for name, value in (self.scores or {}).items():
            if value is not None:
                rows.append((name, f"{value:.4f}"))
        return rows + ([] if self.sparse is None else self.sparse.rows()[1:])


def _list_costs(aogm: Aogm) -> dict[str, float]:
    """Costs and counts for JSON."""
    return {
        "total": aogm.total,
        "unavoidable": aogm.unavoidable,
        "avoidable": aogm.avoidable,
        "score": aogm.score,
        **asdict(aogm),
    }


def _list_figures(counts: MatchCounts) -> dict[str, float]:
    """Counts and ratios for JSON."""
    return {
        **asdict(counts),
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
    }


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
    complete: bool | None = None,
) -> Evaluation:
    """Measure a result against a true lineage.

    What a partial truth leaves open is not counted: how its tracks begin and
    end, and cells that it does not have.

    If both have masks and no `distance` is given, cells are matched by masks, else by
    positions; see `matching`. The events of a folder are those of its tables if it
    has them, else those that its tracks imply, which have no merges.

    Parameters
    ----------
    result : path or Lineage
        A folder with masks and tracks, a table of tracks, or a lineage.
    truth : path, CtcLineage or PointLineage
        A folder with masks and tracks, or a table of tracks.
    movie : Movie, optional
        The movie of `result`, if that is a Lineage and masks are matched.
    scores : bool, optional
        Whether to compute the scores of the challenge by py-ctcmetrics; by default if
        it is installed and masks are matched.
    progress : callable, optional
        Called with the number of frames done and in all.
    frames : range, optional
        Evaluate these frames of the truth; the result may have just these.
    executor : Executor, optional
        Matches masks in threads or on a cluster.
    distance : float, optional
        Match positions, at most this far apart.
    spacing : sequence of float, optional
        Multiplies the positions of the truth and of the masks of a result; by
        default the spacing that the result was tracked with, if it has one. Tables
        of results of clew are physical already.
    complete : bool, optional
        Whether the truth has all cells. By default it is partial if it says so, has
        no parents, or has far fewer cells than the result.

    Returns
    -------
    evaluation : Evaluation
    """
    if complete is not None:
        check_bool(complete, "complete")
    if scores is not None:
        check_bool(scores, "scores")
    if isinstance(truth, CtcLineage | PointLineage):
        true = truth
    else:
        true = open_lineage(truth)
    if frames is not None:
        true = _select_frames(true, frames)
    own, (events, events_from, recovered) = _open_result(result, frames)
    how = (movie, distance, spacing, complete, progress, executor)
    try:
        matched, matched_by, distance = _match(true, own, *how)
    except MissingFromMask:
        if not isinstance(true, CtcLineage):
            raise
        true = split_at_gaps(true)
        matched, matched_by, distance = _match(true, own, *how)
    by_track = matched
    if isinstance(own, Lineage):
        by_track = _replace_labels_by_tracks(matched, own)
    is_complete, reason = _decide_completeness(true, own, complete)
    # events are compared between given cells; AOGM counts recovered ones too
    given = _hide_cells(matched, recovered)
    known = derive_known_events(true, given, is_complete=is_complete)
    annotations = Annotations.of(known)
    events = remove_recovered(events, recovered)
    loss = compute_task_loss(annotations, events)
    gaps = count_gaps(annotations, events)
    if not is_complete:
        limit = DISTANCE if distance is None else distance
        return Evaluation(
            loss=loss,
            aogm=None,
            divisions={},
            scores=None,
            events_from=events_from,
            gaps=gaps,
            matched_by=matched_by,
            truth_is=f"partial ({reason})",
            sparse=evaluate_sparse(own, true, distance=limit, spacing=spacing),
        )
    divisions = {
        tolerance: count_divisions(true.tracks, own.tracks, by_track, tolerance)
        for tolerance in TOLERANCES
    }
    return Evaluation(
        loss=loss,
        aogm=compute_aogm(true.tracks, own.tracks, by_track),
        divisions=divisions,
        scores=_compute_scores(
            scores, own, true, by_track if matched_by == MASKS else None
        ),
        events_from=events_from,
        gaps=gaps,
        matched_by=matched_by,
        truth_is=f"complete ({reason})",
    )


def _match(
    true: FileLineage,
    own: FileLineage | Lineage,
    movie: LabelSource | None,
    distance: float | None,
    spacing: Sequence[float] | None,
    complete: bool | None,
    progress: Progress | None,
    executor: Executor | None,
) -> tuple[list[FrameMatch], str, float | None]:
    """Match all frames; also say how, and at most how far apart."""
    if (
        isinstance(true, CtcLineage)
        and not isinstance(own, PointLineage)
        and distance is None
    ):
        matched = match_frames(true, _get_masks(own, movie), progress, executor)
        _warn_if_few_covered(matched)
        return matched, MASKS, None
    is_complete, _ = _decide_completeness(true, own, complete)
    matched, distance = _match_by_position(
        true, own, distance, spacing, progress, is_complete=is_complete
    )
    return matched, f"positions, at most {distance:.3g} apart", distance


def _decide_completeness(
    truth: FileLineage, result: FileLineage | Lineage, is_complete: bool | None
) -> tuple[bool, str]:
    """Decide whether a truth has all cells; also say why."""
    known = find_completeness(truth, is_complete)
    if known is not None:
        return known
    assert isinstance(truth, PointLineage)  # others say it by their format
    n_cells = truth.n_estimated
    if n_cells is None:
        lengths = result.tracks.end - result.tracks.begin + 1
        n_cells = float(lengths.sum())
    share = len(truth.frame) / max(n_cells, 1.0)
    what = "result's cells" if truth.n_estimated is None else "estimated cells"
    return share >= COMPLETE_TRUTH, f"it has {share:.0%} of the {what}"


def _open_result(
    result: str | Path | Lineage, frames: range | None
) -> tuple[FileLineage | Lineage, ResultEvents]:
    """Open a result with its events, cut to `frames` if it has more."""
    if isinstance(result, Lineage):
        cells = result.recovered
        keys: frozenset[tuple[int, int]] = frozenset()
        if cells is not None:
            keys = frozenset(
                zip(cells.frame.tolist(), cells.label.tolist(), strict=True)
            )
        return result, ResultEvents(result.events, "the lineage", keys)
    own = open_lineage(result)
    whole = read_result_events(own)
    if frames is None or own.n_frames == len(frames):
        return own, whole
    if isinstance(own, PointLineage) and own.n_frames < len(frames):
        return own, whole  # the last frames of a table may be empty
    part = whole._replace(
        events=Annotations.of(whole.events).restrict_to(frames).events,
        recovered=frozenset(
            (t - frames.start, track) for t, track in whole.recovered if t in frames
        ),
    )
    return _select_frames(own, frames), part


def _hide_cells(
    matched: list[FrameMatch], cells: Set[tuple[int, int]]
) -> list[FrameMatch]:
    """The same matches without some detections, given as (frame, label)."""
    hidden: dict[int, list[int]] = {}
    for frame, label in cells:
        hidden.setdefault(frame, []).append(label)
    shown = list(matched)
    for t, labels in hidden.items():
        match = matched[t]
        is_hidden = np.isin(match.holder, labels)
        shown[t] = match._replace(
            holder=np.where(is_hidden, NONE, match.holder),
            touched=match.touched & ~is_hidden,
        )
    return shown


def _match_by_position(
    true: FileLineage,
    own: FileLineage | Lineage,
    distance: float | None,
    spacing: Sequence[float] | None,
    progress: Progress | None,
    *,
    is_complete: bool,
) -> tuple[list[FrameMatch], float]:
    """Match all frames by positions; some cells are farther apart than all of them."""
    if spacing is None and isinstance(own, PointLineage):
        spacing = own.spacing
    read_truth = make_cell_reader(true, spacing)
    # tables of results of clew are physical
    read_result = make_cell_reader(
        own, spacing if isinstance(own, CtcLineage) else None
    )
    n_frames = _check_lengths(true, own)
    if distance is None and not is_complete:
        distance = estimate_distance([read_result(t) for t in range(own.n_frames)])
    return match_positions(read_truth, read_result, n_frames, distance, progress)


def _get_masks(own: CtcLineage | Lineage, movie: LabelSource | None) -> LabelSource:
    """The masks of a result; those of its movie if it is a lineage."""
    if isinstance(own, CtcLineage):
        return ResultMasks(own)
    if movie is None:
        raise InputError("a Lineage is evaluated with its movie; pass movie=")
    return add_recovered(movie, own.recovered)


def _warn_if_few_covered(frames: list[FrameMatch]) -> None:
    """Warn if few true cells are covered, since few events are evaluated then."""
    n_matched, n = count_matched_cells(frames)
    if n_matched < MIN_MATCHED_SHARE * n:
        warnings.warn(
            f"only {n_matched} of {n} true cells are covered by more than half by a "
            "mask of the result. Are its masks of another kind, discs or markers? A "
            "distance (--distance) matches positions instead",
            DataWarning,
            stacklevel=3,
        )


def _compute_scores(
    is_wanted: bool | None,
    result: FileLineage | Lineage,
    truth: FileLineage,
    matched: list[FrameMatch] | None,
) -> Scores | None:
    """Compute the scores of the challenge if they are wanted and masks were matched."""
    if (
        matched is None
        or not isinstance(result, CtcLineage)
        or not isinstance(truth, CtcLineage)
    ):
        if is_wanted:
            raise InputError(
                "the challenge's scores need a result with masks: write it, and "
                "evaluate the folder"
            )
        return None
    if is_wanted is None:
        is_wanted = is_installed("evaluate")
    return score_matched_frames(result, truth, matched) if is_wanted else None


def _check_lengths(truth: FileLineage, result: FileLineage | Lineage) -> int:
    """Number of frames of both; the last frames of a table may be empty."""
    n = max(truth.n_frames, result.n_frames)
    for name, side in (("truth", truth), ("result", result)):
        if not isinstance(side, PointLineage) and side.n_frames < n:
            raise InputError(
                f"the {name} has {side.n_frames} frames, but there are cells in frame "
                f"{n - 1} of the other side; expected both to be of the same movie, "
                "and to count frames from 0"
            )
    return n


def _select_frames(lineage: FileLineage, frames: range) -> FileLineage:
    """Some frames of a lineage."""
    if frames.stop > lineage.n_frames:
        raise InputError(
            f"{lineage.source} has no frames {frames.start} to {frames.stop - 1}; it "
            f"has 0 to {lineage.n_frames - 1}"
        )
    return lineage[frames.start : frames.stop]


def _replace_labels_by_tracks(
    frames: list[FrameMatch], lineage: Lineage
) -> list[FrameMatch]:
    """The same matches, with tracks in place of the labels of detections."""
    starts = np.searchsorted(lineage.frame, np.arange(lineage.n_frames + 1))
    renamed = []
    for t, match in enumerate(frames):
        rows = slice(starts[t], starts[t + 1])
        # one entry more, for labels beyond the last
        labels = np.append(lineage.label[rows], NONE)
        tracks = np.append(lineage.track[rows], NONE)
        at = np.searchsorted(labels[:-1], match.holder)
        is_held = match.holder != NONE
        is_unknown = (labels[at] != match.holder) & is_held
        if is_unknown.any():
            label = match.holder[is_unknown][0]
            raise InputError(f"frame {t}: the lineage lacks label {label} of the movie")
        holder = np.where(is_held, tracks[at], NONE)
        renamed.append(match._replace(holder=holder))
    return renamed
