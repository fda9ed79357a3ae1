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
from clew.models.base import check_size
from clew.models.examples import Annotation, Input, Output, check_lengths
from clew.models.highs_solver import Binary
from clew.models.labels import Classes, name_place
from clew.models.linear_program import AnnotatedProgram, LinearModel
from clew.models.node_features import as_matrix
from clew.models.nodes import NodeModel
from clew.models.weight_blocks import Block
from clew.utils.validation import check_array

MAX_VARIABLES = 1e7
"""Most variables of one example: about as many as fit into memory with their rows."""


class Graph(NodeModel, LinearModel):
    """x is (features (n, F), edges (m, 2)), optionally with edge features (m, E).

    y is a sequence of n labels.

    ⟨w, φ(x, y)⟩ = Σᵢ [U(yᵢ)·xᵢ + b(yᵢ)] + Σ over edges (i, j) of Σₖ gₖ(i, j) Aₖ(yᵢ, yⱼ)

    w has the blocks U (S, F), b (S) if `bias`, and A (E, S, S), in this order; without
    edge features E = 1 and g = 1. Δ counts the wrong annotated nodes. Annotations: see
    `clew.models.labels.LabelSpace`. An edge costs S² variables: for chains and trees,
    `Chain` and `Tree` are faster.

    Parameters
    ----------
    n_states : int, optional
        Number of classes.
    classes : sequence of labels, optional
        The classes; by default those that are annotated.
    bias : bool
        Whether there are weights of labels.
    symmetric : bool
        Whether Aₖ(s, t) = Aₖ(t, s); then A has the S(S+1)/2 entries with s ≤ t.
    normalize : bool
        Whether Δ is divided by the number of annotated nodes.
    label_scale : float or "auto"
        Size of all features but the inputs; "auto" is the typical norm of xᵢ.
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
        """Return a copy with the classes and the numbers of features."""
        check_lengths(X, Y)
        model = copy.copy(self)
        _, edge_features = self.edges(X[0], 0)
        model.n_edge_inputs_ = edge_features.shape[1]
        return super(Graph, model).learn_domain(X, Y)

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights of inputs and labels, and of pairs of labels by edge feature."""
        blocks = super().blocks(names)
        labels = blocks[0].axes[0]
        pairs = self._pair_index(len(labels))
        n_pairs = _count_pairs(pairs)
        first = sum(block.places.size for block in blocks)
        begins = first + np.arange(self.n_edge_inputs_, dtype=np.intp) * n_pairs
        places = begins[:, None, None] + pairs
        edges = tuple(f"g{k}" for k in range(self.n_edge_inputs_))
        return [*blocks, Block("pair", (edges, labels, labels), places)]

    def node_features(self, x: Input, example: int | None = None) -> Input:
        """(n, F) the first part of x."""
        if not isinstance(x, tuple | list) or len(x) not in (2, 3):
            raise InputError(
                f"{name_place(example, unnamed='x')}: expected a tuple (features, "
                "edges) or (features, edges, edge features)"
            )
        return x[0]

    def edges(self, x: Input, example: int | None = None) -> tuple[Indices, Array]:
        """(m, 2) the edges and (m, E) their features."""
        name = name_place(example, unnamed="x")
        n_nodes = self._count_nodes(x, example)
        edges = check_array(x[1], f"{name}: edges")
        if edges.size == 0:
            edges = edges.reshape(0, 2).astype(np.intp)
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise InputError(
                f"{name}: edges must be an (m, 2) array of integers, not "
                f"{edges.dtype} {edges.shape}"
            )
        _check_edges(edges, n_nodes, name)
        features: Matrix = np.ones((len(edges), 1))
        if len(x) == 3:
            features = as_matrix(x[2], example)
        if features.shape[0] != len(edges):
            raise InputError(
                f"{name}: there are {features.shape[0]} rows of edge features for "
                f"{len(edges)} edges"
            )
        dense: Array = features @ np.eye(features.shape[1])
        return edges.astype(np.intp), dense

    def n_edge_features(self, n_states: int) -> int:
        """E·S² entries, or E·S(S+1)/2 with `symmetric`."""
        return self.n_edge_inputs_ * _count_pairs(self._pair_index(n_states))

    def encode(
        self, x: Input, annotation: Annotation, example: int | None = None
    ) -> AnnotatedProgram:
        """Return the local polytope.

        It has a variable for each node's state and each edge's pair of states, and the
        rows Σₛ zᵢ(s) = 1, Σₜ zᵢⱼ(s, t) = zᵢ(s), Σₛ zᵢⱼ(s, t) = zⱼ(t). Its 0/1 points
        are the labelings.
        """
        edges, edge_features = self.edges(x, example)
        matrix = as_matrix(self.node_features(x, example), example)
        inputs = sp.coo_array(matrix, dtype=float)
        self._check_features(inputs, edge_features, example)
        n = inputs.shape[0]
        m = len(edges)
        S = self.labels.n_states
        name = name_place(example, unnamed="x")
        n_variables = n * S + m * float(S) ** 2
        check_size(n_variables, MAX_VARIABLES, f"{name}: its programme")
        allowed = self.labels.allowed(annotation, n, lambda node: (example, node))
        sums = np.append(np.ones(n), np.zeros(2 * m * S))
        wrong = np.append((~allowed).ravel().astype(float), np.zeros(m * S * S))
        n_parts = int((~allowed.all(axis=1)).sum())
        return AnnotatedProgram(
            features=self._encode_features(inputs, edge_features, S),
            A=make_local_polytope(n, edges, S),
            row_lower=sums,
            row_upper=sums,
            fixed=np.where(wrong > 0, 0, -1).astype(np.int8),
            wrong=wrong,
            wrong_constant=0,
            n_parts=n_parts,
            divisor=float(max(n_parts, 1)) if self.normalize else 1.0,
        )

    def decode(self, x: Input, z: Binary) -> NDArray[np.generic]:
        """Return the labels of the states that z chooses."""
        n = self._count_nodes(x)
        S = self.labels.n_states
        return self.labels.decode(z[: n * S].reshape(n, S).argmax(axis=1))

    def choices(self, x: Input) -> tuple[Indices, Binary]:
        """(n, S) the variable of each node's state, at 1."""
        n = self._count_nodes(x)
        S = self.labels.n_states
        return np.arange(n * S).reshape(n, S), np.ones((n, S), dtype=np.int8)

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y)."""
        edges, edge_features = self.edges(x)
        inputs = as_matrix(self.node_features(x), None)
        S = self.labels.n_states
        states = self.labels.encode(y, inputs.shape[0])
        is_state = np.eye(S)[states]
        pairs = self._pair_index(S)
        pair_sums = np.zeros((_count_pairs(pairs), self.n_edge_inputs_))
        np.add.at(
            pair_sums, pairs[states[edges[:, 0]], states[edges[:, 1]]], edge_features
        )
        blocks = [np.asarray(is_state.T @ inputs)]
        if self.bias:
            blocks.append(is_state.sum(axis=0))
        blocks.append(pair_sums.T)
        features = np.concatenate([block.ravel() for block in blocks])
        return np.asarray(features * self.column_scale)

    def _check_features(
        self, inputs: Matrix, edge_features: Array, example: int | None
    ) -> None:
        """Raise an error unless features are finite, and as many as `prepare` saw."""
        name = name_place(example, unnamed="x")
        for kind, matrix, n_expected in (
            ("node", inputs, self.n_inputs_),
            ("edge", edge_features, self.n_edge_inputs_),
        ):
            if matrix.shape[1] != n_expected:
                raise InputError(
                    f"{name}: {matrix.shape[1]} features for each {kind}; {n_expected} "
                    "are expected"
                )
            entries = sp.coo_array(matrix)
            bad = np.flatnonzero(~np.isfinite(entries.data))
            if len(bad):
                row = entries.coords[0][bad[0]]
                raise InputError(
                    f"{name}: a feature of {kind} {row} is {entries.data[bad[0]]}; it "
                    "must be finite"
                )

    def _pair_index(self, n_states: int) -> Indices:
        """(S, S) the place of A(s, t) among the weights of one edge feature."""
        if not self.symmetric:
            return np.arange(n_states**2).reshape(n_states, n_states)
        index = np.zeros((n_states, n_states), dtype=np.intp)
        rows, columns = np.triu_indices(n_states)
        index[rows, columns] = np.arange(len(rows))
        index[columns, rows] = np.arange(len(rows))
        return index

    def _encode_features(self, inputs: Matrix, edge_features: Array, S: int) -> Matrix:
        """(n·S + m·S², d) CSR: what each variable adds to φ."""
        n, F = inputs.shape
        m = len(edge_features)
        node, feature = (index.astype(np.intp) for index in inputs.coords)
        states = np.arange(S)
        rows = [node[:, None] * S + states]
        columns = [feature[:, None] + states * F]
        values = [inputs.data[:, None]]
        begin = S * F
        if self.bias:
            rows.append(np.arange(n)[:, None] * S + states)
            columns.append(begin + states[None])
            values.append(np.ones((1, 1)))
            begin += S
        pairs = self._pair_index(S)
        edge, k = np.nonzero(edge_features)
        rows.append(n * S + edge[:, None] * S * S + np.arange(S * S))
        columns.append(begin + k[:, None] * _count_pairs(pairs) + pairs.ravel())
        values.append(edge_features[edge, k][:, None])

        shapes = [row.shape for row in rows]
        row = _concatenate_broadcast(rows, shapes)
        column = _concatenate_broadcast(columns, shapes)
        data = _concatenate_broadcast(values, shapes) * self.column_scale[column]
        shape = (n * S + m * S * S, self.n_features)
        return sp.csr_array((data, (row, column)), shape=shape)


def _check_edges(edges: Indices, n_nodes: int, name: str) -> None:
    """Raise an error that names the first invalid edge."""
    is_outside = (edges < 0).any(axis=1) | (edges >= n_nodes).any(axis=1)
    is_loop = edges[:, 0] == edges[:, 1]
    _, first = np.unique(np.sort(edges, axis=1), axis=0, return_index=True)
    is_repeated = np.ones(len(edges), dtype=bool)
    is_repeated[first] = False
    for is_bad, reason in (
        (is_outside, f"there are nodes 0 to {n_nodes - 1}"),
        (is_loop, "a node has no edge to itself"),
        (is_repeated, "the same two nodes have an edge already"),
    ):
        if is_bad.any():
            edge = int(is_bad.argmax())
            raise InputError(
                f"{name}: edge {edge} is {tuple(edges[edge].tolist())}; {reason}"
            )


def _count_pairs(pairs: Indices) -> int:
    """Return the number of weights of one edge feature."""
    return int(pairs.max(initial=-1)) + 1


def _concatenate_broadcast(
    arrays: Sequence[NDArray[np.generic]], shapes: Sequence[tuple[int, ...]]
) -> NDArray[np.generic]:
    """Return all entries of arrays, each broadcast to its shape."""
    pairs = zip(arrays, shapes, strict=True)
    return np.concatenate([np.broadcast_to(a, shape).ravel() for a, shape in pairs])


def make_local_polytope(n: int, edges: Indices, S: int) -> Matrix:
    """Return the rows of the local polytope.

    Parameters
    ----------
    n : int
        Number of nodes.
    edges : ndarray of shape (m, 2)
    S : int
        Number of states.

    Returns
    -------
    A : CSR matrix of shape (n + 2·m·S, n·S + m·S²)
        One state for each node, edges that agree with their first ends, then with
        their second.
    """
    m = len(edges)
    states = np.arange(S)
    pair = n * S + np.arange(m * S * S).reshape(m, S, S)
    first = n + np.arange(m * S).reshape(m, S)
    second = first + m * S
    rows = [
        np.repeat(np.arange(n), S),
        np.broadcast_to(first[:, :, None], pair.shape),
        np.broadcast_to(second[:, None, :], pair.shape),
        first,
        second,
    ]
    columns = [
        np.arange(n * S),
        pair,
        pair,
        edges[:, :1] * S + states,
        edges[:, 1:] * S + states,
    ]
    row = np.concatenate([index.ravel() for index in rows])
    column = np.concatenate([index.ravel() for index in columns])
    data = np.append(np.ones(n * S + 2 * pair.size), -np.ones(2 * m * S))
    shape = (n + 2 * m * S, n * S + pair.size)
    return sp.csr_array((data, (row, column)), shape=shape)
