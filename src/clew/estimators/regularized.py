"""What the learners with a regulariser share: λ by its value, by C or by choice, and what a fit leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, Self

from clew.errors import InputError
from clew.estimators.base import StructuredEstimator
from clew.learning.algorithm import LAMBDAS
from clew.learning.likelihood import LikelihoodResult
from clew.learning.result import Result
from clew.models.base import StructuredModel
from clew.utils.validation import Seed, check_floats, check_positive, short_repr

HoldOut = Literal["auto", "examples", "parts"]


class RegularisedEstimator(StructuredEstimator):
    """Base of the learners that minimise λ Ω(w) + a mean loss, and choose λ where it is not given."""

    path_: Sequence[object]
    """What was found of each λ that was tried, as each learner has it."""

    def __init__(
        self,
        model: StructuredModel,
        lam: float | str | Sequence[float],
        C: float | None,
        folds: int,
        hold_out: HoldOut,
        n_jobs: int | None,
        verbose: bool,
        random_state: Seed,
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
        return (
            check_lam(self.lam)
            if self.C is None
            else lam_of(self.C, self.lam, n_examples)
        )

    def _keep(
        self,
        model: StructuredModel,
        result: Result | LikelihoodResult,
        path: Sequence[object],
    ) -> Self:
        """What was learned, in the attributes that scikit-learn's users expect."""
        self.model_, self.result_, self.path_ = model, result, path
        self.coef_, self.lam_ = result.w, result.lam
        return self


def lam_of(C: object, lam: object, n_examples: int) -> float:
    """The λ = 1 / (C N) of the scaling ½‖w‖² + C Σ loss."""
    if not isinstance(lam, str) or lam != "auto":
        raise InputError(
            f"C is {short_repr(C)} and lam is {short_repr(lam)}; expected one of both"
        )
    of_C = 1.0 / (check_positive(C, "C", sys.float_info.max) * n_examples)
    if not LAMBDAS[0] <= of_C <= LAMBDAS[1]:
        raise InputError(
            f"C is {short_repr(C)}, so that λ is {of_C:g}; expected {LAMBDAS[0]:g} to {LAMBDAS[1]:g}"
        )
    return of_C


def check_lam(lam: object) -> float | str | list[float]:
    """One positive number, "auto", or a list of positive numbers."""
    if isinstance(lam, str) and lam == "auto":
        return lam
    if not isinstance(lam, bool | str | None):
        values = check_floats(lam, "lam")
        if (
            values.size
            and values.ndim < 2
            and ((values >= LAMBDAS[0]) & (values <= LAMBDAS[1])).all()
        ):
            return (
                float(values)
                if values.ndim == 0
                else [float(value) for value in values]
            )
    smallest, largest = LAMBDAS
    raise InputError(
        f"lam must be a positive number ({smallest:g} to {largest:g}), a list of them, or 'auto'; not {short_repr(lam)}"
    )
