"""Commands that learn to track, track, and show what was learned."""

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
    MemoryPerWorker,
    Profile,
    Where,
    Workers,
    connected,
)
from clew.cli.lineages import no_scores, print_counts, print_evaluation, sampled_report
from clew.cli.movies import (
    Channel,
    Events,
    Frames,
    ImagesPath,
    Jobs,
    LabelsPath,
    ManyImages,
    ManyLabels,
    MoviePath,
    MoviePaths,
    Neighbours,
    NoCache,
    Radius,
    Reach,
    Spacing,
    Sparse,
    doubt_about,
    events_option,
    open_any,
    open_several,
    parse_frames,
    parse_spacing,
    read_annotations_of,
)
from clew.cli.options import (
    check_file,
    check_folder,
    command,
    make_folder,
    note,
    say,
    shown,
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
    neighbours: Neighbours = None,
    reach: Reach = None,
    events: Events = "auto",
    lam: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Weight λ of the regulariser; auto chooses it by cross-validation.",
        ),
    ] = "auto",
    loss: Annotated[
        str,
        typer.Option(metavar="NAME", help="The loss to minimize; see docs/learning-guide.md."),
    ] = "bridge",
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Seed of the folds by which λ is chosen."
        ),
    ] = 0,
    jobs: Jobs = -1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    profile: Profile = None,
    no_cache: NoCache = False,
) -> None:
    """Learn tracking weights from movies of which some events are annotated.

    Several movies are learned from together: clew train A B -a A.csv -a B.csv.
    """
    from clew.estimators import persistence as archive
    from clew.tracking.candidates.candidates import NEIGHBOURS
    from clew.tracking.tracker import Tracker

    where = Where.of(workers, cluster, profile=profile)
    check_folder(output.absolute().parent)
    check_file(
        output, lambda path: path.suffix == SUFFIX or archive.describe(path), "weights"
    )
    opened = open_several(
        movies,
        labels,
        images,
        spacing=spacing,
        channel=channel,
        sparse=sparse,
        frames=frames,
        radius=radius,
    )
    if len(annotations) != len(opened):
        raise InputError(
            f"there are {len(opened)} movies and {len(annotations)} × --annotations; expected one for each movie, in "
            "the same order"
        )
    marks = [
        read_annotations_of(path, movie)
        for path, movie in zip(annotations, opened, strict=True)
    ]
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
    with connected(where) as client:
        tracker.fit(opened, marks, client=client)
    seconds = time.perf_counter() - started
    for movie, kinds in zip(opened, tracker.learned_kinds_, strict=True):
        note(f"{movie.name}: {kinds}" if len(opened) > 1 else str(kinds))
    note(str(tracker.coverage_))
    if not tracker.improved_:
        note(
            "learning made more mistakes on held-out annotations than the weights it began with, which are kept: "
            "annotate more, above all events that were tracked wrongly"
        )
    make_folder(output.absolute().parent)
    tracker.save(output)
    out = Console(highlight=False, soft_wrap=True)
    out.print(
        f"Learned {len(tracker.coef_)} weights from {tracker.n_annotated_} events in {tracker.n_pairs_} frame pairs "
        f"in {seconds:.1f} s (λ = {tracker.lam_:.3g})."
    )
    out.print(f"  {tracker.result_}", markup=False)
    out.print(f"Written {shown(output)}", markup=False)


@command()
def track(
    movie: MoviePath = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            "-w",
            metavar="FILE",
            help="What clew train wrote; without it, generic weights that come with clew.",
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
            help="Any of ctc,csv,geff,napari,parquet,zarr, separated by commas or one by one; else ctc,csv, for a "
            "table csv.",
        ),
    ] = None,
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            "-a",
            metavar="PATH",
            help="Events that the lineage must keep to.",
        ),
    ] = None,
    labels: LabelsPath = None,
    images: ImagesPath = None,
    radius: Radius = None,
    spacing: Spacing = None,
    channel: Channel = None,
    sparse: Sparse = False,
    frames: Frames = None,
    events: Annotated[str | None, events_option("as the weights were learned")] = None,
    neighbours: Neighbours = None,
    reach: Reach = None,
    report: Annotated[bool, typer.Option(help="Write report.html as well.")] = True,
    jobs: Jobs = -1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    memory_per_worker: MemoryPerWorker = None,
    profile: Profile = None,
    no_cache: NoCache = False,
) -> None:
    """Track a movie with learned weights, and write its lineage.

    A run that was cut short goes on by the same command: finished blocks of frames are kept in a hidden folder within
    the output until the result is whole.
    """
    from clew.executors import executor_for
    from clew.tracking.io.ctc import check_result_folder
    from clew.tracking.io.names import REPORT
    from clew.tracking.io.results import check_formats, default_formats, write_and_count

    where = Where.of(workers, cluster, memory_per_worker, profile)
    check_folder(output)
    check_result_folder(output)
    opened = open_any(movie, labels, images, spacing, channel, sparse, frames, radius)
    wanted = (
        default_formats(opened)
        if formats is None
        else check_formats(",".join(formats).split(","), opened)
    )
    tracker = open_tracker(weights)
    tracker.set_params(n_jobs=jobs, verbose=True, cache=None if no_cache else "auto")
    asked = {"events": events, "neighbours": neighbours, "reach": reach}
    tracker.set_params(
        **{name: value for name, value in asked.items() if value is not None}
    )
    given = None if annotations is None else read_annotations_of(annotations, opened)
    started = time.perf_counter()
    with connected(where) as client:
        tracked = tracker.track_blocks(
            opened, output, annotations=given, client=client, memory=where.memory
        )
        seconds = time.perf_counter() - started
        note(str(tracker.event_kinds_))
        note(str(tracker.coverage_))
        if tracked.n_solved < len(tracked):
            note(
                f"{len(tracked) - tracked.n_solved} of {len(tracked)} blocks were there from a run that was cut short"
            )
        facts = (
            _part_facts(opened.excerpt)
            | training_facts(tracker)
            | {"tracked in": f"{seconds:.1f} s"}
        )
        facts |= dict([str(tracker.coverage_).split(": ", 1)])
        if tracker.unfamiliar_:
            facts |= {"warning": tracker.unfamiliar_}
        pages = (
            {REPORT: sampled_report(tracked, opened, tracker, facts)} if report else {}
        )
        made_from = weights_fingerprint(tracker) | {
            "annotations": None if given is None else len(given)
        }
        with ProgressBar("writing masks") as progress:
            written, tally = write_and_count(
                output,
                tracked,
                opened,
                wanted,
                executor_for(client, jobs),
                progress,
                pages,
                made_from,
            )
    tracked.checkpoints.delete_all()
    print_counts(tracked, tally, seconds)
    if doubt := doubt_about(tracked.n_frames, tracked.n_cells, tally.empty):
        say(f"warning: {doubt}")
    Console().print(
        f"Written to {shown(output)}: {', '.join(written)}",
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
            help="A folder that clew track wrote, one with res_track.txt and masks, or a table of tracks (.csv, "
            ".parquet).",
        ),
    ],
    truth: Annotated[
        Path,
        typer.Option(
            "--truth",
            "-t",
            metavar="PATH",
            help="A true lineage: …_GT/TRA with man_track.txt, or a table of tracks.",
        ),
    ],
    frames: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST",
            show_default=False,
            help="These frames of the truth only, as in 0:59, and of a result that has more.",
        ),
    ] = None,
    distance: Annotated[
        float | None,
        typer.Option(
            metavar="LENGTH",
            help="Match cells by their positions, at most so far apart; where one side is a table this is done without "
            "it too, up to half of what is usually between true cells.",
        ),
    ] = None,
    spacing: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="The size of a pixel of the truth along (z,) y, x, where positions are matched; by default that of "
            "the movie which clew track had, whose tables are in physical units.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON.")
    ] = False,
    jobs: Jobs = 1,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    profile: Profile = None,
) -> None:
    """Measure a result against a true lineage.

    Cells are matched by their masks, or by their positions where the result or the truth is a table.
    """
    from clew.executors import executor_for
    from clew.tracking.evaluation.evaluate import evaluate as measure_result

    which, where = parse_frames(frames), Where.of(workers, cluster, profile=profile)
    sizes = parse_spacing(spacing)
    with connected(where) as client, ProgressBar("matching cells") as progress:
        found = measure_result(
            result,
            truth,
            progress=progress,
            frames=which,
            executor=executor_for(client, jobs),
            distance=distance,
            spacing=sizes,
        )
    note(
        f"cells are matched by {found.matched_by}; events are those of {found.events_from}"
    )
    if as_json:
        missing = {"scores_note": no_scores(found)} if found.scores is None else {}
        typer.echo(json.dumps(found.to_dict() | missing, indent=2))
        return
    print_evaluation(found, f"{shown(result)} against {shown(truth)}")


@command()
def explain(
    weights: Annotated[
        Path, typer.Argument(metavar="WEIGHTS", help="What clew train wrote.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Draw the weights too (.png, .svg, .pdf).",
        ),
    ] = None,
) -> None:
    """Show learned weights by event and feature: what speaks for an event, and what against it."""
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
            _bar(row.weight / largest),
        )
        last = row.event
    Console().print(table)
    if output is not None:
        image = io.BytesIO()
        figure = plot_weights(tracker.feature_names_, tracker.coef_)
        figure.savefig(image, format=output.suffix[1:].lower(), dpi=150)
        storage.write_bytes(output, image.getvalue())
        typer.echo(f"Written {shown(output)}")


def parse_lam(text: str) -> float | str:
    """A number, or auto."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--lam is {text!r}; expected a positive number or auto"
        ) from None


def open_tracker(weights: Path | None) -> Tracker:
    """Learned weights from a file, or the generic ones."""
    from clew.tracking.persistence import load_tracker
    from clew.tracking.tracker import Tracker

    if weights is not None:
        return load_tracker(weights)
    note(
        "no --weights: generic ones are used, learned from simulated movies; clew train learns your own"
    )
    return Tracker.generic()


def _part_facts(excerpt: range | None) -> dict[str, str]:
    """What the report says of a part of a movie: annotations have the numbers of the whole one."""
    if excerpt is None:
        return {}
    return {
        "part": f"frames {excerpt[0]} to {excerpt[-1]} of the movie, counted from 0 here"
    }


def training_facts(tracker: Tracker) -> dict[str, str]:
    """What the report says of the weights."""
    facts = {
        "learned from": tracker.origin_.describe(tracker.n_annotated_, tracker.n_pairs_)
    }
    if not hasattr(
        tracker, "result_"
    ):  # no fit with a certificate: generic weights, or those of the page
        return facts
    return facts | {"λ": f"{tracker.lam_:.3g}", "certificate": str(tracker.result_)}


def weights_fingerprint(tracker: Tracker) -> dict[str, str]:
    """For the manifest: which weights a result comes from."""
    named = json.dumps(
        dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True)),
        sort_keys=True,
    )
    return {
        "weights": str(tracker.origin_),
        "weights_sha256": hashlib.sha256(named.encode()).hexdigest(),
    }


def _bar(share: float, width: int = 12) -> str:
    """A bar to the left or right of the middle, of block characters."""
    length = round(abs(share) * width)
    return f"{'█' * length if share < 0 else '':>{width}}│{'█' * length if share > 0 else '':<{width}}"
