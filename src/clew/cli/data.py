"""The commands simulate, sample, detect and info."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clew.cli.movies import (
    Channel,
    ImagesPath,
    Jobs,
    LabelsPath,
    MovieFiles,
    MovieOptions,
    Spacing,
    Sparse,
    default_masks_folder,
    detect_cells,
    open_masked_movie,
    parse_frames,
    parse_spacing,
)
from clew.cli.options import (
    check_file,
    check_folder,
    command,
    make_cell,
    make_folder,
    path_text,
    print_note,
    print_result,
)
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
            help="Kind of cells: nuclei, rods, flat, tissue, embryo, sparse.",
        ),
    ] = "nuclei",
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of frames. Default: 40 or 60, by kind.",
            show_default=False,
        ),
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Approximate number of cells in view. Default: 25 to 100, by kind.",
            show_default=False,
        ),
    ] = None,
    dims: Annotated[
        int | None,
        typer.Option(
            metavar="2|3",
            help="Dimensions of space. Default: by kind.",
            show_default=False,
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
            help="Share of cells that are missed, cut and fused in each frame.",
        ),
    ] = None,
    drift: Annotated[
        float,
        typer.Option(metavar="PIXELS", min=0, help="Motion of the stage per frame."),
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
            metavar="SHARE", min=0, max=0.9, help="Share of frames that are missing."
        ),
    ] = 0.0,
    random: Annotated[
        bool,
        typer.Option("--random", help="Draw all other settings of the kind at random."),
    ] = False,
) -> None:
    """Simulate a movie and its true lineage.

    The label images have segmentation errors.
    """
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
        **spread_fault_rate(kind, faults),
    }
    given = {name: value for name, value in asked.items() if value is not None}
    settings = (
        random_settings(kind, seed, **given) if random else settings_of(kind, **given)
    )
    with ProgressBar("simulating") as progress:
        write_simulation(folder, settings, sequence, progress)
    size = " × ".join(map(str, settings.shape))
    where = path_text(folder)
    print_result(
        f"Simulated {settings.frames} frames of {size} pixels with about {settings.cells} cells.\n"
        f"  {where}/{sequence}: images\n"
        f"  {where}/{sequence}_SEG: label images with segmentation errors\n"
        f"  {where}/{sequence}_GT/TRA: the true lineage\n"
        f"\nNext\n"
        f"  clew sample {where}/{sequence}_GT/TRA --fraction 0.25 -o some.csv\n"
        f"  clew train {where}/{sequence} --annotations some.csv -o weights.clew"
    )


def spread_fault_rate(kind: str, share: float | None) -> dict[str, float | None]:
    """Return settings for a share of missed, cut and fused cells.

    Nuclei fuse where they touch and have no rate for it.
    """
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
            metavar="SHARE", help="Share of the events to draw.", show_default=False
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of events to draw, instead of a share.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Seed of the draw.")
    ] = 0,
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            help="Draw only events that begin in these frames, as in 0:59.",
        ),
    ] = None,
    movie: Annotated[
        Path | None,
        typer.Option(
            metavar="MOVIE",
            help="Sequence folder of the movie. Default: beside TRUTH.",
        ),
    ] = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    spacing: Spacing = None,
    sparse: Sparse = False,
) -> None:
    """Draw random events of a lineage as annotations.

    The sample is stratified: it has the same share of each kind of event.
    """
    from clew.annotation.sampling import sample as draw
    from clew.tracking.io.annotations import (
        read_annotation_table,
        read_annotations,
        write_annotations,
    )

    check_folder(output.absolute().parent)
    check_file(output, read_annotation_table, "annotations")
    if movie is None and labels is None:
        movie, labels = find_movie_of_truth(truth)
    opened = open_masked_movie(
        MovieFiles(movie, labels, images), MovieOptions(spacing, sparse=sparse)
    )
    with ProgressBar("matching masks") as progress:
        known = read_annotations(truth, opened, progress)
    fraction = 0.25 if fraction is None and number is None else fraction
    chosen = draw(known, fraction, seed, number=number, frames=parse_frames(frames))
    make_folder(output.absolute().parent)
    write_annotations(output, chosen)
    print_result(
        f"Drew {len(chosen)} of {len(known)} events: {describe_counts(chosen.events.event)}.\nWritten {path_text(output)}"
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
            help="Where label images go. Default: IMAGES_SEG.",
        ),
    ] = None,
    diameter: Annotated[
        float | None,
        typer.Option(
            metavar="PIXELS", help="Diameter of a typical cell; estimated by default."
        ),
    ] = None,
    min_size: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Smallest cell, as a share of the area or volume of a typical cell.",
        ),
    ] = 0.12,
    sensitivity: Annotated[
        float,
        typer.Option(metavar="0..1", help="Higher values find dimmer cells."),
    ] = 0.5,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="threshold, cellpose, stardist, instanseg, or MODULE:FUNCTION: a function of your own that makes "
            "a label image of an image.",
        ),
    ] = "threshold",
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|NAME",
            help="Weights of a network: a file, a folder or a name that it knows. Default: its own.",
            show_default=False,
        ),
    ] = None,
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
    """Find cells in raw images, and write label images.

    The default method, a local threshold and a watershed, is for bright, roundish nuclei on a dark ground. For phase
    contrast, DIC, membranes or crowded tissue, choose a network with --method; it must be installed. Run the same
    command again to continue an interrupted run.
    """
    from clew.tracking.frames import select_frames
    from clew.tracking.movie import open_frames
    from clew.tracking.segmentation import DetectionSettings

    folder = output or default_masks_folder(images)
    check_folder(folder)
    pictures = open_frames(images, channel=channel, sparse=sparse)
    which = parse_frames(frames)
    if which is not None:
        pictures = select_frames(pictures, which, path_text(images))
    sizes = parse_spacing(spacing) or pictures.spacing
    settings = DetectionSettings(
        diameter=diameter, min_size=min_size, sensitivity=sensitivity, spacing=sizes
    )
    report = detect_cells(pictures, folder, settings, jobs, method, weights)
    print_result(f"{report}\nWritten {path_text(folder)}")


def find_movie_of_truth(truth: Path) -> tuple[Path | None, Path | None]:
    """Return the sequence folder of a truth (…/01 for …/01_GT/TRA), or its masks as labels."""
    folder = truth.absolute() if truth.is_dir() else truth.absolute().parent
    for part in (folder, folder.parent):
        found = re.fullmatch(r"(.+)_(GT|RES)", part.name)
        if found and (part.parent / found[1]).is_dir():
            return part.parent / found[1], None
    print_note(
        f"found no sequence folder beside {path_text(truth)}: using its own masks"
    )
    return None, folder


def describe_counts(events: object) -> str:
    """Describe counts as in "120 move, 3 divide"."""
    import numpy as np

    from clew.tracking.events import Event

    counts = np.bincount(np.asarray(events), minlength=len(Event))
    return ", ".join(f"{counts[event]} {event}" for event in Event if counts[event])


@command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .clew file.")],
) -> None:
    """Show the content of a .clew file.

    It names the model or tracker, the loss, λ and the certificate of the fit.
    """
    from clew.estimators import persistence

    about = persistence.describe_file(file)
    table = Table(
        show_header=False, title=make_cell(path_text(file)), title_justify="left"
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in about.items():
        table.add_row(name, make_cell(text))
    Console().print(table)
