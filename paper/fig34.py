"""Figures 3 and 4: test task loss and training time against the annotated fraction."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from clew.errors import NotConvergedWarning
from clew.estimators.perceptron import StructuredPerceptron
from clew.estimators.svm import StructuredSVM
from paper.experiment_data import MODEL, ExperimentData, cpu_seconds

FRACTIONS = tuple(percent / 100 for percent in range(50, 0, -5))
QUICK_FRACTIONS = (0.5, 0.25, 0.1, 0.05)
PARTIAL = "clew"
"""The bridge loss with partial annotation."""
FULL = "full"
"""BMRM with full annotation."""
PERCEPTRON = "perceptron"
AVERAGED = "averaged perceptron"


def list_jobs(draws: int, fractions: Sequence[float]) -> list[dict[str, Any]]:
    """List the fits; there is one draw of full annotation."""
    partial = [
        {"method": method, "fraction": fraction, "draw": draw}
        for fraction in fractions
        for method in (PARTIAL, PERCEPTRON, AVERAGED)
        for draw in range(draws)
    ]
    return [{"method": FULL, "fraction": 1.0, "draw": 0}, *partial]


def run_job(data: ExperimentData, job: dict[str, Any]) -> dict[str, Any]:
    """Fit one estimator and test it."""
    if job["method"] == FULL:
        annotations = data.full
    else:
        annotations = data.draw(job["fraction"], job["draw"])
    X, Y = data.examples(annotations)
    model = make_estimator(data, job["method"], job["draw"])
    with cpu_seconds() as spent, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model.fit(X, Y)
    return {
        "loss": data.examiner.loss(model.coef_),
        "seconds": spent[0],
        "annotated": sum(map(len, Y)),
        "pairs": len(X),
        "converged": bool(model.result_.converged),
        "summary": str(model.result_),
    }


def make_estimator(data: ExperimentData, method: str, seed: int) -> Any:
    """Make the estimator of a method, with the paper's λ and precision."""
    if method in (PERCEPTRON, AVERAGED):
        return StructuredPerceptron(
            MODEL, averaged=method == AVERAGED, random_state=seed, n_jobs=1
        )
    if method == FULL:
        return StructuredSVM(
            MODEL,
            loss="hinge",
            lam=data.setup.lam,
            algorithm="bmrm",
            start="zero",
            n_jobs=1,
        )
    return StructuredSVM(
        MODEL, loss="bridge", lam=data.setup.lam, algorithm="clew", n_jobs=1
    )
