"""Options of Algorithm 1, and the presets of the lesion study."""

from __future__ import annotations

import warnings
from dataclasses import InitVar, dataclass, replace
from typing import Literal

from clew.errors import InputError
from clew.learning.model_update import SOLVERS, Solver
from clew.utils.validation import (
    check_bool,
    check_choice,
    check_int,
    check_positive,
    is_number,
    short_repr,
)


@dataclass(frozen=True)
class Algorithm:
    """Options of Algorithm 1."""

    groups: int | str = "auto"
    """Number of groups of bounds.

    1 is the paper's method, the number of examples gives the tightest model, and "auto"
    uses as many groups as `memory` allows.
    """
    recycle: bool = True
    """Keep bounds from one CCCP iteration to the next."""
    adaptive: bool = True
    """Start at precision `epsilon` and multiply it by `rho` in each CCCP iteration.

    If False, every CCCP iteration has the precision `tol`.
    """
    epsilon: float = 1.0
    rho: float = 0.5
    tol: float = 1e-3
    """ε_min: the certified gap of the last convexified problem."""
    eta: float = 1e-3
    """Stop when a CCCP iteration at full precision lowers J by at most this."""
    starts: int = 1
    """Number of starts of CCCP if the problem is not convex.

    The lowest objective wins (`initialization.learn_from`).
    """
    max_passes: float = 5000
    time_limit: float | None = None
    """In seconds."""
    memory: int = 2**30
    """Largest number of bytes for the bounds, including copies while arrays grow."""
    stabilise: bool = True
    """Evaluate between the best w and the model's minimizer.

    The minimizer of a model with few bounds is far away, where new bounds are loose
    near the optimum. The step is shorter the more the model was too optimistic. By
    convexity, each pass still reduces the gap: in proportion to the step, or by a new
    bound.
    """
    patience: int = 10
    """Model updates that a bound may be inactive before it is dropped."""
    solver: Solver = "auto"
    """Solver of the L2 model update: "interior-point", "ascent" or "auto"."""
    stochastic: bool | Literal["auto"] = "auto"
    """Update w after each batch of examples, before exact passes certify the result.

    "auto" enables this if the task has an argmax for one example at a time
    (`Task.online`), unless `solver` is "interior-point". For other tasks it needs at
    least `STOCHASTIC_GROUPS` groups and `STOCHASTIC_WEIGHTS` weights.
    """
    random_state: int = 0
    """Seed of the order in which the stochastic phase visits the groups."""
    identities: bool = True
    """Avoid the search in Y° if `losses.simplify` allows it."""
    recombine: InitVar[bool | None] = None
    """Deprecated, without effect."""

    def __post_init__(self, recombine: bool | None) -> None:
        """Validate the options; convert whole floats to integers."""
        if recombine is not None:
            warnings.warn(
                "Algorithm(recombine=…) has no effect", DeprecationWarning, stacklevel=3
            )
        for name in ("epsilon", "tol", "eta", "max_passes", "memory"):
            check_positive(getattr(self, name), name)
        for name in ("starts", "patience"):
            object.__setattr__(self, name, check_int(getattr(self, name), name, 1))
        object.__setattr__(
            self, "random_state", check_int(self.random_state, "random_state", 0)
        )
        for name in ("recycle", "adaptive", "stabilise", "identities"):
            object.__setattr__(self, name, check_bool(getattr(self, name), name))
        if not is_number(self.rho) or not 0 < self.rho < 1:
            raise InputError(
                f"rho must lie between 0 and 1, not {short_repr(self.rho)}"
            )
        if self.time_limit is not None:
            check_positive(self.time_limit, "time_limit")
        if not isinstance(self.groups, str) or self.groups != "auto":
            object.__setattr__(
                self, "groups", check_int(self.groups, "groups other than 'auto'", 1)
            )
        if not isinstance(self.stochastic, bool | str) or self.stochastic not in (
            True,
            False,
            "auto",
        ):
            raise InputError(
                "stochastic must be True, False or 'auto', not "
                f"{short_repr(self.stochastic)}"
            )
        check_choice(self.solver, "solver", SOLVERS)


LAMBDAS = 1e-100, 1e100
"""Smallest and largest λ; products with the largest features do not overflow."""
FOR_EVER = 10**9
STOCHASTIC_GROUPS = 100
STOCHASTIC_WEIGHTS = 10_000
"""Smallest problem for stochastic batches.

With fewer groups the batches are too small to pay. With fewer weights most of them
change with every example, and batches take no fewer passes (benchmarks/letters.py,
4,082 weights). One example at a time pays there too: 5.2 instead of 7.3 CPU s, full
annotation.
"""
PAPER = Algorithm(groups=1, stabilise=False, stochastic=False, patience=FOR_EVER)

PRESETS: dict[str, Algorithm] = {
    "clew": Algorithm(),
    "paper": PAPER,
    "yu-joachims": replace(PAPER, recycle=False, adaptive=False),
    "recycling-only": replace(PAPER, adaptive=False),
    "adaptive-only": replace(PAPER, recycle=False),
    "bmrm": replace(PAPER, adaptive=False),
}
"""Lesion study of section 5.4, and clew's default.

BMRM is Yu & Joachims' procedure on a convex problem.
"""


def get_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """Look up a preset by its name; return an Algorithm unchanged."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in PRESETS:
        raise InputError(
            f"unknown algorithm {short_repr(algorithm)}; the presets are "
            f"{', '.join(PRESETS)}"
        )
    return PRESETS[algorithm]
