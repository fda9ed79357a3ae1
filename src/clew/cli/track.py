"""The command track."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clew.cli.lineages import make_sampled_report, print_counts
from clew.cli.movies import (
    AttachDistance,
    Channel,
    Columns,
    Complete,
    Frames,
    ImagesPath,
    Jobs,
    LabelsPath,
    LinksPath,
    MovieFiles,
    MovieOptions,
    MoviePath,
    Neighbours,
    NoCache,
    Radius,
    Reach,
    Spacing,
    Sparse,
    events_option,
    find_input_problem,
    open_input,
    read_annotations_of,
    write_unattached,
)
from clew.cli.options import (
    ClusterAddress,
    ComputeOptions,
    MemoryPerWorker,
    Profile,
    Workers,
    check_folder,
    command,
    open_client,
    path_text,
    print_message,
    print_note,
    print_result,
)
from clew.utils.progress import ProgressBar

if TYPE_CHECKING:
    from clew.tracking.blocks import StoredLineage
    from clew.tracking.detections import DetectionTable
    from clew.tracking.io.annotations import AnnotationReading
    from clew.tracking.io.label_layers import EventCounts
    from clew.tracking.movie import Movie
    from clew.tracking.tracker import Tracker

WeightsPath = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        "-w",
        metavar="FILE",
        help="Weights from clew train. Default: the generic weights that come with clew.",
        show_default=False,
    ),
]
ResultFolder = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Where the results go."),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        "-f",
        metavar="NAMES",
        show_default=False,
        help="Any of ctc, csv, geff, mastodon, napari, parquet, submission, trackmate, zarr, separated by commas. Default: ctc,csv; for a table csv.",
    ),
]
KnownEvents = Annotated[
    Path | None,
    typer.Option(
        "--annotations",
        "-a",
        metavar="PATH",
        help="Known events; they override the weights.",
    ),
]
MaxGap = Annotated[
    int | None,
    typer.Option(
        "--max-gap",
        metavar="N",
        min=0,
        max=32,
        show_default="32",
        help="Most frames that a cell may be missing from the masks within its track; 0 closes no gaps.",
    ),
]
Fill = Annotated[
    bool,
    typer.Option(
        help="Recover the cells that are missing within tracks and, in images, at their ends; they are marked as recovered in every format."
    ),
]
Report = Annotated[bool, typer.Option(help="Write report.html too.")]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace results that were changed by hand."),
]


@command()
def track(
    movie: MoviePath = None,
    weights: WeightsPath = None,
    output: ResultFolder = Path("result"),
    formats: Formats = None,
    annotations: KnownEvents = None,
    complete: Complete = None,
    distance: AttachDistance = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    radius: Radius = None,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Frames = None,
    links: LinksPath = None,
    columns: Columns = None,
    events: Annotated[str | None, events_option("as the weights were learned")] = None,
    neighbours: Neighbours = None,
    reach: Reach = None,
    max_gap: MaxGap = None,
    fill: Fill = True,
    report: Report = True,
    overwrite: Overwrite = False,
    jobs: Jobs = -1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    memory_per_worker: MemoryPerWorker = None,
    profile: Profile = None,
    no_cache: NoCache = False,
) -> None:
    """Track a movie and write its lineage.

    Run the same command again to continue an interrupted run: finished blocks of frames stay in the output folder
    until the result is complete.
    """
    from clew.parallel import make_executor
    from clew.tracking.io.ctc import check_result_folder
    from clew.tracking.io.names import REPORT
    from clew.tracking.io.results import write_and_count

    where = ComputeOptions.of(workers, cluster, memory_per_worker, profile)
    check_folder(output)
    check_result_folder(output, overwrite=overwrite)
    files = MovieFiles(movie, labels, images, links)
    options = MovieOptions(spacing, channel, sparse, frames, radius, columns)
    opened = open_input(files, options, jobs)
    wanted = choose_formats(formats, opened)
    tracker = open_tracker(weights)
    tracker.set_params(n_jobs=jobs, verbose=True, cache=None if no_cache else "auto")
    tracker.set_params(max_gap=max_gap, fill=fill)
    asked = {"events": events, "neighbours": neighbours, "reach": reach}
    tracker.set_params(
        **{name: value for name, value in asked.items() if value is not None}
    )
    reading = None
    if annotations is not None:
        reading = read_annotations_of(annotations, opened, complete, distance)
    known = None if reading is None else reading.annotations
    started = time.perf_counter()
    with open_client(where) as client:
        tracked = tracker.track_blocks(
            opened, output, annotations=known, client=client, memory=where.memory
        )
        seconds = time.perf_counter() - started
        print_findings(tracker, tracked, reading)
        pages = {}
        if report:
            facts = collect_facts(tracker, tracked, opened, reading, seconds)
            pages[REPORT] = make_sampled_report(tracked, opened, tracker, facts)
        made_from = fingerprint_weights(tracker) | {
            "annotations": None if known is None else len(known)
        }
        with ProgressBar("writing masks") as progress:
            written, tally = write_and_count(
                output,
                tracked,
                opened,
                wanted,
                make_executor(client, jobs),
                progress,
                pages,
                made_from,
                overwrite=overwrite,
            )
    tracked.checkpoints.delete_all()
    if annotations is not None and reading is not None:
        write_unattached([reading], [annotations], output.absolute().parent)
    print_summary(tracker, tracked, tally, seconds)
    names = ", ".join(written)
    print_result(f"Written to {path_text(output)}: {names}")


def choose_formats(
    formats: list[str] | None, movie: Movie | DetectionTable
) -> list[str]:
    """Check the requested formats, or choose those of the movie."""
    from clew.tracking.io.results import check_formats, default_formats

    if formats is None:
        return default_formats(movie)
    return check_formats(",".join(formats).split(","), movie)


def open_tracker(weights: Path | None) -> Tracker:
    """Load weights from a file, or return the generic ones."""
    from clew.tracking.persistence import load_tracker
    from clew.tracking.tracker import Tracker

    if weights is not None:
        return load_tracker(weights)
    print_note(
        "no --weights: using generic weights, learned from simulated movies; clew train learns your own"
    )
    return Tracker.generic()


def print_findings(
    tracker: Tracker, tracked: StoredLineage, reading: AnnotationReading | None
) -> None:
    """Print what was measured, which events are possible, and what was recovered."""
    print_note(tracker.measurements_)
    print_note(str(tracker.event_kinds_))
    if reading is not None:
        print_note(str(tracker.coverage_))
    if tracked.recovered is not None and len(tracked.recovered):
        print_note(
            f"{len(tracked.recovered):,} of {tracked.n_cells:,} cells have no mask in the movie and were recovered "
            "(--no-fill leaves them out)"
        )
    if tracked.n_solved < len(tracked):
        print_note(
            f"{len(tracked) - tracked.n_solved} of {len(tracked)} blocks come from an interrupted run"
        )


def collect_facts(
    tracker: Tracker,
    tracked: StoredLineage,
    movie: Movie | DetectionTable,
    reading: AnnotationReading | None,
    seconds: float,
) -> dict[str, str]:
    """Collect what the report says of the movie, the weights and the run."""
    facts = _describe_part(movie.excerpt) | describe_training(tracker)
    facts["tracked in"] = f"{seconds:.1f} s"
    if reading is not None:
        facts |= dict([str(tracker.coverage_).split(": ", 1)])
    if tracked.recovered is not None:
        facts["recovered cells"] = f"{len(tracked.recovered):,} (no mask of yours)"
    doubts = [*tracker.label_faults_.messages, tracker.unfamiliar_]
    if any(doubts):
        facts["warning"] = "; ".join(filter(None, doubts))
    return facts


def print_summary(
    tracker: Tracker, tracked: StoredLineage, tally: EventCounts, seconds: float
) -> None:
    """Print the numbers of cells and events, and what is wrong with the movie."""
    is_reliable = not tracker.label_faults_.is_unreliable
    print_counts(tracked, tally, seconds, is_reliable=is_reliable)
    repeated = tally.find_repeated_frames()
    if doubt := find_input_problem(
        tracked.n_frames, tracked.n_cells, tally.empty, repeated
    ):
        print_message(f"warning: {doubt}")


def _describe_part(excerpt: range | None) -> dict[str, str]:
    """Describe which frames of the movie the report shows."""
    if excerpt is None:
        return {}
    return {
        "part": f"frames {excerpt[0]} to {excerpt[-1]} of the movie, counted from 0 here"
    }


def describe_training(tracker: Tracker) -> dict[str, str]:
    """Describe the weights for the report."""
    facts = {
        "learned from": tracker.origin_.describe(tracker.n_annotated_, tracker.n_pairs_)
    }
    if not hasattr(
        tracker, "result_"
    ):  # generic weights, or weights of the page, have no certificate
        return facts
    return facts | {"λ": f"{tracker.lam_:.3g}", "certificate": str(tracker.result_)}


def fingerprint_weights(tracker: Tracker) -> dict[str, str]:
    """Identify the weights for the manifest."""
    named = json.dumps(
        dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True)),
        sort_keys=True,
    )
    return {
        "weights": str(tracker.origin_),
        "weights_sha256": hashlib.sha256(named.encode()).hexdigest(),
    }
