"""Options that name a movie, shared by the commands that read one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.base import note, shown
from clew.errors import InputError
from clew.progress import ProgressBar

if TYPE_CHECKING:  # each command imports what it runs, so that the others start at once
    from clew.tracking.detections import DetectionTable
    from clew.tracking.events import Annotations
    from clew.tracking.movie import Movie

MoviePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="MOVIE",
        help="A sequence folder of images in the layout of the Cell Tracking Challenge (…/01, with masks beside it), "
        "or a table of detections (.csv, .parquet).",
        show_default=False,
    ),
]
LabelsPath = Annotated[
    Path | None,
    typer.Option("--labels", metavar="PATH", help="Label images instead: a folder of TIFFs, a TIFF stack or a Zarr."),
]
ImagesPath = Annotated[
    Path | None, typer.Option("--images", metavar="PATH", help="The raw images to --labels, if there are any.")
]
Spacing = Annotated[
    str | None,
    typer.Option(metavar="SIZES", help="The size of a pixel along (z,) y, x, as in 2,0.5,0.5; 1 if not known."),
]
Channel = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="The channel of the raw images, from 0 on; needed if there are several."),
]
Sparse = Annotated[
    bool, typer.Option("--sparse", help="Zarr arrays lack the chunks in which nothing is, so that none is missing.")
]


def events_option(default: str) -> Any:
    """The option that names the kinds of events of a movie."""
    return typer.Option(
        "--events", metavar="NAMES", show_default=default,
        help="Kinds of events that can happen, as in move,divide,appear,disappear; auto looks at the movie for splits "
        "and merges. Annotated ones are always possible.",
    )  # fmt: skip


Events = Annotated[str, events_option("auto")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Processes and threads; -1 for all cores.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Do not keep measurements of the cells in a folder .clew beside the movie.")
]


def open_any(
    movie: Path | None,
    labels: Path | None,
    images: Path | None,
    spacing: str | None,
    channel: int | None = None,
    sparse: bool = False,
) -> Movie | DetectionTable:
    """The movie that the options name; says on stderr what was chosen."""
    from clew.tracking.formats.tables import read_detections
    from clew.tracking.movie import TABLES, open_movie

    sizes = parse_spacing(spacing)
    if movie is not None and labels is None and movie.suffix.lower() in TABLES:
        table = read_detections(movie, spacing=sizes)
        note(f"{shown(movie)}: a table of detections in {table.n_frames} frames")
        return table
    opened = open_movie(movie, labels=labels, images=images, spacing=sizes, channel=channel, sparse=sparse)
    note(f"{opened.name}: {opened.n_frames} frames of {' × '.join(map(str, opened.shape))}, {opened.source}")
    return opened


def open_pixels(
    movie: Path | None,
    labels: Path | None,
    images: Path | None,
    spacing: str | None,
    channel: int | None = None,
    sparse: bool = False,
) -> Movie:
    """The movie that the options name, which must have label images."""
    from clew.tracking.movie import Movie

    opened = open_any(movie, labels, images, spacing, channel, sparse)
    if not isinstance(opened, Movie):
        raise InputError(f"{opened.name} is a table of detections; label images are needed to match a lineage's masks")
    return opened


def read_annotations_of(path: Path, movie: Movie | DetectionTable) -> Annotations:
    """Annotations from a file, with a bar while a lineage's masks are matched to the movie's."""
    from clew.tracking.formats.annotations import read_annotations

    with ProgressBar("reading annotations") as progress:
        return read_annotations(path, movie, progress)


def parse_spacing(text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--spacing is {text!r}; expected numbers separated by commas, as in 2,0.5,0.5") from None
