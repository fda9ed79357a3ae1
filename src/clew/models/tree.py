"""Trees and forests: a label for each node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.models.examples import Input
from clew.models.forest import ForestModel
from clew.models.labels import name_place
from clew.utils.validation import check_array


class Tree(ForestModel):
    """x is (features (n, F), parents (n,)) with -1 as the parent of a root; y is a sequence of n labels.

    ⟨w, φ(x, y)⟩ = Σ_v [U(y_v)·x_v + b(y_v)] + Σ_{v no root} A(y_parent(v), y_v)

    w has the blocks U (S, F), b (S) if `bias`, and A (S, S) [parent, child], in this order; all but U belong to
    features of size `label_scale`, which "auto" makes the typical norm of x_v. Δ counts the wrong annotated nodes, or
    is their share among the annotated ones if `normalize`. Annotations: see `clew.models.labels.LabelSpace`.
    """

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(n, F) the first of x's two parts."""
        if not isinstance(x, (tuple, list)) or len(x) != 2:
            raise InputError(
                f"{name_place(example, unnamed='x')}: a tree is a pair (features, parents)"
            )
        return x[0]

    def node_parents(
        self, x: Input, n_nodes: int, example: int | None = None
    ) -> NDArray[np.int64]:
        """(n,) the second of x's two parts, checked; cycles are found when the nodes are put in order."""
        name = name_place(example, unnamed="x")
        parents = check_array(x[1], f"{name}: parents")
        if parents.shape != (n_nodes,) or parents.dtype.kind not in "iu":
            kind = f"shape {parents.shape} and type {parents.dtype}"
            raise InputError(
                f"{name}: parents must be {n_nodes} integers, one for each node; they have {kind}"
            )
        outside = np.flatnonzero((parents < -1) | (parents >= n_nodes))
        if len(outside):
            node = outside[0]
            raise InputError(
                f"{name}: node {node} has parent {parents[node]}; expected -1 (a root) to {n_nodes - 1}"
            )
        itself = np.flatnonzero(parents == np.arange(n_nodes))
        if len(itself):
            raise InputError(
                f"{name}: node {itself[0]} is its own parent; the parent of a root is -1"
            )
        return parents.astype(np.int64)
