"""The scores of the Cell Tracking Challenge, by py-ctcmetrics on matched masks."""

from __future__ import annotations

import math
import re
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import DataWarning, InputError
from clew.learning.task import Array
from clew.tracking.evaluation.matching import (
    FrameMatch,
    compute_jaccard,
)
from clew.tracking.events import NONE
from clew.tracking.frames import Excerpt
from clew.tracking.io import tiff
from clew.tracking.io.ctc import CtcLineage
from clew.utils.extras import require_extra

SCORES = ("DET", "SEG", "TRA", "LNK", "BIO", "CT", "TF", "BC", "CCA")

Scores = dict[str, float | None]
"""Scores by name; None where one is not defined."""


def score_matched_frames(
    result: CtcLineage, truth: CtcLineage, frames: list[FrameMatch]
) -> Scores:
    """Compute the scores of matched frames.

    py-ctcmetrics would match by the same rule, but takes far longer.

    Parameters
    ----------
    result, truth : CtcLineage
    frames : list of FrameMatch
        Their masks, matched by `match_frames`.
    """
    require_extra("evaluate", "computing the challenge's scores")
    from ctc_metrics.scripts.evaluate import calculate_metrics

    for lineage in (result, truth):
        if not len(lineage.tracks):
            raise InputError(
                f"{lineage.source} has no tracks; there is nothing to score"
            )
    matched: dict[str, list[Any]] = {
        "labels_ref": [],
        "labels_comp": [],
        "mapped_ref": [],
        "mapped_comp": [],
    }
    tracks = result.tracks
    for t, frame in enumerate(frames):
        is_held = frame.holder != NONE
        is_alive = (tracks.begin <= t) & (t <= tracks.end)
        matched["labels_ref"].append(frame.cell.tolist())
        matched["labels_comp"].append(np.sort(tracks.id[is_alive]).tolist())
        matched["mapped_ref"].append(frame.cell[is_held].tolist())
        matched["mapped_comp"].append(frame.holder[is_held].tolist())
    overlaps = _compute_overlaps(result, truth)
    segmented = {"labels_ref": overlaps, "ious": overlaps}
    metrics = [name for name in SCORES if name != "BIO"]
    if not overlaps:
        metrics.remove("SEG")
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = calculate_metrics(
            tracks.table(),
            truth.tracks.table(),
            matched,
            segmented,
            metrics=metrics,
            is_valid=True,
        )
    values |= {"BC": values.get("BC(0)"), "BIO": values.get("BIO(0)")}
    return {name: _parse_score(values.get(name)) for name in SCORES}


def _parse_score(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _compute_overlaps(result: CtcLineage, truth: CtcLineage) -> list[Array]:
    """Jaccard indices (k,) of the cells of each segmented frame beside the truth."""
    folder = Path(truth.source).parent / "SEG"
    files = sorted(tiff.list_tiffs(folder, "man_seg")) if folder.is_dir() else []
    first = truth.masks.first
    overlaps = []
    for file in files:
        name = re.fullmatch(r"man_seg_?([0-9]{1,9})(?:_([0-9]{1,9}))?", file.stem)
        if name is None:
            warnings.warn(
                f"{file} is ignored; expected a name like man_seg000 or "
                "man_seg_000_000",
                DataWarning,
                stacklevel=2,
            )
            continue
        reference = tiff.open_folder(folder, re.escape(file.name) + "$")[0]
        frame = int(name[1]) - first
        is_in_truth = 0 <= frame < len(truth.masks)
        if not is_in_truth and isinstance(truth.masks, Excerpt):
            continue
        if not 0 <= frame < len(result.masks):
            last = first + len(result.masks) - 1
            raise InputError(
                f"{file} is of frame {name[1]}, but the masks are {first} to {last}"
            )
        mask = _select_plane(result.masks[frame], name[2], file)
        overlaps.append(compute_jaccard(reference, mask))
    return overlaps


def _select_plane(mask: NDArray[Any], plane: str | None, file: Path) -> NDArray[Any]:
    """The plane of a mask that a file is of; all of it without a plane."""
    if plane is None:
        return mask
    if mask.ndim != 3 or int(plane) >= len(mask):
        raise InputError(
            f"{file} is of plane {plane}, but the masks have the shape {mask.shape}"
        )
    return np.asarray(mask[int(plane)])
