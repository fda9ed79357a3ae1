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
    """x is (features (n, F), parents (n,)); y is a sequence of n labels.

    The parent of a root is -1.

    ⟨w, φ(x, y)⟩ = Σ_v [U(y_v)·x_v + b(y_v)] + Σ_{v no root} A(y_parent(v), y_v)

    w has the blocks U (S, F), b (S) if `bias`, and A (S, S) [parent, child], in this
    order. Δ counts the wrong annotated nodes. Annotations: see
    `clew.models.labels.LabelSpace`. The parameters are those of `Chain`.
    """

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(n, F) the first part of x."""
        if not isinstance(x, (tuple, list)) or len(x) != 2:
            raise InputError(
                f"{name_place(example, unnamed='x')}: a tree is a pair "
                "(features, parents)"
            )
        return x[0]

    def node_parents(
        self, x: Input, n_nodes: int, example: int | None = None
    ) -> NDArray[np.int64]:
        """(n,) the second part of x; cycles are found when nodes are sorted."""
        name = name_place(example, unnamed="x")
        parents = check_array(x[1], f"{name}: parents")
        if parents.shape != (n_nodes,) or parents.dtype.kind not in "iu":
            raise InputError(
                f"{name}: parents must be {n_nodes} integers, one for each node; they "
                f"have shape {parents.shape} and type {parents.dtype}"
            )
        outside = np.flatnonzero((parents < -1) | (parents >= n_nodes))
        if len(outside):
            node = outside[0]
            raise InputError(
                f"{name}: node {node} has parent {parents[node]}; expected -1 "
                f"(a root) to {n_nodes - 1}"
            )
        own_parents = np.flatnonzero(parents == np.arange(n_nodes))
        if len(own_parents):
            raise InputError(
                f"{name}: node {own_parents[0]} is its own parent; the parent of a "
                "root is -1"
            )
        return parents.astype(np.int64)
