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
from paper.experiment_data import MODEL, ExperimentData, cpu_seconds

LOSSES = ("hinge", "ramp", "max", "bridge", "ramp-delta", "max-delta")
TWINS = (("bridge", "hinge"), ("max", "ramp"), ("max-delta", "ramp-delta"))
"""Which are the same function of w where Δ counts annotated events only."""
FRACTION = 0.25
"""Of the events; the paper does not say which fraction its table is for."""
LITERAL, IDENTITIES, STARTED = "literal", "identities", "clew's start"
"""Y° really searched, from w = 0; searches spared, from w = 0; the same from clew's own start."""


def list_jobs(draws: int) -> list[dict[str, Any]]:
    """What is to be fitted."""
    return [
        {"surrogate": loss, "way": way, "draw": draw, "fraction": FRACTION}
        for draw in range(draws)
        for way in (LITERAL, IDENTITIES, STARTED)
        for loss in LOSSES
    ]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Fit with one loss and test; `twins` are the values of both losses of a pair at the weights that were found."""
    X, Y = data.examples(data.draw(job["fraction"], job["draw"]))
    model = StructuredSVM(
        MODEL,
        loss=job["surrogate"],
        lam=data.setup.lam,
        start="auto" if job["way"] == STARTED else "zero",
        algorithm=replace(PRESETS["clew"], identities=job["way"] != LITERAL),
        n_jobs=1,
    )
    with cpu_seconds() as spent, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model.fit(X, Y)
    result = model.result_
    task, twin = (
        make_task(model.model_, X, Y),
        next(pair for pair in TWINS if job["surrogate"] in pair),
    )
    return {
        "loss": data.examiner.loss(model.coef_),
        "seconds": spent[0],
        "objective": result.objective,
        "norm": float((model.coef_**2).sum() ** 0.5),
        "converged": bool(result.converged),
        "told": str(result),
        "twins": [
            float(loss_values(task, get_loss(name), result.w).mean()) for name in twin
        ],
    }
