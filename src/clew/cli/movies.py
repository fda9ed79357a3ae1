"""Options that describe the input movie, and functions that open it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.options import path_text, print_message, print_note
from clew.errors import InputError, MissingMasks
from clew.utils.progress import ProgressBar

if TYPE_CHECKING:  # commands import lazily, so that they start fast
    from clew.tracking.detections import DetectionTable
    from clew.tracking.frames import Frames as FrameSource
    from clew.tracking.io.annotations import AnnotationReading
    from clew.tracking.movie import Movie
    from clew.tracking.segmentation import DetectionSettings

    ChooseDetection = Callable[[FrameSource, DetectionSettings], DetectionSettings]

MoviePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="MOVIE",
        help="A sequence folder of images in the layout of the Cell Tracking Challenge (…/01, with masks beside it), "
        "or points: a table of detections (.csv, .parquet), TrackMate's .xml, a .geff, a .mastodon.",
        show_default=False,
    ),
]
MoviePaths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[MOVIE]...",
        help="Sequence folders of images (…/01, with masks beside it), or tables of detections (.csv, .parquet, "
        "TrackMate's .xml).",
        show_default=False,
    ),
]
LABELS = "Label images: a folder of TIFFs, a TIFF stack, Zarr or HDF5."
IMAGES = "Raw images for --labels, or for a table with --radius."
LabelsPath = Annotated[
    Path | None, typer.Option("--labels", metavar="PATH", help=LABELS)
]
ImagesPath = Annotated[
    Path | None, typer.Option("--images", metavar="PATH", help=IMAGES)
]
ManyLabels = Annotated[
    list[Path] | None,
    typer.Option(
        "--labels", metavar="PATH", help=f"{LABELS} Give it once for each movie."
    ),
]
ManyImages = Annotated[
    list[Path] | None, typer.Option("--images", metavar="PATH", help=IMAGES)
]
Frames = Annotated[
    str | None,
    typer.Option(
        "--frames",
        metavar="FIRST:LAST",
        show_default=False,
        help="Use these frames only, from 0, both included, as in 0:59. Annotations keep the frame numbers of "
        "the whole movie; results count from 0.",
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        "--neighbours",
        metavar="N",
        min=1,
        max=64,
        show_default=False,
        help="Candidates for each cell in the next frame: the N nearest cells, and up to N with the largest "
        "overlap. Default: 4, or as in training.",
    ),
]
Reach = Annotated[
    float | None,
    typer.Option(
        "--reach",
        metavar="LENGTH",
        help="Largest distance that a cell moves in a frame; estimated by default.",
    ),
]
Spacing = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Pixel size along (z,) y, x, as in 2,0.5,0.5. Default: from the file, else 1.",
    ),
]
Channel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Channel of the raw images, from 0; required if there are several.",
    ),
]
Radius = Annotated[
    float | None,
    typer.Option(
        "--radius",
        metavar="LENGTH",
        help="Draw a disc of this radius around each point of a table, in pixels or in the unit of --spacing.",
    ),
]
Sparse = Annotated[
    bool,
    typer.Option(
        "--sparse",
        help="Treat missing Zarr chunks as empty.",
    ),
]


def events_option(default: str) -> Any:
    """Return the option --events with a default for display."""
    return typer.Option(
        "--events",
        metavar="NAMES",
        show_default=default,
        help="Possible kinds of events, as in move,divide,appear,disappear. auto enables splits and merges "
        "if the movie shows some. Annotated kinds are always possible.",
    )


Events = Annotated[str, events_option("auto")]
Complete = Annotated[
    bool | None,
    typer.Option(
        "--complete/--partial",
        show_default=False,
        help="Whether an annotated lineage has all cells. If it is partial, how its tracks begin and end is unknown. "
        "Default: complete if its format says so or if it has nearly every detection.",
    ),
]
AttachDistance = Annotated[
    float | None,
    typer.Option(
        "--distance",
        metavar="LENGTH",
        show_default=False,
        help="Attach annotated points to detections at most this far apart. Default: half the median distance between "
        "neighboring detections.",
    ),
]
LINKS = "A table of links with the columns frame, source, target (labels) and numbers, such as a score of a network."
LinksPath = Annotated[Path | None, typer.Option("--links", metavar="PATH", help=LINKS)]
ManyLinks = Annotated[
    list[Path] | None,
    typer.Option("--links", metavar="PATH", help=f"{LINKS} Once for each movie."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAMES",
        show_default="all",
        help="Columns of a table of detections to learn from, separated by commas; none for none.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", help="Number of threads; -1 for all cores."
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Do not store measurements in a folder .clew beside the movie.",
    ),
]


@dataclass(frozen=True)
class MovieFiles:
    """The files of one movie, as they were given."""

    movie: Path | None
    labels: Path | None = None
    images: Path | None = None
    links: Path | None = None


@dataclass(frozen=True)
class MovieOptions:
    """How movies are opened: the options that apply to all movies of a command."""

    spacing: str | None = None
    channel: int | None = None
    sparse: bool = False
    frames: str | None = None
    radius: float | None = None
    columns: str | None = None


def list_files(
    movies: list[Path] | None,
    labels: list[Path] | None,
    images: list[Path] | None,
    links: list[Path] | None,
) -> list[MovieFiles]:
    """List the files of each movie."""
    given = {
        "MOVIE": movies or [],
        "--labels": labels or [],
        "--images": images or [],
        "--links": links or [],
    }
    n = max(len(given["MOVIE"]), len(given["--labels"]))
    for name, paths in given.items():
        if paths and len(paths) != n:
            raise InputError(
                f"got {n} movies and {len(paths)} × {name}; expected one for each movie, or none"
            )
    return [
        MovieFiles(*(paths[k] if paths else None for paths in given.values()))
        for k in range(max(n, 1))
    ]


def open_input(
    files: MovieFiles,
    options: MovieOptions,
    detect_jobs: int | None = None,
    choose_detection: ChooseDetection | None = None,
) -> Movie | DetectionTable:
    """Open the movie or table that the options describe, and print what was chosen.

    With `detect_jobs`, the cells of a movie without masks are detected first, with the
    settings that `choose_detection` returns for the images and the default ones.
    """
    opened = _open_whole(files, options, detect_jobs, choose_detection)
    opened = _add_columns(opened, files.links, options.columns)
    return select_frames_option(opened, options.frames)


def _add_columns(
    movie: Movie | DetectionTable, links: Path | None, columns: str | None
) -> Movie | DetectionTable:
    """Add a table of links, and select columns of cells; print what there is."""
    import numpy as np

    from clew.tracking.detections import DetectionTable
    from clew.tracking.io.user_columns import read_links, select_columns
    from clew.tracking.user_columns import NO_COLUMNS, ColumnTable, UserColumns

    given = movie.user_columns or NO_COLUMNS
    cells = given.cells
    if columns is not None:
        nothing = np.zeros(0, dtype=np.int64)
        known = cells or ColumnTable(nothing, nothing[:, None], {})
        names = [] if columns == "none" else columns.split(",")
        cells = select_columns(known, names)
    table = None if links is None else read_links(links)
    if cells is None and table is None and not given.cells:
        return movie
    found = UserColumns(cells, table)
    if groups := found.list_groups():
        print_note(f"{movie.name}: learned weights use {', '.join(sorted(groups))}")
    if isinstance(movie, DetectionTable):
        movie.user_columns = found
        return movie
    return replace(movie, user_columns=found)


def _open_whole(
    files: MovieFiles,
    options: MovieOptions,
    detect_jobs: int | None,
    choose_detection: ChooseDetection | None,
) -> Movie | DetectionTable:
    """Open all frames of the movie or table that the options describe."""
    from clew.tracking.io.formats import is_table
    from clew.tracking.measurement.regions import is_raw_image
    from clew.tracking.movie import open_movie

    sizes = parse_spacing(options.spacing)
    movie = files.movie
    has_points = movie is not None and is_table(movie) and _is_points(movie)
    if movie is not None and files.labels is None and has_points:
        return _open_table(movie, files.images, sizes, options)
    if options.radius is not None:
        raise InputError(
            "--radius applies to tables of points; label images have masks already"
        )
    open_files = partial(
        open_movie,
        movie,
        labels=files.labels,
        images=files.images,
        spacing=sizes,
        channel=options.channel,
        sparse=options.sparse,
    )
    try:
        opened = open_files()
    except MissingMasks:
        if movie is None or detect_jobs is None:
            raise
        _detect_missing_masks(
            movie, sizes, options.channel, detect_jobs, choose_detection
        )
        opened = open_files()
    print_note(f"{opened.name}: {describe_size(opened)}, {opened.source}")
    if is_raw_image(opened.label(0)):
        print_message(
            f"warning: the labels of {opened.name} look like gray values; are these raw images? Pass raw images with "
            "--images, and label images with --labels"
        )
    return opened


def _is_points(path: Path) -> bool:
    """Whether a path is a file, or a folder of points."""
    return not path.is_dir() or path.suffix.lower() in (".geff", ".mastodon")


def default_masks_folder(images: Path) -> Path:
    """Return the folder beside raw images in which clew looks for masks."""
    path = images.absolute()
    return path.with_name(f"{path.name.split('.')[0]}_SEG")


def detect_cells(
    images: FrameSource,
    folder: Path,
    settings: DetectionSettings,
    jobs: int,
    method: str = "threshold",
    weights: str | None = None,
) -> str:
    """Detect cells with a progress bar, warn if they look wrong, return a summary."""
    from clew.tracking.segmentation import write_detections

    with ProgressBar("detecting") as progress:
        result = write_detections(
            images, folder, settings, jobs, progress, method, weights
        )
    if result.doubts:
        remedy = (
            "This method is for bright, roundish nuclei on a dark ground. Look at the masks; try --diameter and "
            "--sensitivity, or a network: clew detect --method cellpose"
            if method == "threshold"
            else "Look at the masks; try --diameter or other --weights"
        )
        print_message(
            f"warning: the detections look wrong: {'; '.join(result.doubts)}. {remedy}"
        )
    a_frame = result.n_cells / result.n_frames
    return (
        f"Found {result.n_cells:,} cells in {result.n_frames} frames, {a_frame:.1f} a frame "
        f"(method: {result.method})."
    )


def _detect_missing_masks(
    movie: Path,
    spacing: tuple[float, ...] | None,
    channel: int | None,
    jobs: int,
    choose: ChooseDetection | None,
) -> None:
    """Detect the cells of a movie that has images only."""
    from clew.tracking.movie import open_frames
    from clew.tracking.segmentation import DetectionSettings

    folder = default_masks_folder(movie)
    print_note(
        f"{path_text(movie)} has no masks; detecting bright, roundish cells into {path_text(folder)}. "
        "clew detect has other methods, and --labels takes masks of other programs"
    )
    pictures = open_frames(movie, channel=channel)
    settings = DetectionSettings(spacing=spacing or pictures.spacing)
    if choose is not None:
        settings = choose(pictures, settings)
    print_note(detect_cells(pictures, folder, settings, jobs))


def describe_size(movie: Movie) -> str:
    """Describe the size of a movie."""
    frames = "one frame" if movie.n_frames == 1 else f"{movie.n_frames} frames"
    return f"{frames} of {' × '.join(map(str, movie.shape))}"


def _open_table(
    path: Path,
    images: Path | None,
    spacing: tuple[float, ...] | None,
    options: MovieOptions,
) -> Movie | DetectionTable:
    """Open a table of detections; with --radius, draw its points as discs."""
    from clew.tracking.io.tables import read_detections
    from clew.tracking.measurement.discs import make_disc_movie
    from clew.tracking.movie import open_frames

    radius = options.radius
    if images is not None and radius is None:
        raise InputError("--images with a table of detections needs --radius")
    table = read_detections(path, spacing=spacing if radius is None else None)
    empty = next(t for t in range(table.n_frames) if len(table.detections(t)))
    if empty:
        print_note(
            f"{path_text(path)}: the first cell is in frame {empty}; frames count from 0"
        )
    if radius is None:
        print_note(f"{path_text(path)}: {table.source} in {table.n_frames} frames")
        return table
    raw = None
    if images is not None:
        raw = open_frames(images, channel=options.channel, sparse=options.sparse)
    opened = make_disc_movie(table, radius, raw, spacing)
    print_note(f"{path_text(path)}: {describe_size(opened)}, {opened.source}")
    return opened


def parse_frames(text: str | None) -> range | None:
    """Parse FIRST:LAST, both included."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    if not match:
        raise InputError(
            f"--frames is {text!r}; expected two numbers of nine digits at most, as in 0:59"
        )
    if int(match[1]) > int(match[2]):
        raise InputError(
            f"--frames is {text!r}; expected the first frame before the last, as in 0:59"
        )
    return range(int(match[1]), int(match[2]) + 1)


def select_frames_option(
    movie: Movie | DetectionTable, frames: str | None
) -> Movie | DetectionTable:
    """Select the frames of --frames; all without it."""
    which = parse_frames(frames)
    if which is None:
        return movie
    if which.stop > movie.n_frames:
        raise InputError(
            f"--frames is {frames}, but {movie.name} has the frames 0 to {movie.n_frames - 1}"
        )
    print_note(
        f"{movie.name}: {len(which)} of {movie.n_frames} frames, {which.start} to {which.stop - 1}"
    )
    return movie[which.start : which.stop]


def open_masked_movie(
    files: MovieFiles,
    options: MovieOptions,
    detect_jobs: int | None = None,
    choose_detection: ChooseDetection | None = None,
) -> Movie:
    """As `open_input`, for a movie that must have label images."""
    from clew.tracking.movie import Movie

    opened = open_input(files, options, detect_jobs, choose_detection)
    if not isinstance(opened, Movie):
        raise InputError(
            f"{opened.name} is a table of detections; this command needs label images. --radius draws discs around points"
        )
    return opened


def read_annotations_of(
    path: Path,
    movie: Movie | DetectionTable,
    complete: bool | None = None,
    distance: float | None = None,
) -> AnnotationReading:
    """Read annotations, with a progress bar while cells are matched; print how."""
    from clew.tracking.io.annotations import open_annotations

    with ProgressBar("reading annotations") as progress:
        reading = open_annotations(
            path, movie, progress, complete=complete, distance=distance
        )
    print_note(reading.summary)
    return reading


def write_unattached(
    readings: list[AnnotationReading], paths: list[Path], folder: Path
) -> None:
    """Write annotated cells without a detection to tables, if there are any."""
    for reading, path in zip(readings, paths, strict=True):
        n = len(reading.unattached_frame)
        if not n:
            continue
        table = folder / f"{path.stem}-unattached.csv"
        reading.write_unattached(table)
        print_note(f"{n:,} annotated cells without a detection: {path_text(table)}")


def parse_spacing(text: str | None) -> tuple[float, ...] | None:
    """Parse numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--spacing is {text!r}; expected numbers separated by commas, as in 2,0.5,0.5"
        ) from None


def find_input_problem(
    n_frames: int,
    n_cells: int,
    empty: tuple[int, ...],
    repeated: Sequence[int] = (),
) -> str:
    """Describe what is probably wrong with a nearly empty movie; "" if nothing is."""
    if not n_cells:
        return "no frame has a cell; are these label images?"
    if n_frames == 1:
        return (
            "the movie has one frame only; put all frames into one folder or one stack"
        )
    if n_cells <= n_frames:
        return (
            "each frame has at most one cell; are these foreground masks? Label images have a different number "
            "for each cell"
        )
    problems = []
    if within := _find_empty_between(empty, n_frames):
        problems.append(
            f"frame {_list_frames(within)} has no cells, but frames before and after do; tracks continue over it where "
            "their cells are found again. Are masks missing?"
        )
    if repeated:
        problems.append(
            f"all cells of frame {_list_frames(repeated)} are where they were in the frame before. Are frames "
            "duplicated? Cells move farther in the frame after"
        )
    return " ".join(problems)


def _list_frames(frames: Sequence[int]) -> str:
    """List the numbers of frames, ten at most."""
    more = f" and {len(frames) - 10} more" if len(frames) > 10 else ""
    return ", ".join(map(str, frames[:10])) + more


def _find_empty_between(empty: tuple[int, ...], n_frames: int) -> list[int]:
    """Return empty frames with cells before and after them."""
    seen = sorted(set(range(n_frames)) - set(empty))
    return [t for t in empty if seen[0] < t < seen[-1]]
