"""Write a simulated movie as a folder of the Cell Tracking Challenge.

01/t000.tif …                                  images
01_SEG/mask000.tif …                           detections with segmentation errors
01_GT/TRA/man_track000.tif …, man_track.txt    the true lineage
01_GT/SEG/man_seg000.tif …                     the same true masks
01_simulation.json                             the settings
01_manifest.json                               all files with their sizes and digests
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tifffile
from numpy.typing import NDArray

from clew.errors import InputError
from clew.simulation.simulate import (
    NucleiSettings,
    SimulationSettings,
    simulate,
)
from clew.tracking.io import ctc, tiff
from clew.tracking.io.names import MANIFEST, SIMULATE, TRUTH
from clew.tracking.io.result_folder import finish_interrupted_write, write_atomically
from clew.utils.storage import write_bytes

KIND = "clew simulation"
MARKER = "_simulation.json"
PARTS = ("_GT", "_SEG", "")
"""Folders of a movie."""
OWN_FILES = re.compile(r"(t|mask|man_track|man_seg)[0-9]+\.tif|man_track\.txt|\..*")
"""Files that may be overwritten; hidden ones are caches."""
FIXED_UUID = "urn:uuid:00000000-0000-0000-0000-000000000000"
"""A fixed UUID, so that equal settings give equal bytes."""

Progress = Callable[[int, int], None]


def write_simulation(
    folder: str | Path,
    settings: SimulationSettings | None = None,
    sequence: str = "01",
    progress: Progress | None = None,
) -> None:
    """Simulate a movie into a new or empty folder, or one with other simulations.

    The movie is written atomically. `progress(done, total)` is called for each frame.
    """
    settings = settings or NucleiSettings()
    target = Path(folder)
    _check_target(target, sequence)
    digits = max(3, len(str(settings.frames - 1)))
    movie = simulate(settings)
    own = [f"{sequence}{part}" for part in (*PARTS, MARKER)]
    made_from = {"settings": settings.as_dict()}
    with (
        write_atomically(
            target, SIMULATE, own.__contains__, made_from, f"{sequence}_{MANIFEST}"
        ) as stage,
        ThreadPoolExecutor(2) as writers,
    ):
        for name in (
            f"{sequence}",
            f"{sequence}_SEG",
            f"{sequence}_GT/TRA",
            f"{sequence}_GT/SEG",
        ):
            (stage / name).mkdir(parents=True)
        pending: list[Future[None]] = []
        for frame in movie:
            for job in pending:  # at most two frames are in memory
                job.result()
            files: list[
                tuple[str, Callable[[Path, NDArray[Any]], None], NDArray[Any]]
            ] = [
                ("{0}/t{1}.tif", _image_writer(settings), frame.image),
                ("{0}_SEG/mask{1}.tif", tiff.write_frame, frame.detections),
                ("{0}_GT/TRA/man_track{1}.tif", tiff.write_frame, frame.truth),
                ("{0}_GT/SEG/man_seg{1}.tif", tiff.write_frame, frame.truth),
            ]
            number = f"{frame.index:0{digits}}"
            pending = [
                writers.submit(write, stage / name.format(sequence, number), array)
                for name, write, array in files
            ]
            if progress is not None:
                progress(frame.index + 1, settings.frames)
        for job in pending:
            job.result()
        ctc.write_tracks(stage / f"{sequence}_GT/TRA" / TRUTH, movie.tracks)
        content = {"kind": KIND, "cells": settings.kind, "settings": settings.as_dict()}
        write_bytes(
            stage / f"{sequence}{MARKER}",
            (json.dumps(content, indent=1) + "\n").encode(),
        )


def _image_writer(settings: SimulationSettings) -> Callable[[Path, NDArray[Any]], None]:
    """Return a function that writes images with their spacing, weakly compressed."""
    axes = "ZYX"[-settings.dims :]
    sizes = {
        f"PhysicalSize{axis}": size
        for axis, size in zip(axes, settings.spacing, strict=True)
    }

    def write(path: Path, image: NDArray[Any]) -> None:
        buffer = io.BytesIO()
        tifffile.imwrite(
            buffer,
            image,
            ome=True,
            compression="zlib",
            compressionargs={"level": 1},
            photometric="minisblack",
            metadata={"axes": axes, "UUID": FIXED_UUID, **sizes},
        )
        write_bytes(path, buffer.getvalue())

    return write


def _check_target(target: Path, sequence: str) -> None:
    """Raise InputError if files could be lost."""
    if not re.fullmatch(r"[A-Za-z0-9]+", sequence):
        raise InputError(
            f"sequence: is {sequence!r}; expected letters and digits, like 01"
        )
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; expected a folder")
    own_names = [f"{sequence}{part}" for part in (*PARTS, MARKER)]
    manifest = f"{sequence}_{MANIFEST}"
    finish_interrupted_write(target, manifest, [*own_names, manifest].__contains__)
    there = (
        sorted(path.name for path in target.iterdir() if not path.name.startswith("."))
        if target.exists()
        else []
    )
    if there and not any(name.endswith(MARKER) for name in there):
        raise InputError(
            f"{target} contains {there[0]} and no simulation; choose a new or empty folder"
        )
    own = [
        target / f"{sequence}{part}" for part in PARTS if f"{sequence}{part}" in there
    ]
    if own and f"{sequence}{MARKER}" not in there:
        raise InputError(
            f"{own[0]} is not a simulation: {sequence}{MARKER} is missing; choose another sequence"
        )
    for part in own:
        for path in part.rglob("*"):
            if (
                path.is_file()
                and not OWN_FILES.fullmatch(path.name)
                and not _in_hidden(path.relative_to(part))
            ):
                raise InputError(
                    f"{path} is not a file of a simulation and would be lost; move it elsewhere"
                )


def _in_hidden(path: Path) -> bool:
    return any(name.startswith(".") for name in path.parts)
