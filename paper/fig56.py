"""Figures 5 and 6: objective against time, bounds against CCCP iteration."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

from clew.errors import NotConvergedWarning
from clew.estimators.data import make_task
from clew.learning.cccp import PRESETS, learn
from clew.learning.initialization import Initializer
from clew.learning.losses import get_loss
from clew.learning.result import Record
from paper.experiment_data import MODEL, ExperimentData, draw_start_near_zero

WAYS = ("yu-joachims", "recycling-only", "adaptive-only", "paper", "clew")
FRACTION = 0.25
STARTS = ("zero", "auto")
"""w = 0 as in the paper, with ties broken at random, and clew's default."""
MAX_PASSES = 3000


def list_jobs(draws: int) -> list[dict[str, Any]]:
    """List the fits."""
    return [
        {"way": way, "draw": draw, "start": start, "fraction": FRACTION}
        for draw in range(draws)
        for start in STARTS
        for way in WAYS
    ]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Fit with one algorithm; the history has the processor time of each record."""
    X, Y = data.examples(data.draw(job["fraction"], job["draw"]))
    task = make_task(MODEL.prepare(X, Y), X, Y)
    loss = get_loss("bridge")
    start = (
        draw_start_near_zero(task.n_features, job["draw"])
        if job["start"] == "zero"
        else Initializer(task, loss).weights_for(data.setup.lam)
    )
    began = time.process_time()
    seconds: list[float] = []

    def note_time(record: Record) -> None:  # noqa: ARG001
        seconds.append(time.process_time() - began)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        algorithm = replace(PRESETS[job["way"]], max_passes=MAX_PASSES)
        result = learn(
            task,
            loss,
            data.setup.lam,
            algorithm=algorithm,
            start=start,
            callback=note_time,
        )
    return {
        "loss": data.examiner.loss(result.w),
        "seconds": time.process_time() - began,
        "objective": result.objective,
        "gap": result.gap,
        "passes": result.passes,
        "bounds": result.bounds,
        "iterations": result.iterations,
        "converged": result.converged,
        "history": {
            "seconds": seconds,
            **{
                name: result.column(name).tolist()
                for name in ("iteration", "objective", "passes", "bounds")
            },
        },
    }
