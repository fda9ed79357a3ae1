"""Options that name a movie, shared by the commands that read one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clew.cli.options import note, say, shown
from clew.errors import InputError
from clew.utils.progress import ProgressBar

if TYPE_CHECKING:  # each command imports what it runs, so that the others start at once
    from clew.tracking.detections import DetectionTable
    from clew.tracking.events import Annotations
    from clew.tracking.movie import Movie

MoviePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="MOVIE",
        help="A sequence folder of images in the layout of the Cell Tracking Challenge (…/01, with masks beside it), "
        "or a table of detections (.csv, .parquet, TrackMate's .xml).",
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
LABELS = "Label images, for a MOVIE of images or instead of one: a folder of TIFFs, a TIFF stack or a Zarr."
IMAGES = "The raw images to --labels without a MOVIE, or to a table with --radius, if there are any."
LabelsPath = Annotated[
    Path | None, typer.Option("--labels", metavar="PATH", help=LABELS)
]
ImagesPath = Annotated[
    Path | None, typer.Option("--images", metavar="PATH", help=IMAGES)
]
ManyLabels = Annotated[
    list[Path] | None,
    typer.Option("--labels", metavar="PATH", help=f"{LABELS} Once for each movie."),
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
        help="These frames only, counted from 0 and both included, as in 0:59. Annotations keep the numbers of the "
        "whole movie; the frames of results count from 0 again.",
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
        help="Cells of the next frame that each cell is compared with: the N nearest ones, and up to N whose masks "
        "overlap its own most; 4, or as the weights were learned.",
    ),
]
Reach = Annotated[
    float | None,
    typer.Option(
        "--reach",
        metavar="LENGTH",
        help="How far a cell may move in a frame; estimated where not given.",
    ),
]
Spacing = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="The size of a pixel along (z,) y, x, as in 2,0.5,0.5; 1 if not known.",
    ),
]
Channel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="The channel of the raw images, from 0 on; needed if there are several.",
    ),
]
Radius = Annotated[
    float | None,
    typer.Option(
        "--radius",
        metavar="LENGTH",
        help="Draw a disc around each point of a table, in pixels or as --spacing says: label images where there are "
        "none.",
    ),
]
Sparse = Annotated[
    bool,
    typer.Option(
        "--sparse",
        help="Zarr arrays lack the chunks in which nothing is, so that none is missing.",
    ),
]


def events_option(default: str) -> Any:
    """The option that names the kinds of events of a movie."""
    return typer.Option(
        "--events",
        metavar="NAMES",
        show_default=default,
        help="Kinds of events that can happen, as in move,divide,appear,disappear; auto looks at the movie for splits "
        "and merges. Annotated ones are always possible.",
    )


Events = Annotated[str, events_option("auto")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", help="Processes and threads; -1 for all cores."
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache",
        help="Do not keep measurements of the cells in a folder .clew beside the movie.",
    ),
]


def open_any(
    movie: Path | None,
    labels: Path | None,
    images: Path | None,
    spacing: str | None,
    channel: int | None = None,
    sparse: bool = False,
    frames: str | None = None,
    radius: float | None = None,
) -> Movie | DetectionTable:
    """The movie that the options name; says on stderr what was chosen."""
    from clew.tracking.io.tables import is_table
    from clew.tracking.measurement.regions import is_raw_image
    from clew.tracking.movie import open_movie

    sizes = parse_spacing(spacing)
    if movie is not None and labels is None and is_table(movie) and not movie.is_dir():
        return cut(_open_table(movie, images, sizes, channel, sparse, radius), frames)
    if radius is not None:
        raise InputError(
            "--radius is for a table of points: the cells of label images have masks already"
        )
    opened = open_movie(
        movie,
        labels=labels,
        images=images,
        spacing=sizes,
        channel=channel,
        sparse=sparse,
    )
    note(f"{opened.name}: {in_words(opened)}, {opened.source}")
    if is_raw_image(opened.label(0)):
        say(
            f"warning: most labels of {opened.name} lie all over its first frame, as grey values do; are these raw "
            "images? Those are for --images, and label images for --labels"
        )
    return cut(opened, frames)


def in_words(movie: Movie) -> str:
    """How large a movie is."""
    frames = "one frame" if movie.n_frames == 1 else f"{movie.n_frames} frames"
    return f"{frames} of {' × '.join(map(str, movie.shape))}"


def _open_table(
    path: Path,
    images: Path | None,
    spacing: tuple[float, ...] | None,
    channel: int | None,
    sparse: bool,
    radius: float | None,
) -> Movie | DetectionTable:
    """A table of detections as it is, or with --radius as label images of discs."""
    from clew.tracking.io.tables import read_detections
    from clew.tracking.measurement.discs import make_disc_movie
    from clew.tracking.movie import open_frames

    if images is not None and radius is None:
        raise InputError(
            "--images to a table of detections needs --radius, so that cells have pixels in them"
        )
    table = read_detections(path, spacing=spacing if radius is None else None)
    empty = next(t for t in range(table.n_frames) if len(table.detections(t)))
    if empty:
        note(
            f"{shown(path)}: there is no cell before frame {empty}; frames count from 0"
        )
    if radius is None:
        note(f"{shown(path)}: {table.source} in {table.n_frames} frames")
        return table
    raw = (
        None if images is None else open_frames(images, channel=channel, sparse=sparse)
    )
    opened = make_disc_movie(table, radius, raw, spacing)
    note(f"{shown(path)}: {in_words(opened)}, {opened.source}")
    return opened


def open_several(
    movies: list[Path] | None,
    labels: list[Path] | None,
    images: list[Path] | None,
    **options: Any,
) -> list[Movie | DetectionTable]:
    """The movies that the options name, one after the other; `options` are those of `open_any`, and hold for all."""
    movies, labels, images = movies or [], labels or [], images or []
    n = max(len(movies), len(labels))
    for name, given in (("MOVIE", movies), ("--labels", labels), ("--images", images)):
        if given and len(given) != n:
            raise InputError(
                f"there are {n} movies and {len(given)} × {name}; expected one for each movie, or none"
            )

    def one(given: list[Path], k: int) -> Path | None:
        return given[k] if given else None

    return [
        open_any(one(movies, k), one(labels, k), one(images, k), **options)
        for k in range(max(n, 1))
    ]


def parse_frames(text: str | None) -> range | None:
    """FIRST:LAST, both of them included."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    if not found:
        raise InputError(
            f"--frames is {text!r}; expected two numbers of nine digits at most, as in 0:59"
        )
    if int(found[1]) > int(found[2]):
        raise InputError(
            f"--frames is {text!r}; expected the first frame before the last, as in 0:59"
        )
    return range(int(found[1]), int(found[2]) + 1)


def cut(movie: Movie | DetectionTable, frames: str | None) -> Movie | DetectionTable:
    """The frames of --frames; all without it."""
    which = parse_frames(frames)
    if which is None:
        return movie
    if which.stop > movie.n_frames:
        raise InputError(
            f"--frames is {frames}, but {movie.name} has the frames 0 to {movie.n_frames - 1}"
        )
    note(
        f"{movie.name}: {len(which)} of {movie.n_frames} frames, {which.start} to {which.stop - 1}"
    )
    return movie[which.start : which.stop]


def open_pixels(
    movie: Path | None,
    labels: Path | None,
    images: Path | None,
    spacing: str | None,
    channel: int | None = None,
    sparse: bool = False,
    frames: str | None = None,
    radius: float | None = None,
) -> Movie:
    """The movie that the options name, which must have label images."""
    from clew.tracking.movie import Movie

    opened = open_any(movie, labels, images, spacing, channel, sparse, frames, radius)
    if not isinstance(opened, Movie):
        raise InputError(
            f"{opened.name} is a table of detections; label images are needed here: --radius draws discs"
        )
    return opened


def read_annotations_of(path: Path, movie: Movie | DetectionTable) -> Annotations:
    """Annotations from a file, with a bar while a lineage's masks are matched to the movie's."""
    from clew.tracking.io.annotations import read_annotations

    with ProgressBar("reading annotations") as progress:
        return read_annotations(path, movie, progress)


def parse_spacing(text: str | None) -> tuple[float, ...] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--spacing is {text!r}; expected numbers separated by commas, as in 2,0.5,0.5"
        ) from None


def doubt_about(n_frames: int, n_cells: int, empty: tuple[int, ...]) -> str:
    """What is likely to be wrong with a movie of hardly any cells or frames; nothing as a rule."""
    if not n_cells:
        return "there is no cell in any frame; are these label images?"
    if n_frames == 1:
        return "there is one frame only, so that nothing can happen; all frames are in one folder, or in one stack"
    if n_cells <= n_frames:
        return (
            "there is one cell a frame at most; are these masks of the foreground? Label images have a number of its "
            "own for each cell"
        )
    if within := _within(empty, n_frames):
        which = f"frame {within[0]}" + (
            f" and {len(within) - 1} more" if len(within) > 1 else ""
        )
        return (
            f"there is no cell in {which}, and there are cells before and after; tracks end there unless they are "
            "closed as gaps. Are masks missing?"
        )
    return ""


def _within(empty: tuple[int, ...], n_frames: int) -> list[int]:
    """Empty frames that have cells before and after them; a movie may begin before its cells, and end after them."""
    seen = sorted(set(range(n_frames)) - set(empty))
    return [t for t in empty if seen[0] < t < seen[-1]]
