"""Somebody who answers from the truth, with the requests that the page sends: task loss against answers."""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from page_server import Served, console, linked, load

from clew.annotation.questions import find_settled
from clew.tracking.events import BY_NAME, Annotations, Event, EventTable

Answers = Iterator[tuple[list[int], dict[str, Any] | None]]
"""Rows of the truth that are said, and the question that they answer, if it was asked."""


class Point(NamedTuple):
    """What is so after some answers, and what the page says."""

    answers: int
    alone: float
    """Task loss of the weights alone, and of the predictions with the answers pinned."""
    pinned: float
    wrong: int
    """Predicted events that are not true, of cells whose truth is known."""
    unknown: float
    """How many of the others are wrong by the calibration: nobody can answer those, and the page counts them."""
    number: float
    low: float
    high: float

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the number."""
        return self.low <= round(self.wrong + self.unknown) <= self.high

    def __str__(self) -> str:
        unknown = (
            f" and {self.unknown:.0f} of unknown truth" if self.unknown >= 0.5 else ""
        )
        return (
            f"{self.answers:4d} answers: weights alone {self.alone:.3%}, with pins {self.pinned:.3%}; {self.wrong} "
            f"wrong{unknown}, the page says {self.number:.0f} ({self.low:.0f} to {self.high:.0f})"
            f"{'' if self.is_inside else ' OUTSIDE'}"
        )


class Judge:
    """The task loss of weights on a whole movie, with and without its annotations."""

    def __init__(self, movie: Path, folder: Path) -> None:
        from clew.annotation.learner import Learner
        from clew.tracking.evaluation.truth import derive_annotations
        from clew.tracking.io.ctc import open_ctc_lineage
        from clew.tracking.measurement.measure import measure_movie
        from clew.tracking.movie import open_movie

        opened = open_movie(movie)
        lineage = open_ctc_lineage(movie.parent / f"{movie.name}_GT/TRA")
        self.truth = by_pairs(derive_annotations(lineage, opened))
        self.learner = Learner(
            measure_movie(opened, cache=folder / "measured", n_jobs=2)
        )
        self.folder = folder

    def losses(
        self, served: Served, said: list[tuple[int, Event, Any, Any]]
    ) -> tuple[float, float, int, float]:
        """The loss of what the server's weights predict alone and with the answers pinned, and events wrong then.

        Of events whose truth is not known, how many are expected to be wrong.
        """
        from clew.tracking.assignment.assignment import assign
        from clew.tracking.evaluation.task_loss import compute_task_loss
        from clew.tracking.persistence import load_tracker
        from clew.tracking.training.calibration import GENERIC_CALIBRATION
        from clew.tracking.training.generic_weights import weights_by_name

        path = self.folder / f"{secrets.token_hex(4)}.clew"
        code, content = served.ask("export/weights")
        assert code == 200, content
        path.write_bytes(content)
        w = weights_by_name(load_tracker(path), self.learner.names)
        pins = (
            Annotations.of(EventTable.of(said))
            if said
            else Annotations.of(EventTable.empty())
        )
        self.learner.annotate(pins)
        alone, pinned, doubt = [], [], []
        for frame in range(len(self.learner.pairs)):
            pair = self.learner.get_pair(frame)
            here = pair.find_annotated(pins[pins.events.frame == frame])
            for given, steps in (({}, alone), (here, pinned)):
                answer = assign(pair.candidates, pair.scores(w), given)
                steps.append(pair.candidates.table(pair.a, pair.b, answer.chosen))
            open_ = np.flatnonzero(~find_settled(steps[-1], self.truth))
            sure = answer.confidence(answer.chosen[open_])
            p = GENERIC_CALIBRATION.probability(
                steps[-1].event[open_], sure, float(np.linalg.norm(w))
            )
            doubt.append(float((1 - p).sum()))
        free, kept = (
            compute_task_loss(self.truth, EventTable.join(steps)).total
            for steps in (alone, pinned)
        )
        last = EventTable.join(pinned)  # of cells without a truth, nobody knows
        wrong = int(
            (
                ~np.isin(last.row_keys(), self.truth.events.row_keys())
                & find_settled(last, self.truth)
            ).sum()
        )
        return free, kept, wrong, sum(doubt)

    def point(self, served: Served, said: list[tuple[int, Event, Any, Any]]) -> Point:
        """The losses, and what the page says of them."""
        free, kept, wrong, unknown = self.losses(served, said)
        told = served.status()["wrong"]
        return Point(
            len(said),
            free,
            kept,
            wrong,
            unknown,
            told["number"],
            told["low"],
            told["high"],
        )


def by_pairs(truth: Annotations) -> Annotations:
    """The truth as frame pairs see it, and as the page asks: of a gap, that a cell disappears and another appears."""
    gaps = truth.events[truth.happened & (truth.events.event == Event.GAP)]
    ends = [(frame, Event.DISAPPEAR, sources, ()) for frame, _, sources, _ in gaps]
    ends += [(frame + 1, Event.APPEAR, (), targets) for frame, _, _, targets in gaps]
    kept = truth.to_pairwise()
    happened = np.append(kept.happened, np.ones(len(ends), dtype=bool))
    return Annotations.of(EventTable.join([kept.events, EventTable.of(ends)]), happened)


def suggested(served: Served, truth: Annotations, pace: float) -> Answers:
    """Answers to the question at the head of the queue, which is asked for again after each."""
    from clew.annotation.questions import Question, answer_from_truth

    unanswerable = set[str]()
    while True:
        served.rest(pace)
        for one in served.ask("questions?n=100")[1]["questions"]:
            cells = tuple(one["sources"]), tuple(one["targets"])
            rows = answer_from_truth(
                Question(one["frame"], BY_NAME[one["event"]], *cells, 0.0, ""), truth
            )
            if len(rows) and str(one["frame"]) + str(cells) not in unanswerable:
                yield (
                    rows.tolist(),
                    {name: one[name] for name in ("event", "sources", "targets")},
                )
                break
            unanswerable.add(str(one["frame"]) + str(cells))
        else:
            if not served.status()["learning"]:
                return


def at_random(served: Served, truth: Annotations, pace: float, seed: int) -> Answers:
    """All rows of the truth in random order; five for each time that the worker learns."""
    for n, row in enumerate(
        np.random.default_rng(seed).permutation(len(truth)).tolist()
    ):
        if n % 5 == 0:
            served.rest(pace)
        yield [row], None


def curve(
    movie: Path, folder: Path, options: argparse.Namespace, order: str
) -> list[Point]:
    """What is so, and what the page says, after more and more answers."""
    (own := folder / order).mkdir()
    judge, weights = Judge(movie, own), []
    truth = judge.truth
    if options.blank:
        tracker = judge.learner.make_tracker()  # which knows the movie's features
        tracker.coef_ = np.zeros_like(tracker.coef_)
        tracker.save(own / "blank.clew")
        weights = ["--weights", str(own / "blank.clew")]
    served = Served(movie, own / "store.clewdb", "--no-cache", *weights)
    most, every = (
        (options.answers, 25) if order == "suggested" else (options.random, 100)
    )
    said: list[tuple[int, Event, Any, Any]] = []
    points = []
    try:
        served.rest()
        rows = (
            suggested(served, truth, options.pace)
            if order == "suggested"
            else at_random(served, truth, options.pace, options.seed)
        )
        answers, refused = 0, 0
        revision = served.status()["revision"]
        points.append(judge.point(served, said))
        console.print(f"{order:>9} {points[-1]}")
        for many, asked in rows:
            for frame, event, sources, targets in truth.events[
                np.array(many, dtype=np.intp)
            ]:
                body = {
                    "frame": frame,
                    "event": str(event),
                    "sources": list(sources),
                    "targets": list(targets),
                }
                common = {
                    "key": secrets.token_hex(8),
                    "revision": revision,
                    "happened": True,
                    "replace": False,
                }
                code, reply = served.ask("answers", {**body, **common, "asked": asked})
                asked = None  # the first answer settles the question
                if code != 200:
                    refused += 1
                    continue
                said.append((frame, event, sources, targets))
                revision, answers = reply["revision"], answers + 1
                if answers % every == 0 or (
                    order == "random" and answers in (25, 50, 150)
                ):
                    served.rest()
                    points.append(judge.point(served, said))
                    console.print(
                        f"{order:>9} {points[-1]} ({refused} refused, load {load()})"
                    )
            if answers >= most:
                break
    finally:
        served.stop()
    return points


def annotator(options: argparse.Namespace) -> None:
    """Loss against answers, for both orders."""
    found: dict[str, list[Point]] = {}
    with tempfile.TemporaryDirectory() as folder:
        movie = (
            linked(Path(folder), options.movie)
            if not options.kind
            else kind_of_cells(Path(folder), options)
        )
        for order in options.orders:
            found[order] = curve(movie, Path(folder), options, order)
            if options.json:
                options.json.write_text(json.dumps(found))
    if options.plot:
        plot(
            options.plot,
            found,
            "from nothing" if options.blank else "from generic weights",
        )
    for order, points in found.items():
        inside = sum(point.is_inside for point in points)
        console.print(
            f"{order}: the number of wrong events is in the page's interval {inside} times of {len(points)}"
        )
    for column, what in ((1, "weights alone"), (2, "with pins")):
        for order, points in found.items():
            console.print(
                f"{what}, {order}: "
                + "  ".join(f"{point[0]}: {point[column]:.2%}" for point in points)
            )


def kind_of_cells(folder: Path, options: argparse.Namespace) -> Path:
    """A simulated movie of a kind of cells."""
    from clew.simulation.kinds import settings_of
    from clew.simulation.write import write_simulation

    write_simulation(
        folder / options.kind,
        settings_of(options.kind, seed=options.seed, frames=options.frames),
    )
    return folder / options.kind / "01"


def plot(path: Path, found: dict[str, list[Point]], title: str) -> None:
    """The curves as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, both = pyplot.subplots(
        1, 2, figsize=(9, 3.6), sharey=False, layout="constrained"
    )
    for axes, column, what in zip(
        both, (1, 2), ("weights alone", "with the answers pinned"), strict=True
    ):
        for (order, points), style in zip(found.items(), ("o-", "s--"), strict=False):
            answers, loss = zip(
                *[(point[0], 100 * point[column]) for point in points], strict=True
            )
            axes.plot(
                answers,
                loss,
                style,
                ms=4,
                label={"suggested": "suggested queue", "random": "random order"}[order],
            )
        axes.set(
            title=what, xlabel="answers", ylabel="task loss on the whole movie (%)"
        )
        axes.grid(alpha=0.3)
        axes.set_ylim(
            0,
            1.1
            * max(100 * point[column] for points in found.values() for point in points),
        )
    both[0].legend()
    figure.suptitle(f"A simulated annotator at the page, {title}")
    figure.savefig(path, dpi=130)
