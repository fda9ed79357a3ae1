"""Assignments: each row gets a different column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Self

import numpy as np
import scipy  # submodules are imported at first use; scipy.optimize takes a second
from numpy.typing import ArrayLike

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Array, Indices, Mask, Space, Task, dot
from clew.models.base import (
    Model,
    SeparateTask,
    check_finite,
    check_weights,
    find_annotated,
    identity,
)
from clew.models.examples import Annotation, check_lengths, fingerprint
from clew.models.labels import LabelSpace, find_labels, is_whole, name_place
from clew.models.linear_program import find_minimal_conflict
from clew.parallel import map_examples
from clew.utils.kernels import kernel
from clew.utils.validation import check_floats


@dataclass(frozen=True)
class AssignmentExample:
    """An input with its annotation."""

    x: Array
    """(n, m, F) pair features."""
    allowed: Mask
    """(n, m) the columns that the annotation allows."""
    counted: Mask
    """(n,) whether a row has features."""
    divisor: float

    def solve(self, w: Array, space: Space, loss_weight: float) -> Indices | None:
        """(n,) argmax of Σᵢ ⟨w, x[i, yᵢ]⟩ + loss_weight · Δ; None if `space` is empty."""
        is_wrong = ~self.allowed
        scores = dot(self.x, w) * self.counted[:, None]
        scores += (loss_weight / self.divisor) * is_wrong
        if space is Space.COMPATIBLE:
            return assign_columns(np.where(self.allowed, scores, -np.inf))
        y = assign_columns(scores)
        if space is Space.ALL or y is None or self.count_mistakes(y):
            return y
        best = None
        best_score = -np.inf
        for row in np.flatnonzero(is_wrong.any(axis=1)):
            row_scores = scores.copy()
            row_scores[row, self.allowed[row]] = -np.inf
            y = assign_columns(row_scores)
            if y is None:
                continue
            score = scores[np.arange(len(y)), y].sum()
            if score > best_score:
                best = y
                best_score = score
        return best

    def count_mistakes(self, y: Indices) -> int:
        """Return the number of rows whose column is not allowed."""
        return int((~self.allowed[np.arange(len(y)), y]).sum())

    def joint_features(self, y: Indices) -> Array:
        """(F,) φ = Σᵢ x[i, yᵢ] over the rows that have features."""
        rows = self.x[np.arange(len(y)), y]
        return np.asarray((rows * self.counted[:, None]).sum(axis=0))

    def explain_infeasibility(self, example: int | None) -> InfeasibleAnnotation:
        """Return the error for an empty Y*, with a minimal set of rows."""

        def is_feasible(rows: Sequence[int]) -> bool:
            scores = np.where(self.allowed[list(rows)], 0.0, -np.inf)
            return assign_columns(scores) is not None

        annotated = find_annotated(self.allowed).tolist()
        rows = find_minimal_conflict(annotated, is_feasible)
        columns = np.flatnonzero(self.allowed[rows].any(axis=0)).tolist()
        return InfeasibleAnnotation(
            f"{name_place(example)}: rows {rows} have only the columns {columns} to "
            "share, and each needs one of its own",
            example,
            tuple(rows),
        )


class Assignment(Model):
    """x is an (n, m, F) array of pair features with n ≤ m; y is a column for each row.

    No two rows have the same column. φ(x, y) = Σᵢ x[i, yᵢ]; Δ counts the annotated rows
    whose column is no candidate. An annotation has for each row a column, a set of
    candidate columns, or None or -1 if it is unknown; None as a whole annotates
    nothing.

    Parameters
    ----------
    normalize : bool
        Whether Δ is divided by the number of annotated rows.
    """

    domain_names: tuple[str, ...] = ("n_features", "n_columns_")
    n_columns_: int | None = None
    """The number of columns, if all examples that `prepare` saw have the same.

    Candidates that name every column annotate nothing. If examples differ in the number
    of columns, only `encode_annotations`, which sees the inputs, can find that out.
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def learn_domain(self, X: Sequence[ArrayLike], Y: Sequence[Annotation]) -> Self:
        """Return a copy with the number of features, and of columns if it is one."""
        check_lengths(X, Y)
        model: Self = type(self)(**self.get_params())
        shapes = [check_pairs(x, None, i).shape for i, x in enumerate(X)]
        widths = {shape[1] for shape in shapes}
        model.n_features = shapes[0][2]
        model.n_columns_ = int(widths.pop()) if len(widths) == 1 else None
        return model

    def check_inputs(self, X: Sequence[ArrayLike]) -> None:
        """Nothing: `encode_annotations` checks every input."""

    def encode_annotations(
        self, X: Sequence[ArrayLike], Y: Sequence[Annotation]
    ) -> list[Mask]:
        """Return each annotation as a boolean (n, m) matrix of allowed columns."""
        check_lengths(X, Y)
        pairs = zip(X, Y, strict=True)
        return [self.encode(x, y, i).allowed for i, (x, y) in enumerate(pairs)]

    def allowed(
        self,
        annotation: Annotation,
        n_parts: int | None = None,
        n_columns: int | None = None,
        example: int | None = None,
    ) -> Mask:
        """(n, m) the columns that an annotation allows.

        Parameters
        ----------
        annotation : annotation
        n_parts : int, optional
            Expected number of rows.
        n_columns : int, optional
            Number of columns. By default that of the data; if examples differ in it,
            the last column stands for all that are not named.
        example : int, optional
            Number of the example, for error messages.
        """
        if n_columns is None:
            n_columns = self.n_columns_ or count_columns(annotation)
        columns = LabelSpace(tuple(range(n_columns)), ("column", "columns"))
        return columns.allowed(annotation, n_parts, lambda row: (example, row))

    def encode_output(self, y: Sequence[int] | Indices) -> Indices:
        """(n,) y itself."""
        return np.asarray(y, dtype=np.intp)

    def encode(
        self, x: ArrayLike, annotation: Annotation, example: int | None = None
    ) -> AssignmentExample:
        """Return the input with its annotation; `example` is for error messages."""
        x = check_pairs(x, self.n_features, example)
        n, m, _ = x.shape
        allowed = self.allowed(annotation, n, m, example)
        n_parts = len(find_annotated(allowed))
        divisor = float(max(n_parts, 1)) if self.normalize else 1.0
        return AssignmentExample(x, allowed, np.ones(n, dtype=bool), divisor)

    def joint_features(self, x: ArrayLike, y: Sequence[int] | Indices) -> Array:
        """(F,) φ(x, y) = Σᵢ x[i, yᵢ]."""
        return self.encode(x, None).joint_features(np.asarray(y, dtype=np.intp))

    def argmax(
        self,
        x: ArrayLike,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Indices | None:
        """Return the best assignment in `space`; None if the space is empty."""
        example = self.encode(x, annotation)
        return example.solve(check_weights(w, self.n_features), space, loss_weight)

    def mistakes(self, annotation: Annotation, y: Sequence[int] | Indices) -> int:
        """The number of annotated rows whose column in y is no candidate."""
        allowed = self.allowed(annotation, len(y))
        columns = np.minimum(self.encode_output(y), allowed.shape[1] - 1)
        return int((~allowed[np.arange(len(columns)), columns]).sum())

    def candidates(self, x: ArrayLike, annotation: Annotation) -> Mask:
        """(n, m) the columns that the annotation allows."""
        n, m, _ = check_pairs(x).shape
        return self.allowed(annotation, n, m)

    def max_marginals(
        self, X: Sequence[ArrayLike], w: Array, n_jobs: int = 1
    ) -> list[Array]:
        """For each input (n, m) what the best assignment loses if row i has column j."""
        w = check_weights(w, self.n_features)
        return map_examples(
            lambda i: compute_max_marginals(dot(self.encode(X[i], None, i).x, w)),
            range(len(X)),
            n_jobs,
        )

    def outputs(self, x: ArrayLike) -> Iterator[Indices]:
        """All m! / (m - n)! assignments."""
        n, m, _ = check_pairs(x).shape
        for columns in permutations(range(m), n):
            yield np.array(columns, dtype=np.intp)

    def task(
        self, X: Sequence[ArrayLike], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> AssignmentTask:
        """Return the learning problem on these examples."""
        check_lengths(X, Y)
        pairs = zip(X, Y, strict=True)
        examples = [self.encode(x, y, i) for i, (x, y) in enumerate(pairs)]
        model_key = identity(self)
        keys = [fingerprint(*model_key, e.x, e.allowed) for e in examples]
        return AssignmentTask(examples, keys, self.n_features, n_jobs)

    def predict(
        self, X: Sequence[ArrayLike], w: Array, n_jobs: int = 1
    ) -> list[Indices | None]:
        """Return the best assignment for each input."""
        w = check_weights(w, self.n_features)
        return map_examples(
            lambda i: self.encode(X[i], None, i).solve(w, Space.ALL, 0.0),
            range(len(X)),
            n_jobs,
        )


class AssignmentTask(SeparateTask):
    """Assignments with partial annotations, as a Task."""

    loss_zero_iff_compatible = True

    def __init__(
        self,
        examples: Sequence[AssignmentExample],
        keys: Sequence[bytes],
        n_features: int,
        n_jobs: int = 1,
    ) -> None:
        self.examples = examples
        self.keys = keys
        self.n_examples = len(examples)
        self.n_features = n_features
        self.n_jobs = n_jobs

    def describe_best(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> tuple[Array, float] | None:
        """Solve one assignment; in Y° up to one for each row."""
        example = self.examples[n]
        y = example.solve(w, space, loss_weight)
        if y is None:
            if space is Space.INCOMPATIBLE:
                return None
            raise example.explain_infeasibility(n)
        return example.joint_features(y), example.count_mistakes(y) / example.divisor

    def annotated_part(self) -> Task | None:
        """Return the same examples, with features only in rows of one candidate."""
        determined = [
            (example.allowed.sum(axis=1) == 1) & ~example.allowed.all(axis=1)
            for example in self.examples
        ]
        if not any(rows.any() for rows in determined):
            return None
        if all(rows.all() for rows in determined):
            return None
        parts = [
            replace(example, counted=rows)
            for rows, example in zip(determined, self.examples, strict=True)
        ]
        keys = [fingerprint("annotated part", key) for key in self.keys or ()]
        return AssignmentTask(parts, keys, self.n_features, self.n_jobs)


def assign_columns(scores: Array) -> Indices | None:
    """(n,) a column for each row, with the largest sum of scores.

    Minus infinity forbids a pair. None if there is no assignment.
    """
    try:
        _, columns = scipy.optimize.linear_sum_assignment(scores, maximize=True)
    except ValueError:  # scipy's error for an infeasible matrix; there is no NaN
        return None
    return np.asarray(columns, dtype=np.intp)


def compute_max_marginals(scores: Array) -> Array:
    """(n, m) what the best assignment loses if row i must have column j.

    With a row of zeros for each column that is left over, assignments are permutations,
    and two of them differ by cycles: row i takes the column of row k, which takes
    another's, … until one takes the column of i. A step i → k costs s[i, yᵢ] - s[i, yₖ];
    no cycle is negative, since y is best. So forcing (i, yₖ) costs that step and the
    shortest path from k back to i (Floyd 1962, Warshall 1962): m³ steps for all pairs.
    """
    n, m = scores.shape
    square = np.vstack([scores, np.zeros((m - n, m))])
    y = assign_columns(square)
    if y is None or m == 0:
        return np.zeros((n, m))
    by_row = square[:, y]  # [i, k]: row i takes the column of row k
    step = np.diagonal(by_row)[:, None] - by_row
    paths = step.copy()
    find_shortest_paths(paths)
    losses = np.empty((n, m))
    losses[:, y] = np.minimum(0.0, -(step + paths.T)[:n])
    return losses


@kernel
def find_shortest_paths(length: Array) -> None:
    """Replace edge lengths by those of the shortest paths; no cycle is negative."""
    n = len(length)
    for i in range(n):
        length[i, i] = 0.0
    for via in range(n):
        for i in range(n):
            for k in range(n):
                length[i, k] = min(length[i, k], length[i, via] + length[via, k])


def check_pairs(
    x: ArrayLike, n_features: int | None = None, example: int | None = None
) -> Array:
    """Return x as a finite (n, m, F) array with n ≤ m."""
    name = name_place(example, unnamed="x")
    # a copy without -0, which would have another fingerprint
    pairs = check_floats(x, name) + 0.0
    if pairs.ndim != 3:
        raise InputError(
            f"{name} has shape {pairs.shape}; expected (rows, columns, features)"
        )
    n, m, width = pairs.shape
    if n > m:
        raise InputError(
            f"{name} has {n} rows and {m} columns; each row needs a column of its own"
        )
    if n_features is not None and width != n_features:
        raise InputError(f"{name} has {width} features a pair; expected {n_features}")
    check_finite(pairs, name)
    return pairs


def count_columns(annotation: Annotation) -> int:
    """Return the columns of a mask; else one more than the annotation names."""
    columns, _, width = find_labels([annotation])
    named = [int(column) for column in columns if is_whole(column)]
    return width or max(named, default=-1) + 2
