"""The commands evaluate and explain."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clew.cli.lineages import (
    explain_missing_scores,
    print_evaluation,
    print_figures,
)
from clew.cli.movies import Jobs, parse_frames, parse_spacing
from clew.cli.options import (
    ClusterAddress,
    ComputeOptions,
    Profile,
    Workers,
    command,
    make_cell,
    open_client,
    path_text,
    print_note,
)
from clew.errors import InputError
from clew.utils.progress import ProgressBar

PICTURES = (".png", ".svg", ".pdf")


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
            make_cell(row.event if row.event != last else ""),
            make_cell(row.feature),
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


def _draw_bar(share: float, width: int = 12) -> str:
    """Draw a bar to the left or right of the middle with block characters."""
    length = round(abs(share) * width)
    return f"{'█' * length if share < 0 else '':>{width}}│{'█' * length if share > 0 else '':<{width}}"
