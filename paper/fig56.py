"""Figures 5 and 6: objective against time, and bounds against CCCP iteration, for five ways to optimise."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from clew.errors import NotConvergedWarning
from clew.estimators.data import make_task
from clew.learning.cccp import PRESETS, learn
from clew.learning.initialization import Start
from clew.learning.losses import get_loss
from clew.learning.result import Record
from paper.experiment_data import MODEL, ExperimentData

WAYS = ("yu-joachims", "recycling-only", "adaptive-only", "paper", "clew")
FRACTION = 0.25
STARTS = ("zero", "auto")
"""The paper's, w = 0; and clew's own."""
MAX_PASSES = 3000


def list_jobs(draws: int) -> list[dict[str, Any]]:
    """What is to be fitted."""
    return [
        {"way": way, "draw": draw, "start": start, "fraction": FRACTION}
        for draw in range(draws)
        for start in STARTS
        for way in WAYS
    ]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Fit in one of the ways, and keep its history with the processor time of each record."""
    X, Y = data.examples(data.draw(job["fraction"], job["draw"]))
    task = make_task(MODEL.prepare(X, Y), X, Y)
    loss = get_loss("bridge")
    start = (
        np.zeros(task.n_features)
        if job["start"] == "zero"
        else Start(task, loss).at(data.setup.lam)
    )
    began, seconds = time.process_time(), list[float]()

    def note(record: Record) -> None:  # noqa: ARG001  # the result has them all
        seconds.append(time.process_time() - began)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        algorithm = replace(PRESETS[job["way"]], max_passes=MAX_PASSES)
        result = learn(
            task, loss, data.setup.lam, algorithm=algorithm, start=start, callback=note
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
