"""Losses: a penalty space, a reward space and their weights of Δ (section 3, Eq. 6).

    L(w) = | P(w) − R(w) |₊,
    P = max over the penalty space of [f + penalty_weight · Δ + margin],
    R = max over the reward space of [f + reward_weight · Δ].

The exact difference-of-convex form is |P − R|₊ = C − R with C = max(P, R). C does not
depend on the CCCP iteration, so that linear bounds under it stay valid. Omitting the
examples with P < R, as the paper does, would break that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError, MissingCapability
from clew.learning.task import Array, Indices, Mask, Matrix, Space, Task
from clew.utils.validation import is_number, short_repr

LARGEST_WEIGHT = 1e100
"""Largest weight of Δ in a loss; its square does not overflow."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of the family in Eq. 6."""

    name: str
    penalty: Space
    reward: Space | None
    """None for a loss that is itself convex, such as CLPL: then R = 0."""
    penalty_weight: float = 1.0
    reward_weight: float = 0.0
    margin: float = 0.0

    def __post_init__(self) -> None:
        spaces = isinstance(self.penalty, Space) and isinstance(
            self.reward, Space | None
        )
        if not isinstance(self.name, str) or not spaces:
            raise InputError(
                f"loss {short_repr(self.name)}: penalty is "
                f"{short_repr(self.penalty)}, reward {short_repr(self.reward)}; "
                "expected a "
                "name and clew.Space each, or None as the reward"
            )
        for name in ("penalty_weight", "reward_weight", "margin"):
            if (
                not is_number(value := getattr(self, name))
                or not -LARGEST_WEIGHT <= value <= LARGEST_WEIGHT
            ):
                raise InputError(
                    f"loss {self.name!r}: {name} is {short_repr(value)}; expected a "
                    "finite number"
                )
        if (
            not self.penalty_weight >= max(0.0, self.reward_weight)
            or not self.margin >= 0
        ):
            raise InputError(
                f"loss {self.name!r}: penalty_weight must be ≥ 0 and ≥ reward_weight, "
                "and margin ≥ 0; got "
                f"{self.penalty_weight}, {self.reward_weight} and {self.margin}"
            )

    def __getstate__(self) -> dict[str, object]:
        """Return the fields with the spaces' values, for files without enums (skops)."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        reward = None if self.reward is None else self.reward.value
        return {**state, "penalty": self.penalty.value, "reward": reward}

    def __setstate__(self, state: dict[str, object]) -> None:
        reward = state["reward"]
        spaces = {
            "penalty": Space(state["penalty"]),
            "reward": None if reward is None else Space(reward),
        }
        for name, value in {**state, **spaces}.items():
            object.__setattr__(self, name, value)

    @property
    def needs_clipping(self) -> bool:
        """Whether P < R is possible, so that |·|₊ has an effect (footnote 2)."""
        return self.reward is not None and not self.penalty.contains(self.reward)

    @property
    def spaces(self) -> frozenset[Space]:
        """Spaces that the loss searches."""
        return frozenset(
            {self.penalty} if self.reward is None else {self.penalty, self.reward}
        )


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("hinge", Space.ALL, Space.COMPATIBLE),
        Loss("ramp", Space.ALL, Space.ALL),
        Loss("max", Space.INCOMPATIBLE, Space.ALL),
        Loss("bridge", Space.INCOMPATIBLE, Space.COMPATIBLE),
        Loss("ramp-delta", Space.ALL, Space.ALL, reward_weight=-1.0),
        Loss("max-delta", Space.INCOMPATIBLE, Space.ALL, reward_weight=-1.0),
        Loss(
            "pair", Space.INCOMPATIBLE, Space.COMPATIBLE, penalty_weight=0.0, margin=1.0
        ),
    )
}
"""Tables 2 and 3 of the paper, and the loss of section 3.2 before Δ is added."""


def get_loss(loss: str | Loss, known: Mapping[str, Loss] = LOSSES) -> Loss:
    """Look up a loss by its name among the `known` ones; return a Loss unchanged."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in known:
        raise InputError(
            f"unknown loss {short_repr(loss)}; expected one of {', '.join(known)}, or "
            "a clew.Loss of your own"
        )
    return known[loss]


def simplify(loss: Loss, task: Task) -> Loss:
    """Replace the search in Y° by one in Y, if that does not change the loss.

    If Δ ≥ 0, and Δ = 0 exactly on Y*, then max(max_{Y°}[f+Δ], max_{Y*} f) = max_Y
    [f+Δ]. Hence bridge = hinge, max = ramp and max−Δ = ramp−Δ, for every w.
    """
    rewards_annotation = loss.reward is not None and loss.reward.contains(
        Space.COMPATIBLE
    )
    if (
        loss.penalty is Space.INCOMPATIBLE
        and rewards_annotation
        and loss.margin == 0
        and loss.penalty_weight > 0
        and task.loss_zero_iff_compatible
    ):
        return replace(loss, penalty=Space.ALL)
    return loss


def require_spaces(loss: Loss, task: Task) -> None:
    """Raise MissingCapability if the task lacks a space that the loss searches."""
    missing = loss.spaces - task.spaces
    if missing:
        names = ", ".join(space.value for space in missing)
        raise MissingCapability(
            f"the loss {loss.name!r} searches {names}, which the model's argmax does "
            "not offer. Offer it (and list it "
            "in the model's `spaces`), or take loss='hinge', or set the model's "
            "`loss_zero_iff_compatible = True` if "
            "its task loss is zero exactly on the outputs that agree with the "
            "annotation"
        )


@dataclass(frozen=True, slots=True)
class LinearBounds:
    """One linear lower bound ⟨features_n, w⟩ + offset_n for each example.

    It is tight at the w where it was computed.
    """

    features: Matrix
    offsets: Array
    values: Array
    """(n,) values at the w where the bounds were computed."""

    def at(self, w: Array) -> LinearBounds:
        """Return the same functions with their values at another w."""
        return replace(self, values=np.asarray(self.features @ w) + self.offsets)


def convex_part(
    task: Task, loss: Loss, w: Array, examples: Indices | None = None
) -> LinearBounds:
    """Evaluate C_n and a subgradient at w.

    C_n is max(P_n, R_n), or P_n alone if P_n ≥ R_n always holds.

    Returns
    -------
    bounds : LinearBounds
        One bound per example, tight at w.
    """
    argmax = task.argmax(w, loss.penalty, loss.penalty_weight, examples)
    values = argmax.values(w, loss.penalty_weight) + loss.margin
    offsets = loss.penalty_weight * argmax.loss + loss.margin
    if not loss.needs_clipping:
        return _check_finite(LinearBounds(argmax.features, offsets, values))
    reward = concave_part(task, loss, w, examples)
    keep = values >= reward.values
    features = _choose_rows(keep, argmax.features, reward.features)
    return _check_finite(
        LinearBounds(
            features,
            np.where(keep, offsets, reward.offsets),
            np.where(keep, values, reward.values),
        )
    )


def concave_part(
    task: Task, loss: Loss, w: Array, examples: Indices | None = None
) -> LinearBounds:
    """Evaluate R_n and a subgradient at w (Eq. 10; v has its negative).

    Returns
    -------
    bounds : LinearBounds
        One linear function per example, equal to R_n at w.
    """
    if loss.reward is None:
        n = task.n_examples if examples is None else len(examples)
        return LinearBounds(
            sp.csr_array((n, task.n_features)), np.zeros(n), np.zeros(n)
        )
    argmax = task.argmax(w, loss.reward, loss.reward_weight, examples)
    return _check_finite(
        LinearBounds(
            argmax.features,
            loss.reward_weight * argmax.loss,
            argmax.values(w, loss.reward_weight),
        )
    )


def loss_values(
    task: Task, loss: Loss, w: Array, examples: Indices | None = None
) -> Array:
    """Return (n,) L_n(w) by its definition."""
    return (
        convex_part(task, loss, w, examples).values
        - concave_part(task, loss, w, examples).values
    )


def _choose_rows(keep: Mask, accepted: Matrix, rejected: Matrix) -> Matrix:
    """Take accepted rows where `keep`, else rejected rows."""
    if sp.issparse(accepted) or sp.issparse(rejected):
        pick = sp.diags_array(keep.astype(float))
        drop = sp.diags_array((~keep).astype(float))
        return sp.csr_array(
            pick @ sp.csr_array(accepted) + drop @ sp.csr_array(rejected)
        )
    return np.where(keep[:, None], accepted, rejected)


def _check_finite(linear: LinearBounds) -> LinearBounds:
    """Raise InputError for values that are not finite, which would spoil the model."""
    bad = ~np.isfinite(linear.values)
    if bad.any():
        n = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"the argmax gave a score of {linear.values[n]} for example {n}; features "
            "and Δ must be finite"
        )
    return linear
