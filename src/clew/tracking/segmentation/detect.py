"""Segment all frames of a movie into a folder of masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.parallel import ThreadExecutor
from clew.tracking.frames import Frames
from clew.tracking.io import tiff
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.io.ctc import check_result_folder, is_mask_file
from clew.tracking.io.names import DETECT
from clew.tracking.io.result_folder import write_atomically
from clew.tracking.measurement.store import hash_frame, hash_parts
from clew.tracking.segmentation.methods import THRESHOLD, Method, load_method
from clew.tracking.segmentation.quality import find_doubts, summarize_frame
from clew.tracking.segmentation.threshold import DetectionSettings, fit_settings


@dataclass(frozen=True)
class DetectionResult:
    """What was written.

    Attributes
    ----------
    n_cells : int
    n_frames : int
    method : str
        Method, version and weights.
    doubts : list of str
        What is implausible in the detections, one clause each.
    """

    n_cells: int
    n_frames: int
    method: str
    doubts: list[str]


def write_detections(
    images: Frames,
    folder: str | Path,
    settings: DetectionSettings | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    method: str = THRESHOLD,
    weights: str | None = None,
) -> DetectionResult:
    """Detect the cells of all frames, and write ``mask000.tif``, ``mask001.tif`` ….

    An interrupted run continues: finished frames are kept in a hidden folder until all
    are done.

    Parameters
    ----------
    images : Frames
        Masks get the numbers of the images.
    folder : str or Path
        Older masks that clew detected are replaced as a whole. A folder with other
        files, or with masks that were corrected by hand, is refused.
    settings : DetectionSettings, optional
    n_jobs : int, optional
        Number of threads of the built-in method; each has one frame in memory. Networks
        run one frame at a time.
    progress : callable, optional
        Called with the number of frames done and in all.
    method, weights : str
        See `load_method`.
    """
    check_result_folder(folder, DETECT)
    fitted = settings or DetectionSettings()
    if method == THRESHOLD:
        fitted = fit_settings(images, fitted)
    loaded = load_method(method, fitted, len(images.shape), weights)
    n_frames = len(images)
    first = images.first
    n_digits = max(3, len(str(first + n_frames - 1)))
    checkpoints = Checkpoints.for_output(Path(folder))
    made_from: dict[str, Any] = {
        "method": loaded.name,
        "settings": asdict(fitted),
        "frames": n_frames,
    }
    frame_key = partial(_make_key, made_from)

    def segment_frame(stage: Path, t: int) -> tuple[Any, bytes]:
        image = images[t]
        digest = hash_frame(image)
        labels = _segment_once(image, loaded, checkpoints, frame_key(digest))
        tiff.write_frame(stage / f"mask{t + first:0{n_digits}}.tif", labels)
        return summarize_frame(labels), digest

    summaries = []
    digests = []
    with write_atomically(Path(folder), DETECT, is_mask_file, made_from) as stage:
        threads = ThreadExecutor(n_jobs if loaded.is_threshold else 1)
        segment = partial(segment_frame, stage)
        for summary, digest in threads.map(segment, range(n_frames), progress):
            summaries.append(summary)
            digests.append(digest)
        made_from["images_blake2b"] = hash_parts(digests)
    checkpoints.delete_all()
    return DetectionResult(
        n_cells=sum(summary.n_cells for summary in summaries),
        n_frames=n_frames,
        method=loaded.name,
        doubts=find_doubts(summaries),
    )


def _make_key(made_from: dict[str, Any], digest: bytes) -> str:
    """Name a frame by its pixels, the method and the settings."""
    parts = [repr(made_from["method"]), repr(made_from["settings"])]
    return hash_parts([digest, *(part.encode() for part in parts)])


def _segment_once(
    image: NDArray[Any], method: Method, checkpoints: Checkpoints, key: str
) -> NDArray[np.integer]:
    """Segment a frame unless an interrupted run did."""
    if method.is_threshold:  # faster than a checkpoint
        return method.segment(image)
    stored = checkpoints.load_block(key)
    if stored is not None:
        return stored["labels"]
    labels = _check_labels(method.segment(image), image.shape, method.name)
    checkpoints.save_block(key, {"labels": labels})
    return labels


def _check_labels(
    labels: NDArray[Any], shape: tuple[int, ...], name: str
) -> NDArray[np.integer]:
    """Refuse anything but a label image of the frame."""
    labels = np.asarray(labels)
    is_label_image = labels.shape == shape and labels.dtype.kind in "iu"
    if not is_label_image or (labels.size and labels.min() < 0):
        raise InputError(
            f"{name} returned an array of shape {labels.shape} and dtype "
            f"{labels.dtype}; expected labels from 0, whole numbers, of shape {shape}"
        )
    return labels.astype(np.int32)
