"""Every switch of Algorithm 1, and the presets of the lesion study."""

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
    """Every switch of Algorithm 1."""

    groups: int | str = "auto"
    """Groups of bounds: 1 is the paper's, the number of examples the tightest, "auto" as many as `memory` allows."""
    recycle: bool = True
    """Keep bounds from one CCCP iteration to the next."""
    adaptive: bool = True
    """Start at precision `epsilon` and multiply by `rho` at each CCCP iteration; otherwise at `tol` at once."""
    epsilon: float = 1.0
    rho: float = 0.5
    tol: float = 1e-3
    """ε_min: the certified gap of the last convexified problem."""
    eta: float = 1e-3
    """Stop when a CCCP iteration at full precision lowers J by no more."""
    starts: int = 1
    """Starts of CCCP where the problem is not convex; the lowest objective wins (`start.learn_from`)."""
    max_passes: float = 5000
    time_limit: float | None = None
    """In seconds."""
    memory: int = 2**30
    """Bytes that the bounds may take at the most, while their arrays grow too. Few bounds take little of it."""
    stabilise: bool = True
    """Look between the best w and the model's minimiser, nearer to the best one the more the model overpromises.

    A model of few bounds has its minimiser far away, where bounds say little about the neighbourhood of the optimum.
    By convexity the gap still shrinks at every pass: by the share of the way that was taken, or by a new bound.
    """
    patience: int = 10
    """Model updates that a bound may be inactive before it is dropped."""
    solver: Solver = "auto"
    """Of the L2 model update: "interior-point", "ascent" or "auto"."""
    stochastic: bool | Literal["auto"] = "auto"
    """Look at the data in batches, and move w after each (stochastic.py), before exact passes certify the rest.

    "auto": wherever the task can answer one example at a time (`OnlineTask`), except if `solver` is "interior-point".
    Otherwise by batches, with at least `STOCHASTIC_GROUPS` groups and `STOCHASTIC_WEIGHTS` weights.
    """
    random_state: int = 0
    """Seed of the order in which the stochastic phase looks at the groups."""
    identities: bool = True
    """Spare the search in Y° where `losses.simplify` proves it needless."""
    recombine: InitVar[bool | None] = None
    """Deprecated, without effect."""

    def __post_init__(self, recombine: bool | None) -> None:
        """Refuse what is no setting; whole floats become integers, so that they can count."""
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
                f"stochastic must be True, False or 'auto', not {short_repr(self.stochastic)}"
            )
        check_choice(self.solver, "solver", SOLVERS)


LAMBDAS = 1e-100, 1e100
"""The smallest and the largest λ: with features of the largest size, products of both are still numbers."""
FOR_EVER = 10**9
STOCHASTIC_GROUPS = 100
STOCHASTIC_WEIGHTS = 10_000
"""With fewer groups batches are too small to pay. With fewer weights most of them change with every example, and
batches take no fewer passes (benchmarks/letters.py, 4,082 weights); one example after the other pays there too: 5.2
instead of 7.3 CPU s side by side, full annotation."""
PAPER = Algorithm(groups=1, stabilise=False, stochastic=False, patience=FOR_EVER)

PRESETS: dict[str, Algorithm] = {
    "clew": Algorithm(),
    "paper": PAPER,
    "yu-joachims": replace(PAPER, recycle=False, adaptive=False),
    "recycling-only": replace(PAPER, adaptive=False),
    "adaptive-only": replace(PAPER, recycle=False),
    "bmrm": replace(PAPER, adaptive=False),
}
"""The lesion study of section 5.4, and clew's default. BMRM is Yu & Joachims' procedure on a convex problem."""


def get_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """A preset by its name, or the algorithm itself."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in PRESETS:
        raise InputError(
            f"unknown algorithm {short_repr(algorithm)}; the presets are {', '.join(PRESETS)}"
        )
    return PRESETS[algorithm]
