"""Labels for the nodes of any graph, exact by HiGHS on the local polytope."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Matrix
from clew.models.base import check_lengths, check_size
from clew.models.examples import Annotation, Input, Output
from clew.models.highs_solver import Binary
from clew.models.labels import Classes, name_place
from clew.models.linear_program import Annotated, LinearModel
from clew.models.node_features import as_matrix
from clew.models.nodes import NodeModel
from clew.models.weight_blocks import Block
from clew.utils.validation import check_array

MAX_VARIABLES = 1e7
"""Variables of one example's programme: about as many as fit into memory with their rows."""


class Graph(NodeModel, LinearModel):
    """x is (features (n, F), edges (m, 2)) or (features, edges, edge features (m, E)); y is a sequence of n labels.

    ⟨w, φ(x, y)⟩ = Σᵢ [U(yᵢ)·xᵢ + b(yᵢ)] + Σ over edges (i, j) of Σₖ gₖ(i, j) Aₖ(yᵢ, yⱼ)

    w has the blocks U (S, F), b (S) if `bias`, and A (E, S, S), in this order; without edge features E = 1 and g = 1.
    With `symmetric`, Aₖ(s, t) = Aₖ(t, s) and only its S(S+1)/2 entries with s ≤ t are there, row by row. Δ counts the
    wrong annotated nodes, or is their share among the annotated ones if `normalize`. Annotations: see
    `clew.models.labels.LabelSpace`. An edge costs S² variables: for chains and trees, `Chain` and `Tree` are faster.
    """

    domain_names: tuple[str, ...] = (
        "classes_",
        "n_inputs_",
        "label_scale_",
        "n_edge_inputs_",
    )
    n_edge_inputs_: int

    def __init__(
        self,
        n_states: int | None = None,
        classes: Classes | None = None,
        bias: bool = True,
        symmetric: bool = False,
        normalize: bool = False,
        label_scale: float | str = "auto",
    ) -> None:
        super().__init__(n_states, classes, bias, normalize, label_scale)
        self.symmetric = symmetric

    def learn_domain(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """A copy that knows the classes and the numbers of features."""
        check_lengths(X, Y)
        model = copy.copy(self)
        model.n_edge_inputs_ = self.edges(X[0], 0)[1].shape[1]
        return super(Graph, model).learn_domain(X, Y)

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and labels, and of pairs of labels for each edge feature."""
        nodes = super().blocks(names)
        labels = nodes[0].axes[0]
        pairs = self._pair_index(len(labels))
        first, per_edge = (
            sum(block.places.size for block in nodes),
            int(pairs.max(initial=-1)) + 1,
        )
        places = np.array(
            [first + k * per_edge + pairs for k in range(self.n_edge_inputs_)],
            dtype=np.intp,
        )
        edges = tuple(f"g{k}" for k in range(self.n_edge_inputs_))
        return [
            *nodes,
            Block(
                "pair",
                (edges, labels, labels),
                places.reshape(len(edges), *pairs.shape),
            ),
        ]

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(n, F) the first part of x."""
        if not isinstance(x, tuple | list) or len(x) not in (2, 3):
            where = name_place(example, unnamed="x")
            raise InputError(
                f"{where}: expected a tuple (features, edges) or (features, edges, edge features)"
            )
        return x[0]

    def edges(self, x: Input, example: int | None = None) -> tuple[Indices, Array]:
        """(m, 2) the edges and (m, E) their features, checked."""
        where = name_place(example, unnamed="x")
        n = as_matrix(self.node_features(x, example), example).shape[0]
        edges = check_array(x[1], f"{where}: edges")
        if edges.size == 0:
            edges = edges.reshape(0, 2).astype(np.intp)
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise InputError(
                f"{where}: edges must be an (m, 2) array of integers, not {edges.dtype} {edges.shape}"
            )
        ordered = np.sort(edges, axis=1)
        _, first = np.unique(ordered, axis=0, return_index=True)
        repeated = np.setdiff1d(np.arange(len(edges)), first)
        for bad, why in [
            (
                np.flatnonzero((edges < 0).any(axis=1) | (edges >= n).any(axis=1)),
                f"there are nodes 0 to {n - 1}",
            ),
            (
                np.flatnonzero(edges[:, 0] == edges[:, 1]),
                "a node has no edge to itself",
            ),
            (repeated, "the same two nodes have an edge already"),
        ]:
            if len(bad):
                raise InputError(
                    f"{where}: edge {bad[0]} is {tuple(edges[bad[0]].tolist())}; {why}"
                )
        features: Matrix = (
            as_matrix(x[2], example) if len(x) == 3 else np.ones((len(edges), 1))
        )
        if features.shape[0] != len(edges):
            raise InputError(
                f"{where}: there are {features.shape[0]} rows of edge features for {len(edges)} edges"
            )
        dense: Array = features @ np.eye(features.shape[1])
        return edges.astype(np.intp), dense

    def n_edge_features(self, n_states: int) -> int:
        """E·S² entries, or E·S(S+1)/2 with `symmetric`."""
        return self.n_edge_inputs_ * int(self._pair_index(n_states).max(initial=-1) + 1)

    def encode(
        self, x: Input, annotation: Annotation, example: int | None = None
    ) -> Annotated:
        """The local polytope: a variable for each node's state and one for each edge's pair of states.

        Σₛ zᵢ(s) = 1, Σₜ zᵢⱼ(s, t) = zᵢ(s), Σₛ zᵢⱼ(s, t) = zⱼ(t): its 0/1 points are the labelings.
        """
        edges, edge_features = self.edges(x, example)
        inputs = sp.coo_array(
            as_matrix(self.node_features(x, example), example), dtype=float
        )
        self._check_inputs(inputs, edge_features, example)
        n, m, S = inputs.shape[0], len(edges), self.labels.n_states
        check_size(
            n * S + m * float(S) ** 2,
            MAX_VARIABLES,
            f"{name_place(example, unnamed='x')}: its programme",
        )
        allowed = self.labels.allowed(annotation, n, lambda node: (example, node))
        A = local_polytope(n, edges, S)
        sums = np.append(np.ones(n), np.zeros(2 * m * S))
        n_parts = int((~allowed.all(axis=1)).sum())
        wrong = np.append((~allowed).ravel().astype(float), np.zeros(m * S * S))
        return Annotated(
            features=self._features(inputs, edge_features, S),
            A=A,
            row_lower=sums,
            row_upper=sums,
            fixed=np.where(wrong > 0, 0, -1).astype(np.int8),
            wrong=wrong,
            wrong_constant=0,
            n_parts=n_parts,
            divisor=float(max(n_parts, 1)) if self.normalize else 1.0,
        )

    def decode(self, x: Input, z: Binary) -> NDArray[np.generic]:
        """The labels of the states that z chooses."""
        n = as_matrix(self.node_features(x), None).shape[0]
        S = self.labels.n_states
        return self.labels.decode(z[: n * S].reshape(n, S).argmax(axis=1))

    def choices(self, x: Input) -> tuple[Indices, Binary]:
        """(n, S) each node's states: the variable that stands for it, at 1."""
        n, S = as_matrix(self.node_features(x), None).shape[0], self.labels.n_states
        return np.arange(n * S).reshape(n, S), np.ones((n, S), dtype=np.int8)

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y)."""
        edges, edge_features = self.edges(x)
        inputs = as_matrix(self.node_features(x), None)
        S = self.labels.n_states
        states = self.labels.encode(y, inputs.shape[0])
        chosen = np.eye(S)[states]
        index = self._pair_index(S)
        pairwise = np.zeros((self.n_edge_inputs_, int(index.max()) + 1))
        np.add.at(
            pairwise.T, index[states[edges[:, 0]], states[edges[:, 1]]], edge_features
        )
        bias = chosen.sum(axis=0)[: S * self.bias]
        return (
            np.concatenate(
                [np.asarray(chosen.T @ inputs).ravel(), bias, pairwise.ravel()]
            )
            * self.column_scale
        )

    def _check_inputs(
        self, inputs: Matrix, edge_features: Array, example: int | None
    ) -> None:
        """Finite features, as many as `prepare` saw."""
        where = name_place(example, unnamed="x")
        for what, part, width in [
            ("node", inputs, self.n_inputs_),
            ("edge", edge_features, self.n_edge_inputs_),
        ]:
            if part.shape[1] != width:
                raise InputError(
                    f"{where}: {part.shape[1]} features for each {what}; {width} are expected"
                )
            dense = sp.coo_array(part)
            bad = np.flatnonzero(~np.isfinite(dense.data))
            if len(bad):
                value = dense.data[bad[0]]
                raise InputError(
                    f"{where}: a feature of {what} {dense.coords[0][bad[0]]} is {value}; it must be finite"
                )

    def _pair_index(self, n_states: int) -> Indices:
        """(S, S) the place of A(s, t) among the weights of one edge feature."""
        if not self.symmetric:
            return np.arange(n_states**2).reshape(n_states, n_states)
        index = np.zeros((n_states, n_states), dtype=np.intp)
        upper = np.triu_indices(n_states)
        index[upper] = index.T[upper] = np.arange(len(upper[0]))
        return index

    def _features(self, inputs: Matrix, edge_features: Array, S: int) -> Matrix:
        """(n·S + m·S², d) CSR: what each variable adds to φ."""
        n, F = inputs.shape
        node, feature = (index.astype(np.intp) for index in inputs.coords)
        states, pairs = np.arange(S), self._pair_index(S)
        rows: list[Indices] = []
        columns: list[Indices] = []
        data: list[Array] = []

        def add(row: Indices, column: Indices, value: Array | float) -> None:
            shape = np.broadcast_shapes(row.shape, column.shape)
            rows.append(np.broadcast_to(row, shape).ravel())
            columns.append(np.broadcast_to(column, shape).ravel())
            data.append(np.broadcast_to(value, shape).ravel())

        add(
            node[:, None] * S + states,
            feature[:, None] + states * F,
            inputs.data[:, None],
        )
        begin = S * F
        if self.bias:
            add(
                np.arange(n)[:, None] * S + states,
                np.broadcast_to(begin + states, (n, S)),
                1.0,
            )
            begin += S
        edge, k = np.nonzero(edge_features)
        of_edge = n * S + edge[:, None] * S * S + np.arange(S * S)
        add(
            of_edge,
            begin + k[:, None] * (pairs.max() + 1) + pairs.ravel(),
            edge_features[edge, k][:, None],
        )
        shape = n * S + len(edge_features) * S * S, self.n_features
        column = np.concatenate(columns)
        return sp.csr_array(
            (
                np.concatenate(data) * self.column_scale[column],
                (np.concatenate(rows), column),
            ),
            shape=shape,
        )


def local_polytope(n: int, edges: Indices, S: int) -> Matrix:
    """(n + 2·m·S, n·S + m·S²) CSR: one state for each node, and edges that agree with their ends."""
    m, states = len(edges), np.arange(S)
    pair = n * S + np.arange(m * S * S).reshape(m, S, S)
    first = n + np.arange(m * S).reshape(
        m, S
    )  # the rows of the edges' first ends, then of their second
    second = first + m * S
    by_first, by_second = (
        np.broadcast_to(first[:, :, None], pair.shape),
        np.broadcast_to(second[:, None, :], pair.shape),
    )
    rows = [np.repeat(np.arange(n), S), by_first, by_second, first, second]
    columns = [
        np.arange(n * S),
        pair,
        pair,
        edges[:, :1] * S + states,
        edges[:, 1:] * S + states,
    ]
    data = np.append(np.ones(n * S + 2 * pair.size), -np.ones(2 * m * S))
    at = (
        np.concatenate([row.ravel() for row in rows]),
        np.concatenate([column.ravel() for column in columns]),
    )
    return sp.csr_array((data, at), shape=(n + 2 * m * S, n * S + pair.size))
