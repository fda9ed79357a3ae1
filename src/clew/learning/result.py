"""Result of a fit: weights, certificate and history."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from clew.errors import InexactArgmaxWarning, NotConverged, NotConvergedWarning
from clew.learning.bounds import Bundle
from clew.learning.losses import Loss
from clew.learning.task import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Status(Enum):
    """How a fit ended."""

    CONVERGED = "converged"
    PASS_LIMIT = "pass limit"
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"
    """Floating-point precision prevents a more precise model update."""


@dataclass(frozen=True, slots=True)
class Record:
    """State after one model update, as stored in the history."""

    iteration: int
    passes: float
    bounds: int
    objective: float
    """Of the convexified problem J̃_t, at the best w of this CCCP iteration."""
    lower_bound: float
    precision: float
    """ε_t, the target gap of this CCCP iteration."""
    seconds: float
    certified: bool = True
    """False for estimates of the stochastic phase, which are not in the history."""

    @property
    def gap(self) -> float:
        """Objective minus lower bound."""
        return self.objective - self.lower_bound


@dataclass(frozen=True)
class Result:
    """Fitted weight vector with its certificate."""

    w: Array
    objective: float
    """J(w), Eq. 7."""
    lower_bound: float
    """Of the last convexified problem J̃ (Eq. 9); of J itself if it is convex."""
    gap: float
    """Certified: J̃(w) − lower_bound."""
    status: Status
    lam: float
    regulariser: str
    loss: Loss
    """As optimized, after `losses.simplify`."""
    passes: float
    """Augmented inferences for C, in units of the number of examples."""
    reward_passes: float
    """Inferences for R, in the same units."""
    bounds: int
    """Linear bounds added in this fit."""
    iterations: int
    """CCCP iterations."""
    seconds: dict[str, float]
    """Wall time by part: oracle, master and total."""
    residual: float
    """Duality gap of the last model update itself."""
    inexactness: float
    """Largest shortfall of an argmax below an earlier output; 0 for an exact argmax."""
    n_examples: int
    n_groups: int = 0
    """Groups of bounds, see `Algorithm.groups` and `Algorithm.memory`."""
    fallbacks: int = 0
    """Model updates that needed a second solver."""
    objectives: tuple[float, ...] = ()
    """J from each of several starts, and finally of the best at full precision."""
    history: tuple[Record, ...] = field(repr=False, default=())
    bundle: Bundle | None = field(repr=False, default=None, compare=False)
    """The bounds, which `warm_start` recycles."""

    def __getstate__(self) -> dict[str, object]:
        """Return the state with the status' value, for files without enums (skops)."""
        return {**self.__dict__, "status": self.status.value}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__dict__["status"] = Status(state["status"])

    @property
    def converged(self) -> bool:
        """Whether the requested gap was certified."""
        return self.status is Status.CONVERGED

    def is_optimal(self, eps: float) -> bool:
        """Return whether the certified gap is at most eps and the argmax was exact."""
        return self.gap <= eps and self.inexactness == 0.0

    def require(self) -> Result:
        """Return the result, or raise NotConverged if the fit ended at a limit."""
        if not self.converged:
            raise NotConverged(
                f"the fit ended by {self.status.value} with a gap of {self.gap:.3g} "
                f"at λ = {self.lam:.3g}"
            )
        return self

    def column(self, name: str) -> Array:
        """Return one quantity of the history as an array, such as "gap" or "bounds"."""
        return np.array([getattr(record, name) for record in self.history], dtype=float)

    def __repr__(self) -> str:
        return (
            f"<Result: {self.status.value}, objective {self.objective:.6g}, gap "
            f"{self.gap:.2g}, λ = {self.lam:.3g}, {len(self.w)} weights, "
            f"{self.passes:.4g} passes, {self.seconds['total']:.2f} s>"
        )

    def __str__(self) -> str:
        s = self.seconds
        rough = self.objectives[:-1]
        starts = (
            f" ({min(rough):.4g} to {max(rough):.4g} from the starts, less precisely)"
            if rough
            else ""
        )
        return (
            f"{self.status.value}: objective {self.objective:.6g}{starts}, gap "
            f"{self.gap:.2g}, λ = {self.lam:.3g}, "
            f"{self.iterations} CCCP iterations, {self.passes:.4g} + "
            f"{self.reward_passes:.4g} passes, "
            f"{self.bounds} bounds in {self.n_groups} groups, "
            f"{s['total']:.2f} s (argmax {s['oracle']:.2f}, model update "
            f"{s['master']:.2f})"
        )

    def plot(self) -> Figure:
        """Plot objective, lower bound, gap, precision and bounds against passes."""
        from clew.learning.plotting import plot_result

        return plot_result(self)


def warn_if_not_converged(
    status: Status, gap: float, tol: float, inexactness: float
) -> None:
    """Warn if the fit did not converge or the argmax was inexact."""
    if status is not Status.CONVERGED:
        warnings.warn(
            f"the fit ended by {status.value} with a gap of {gap:.3g} (asked: "
            f"{tol:.3g}); "
            "the best weights so far were kept",
            NotConvergedWarning,
            stacklevel=3,
        )
    if inexactness > 0:
        warnings.warn(
            "the argmax is not exact: it fell short of an output that it had "
            f"returned before by {inexactness:.3g}. "
            "The gap is not a certificate",
            InexactArgmaxWarning,
            stacklevel=3,
        )
