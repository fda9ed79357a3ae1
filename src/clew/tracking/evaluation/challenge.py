"""The scores of the Cell Tracking Challenge, by py-ctcmetrics on masks that clew matched."""

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
from clew.tracking.evaluation.truth import (
    FrameMatch,
    Progress,
    ResultMasks,
    compute_jaccard,
    match_frames,
)
from clew.tracking.events import NONE
from clew.tracking.frames import Excerpt
from clew.tracking.io import tiff
from clew.tracking.io.ctc import CtcLineage, open_ctc_lineage
from clew.utils.extras import require_extra

SCORES = ("DET", "SEG", "TRA", "LNK", "BIO", "CT", "TF", "BC", "CCA")


def compute_ctc_scores(
    result: str | Path, truth: str | Path, progress: Progress | None = None
) -> dict[str, float | None]:
    """DET, SEG, TRA, LNK and BIO of a result's folder by py-ctcmetrics, with the parts of BIO; None where undefined."""
    own, true = open_ctc_lineage(result), open_ctc_lineage(truth)
    return score_matched_frames(
        own, true, match_frames(true, ResultMasks(own), progress)
    )


def score_matched_frames(
    result: CtcLineage, truth: CtcLineage, frames: list[FrameMatch]
) -> dict[str, float | None]:
    """What py-ctcmetrics makes of matched frames; its own matching follows the same rule and takes far longer."""
    require_extra("evaluate", "computing the challenge's scores")
    from ctc_metrics.scripts.evaluate import calculate_metrics

    if not len(result.tracks) or not len(truth.tracks):
        raise InputError(
            f"{(truth if len(result.tracks) else result).source} has no tracks: there is nothing to score"
        )
    held = [frame.holder != NONE for frame in frames]
    matched = {
        "labels_ref": [frame.cell.tolist() for frame in frames],
        "labels_comp": [
            np.sort(
                result.tracks.id[(result.tracks.begin <= t) & (t <= result.tracks.end)]
            ).tolist()
            for t in range(len(frames))
        ],
        "mapped_ref": [
            frame.cell[which].tolist()
            for frame, which in zip(frames, held, strict=True)
        ],
        "mapped_comp": [
            frame.holder[which].tolist()
            for frame, which in zip(frames, held, strict=True)
        ],
    }
    covered = _segmentation(result, truth)
    segmented = {"labels_ref": covered, "ious": covered}
    wanted = [name for name in SCORES if name != "BIO" and (name != "SEG" or covered)]
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = calculate_metrics(
            result.tracks.table(),
            truth.tracks.table(),
            matched,
            segmented,
            metrics=wanted,
            is_valid=True,
        )
    found |= {"BC": found.get("BC(0)"), "BIO": found.get("BIO(0)")}
    values = {name: found.get(name) for name in SCORES}
    return {
        name: None if value is None or math.isnan(value) else float(value)
        for name, value in values.items()
    }


def _segmentation(result: CtcLineage, truth: CtcLineage) -> list[Array]:
    """For each segmented frame or slice beside the truth, the Jaccard indices of its cells (k,)."""
    folder = Path(truth.source).parent / "SEG"
    files = sorted(tiff.list_tiffs(folder, "man_seg")) if folder.is_dir() else []
    first = truth.masks.first
    found = []
    for file in files:
        name = re.fullmatch(r"man_seg_?([0-9]{1,9})(?:_([0-9]{1,9}))?", file.stem)
        if name is None:
            warnings.warn(
                f"{file} is passed over; expected man_seg000 or man_seg_000_000",
                DataWarning,
                stacklevel=2,
            )
            continue
        reference = tiff.open_folder(folder, re.escape(file.name) + "$")[0]
        frame = int(name[1]) - first
        if not 0 <= frame < len(truth.masks) and isinstance(truth.masks, Excerpt):
            continue  # of another part of the movie
        if not 0 <= frame < len(result.masks):
            raise InputError(
                f"{file} is of frame {name[1]}, but the masks are {first} to {first + len(result.masks) - 1}"
            )
        found.append(
            compute_jaccard(reference, _plane(result.masks[frame], name[2], file))
        )
    return found


def _plane(mask: NDArray[Any], plane: str | None, file: Path) -> NDArray[Any]:
    """The slice of a mask that a file is of, if it is of one."""
    if plane is None:
        return mask
    if mask.ndim != 3 or int(plane) >= len(mask):
        raise InputError(
            f"{file} is of plane {plane}, but the masks have the shape {mask.shape}"
        )
    return np.asarray(mask[int(plane)])
