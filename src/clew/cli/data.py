"""Commands that make movies, label images and annotations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clew.cli.movies import (
    Channel,
    ImagesPath,
    Jobs,
    LabelsPath,
    Spacing,
    Sparse,
    open_pixels,
    parse_frames,
    parse_spacing,
)
from clew.cli.options import check_file, check_folder, command, make_folder, note, shown
from clew.utils.progress import ProgressBar


@command()
def simulate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Where the movie goes: FOLDER/01, FOLDER/01_GT …"
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="What cells: nuclei, rods, flat, tissue, embryo, sparse.",
        ),
    ] = "nuclei",
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many frames; 40 or 60, by kind.", show_default=False
        ),
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="About how many cells are in view; 25 to 100.",
            show_default=False,
        ),
    ] = None,
    dims: Annotated[
        int | None,
        typer.Option(
            metavar="2|3", help="Dimensions of space, by kind.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="The same seed gives the same movie."),
    ] = 0,
    sequence: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the sequence.")
    ] = "01",
    faults: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=0.9,
            show_default=False,
            help="Share of cells missed, cut and fused in each frame.",
        ),
    ] = None,
    drift: Annotated[
        float,
        typer.Option(metavar="PIXELS", min=0, help="Way of the stage in a frame."),
    ] = 0.0,
    jumps: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Share of frames before which the stage jumps.",
        ),
    ] = 0.0,
    missing: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0, max=0.9, help="Share of frames that were not taken."
        ),
    ] = 0.0,
    random: Annotated[
        bool,
        typer.Option("--random", help="Draw all other settings of the kind at random."),
    ] = False,
) -> None:
    """Simulate a movie of cells of some kind: images, label images with a segmentation's errors, the whole truth."""
    from clew.simulation.simulate import random_settings, settings_of
    from clew.simulation.write import write_simulation

    check_folder(folder)
    asked = {
        "frames": frames,
        "cells": cells,
        "dims": dims,
        "seed": seed,
        "drift": drift or None,
        "stage_jumps": jumps or None,
        "missing_frames": missing or None,
        **fault_rates(kind, faults),
    }
    given = {name: value for name, value in asked.items() if value is not None}
    settings = (
        random_settings(kind, seed, **given) if random else settings_of(kind, **given)
    )
    with ProgressBar("simulating") as progress:
        write_simulation(folder, settings, sequence, progress)
    size = " × ".join(map(str, settings.shape))
    where = shown(folder)
    Console(highlight=False, soft_wrap=True).print(
        f"Simulated {settings.frames} frames of {size} pixels with about {settings.cells} cells.\n"
        f"  {where}/{sequence}: images\n"
        f"  {where}/{sequence}_SEG: label images, with what a segmentation gets wrong\n"
        f"  {where}/{sequence}_GT/TRA: the true lineage\n"
        f"\nNext\n"
        f"  clew sample {where}/{sequence}_GT/TRA --fraction 0.25 -o some.csv\n"
        f"  clew train {where}/{sequence} --annotations some.csv -o weights.clew",
        markup=False,
    )


def fault_rates(kind: str, share: float | None) -> dict[str, float | None]:
    """Settings for that share of cells missed, cut and fused; nuclei fuse where they touch, and have no rate for it."""
    rates = {"missed": share, "over_segmentation": share}
    return rates if kind == "nuclei" else rates | {"under_segmentation": share}


@command()
def sample(
    truth: Annotated[
        Path,
        typer.Argument(
            metavar="TRUTH", help="A lineage folder with man_track.txt: …/01_GT/TRA."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where the annotations go."
        ),
    ],
    fraction: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="The share of all events to draw.", show_default=False
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many events to draw, instead.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Seed of the draw.")
    ] = 0,
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="Only events that begin in these frames, as in 0:59.",
        ),
    ] = None,
    movie: Annotated[
        Path | None,
        typer.Option(
            metavar="MOVIE",
            help="The sequence folder whose cells are meant; found beside TRUTH.",
        ),
    ] = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    spacing: Spacing = None,
    sparse: Sparse = False,
) -> None:
    """Draw a stratified part of a full lineage, as annotations of the movie's own label images."""
    from clew.annotation.sampling import sample as draw
    from clew.tracking.io.annotation_csv import read_annotation_table, write_annotations
    from clew.tracking.io.annotations import read_annotations

    check_folder(output.absolute().parent)
    check_file(output, read_annotation_table, "annotations")
    if movie is None and labels is None:
        movie, labels = movie_of(truth)
    opened = open_pixels(movie, labels, images, spacing, sparse=sparse)
    with ProgressBar("matching masks") as progress:
        known = read_annotations(truth, opened, progress)
    fraction = 0.25 if fraction is None and number is None else fraction
    chosen = draw(known, fraction, seed, number=number, frames=parse_frames(frames))
    make_folder(output.absolute().parent)
    write_annotations(output, chosen)
    Console(highlight=False, soft_wrap=True).print(
        f"Drew {len(chosen)} of {len(known)} events: {counts_in_words(chosen.events.event)}.\nWritten {shown(output)}",
        markup=False,
    )


@command()
def detect(
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="Raw images: a folder of TIFFs, a TIFF stack or a Zarr.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where label images go; IMAGES_SEG if not given.",
        ),
    ] = None,
    diameter: Annotated[
        float | None,
        typer.Option(
            metavar="PIXELS", help="Of a typical cell; estimated where not given."
        ),
    ] = None,
    min_size: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="The smallest cell, as a share of a typical one's area or volume.",
        ),
    ] = 0.12,
    sensitivity: Annotated[
        float,
        typer.Option(metavar="0..1", help="The higher, the dimmer a cell may be."),
    ] = 0.5,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="These frames only, counted from 0, as in 0:59.",
            show_default=False,
        ),
    ] = None,
    jobs: Jobs = -1,
) -> None:
    """Find cells in raw images by local threshold and watershed: good enough to start with.

    For hard data, segment with Cellpose or StarDist and give their label images to --labels.
    """
    from clew.tracking.frames import select_frames
    from clew.tracking.movie import open_frames
    from clew.tracking.segmentation import DetectionSettings, write_detections

    folder = output or images.absolute().with_name(
        f"{images.absolute().name.split('.')[0]}_SEG"
    )
    check_folder(folder)
    pictures = open_frames(images, channel=channel, sparse=sparse)
    which = parse_frames(frames)
    if which is not None:
        pictures = select_frames(pictures, which, shown(images))
    sizes = parse_spacing(spacing) or pictures.spacing
    settings = DetectionSettings(
        diameter=diameter, min_size=min_size, sensitivity=sensitivity, spacing=sizes
    )
    with ProgressBar("detecting") as progress:
        found = write_detections(pictures, folder, settings, jobs, progress)
    Console(highlight=False, soft_wrap=True).print(
        f"Found {found:,} cells in {len(pictures)} frames, {found / len(pictures):.1f} a frame.\n"
        f"Written {shown(folder)}",
        markup=False,
    )


def movie_of(truth: Path) -> tuple[Path | None, Path | None]:
    """The sequence folder that a truth is of, by its name (…/01_GT/TRA is of …/01), else its masks as labels."""
    folder = truth.absolute() if truth.is_dir() else truth.absolute().parent
    for part in (folder, folder.parent):
        found = re.fullmatch(r"(.+)_(GT|RES)", part.name)
        if found and (part.parent / found[1]).is_dir():
            return part.parent / found[1], None
    note(
        f"there is no sequence folder beside {shown(truth)}: its own masks are the cells that are annotated"
    )
    return None, folder


def counts_in_words(events: object) -> str:
    """Like "120 move, 3 divide"."""
    import numpy as np

    from clew.tracking.events import Event

    counts = np.bincount(np.asarray(events), minlength=len(Event))
    return ", ".join(f"{counts[event]} {event}" for event in Event if counts[event])
