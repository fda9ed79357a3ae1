"""Every kind of cells × how much is annotated × clew and its peers: missed events, AOGM, divisions, CPU seconds.

    CLEW_DATA=… python benchmarks/kinds.py run --kind bacteria --method clew --setting generic [--draws 5]
    python benchmarks/kinds.py table

`run` does what is asked for and not there yet, and keeps each result as a JSON file in the folder of `--results`, so
that the table can be assembled from several runs. The masks and the scorer are the same for all. Draws are other movies
of the simulated kinds, and other annotations of the real ones. Peers take no annotations; laptrack is tuned on the
whole truth of another movie of the kind (of the same movie for the real kinds), motile has costs set by hand, btrack
its authors' settings for cells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from kinds_movies import KINDS, REAL, Scene, open_kind, tuning_scene

from clew.annotation.learner import Learner
from clew.annotation.sampling import sample
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.tracker import Tracker
from clew.utils.storage import write_bytes
from paper.simulated_annotator import annotate
from paper.strategies import DEFAULT

SHARES = {"random5": 0.05, "random25": 0.25}
ANSWERS = {"answers25": 25, "answers100": 100}
SETTINGS = ("generic", *ANSWERS, *SHARES)
METHODS = ("clew", "untuned", "overlap", "laptrack", "motile", "btrack")
AT_ONCE = 5
"""Suggested questions that are answered before clew learns again and suggests others."""
FIGURES = {
    "missed": "missed %",
    "aogm": "AOGM above masks",
    "f1": "division F1",
    "seconds": "CPU s",
}
Results = Annotated[Path, typer.Option(help="Folder of the results, one file each.")]
HOME = Path("results/kinds")

app = typer.Typer(add_completion=False)


@app.command()
def run(
    kind: Annotated[list[str], typer.Option(help=", ".join(KINDS))] = list(KINDS),
    method: Annotated[list[str], typer.Option(help=", ".join(METHODS))] = list(METHODS),
    setting: Annotated[list[str], typer.Option(help=", ".join(SETTINGS))] = list(
        SETTINGS
    ),
    draws: int = 5,
    weights: Annotated[
        Path | None,
        typer.Option(help="Instead of generic weights, what clew train wrote."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="What clew with other weights is called in the table.")
    ] = "clew",
    movies: Annotated[
        Path, typer.Option(help="Where simulated movies and measurements are kept.")
    ] = HOME / "movies",
    results: Results = HOME,
    again: Annotated[bool, typer.Option(help="Do what is there already, too.")] = False,
) -> None:
    """Do what is asked for, one movie after the other, and print each figure."""
    for one in kind:
        for who in method:
            for draw in range(draws):
                called = name if who == "clew" else who
                wanted = [
                    s
                    for s in (setting if who == "clew" else ["peer"])
                    if needed(one, s, draw)
                ]
                wanted = [
                    s
                    for s in wanted
                    if again or not file_of(results, one, called, s, draw).exists()
                ]
                if not wanted:
                    continue
                scene = open_kind(one, draw, movies)
                tracker = start(weights)
                found = (
                    clew_results(scene, wanted, draw, tracker)
                    if who == "clew"
                    else peer(who, one, draw, movies)
                )
                for what, lineage, seconds, more in found:
                    keep(
                        results,
                        scene,
                        (one, called, what, draw),
                        lineage,
                        seconds,
                        more,
                    )


def needed(kind: str, setting: str, draw: int) -> bool:
    """Without annotations there is nothing to draw on a real movie."""
    return draw == 0 or kind not in REAL or setting not in ("generic", "peer")


def start(weights: Path | None) -> Tracker:
    """What clew begins with."""
    import clew

    if weights is None:
        return Tracker.generic(n_jobs=1)
    tracker = clew.load(weights)
    assert isinstance(tracker, Tracker), f"{weights} holds no tracker"
    return tracker


Found = Iterator[tuple[str, Lineage, float, dict[str, Any]]]
"""What was done: its setting, lineage, CPU seconds, and other things worth keeping."""


def clew_results(scene: Scene, settings: list[str], draw: int, first: Tracker) -> Found:
    """At some settings. What was answered on the page is kept to in its lineage; at random, weights speak alone."""
    if "generic" in settings:
        began = time.process_time()
        yield "generic", first.track(scene.source), time.process_time() - began, {}
    for setting, share in SHARES.items():
        if setting in settings:
            given = sample(scene.truth, share, np.random.default_rng([draw, 5]))
            began = time.process_time()
            tracker = Tracker(prior=first, n_jobs=1, random_state=draw).fit(
                scene.source, given
            )
            lineage = tracker.track(scene.source)
            yield (
                setting,
                lineage,
                time.process_time() - began,
                {"annotated": len(given), "lam": tracker.lam_},
            )
    budgets = {
        number: setting for setting, number in ANSWERS.items() if setting in settings
    }
    if budgets:
        learner, began = Learner(scene.source, tracker=first), time.process_time()
        goals = range(AT_ONCE, max(budgets) + 1, AT_ONCE)
        for goal, number in zip(
            goals,
            annotate(learner, scene.truth, DEFAULT, goals, draw, rounds=1),
            strict=True,
        ):
            if goal in budgets:
                spent = time.process_time() - began
                alone = learner.make_tracker().track(scene.source)
                missed = 100 * scene.evaluate(alone).loss.total
                more = {"annotated": number, "missed_unpinned": missed}
                yield budgets[goal], learner.build_lineage(), spent, more


def peer(who: str, kind: str, draw: int, movies: Path) -> Found:
    """A peer's lineage; tuning is not part of its seconds."""
    scene = open_kind(kind, draw, movies)
    more: dict[str, Any] = {}
    if who == "laptrack":
        import peer_laptrack

        more = {"tuned": peer_laptrack.tune(tuning_scene(kind, draw, movies)[0])}
        began = time.process_time()
        links = peer_laptrack.links(scene.points, **more["tuned"])
        seconds = time.process_time() - began
    elif who == "untuned":
        import peer_laptrack

        began = time.process_time()
        links = peer_laptrack.links(scene.points, **peer_laptrack.UNTUNED)
        seconds = time.process_time() - began
    elif who == "overlap":
        import peer_overlap

        if "overlap" not in scene.source.has:
            return
        began = time.process_time()
        links = peer_overlap.links(scene)
        seconds = time.process_time() - began
    elif who == "motile":
        import peer_motile

        began = time.process_time()
        links = peer_motile.links(scene.points)
        seconds = time.process_time() - began
    else:
        import peer_btrack

        links, seconds = peer_btrack.links(scene.points)
    yield "peer", scene.lineage_of(links), seconds, more


def file_of(results: Path, kind: str, method: str, setting: str, draw: int) -> Path:
    """Where a result is kept."""
    return results / f"{kind}.{method}.{setting}.{draw}.json"


def keep(
    results: Path,
    scene: Scene,
    which: tuple[str, str, str, int],
    lineage: Lineage,
    seconds: float,
    more: Any,
) -> None:
    """Score a lineage, print its figures and keep them."""
    found = scene.evaluate(lineage)
    loss = found.loss
    figures = {
        "missed": 100 * loss.total,
        "aogm": found.aogm.avoidable,
        "f1": found.divisions[0].f1,
        "seconds": seconds,
    }
    kind, method, setting, draw = which
    row = {
        "kind": kind,
        "method": method,
        "setting": setting,
        "draw": draw,
        **figures,
        "more": more,
    }
    row["events"] = int(loss.annotated.sum())
    row["divisions"] = {
        k: getattr(found.divisions[0], k) for k in ("right", "false", "missed")
    }
    results.mkdir(parents=True, exist_ok=True)
    write_bytes(file_of(results, *which), (json.dumps(row) + "\n").encode())
    print(
        *which,
        *(f"{label} {figures[key]:.3g}" for key, label in FIGURES.items()),
        more,
        flush=True,
    )


@app.command()
def table(results: Results = HOME) -> None:
    """Print what is there as a markdown table: means over draws, with their standard deviation."""
    rows = [json.loads(file.read_bytes()) for file in sorted(results.glob("*.json"))]
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    print("| kind (events) | method | " + " | ".join(FIGURES.values()) + " | draws |")
    print("| --- | --- |" + " --- |" * (len(FIGURES) + 1))
    order = {name: n for n, name in enumerate((*SETTINGS, "peer"))}
    for kind in kinds:
        groups: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
        for row in rows:
            if row["kind"] == kind:
                groups.setdefault(
                    (order[row["setting"]], row["method"], row["setting"]), []
                ).append(row)
        events = np.mean([row["events"] for row in rows if row["kind"] == kind])
        for n, ((_, method, setting), group) in enumerate(sorted(groups.items())):
            figures = " | ".join(
                shown([row[key] for row in group], key) for key in FIGURES
            )
            label = method if setting == "peer" else f"{method}, {setting}"
            print(
                f"| {f'{kind} ({events:,.0f})' if not n else ''} | {label} | {figures} | {len(group)} |"
            )


def shown(values: list[float], key: str) -> str:
    """A mean, and the deviation between draws."""
    digits = {"missed": 2, "aogm": 0, "f1": 2, "seconds": 1}[key]
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    app()
