"""Table 3: six surrogate losses, literally and by the identities that make three of them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from clew.errors import NotConvergedWarning
from clew.estimators.data import make_task
from clew.estimators.svm import StructuredSVM
from clew.learning.cccp import PRESETS
from clew.learning.losses import get_loss, loss_values
from paper.experiment_data import (
    MODEL,
    ExperimentData,
    cpu_seconds,
    draw_start_near_zero,
)

LOSSES = ("hinge", "ramp", "max", "bridge", "ramp-delta", "max-delta")
TWINS = (("bridge", "hinge"), ("max", "ramp"), ("max-delta", "ramp-delta"))
"""Losses that are the same function of w if Δ counts annotated events only."""
FRACTION = 0.25
"""Annotated fraction; the paper does not say which one its table has."""
LITERAL = "literal"
"""Y° is searched, from w = 0."""
IDENTITIES = "identities"
"""Searches that cannot matter are skipped, from w = 0."""
STARTED = "clew's start"
"""The same from clew's start."""


def list_jobs(draws: int) -> list[dict[str, Any]]:
    """List the fits."""
    return [
        {"surrogate": loss, "way": way, "draw": draw, "fraction": FRACTION}
        for draw in range(draws)
        for way in (LITERAL, IDENTITIES, STARTED)
        for loss in LOSSES
    ]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Fit with one loss and test; `twins` are the values of a pair of equal losses."""
    X, Y = data.examples(data.draw(job["fraction"], job["draw"]))
    n_features = MODEL.prepare(X, Y).n_features
    near_zero = draw_start_near_zero(n_features, job["draw"])
    model = StructuredSVM(
        MODEL,
        loss=job["surrogate"],
        lam=data.setup.lam,
        start="auto" if job["way"] == STARTED else near_zero,
        algorithm=replace(PRESETS["clew"], identities=job["way"] != LITERAL),
        n_jobs=1,
    )
    with cpu_seconds() as spent, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model.fit(X, Y)
    result = model.result_
    task = make_task(model.model_, X, Y)
    twin = next(pair for pair in TWINS if job["surrogate"] in pair)
    return {
        "loss": data.examiner.loss(model.coef_),
        "seconds": spent[0],
        "objective": result.objective,
        "norm": float((model.coef_**2).sum() ** 0.5),
        "converged": bool(result.converged),
        "summary": str(result),
        "twins": [
            float(loss_values(task, get_loss(name), result.w).mean()) for name in twin
        ],
    }
