"""What the learners with a regulariser share: λ by its value, by C or by choice, and what a fit leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from clew.base import StructuredEstimator
from clew.errors import InputError
from clew.learning.likelihood import LikelihoodResult
from clew.learning.result import Result

HoldOut = Literal["auto", "examples", "parts"]


class RegularisedEstimator(StructuredEstimator):
    """Base of the learners that minimise λ Ω(w) + a mean loss, and choose λ where it is not given."""

    def __init__(
        self,
        model: Any,
        lam: float | str | Sequence[float],
        C: float | None,
        folds: int,
        hold_out: HoldOut,
        n_jobs: int | None,
        verbose: bool,
        random_state: Any,
    ) -> None:
        self.model = model
        self.lam = lam
        self.C = C
        self.folds = folds
        self.hold_out = hold_out
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _lams(self, n_examples: int) -> float | str | list[float]:
        """λ, "auto", or the values to choose among, checked."""
        return check_lam(self.lam) if self.C is None else lam_of(self.C, self.lam, n_examples)

    def _keep(self, model: Any, result: Result | LikelihoodResult, path: Sequence[Any]) -> Self:
        """What was learned, in the attributes that scikit-learn's users expect."""
        self.model_, self.result_, self.path_ = model, result, path
        self.coef_, self.lam_ = result.w, result.lam
        return self


def lam_of(C: Any, lam: Any, n_examples: int) -> float:
    """The λ = 1 / (C N) of the scaling ½‖w‖² + C Σ loss."""
    if not isinstance(lam, str) or lam != "auto":
        raise InputError(f"C is {C!r} and lam is {lam!r}; expected one of both")
    if isinstance(C, bool) or not isinstance(C, (int, float, np.number)) or not (np.isfinite(C) and C > 0):
        raise InputError(f"C is {C!r}; expected a positive number")
    return 1.0 / (float(C) * n_examples)


def check_lam(lam: Any) -> float | str | list[float]:
    """One positive number, "auto", or a list of positive numbers."""
    if isinstance(lam, str):
        if lam == "auto":
            return lam
    elif np.ndim(lam) == 0:
        if not isinstance(lam, bool) and lam is not None and np.isfinite(lam) and lam > 0:
            return float(lam)
    elif np.ndim(lam) == 1 and np.size(lam) and np.isfinite(lam).all() and (np.asarray(lam) > 0).all():
        return [float(value) for value in lam]
    raise InputError(f"lam must be a positive number, a list of them, or 'auto'; not {lam!r}")
