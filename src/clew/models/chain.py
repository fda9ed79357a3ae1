"""Sequences: a label for each position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.models.examples import Input
from clew.models.forest import ForestModel
from clew.models.labels import Classes


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
    """

    def __init__(
        self,
        n_states: int | None = None,
        classes: Classes | None = None,
        bias: bool = True,
        boundary: bool = True,
        normalize: bool = False,
        label_scale: float | str = "auto",
    ) -> None:
        super().__init__(n_states, classes, bias, normalize, label_scale)
        self.boundary = boundary

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
