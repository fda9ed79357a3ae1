"""The commands train, track, evaluate and explain."""

from __future__ import annotations

import hashlib
import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from clew.cli.cluster import (
    ClusterAddress,
    ComputeOptions,
    MemoryPerWorker,
    Profile,
    Workers,
    open_client,
)
from clew.cli.lineages import (
    explain_missing_scores,
    make_sampled_report,
    print_counts,
    print_evaluation,
    print_figures,
)
from clew.cli.movies import (
    AttachDistance,
    Channel,
    Columns,
    Complete,
    Events,
    Frames,
    ImagesPath,
    Jobs,
    LabelsPath,
    LinksPath,
    ManyImages,
    ManyLabels,
    ManyLinks,
    MoviePath,
    MoviePaths,
    Neighbours,
    NoCache,
    Radius,
    Reach,
    Spacing,
    Sparse,
    events_option,
    find_input_problem,
    open_input,
    open_inputs,
    parse_frames,
    parse_spacing,
    read_annotations_of,
    write_unattached,
)
from clew.cli.options import (
    check_file,
    check_folder,
    command,
    make_folder,
    path_text,
    print_message,
    print_note,
)
from clew.errors import InputError
from clew.utils.progress import ProgressBar

SUFFIX = ".clew"
PICTURES = (".png", ".svg", ".pdf")

if TYPE_CHECKING:
    from clew.tracking.tracker import Tracker


@command()
def train(
    annotations: Annotated[
        list[Path],
        typer.Option(
            "--annotations",
            "-a",
            metavar="PATH",
            help="Annotated events: a table (.csv), a lineage folder with man_track.txt, a table of tracks, or a "
            ".geff. Once for each movie, in the same order.",
        ),
    ],
    movies: MoviePaths = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Where the weights go."),
    ] = Path("weights.clew"),
    labels: ManyLabels = None,
    images: ManyImages = None,
    radius: Radius = None,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Frames = None,
    links: ManyLinks = None,
    columns: Columns = None,
    neighbours: Neighbours = None,
    reach: Reach = None,
    events: Events = "auto",
    lam: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Weight λ of the regularizer; auto chooses it by cross-validation.",
        ),
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The loss to minimize; see docs/learning-guide.md."
        ),
    ] = "bridge",
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Seed of the folds of cross-validation."),
    ] = 0,
    complete: Complete = None,
    distance: AttachDistance = None,
    jobs: Jobs = -1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    profile: Profile = None,
    no_cache: NoCache = False,
) -> None:
    """Learn tracking weights from annotated events of one or more movies.

    Several movies: clew train A B -a A.csv -a B.csv.
    """
    from clew.estimators import persistence
    from clew.tracking.candidates.candidates import NEIGHBOURS
    from clew.tracking.tracker import Tracker

    where = ComputeOptions.of(workers, cluster, profile=profile)
    check_folder(output.absolute().parent)
    check_file(
        output,
        lambda path: path.suffix == SUFFIX or persistence.describe_file(path),
        "weights",
    )
    opened = open_inputs(
        movies,
        labels,
        images,
        links,
        spacing=spacing,
        channel=channel,
        sparse=sparse,
        frames=frames,
        radius=radius,
        columns=columns,
    )
    if len(annotations) != len(opened):
        raise InputError(
            f"got {len(opened)} movies and {len(annotations)} × --annotations; expected one for each movie, in "
            "the same order"
        )
    readings = [
        read_annotations_of(path, movie, complete, distance)
        for path, movie in zip(annotations, opened, strict=True)
    ]
    marks = [reading.annotations for reading in readings]
    tracker = Tracker(
        neighbours=neighbours or NEIGHBOURS,
        reach=reach,
        events=events,
        loss=loss,
        lam=parse_lam(lam),
        cache=None if no_cache else "auto",
        n_jobs=jobs,
        verbose=True,
        random_state=seed,
    )
    started = time.perf_counter()
    with open_client(where) as client:
        tracker.fit(opened, marks, client=client)
    seconds = time.perf_counter() - started
    for movie, kinds in zip(opened, tracker.learned_kinds_, strict=True):
        print_note(f"{movie.name}: {kinds}" if len(opened) > 1 else str(kinds))
    print_note(str(tracker.coverage_))
    if not tracker.improved_:
        print_note(
            "learning did not improve on the initial weights; keeping them. Annotate more events, "
            "especially ones that were tracked wrongly"
        )
    make_folder(output.absolute().parent)
    tracker.save(output)
    write_unattached(readings, annotations, output.absolute().parent)
    out = Console(highlight=False, soft_wrap=True)
    out.print(
        f"Learned {len(tracker.coef_)} weights from {tracker.n_annotated_} events in {tracker.n_pairs_} frame pairs "
        f"in {seconds:.1f} s (λ = {tracker.lam_:.3g})."
    )
    out.print(f"  {tracker.result_}", markup=False)
    out.print(f"Written {path_text(output)}", markup=False)


@command()
def track(
    movie: MoviePath = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            "-w",
            metavar="FILE",
            help="Weights from clew train. Default: the generic weights that come with clew.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where the results go."),
    ] = Path("result"),
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="NAMES",
            show_default=False,
            help="Any of ctc, csv, geff, mastodon, napari, parquet, submission, trackmate, zarr, separated by commas. Default: ctc,csv; for a table csv.",
        ),
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            "-a",
            metavar="PATH",
            help="Known events; they override the weights.",
        ),
    ] = None,
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
    max_gap: Annotated[
        int | None,
        typer.Option(
            "--max-gap",
            metavar="N",
            min=0,
            max=32,
            show_default="32",
            help="Most frames that a cell may be missing from the masks within its track; 0 closes no gaps.",
        ),
    ] = None,
    fill: Annotated[
        bool,
        typer.Option(
            help="Recover the cells that are missing within tracks; they are marked as recovered in every format."
        ),
    ] = True,
    report: Annotated[bool, typer.Option(help="Write report.html too.")] = True,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace results that were changed by hand."),
    ] = False,
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
    from clew.tracking.io.results import check_formats, default_formats, write_and_count

    where = ComputeOptions.of(workers, cluster, memory_per_worker, profile)
    check_folder(output)
    check_result_folder(output, overwrite=overwrite)
    opened = open_input(
        movie,
        labels,
        images,
        spacing,
        channel,
        sparse,
        frames,
        radius,
        jobs,
        links,
        columns,
    )
    wanted = (
        default_formats(opened)
        if formats is None
        else check_formats(",".join(formats).split(","), opened)
    )
    tracker = open_tracker(weights)
    tracker.set_params(n_jobs=jobs, verbose=True, cache=None if no_cache else "auto")
    tracker.set_params(max_gap=max_gap, fill=fill)
    asked = {"events": events, "neighbours": neighbours, "reach": reach}
    tracker.set_params(
        **{name: value for name, value in asked.items() if value is not None}
    )
    given = None
    if annotations is not None:
        reading = read_annotations_of(annotations, opened, complete, distance)
        given = reading.annotations
    started = time.perf_counter()
    with open_client(where) as client:
        tracked = tracker.track_blocks(
            opened, output, annotations=given, client=client, memory=where.memory
        )
        seconds = time.perf_counter() - started
        print_note(tracker.measurements_)
        print_note(str(tracker.event_kinds_))
        if given is not None:
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
        facts = (
            _describe_part(opened.excerpt)
            | describe_training(tracker)
            | {"tracked in": f"{seconds:.1f} s"}
        )
        if given is not None:
            facts |= dict([str(tracker.coverage_).split(": ", 1)])
        if tracked.recovered is not None:
            facts |= {
                "recovered cells": f"{len(tracked.recovered):,} (no mask of yours)"
            }
        doubts = [*tracker.label_faults_.messages, tracker.unfamiliar_]
        if any(doubts):
            facts |= {"warning": "; ".join(filter(None, doubts))}
        pages = (
            {REPORT: make_sampled_report(tracked, opened, tracker, facts)}
            if report
            else {}
        )
        made_from = fingerprint_weights(tracker) | {
            "annotations": None if given is None else len(given)
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
    if annotations is not None:
        write_unattached([reading], [annotations], output.absolute().parent)
    print_counts(
        tracked, tally, seconds, is_reliable=not tracker.label_faults_.is_unreliable
    )
    if doubt := find_input_problem(
        tracked.n_frames, tracked.n_cells, tally.empty, tally.find_repeated_frames()
    ):
        print_message(f"warning: {doubt}")
    Console().print(
        f"Written to {path_text(output)}: {', '.join(written)}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@command()
def evaluate(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="A folder written by clew track, a folder with res_track.txt and masks, or a table of tracks (.csv, "
            ".parquet).",
        ),
    ],
    truth: Annotated[
        Path,
        typer.Option(
            "--truth",
            "-t",
            metavar="PATH",
            help="A true lineage of all or some cells: …_GT/TRA with man_track.txt, a table of tracks, or a .geff.",
        ),
    ],
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="sparse: adjusted edge Jaccard and division Jaccard against a truth of some cells, as in the Biohub "
            "competition of 2026. auto: all measures that the truth allows.",
        ),
    ] = "auto",
    complete: Annotated[
        bool | None,
        typer.Option(
            "--complete/--partial",
            show_default=False,
            help="Whether the truth has all cells. Default: partial if it says so, has no parents, or has less than "
            "80 % of the cells of the result.",
        ),
    ] = None,
    nodes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="For --metric sparse: estimated number of all cells in all frames. Default: as the truth says.",
        ),
    ] = None,
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            show_default=False,
            help="Use these frames of the truth only, as in 0:59.",
        ),
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(
            metavar="LENGTH",
            help="Match cells by position, at most this far apart. Default for tables: half the median distance "
            "between neighboring true cells; for --metric sparse 7.",
        ),
    ] = None,
    spacing: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Pixel size of the truth along (z,) y, x, for matching by position. Default: the spacing of the "
            "tracked movie.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all figures as JSON.")
    ] = False,
    jobs: Jobs = 1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    profile: Profile = None,
) -> None:
    """Compare a result with a true lineage.

    Cells are matched by their masks, or by position if the result or the truth is a table.
    """
    from clew.parallel import make_executor
    from clew.tracking.evaluation.evaluate import evaluate as measure_result
    from clew.tracking.evaluation.sparse import DISTANCE, evaluate_sparse

    which, where = (
        parse_frames(frames),
        ComputeOptions.of(workers, cluster, profile=profile),
    )
    sizes = parse_spacing(spacing)
    if metric not in ("auto", "sparse"):
        raise InputError(f"--metric is {metric!r}; expected auto or sparse")
    if metric == "sparse":
        score = evaluate_sparse(
            result,
            truth,
            distance=DISTANCE if distance is None else distance,
            spacing=sizes,
            n_estimated=nodes,
            frames=which,
        )
        if as_json:
            typer.echo(json.dumps(score.to_dict(), indent=2))
        else:
            title = f"{path_text(result)} against {path_text(truth)}"
            print_figures(score.rows(), title)
        return
    with open_client(where) as client, ProgressBar("matching cells") as progress:
        found = measure_result(
            result,
            truth,
            progress=progress,
            frames=which,
            executor=make_executor(client, jobs),
            distance=distance,
            spacing=sizes,
            complete=complete,
        )
    print_note(
        f"the truth is {found.truth_is}; cells are matched by {found.matched_by}; events are those of "
        f"{found.events_from}"
    )
    if as_json:
        missing = (
            {"scores_note": explain_missing_scores(found)}
            if found.scores is None
            else {}
        )
        typer.echo(json.dumps(found.to_dict() | missing, indent=2))
        return
    print_evaluation(found, f"{path_text(result)} against {path_text(truth)}")


@command()
def explain(
    weights: Annotated[
        Path, typer.Argument(metavar="WEIGHTS", help="Weights from clew train.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Save a plot of the weights (.png, .svg, .pdf).",
        ),
    ] = None,
) -> None:
    """Show the weight of each feature for each event."""
    from clew.tracking.persistence import load_tracker
    from clew.tracking.report import make_weight_rows, plot_weights
    from clew.utils import storage

    if output is not None and output.suffix.lower() not in PICTURES:
        raise InputError(f"{output}: a picture ends in {', '.join(PICTURES)}")
    tracker = load_tracker(weights)
    rows = make_weight_rows(tracker.feature_names_, tracker.coef_)
    largest = max((abs(row.weight) for row in rows), default=0.0) or 1.0
    learned = tracker.origin_.describe(tracker.n_annotated_, tracker.n_pairs_)
    table = Table(
        title=f"{len(rows)} weights, learned from {learned}", title_justify="left"
    )
    for column in ("event", "feature"):
        table.add_column(column)
    table.add_column("weight", justify="right")
    table.add_column("against · for", no_wrap=True)
    last = None
    for row in rows:
        if last is not None and row.event != last:
            table.add_section()
        table.add_row(
            row.event if row.event != last else "",
            row.feature,
            f"{row.weight:+.3f}",
            _draw_bar(row.weight / largest),
        )
        last = row.event
    Console().print(table)
    if output is not None:
        image = io.BytesIO()
        figure = plot_weights(tracker.feature_names_, tracker.coef_)
        figure.savefig(image, format=output.suffix[1:].lower(), dpi=150)
        storage.write_bytes(output, image.getvalue())
        typer.echo(f"Written {path_text(output)}")


def parse_lam(text: str) -> float | str:
    """Parse a number or auto."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--lam is {text!r}; expected a positive number or auto"
        ) from None


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


def _draw_bar(share: float, width: int = 12) -> str:
    """Draw a bar to the left or right of the middle with block characters."""
    length = round(abs(share) * width)
    return f"{'█' * length if share < 0 else '':>{width}}│{'█' * length if share > 0 else '':<{width}}"
