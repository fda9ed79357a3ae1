"""The command train."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from clew.cli.movies import (
    AttachDistance,
    Channel,
    Columns,
    Complete,
    Events,
    Frames,
    Jobs,
    ManyImages,
    ManyLabels,
    ManyLinks,
    MovieOptions,
    MoviePaths,
    Neighbours,
    NoCache,
    Radius,
    Reach,
    Spacing,
    Sparse,
    list_files,
    open_input,
    read_annotations_of,
    write_unattached,
)
from clew.cli.options import (
    ClusterAddress,
    ComputeOptions,
    Profile,
    Workers,
    check_file,
    check_folder,
    command,
    make_folder,
    open_client,
    path_text,
    print_note,
    print_result,
)
from clew.errors import InputError

SUFFIX = ".clew"


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
    """Learn tracking weights from annotated events.

    With several movies: clew train A B -a A.csv -a B.csv.
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
    options = MovieOptions(spacing, channel, sparse, frames, radius, columns)
    files = list_files(movies, labels, images, links)
    opened = [open_input(one, options) for one in files]
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
    done = f"Learned {len(tracker.coef_)} weights from"
    if not tracker.improved_:
        done = "Kept the initial weights after learning from"
    print_result(
        f"{done} {tracker.n_annotated_} events in {tracker.n_pairs_} frame pairs "
        f"in {seconds:.1f} s (λ = {tracker.lam_:.3g}).\n"
        f"  {tracker.result_}\n"
        f"Written {path_text(output)}"
    )


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
