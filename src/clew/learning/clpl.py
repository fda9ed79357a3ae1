"""Formulation I: convex loss for partial labels (CLPL) on listed outputs (Eqs. 2, 3).

    L(w) = l( mean_{y ∈ Y*} f(x, y) ) + Σ_{y ∈ Y°} l( −f(x, y) ),   l(a) = |1 − a|₊

A sum of hinges is a maximum of linear functions: L(w) = max_z ⟨w, φ_z⟩ + Δ_z, where z ∈
{0, 1}^(1 + |Y°|) selects the active hinges, Δ_z = z₀ + Σ z_y and φ_z = −z₀ mean_{Y*} φ
+ Σ z_y φ(y). That makes it a Task with outputs z, and the same optimizer certifies it.
The optimizer prefers single hinges (`Hinges`): each has at most two bounds, so that the
model is soon complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Argmax, Array, Indices, Mask, Matrix, Space, Task


class Hinges(Task):
    """Hinges |offset + ⟨slope, w⟩|₊ as examples with two outputs, on and off."""

    spaces = frozenset({Space.ALL})

    def __init__(
        self, slopes: Matrix, offset: float = 1.0, keys: Sequence[bytes] | None = None
    ) -> None:
        self.slopes: Matrix = sp.csr_array(slopes)
        self.n_examples, self.n_features = self.slopes.shape
        self.offset = offset
        self.keys = keys

    def argmax(
        self,
        w: Array,
        space: Space,  # noqa: ARG002  # there is only one
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return whether each hinge is active, with `loss_weight` times its offset."""
        slopes = self.slopes if examples is None else self.slopes[examples]
        on = (slopes @ w + loss_weight * self.offset > 0).astype(float)
        return Argmax(
            sp.csr_array(sp.diags_array(on) @ slopes),
            self.offset * on,
            np.full(len(on), True),
        )


class ListedTask(Task):
    """CLPL on examples with listed outputs.

    Row m of `features` is φ of one output of example `example_of[m]`.
    """

    def __init__(
        self,
        features: Matrix,
        example_of: Indices,
        compatible: Mask,
        keys: Sequence[bytes] | None = None,
    ) -> None:
        rows: Matrix = sp.csr_array(features)
        self.n_examples = n = int(example_of.max()) + 1
        self.n_features = int(rows.shape[1])
        self.spaces = frozenset({Space.ALL})
        self.keys = keys
        n_compatible = np.bincount(example_of, weights=compatible, minlength=n)
        empty = np.flatnonzero(n_compatible == 0)
        if len(empty):
            raise InfeasibleAnnotation(
                f"example {empty[0]}: no output agrees with its annotation",
                int(empty[0]),
            )
        right = np.flatnonzero(compatible)
        wrong = np.flatnonzero(~compatible)
        share = 1.0 / n_compatible[example_of[right]]
        mean = (
            sp.csr_array(
                (share, (example_of[right], right)), shape=(n, len(example_of))
            )
            @ rows
        )
        self.hinges = Hinges(sp.vstack([-mean, rows[wrong]]))
        owner = np.concatenate([np.arange(n), example_of[wrong]])
        self.sums = sp.csr_array(
            (np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(n, len(owner))
        )

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return the active hinges of each example, with `loss_weight` instead of 1."""
        argmax = self.hinges.argmax(w, space, loss_weight)
        sums = self.sums if examples is None else self.sums[examples]
        return Argmax(
            sp.csr_array(sums @ argmax.features),
            sums @ argmax.loss,
            np.full(sums.shape[0], True),
        )

    def separated(self, examples: Indices | None = None) -> Task:
        """Return a task with one example per hinge and the same mean loss."""
        examples = np.arange(self.n_examples) if examples is None else examples
        sums = self.sums[examples]
        scale = sums.nnz / len(examples)
        keys = None
        if self.keys is not None:
            # bounds are valid for hinges of the same example at the same scale
            hinge_counts = [
                (n, int(count))
                for n, count in zip(examples, np.diff(sums.indptr), strict=True)
            ]
            keys = [
                self.keys[n] + pack("di", scale, hinge)
                for n, count in hinge_counts
                for hinge in range(count)
            ]
        return Hinges(scale * self.hinges.slopes[sums.indices], scale, keys)
