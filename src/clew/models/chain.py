"""Sequences: a label for each position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Mask
from clew.models.examples import Input
from clew.models.forest import ForestModel
from clew.models.labels import Classes, Label
from clew.utils.validation import check_list, short_repr

LabelPair: TypeAlias = tuple[Label | None, Label | None]
"""Two neighboring labels; None before the first and after the last."""


class Chain(ForestModel):
    """x is (T, F) features, dense or sparse; y is a sequence of T labels.

    ⟨w, φ(x, y)⟩ = Σ_t [U(y_t)·x_t + b(y_t)] + Σ_t A(y_t, y_{t+1})
    + begin(y_1) + end(y_T)

    w has the blocks U (S, F), b (S) if `bias`, A (S, S) [from, to], and begin (S) and
    end (S) if `boundary`, in this order. Δ counts the wrong annotated positions.
    Annotations: see `clew.models.labels.LabelSpace`.

    Parameters
    ----------
    n_states : int, optional
        Number of classes.
    classes : sequence of labels, optional
        The classes; by default those that are annotated.
    bias, boundary : bool
        Whether there are weights of labels, and of first and last labels.
    normalize : bool
        Whether Δ is divided by the number of annotated positions.
    label_scale : float or "auto"
        Size of all features but the inputs; "auto" is the typical norm of x_t.
    forbidden : sequence of (label, label), optional
        Pairs of neighboring labels that no labeling has, in learning and prediction.
        (None, a) forbids a first label, (a, None) a last one; pairs of labels that are
        no classes have no effect.
    """

    def __init__(
        self,
        n_states: int | None = None,
        classes: Classes | None = None,
        bias: bool = True,
        boundary: bool = True,
        normalize: bool = False,
        label_scale: float | str = "auto",
        forbidden: Sequence[LabelPair] | None = None,
    ) -> None:
        super().__init__(n_states, classes, bias, normalize, label_scale)
        self.boundary = boundary
        self.forbidden = forbidden

    def forbidden_states(self) -> Mask:
        """(S + 1, S + 1) the pairs of states that no labeling has."""
        mask = super().forbidden_states()
        state_of: dict[Label | None, int]
        state_of = {label: state for state, label in enumerate(self.classes_)}
        state_of[None] = len(self.classes_)
        for pair in check_list(self.forbidden or (), "forbidden"):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(
                    f"forbidden has {short_repr(pair)}; expected pairs of labels"
                )
            before, after = pair
            if before in state_of and after in state_of:
                mask[state_of[before], state_of[after]] = True
        return mask

    def outputs(self, x: Input) -> Iterator[NDArray[np.generic]]:
        """All labelings without a forbidden pair."""
        forbidden = self.forbidden_states()
        end = len(self.classes_)
        for labels in super().outputs(x):
            states = [end, *self.labels.encode(labels), end]
            if not forbidden[states[:-1], states[1:]].any():
                yield labels

    def node_features(
        self,
        x: Input,
        example: int | None = None,  # noqa: ARG002
    ) -> Input:
        """(T, F) x itself."""
        return x

    def node_parents(
        self,
        x: Input,  # noqa: ARG002
        n_nodes: int,
        example: int | None = None,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        """(T,) the position before."""
        return np.arange(-1, n_nodes - 1)
