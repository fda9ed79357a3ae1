"""Formulation I: the convex loss for partial labels, for flat outputs (Eq. 2) and for listed structured ones (Eq. 3).

    L(w) = l( mean_{y ∈ Y*} f(x, y) ) + Σ_{y ∈ Y°} l( −f(x, y) ),     l(a) = |1 − a|₊

Each hinge is a maximum of zero and a linear function, so L itself is a maximum of linear functions:
L(w) = max_z <w, φ_z> + Δ_z, where z ∈ {0, 1}^(1 + |Y°|) says which hinges are active,
φ_z = −z₀ mean_{Y*} φ + Σ z_y φ(y) and Δ_z = z₀ + Σ z_y. That makes it a Task with outputs z, and the same
optimiser certifies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Argmax, Array, Indices, Mask, Matrix, Space, Task


class ListedTask:
    """CLPL on examples whose outputs are listed: row m of `features` is φ of one output of example `example_of[m]`."""

    def __init__(
        self, features: Matrix, example_of: Indices, compatible: Mask, keys: Sequence[bytes] | None = None
    ) -> None:
        self.features: Any = sp.csr_array(features)
        self.n_examples = int(example_of.max()) + 1
        self.n_features = int(self.features.shape[1])
        self.spaces = frozenset({Space.ALL})
        self.loss_zero_iff_compatible = False
        self.keys = keys
        self.compatible = compatible
        n_rows = len(example_of)
        n_compatible = np.bincount(example_of, weights=compatible, minlength=self.n_examples)
        empty = np.flatnonzero(n_compatible == 0)
        if len(empty):
            raise InfeasibleAnnotation(f"example {empty[0]}: no output agrees with its annotation", int(empty[0]))
        share = compatible / n_compatible[example_of]
        self.mean = sp.csr_array((share, (example_of, np.arange(n_rows))), shape=(self.n_examples, n_rows))
        self.wrong = sp.csr_array(
            ((~compatible).astype(float), (example_of, np.arange(n_rows))), shape=(self.n_examples, n_rows)
        )

    def argmax(
        self,
        w: Array,
        space: Space,  # noqa: ARG002  # there is only one
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """The active hinges of each example, where each counts `loss_weight` instead of 1."""
        mean, wrong = self.mean, self.wrong
        if examples is not None:
            mean, wrong = mean[examples], wrong[examples]
        score = self.features @ w
        right_active = loss_weight - mean @ score > 0  # z₀
        wrong_active = (loss_weight + score > 0).astype(float)  # z_y, read only where y ∈ Y°
        active = sp.csr_array(wrong @ sp.diags_array(wrong_active) - sp.diags_array(right_active.astype(float)) @ mean)
        active.eliminate_zeros()
        count = right_active + wrong @ wrong_active
        return Argmax(sp.csr_array(active @ self.features), np.asarray(count, dtype=float), np.full(len(count), True))

    def annotated_part(self) -> Task | None:
        """None: the loss is convex as it is."""
        return None
