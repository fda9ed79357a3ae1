"""Assignments: each row gets a column of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Self

import numpy as np
import scipy  # its parts are imported when they are used, and scipy.optimize takes a second
import scipy.sparse as sp
from numba import njit
from numpy.typing import ArrayLike

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Argmax, Array, Indices, Mask, Space, Task, dot
from clew.models.base import (
    ALL_SPACES,
    Model,
    check_finite,
    check_lengths,
    check_weights,
    identity,
)
from clew.models.examples import Annotation
from clew.models.fingerprint import fingerprint
from clew.models.labels import (
    is_candidates,
    is_minus_one,
    is_missing,
    is_parsed,
    is_whole,
    name_place,
    plain,
)
from clew.models.linear_program import minimal_conflict
from clew.parallel import map_examples
from clew.utils.validation import check_floats, short_repr


@dataclass(frozen=True)
class Example:
    """An input with its annotation."""

    x: Array
    """(n, m, F) pair features."""
    allowed: Mask
    """(n, m) the columns that the annotation allows."""
    counted: Mask
    """(n,) the rows whose features count."""
    divisor: float

    @property
    def annotated(self) -> Mask:
        """(n,) the rows for which some column is wrong."""
        return np.asarray(~self.allowed.all(axis=1))

    def best(self, w: Array, space: Space, loss_weight: float) -> Indices | None:
        """(n,) the columns that maximise Σᵢ ⟨w, x[i, yᵢ]⟩ + loss_weight · Δ in the space; None where it is empty."""
        wrong = ~self.allowed
        scores = dot(self.x, w) * self.counted[:, None] + (
            loss_weight / self.divisor
        ) * wrong
        if space is Space.ALL:
            return assign(scores)
        if space is Space.COMPATIBLE:
            return assign(np.where(self.allowed, scores, -np.inf))
        y = assign(scores)
        if y is not None and self.mistakes(y):
            return y  # the best of all outputs, and in Y°
        deviating = []
        for row in np.flatnonzero(wrong.any(axis=1)):
            must = scores.copy()
            must[row, self.allowed[row]] = -np.inf
            deviating.append(assign(must))
        rows = np.arange(len(scores))
        return max(
            (d for d in deviating if d is not None),
            key=lambda d: scores[rows, d].sum(),
            default=None,
        )

    def mistakes(self, y: Indices) -> int:
        """How many rows have a column that is not allowed."""
        return int((~self.allowed[np.arange(len(y)), y]).sum())

    def joint_features(self, y: Indices) -> Array:
        """(F,) φ = Σᵢ x[i, yᵢ] over the rows that count."""
        return np.asarray(
            (self.x[np.arange(len(y)), y] * self.counted[:, None]).sum(axis=0)
        )

    def conflict(self, example: int | None) -> InfeasibleAnnotation:
        """The error for an empty Y*, with a minimal set of rows that cannot all have an allowed column."""

        def possible(rows: Sequence[int]) -> bool:
            return assign(np.where(self.allowed[list(rows)], 0.0, -np.inf)) is not None

        rows = minimal_conflict(np.flatnonzero(self.annotated).tolist(), possible)
        columns = np.flatnonzero(self.allowed[rows].any(axis=0)).tolist()
        message = f"rows {rows} have only the columns {columns} to share, and each needs one of its own"
        return InfeasibleAnnotation(
            f"{name_place(example)}: {message}", example, tuple(rows)
        )


class Assignment(Model):
    """x is an (n, m, F) array of pair features with n ≤ m; y gives each row a column of its own, as n integers.

    φ(x, y) = Σᵢ x[i, yᵢ]; Δ counts the annotated rows with a column that is no candidate, divided by the number of
    annotated rows if `normalize`. An annotation has for each row a column, a set of candidate columns, or None or −1
    where it is unknown; None as a whole annotates nothing.
    """

    domain_names: tuple[str, ...] = ("n_features", "n_columns_")
    n_columns_: int | None = None
    """The number of columns, if all examples that `prepare` saw have the same.

    It tells candidates that name every column, and so say nothing, from those that do. Where examples differ in it, an
    annotation alone cannot tell, and `parsed`, which sees the inputs, does.
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def learn_domain(self, X: Sequence[ArrayLike], Y: Sequence[Annotation]) -> Self:
        """A copy that knows how many features a pair has, and the number of columns if there is one."""
        check_lengths(X, Y)
        model: Self = type(self)(**self.get_params())
        shapes = [check_pairs(x, None, n).shape for n, x in enumerate(X)]
        model.n_features, widths = shapes[0][2], {shape[1] for shape in shapes}
        model.n_columns_ = int(widths.pop()) if len(widths) == 1 else None
        return model

    def check_inputs(self, X: Sequence[ArrayLike]) -> None:
        """Nothing: `parsed` has looked at every input."""

    def parsed(self, X: Sequence[ArrayLike], Y: Sequence[Annotation]) -> list[Mask]:
        """Each annotation as a boolean (n, m) matrix of the columns that it allows."""
        check_lengths(X, Y)
        shapes = [check_pairs(x, self.n_features, i).shape for i, x in enumerate(X)]
        return [
            self.allowed(y, n, m, i)
            for i, (y, (n, m, _)) in enumerate(zip(Y, shapes, strict=True))
        ]

    def allowed(
        self, annotation: Annotation, n: int, m: int, example: int | None = None
    ) -> Mask:
        """(n, m) the columns that an annotation allows; `example` is for error messages."""
        allowed = np.ones((n, m), dtype=bool)
        for row, columns in enumerate(columns_of(annotation, n, m, example)):
            if columns is not None:
                if max(columns) >= m:
                    place = name_place(example, row)
                    raise InputError(
                        f"{place}: column {max(columns)} is annotated; there are columns 0 to {m - 1}"
                    )
                allowed[row] = np.isin(np.arange(m), columns)
        return allowed

    def pairs(
        self, x: ArrayLike, annotation: Annotation, example: int | None = None
    ) -> Example:
        """The input and its annotation, checked; `example` is for error messages."""
        x = check_pairs(x, self.n_features, example)
        n, m, _ = x.shape
        allowed = self.allowed(annotation, n, m, example)
        n_parts = int((~allowed.all(axis=1)).sum())
        return Example(
            x,
            allowed,
            np.ones(n, dtype=bool),
            float(max(n_parts, 1)) if self.normalize else 1.0,
        )

    def joint_features(self, x: ArrayLike, y: Sequence[int] | Indices) -> Array:
        """(F,) φ(x, y) = Σᵢ x[i, yᵢ]."""
        return self.pairs(x, None).joint_features(np.asarray(y, dtype=np.intp))

    def argmax(
        self,
        x: ArrayLike,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Indices | None:
        """The best assignment in `space`, or None where the space is empty."""
        return self.pairs(x, annotation).best(
            check_weights(w, self.n_features), space, loss_weight
        )

    def loss(self, annotation: Annotation, y: Sequence[int] | Indices) -> float:
        """Δ(y*, y): `mistakes`, as a fraction of the annotated rows with `normalize`."""
        return self.mistakes(annotation, y) / (
            max(self.n_parts(annotation), 1) if self.normalize else 1
        )

    def mistakes(self, annotation: Annotation, y: Sequence[int] | Indices) -> int:
        """How many annotated rows have a column in y that is no candidate."""
        rows = columns_of(annotation, len(y), self.n_columns_)
        return sum(
            columns is not None and column not in columns
            for columns, column in zip(rows, y, strict=True)
        )

    def n_parts(self, annotation: Annotation) -> int:
        """How many rows are annotated: those with candidates that are not all columns, as far as `n_columns_` tells."""
        return sum(
            columns is not None
            for columns in columns_of(annotation, None, self.n_columns_)
        )

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation without the marked rows, counted among the annotated ones."""
        rows = columns_of(annotation, None, self.n_columns_)
        annotated = [row for row, columns in enumerate(rows) if columns is not None]
        if len(parts) != len(annotated):
            raise InputError(
                f"the mask has {len(parts)} entries for {len(annotated)} annotated rows"
            )
        hidden = np.array(annotated, dtype=np.intp)[np.asarray(parts, dtype=bool)]
        if annotation is None:
            return None
        if is_parsed(annotation):
            shown = annotation.copy()
            shown[hidden] = True
            return shown
        return [
            None if i in hidden else columns for i, columns in enumerate(annotation)
        ]

    def parts(self, x: ArrayLike, y: Sequence[int] | Indices) -> list[list[int | None]]:
        """For each row an annotation of it alone: the column that y gives it."""
        n = check_pairs(x).shape[0]
        return [
            [int(column) if row == i else None for row in range(n)]
            for i, column in enumerate(y)
        ]

    def candidates(self, x: ArrayLike, annotation: Annotation) -> Mask:
        """(n, m) the columns that the annotation allows."""
        n, m, _ = check_pairs(x).shape
        return self.allowed(annotation, n, m)

    def max_marginals(
        self, X: Sequence[ArrayLike], w: Array, n_jobs: int = 1
    ) -> list[Array]:
        """For each input (n, m) what the best assignment loses when row i has column j."""
        w = check_weights(w, self.n_features)
        return map_examples(
            lambda k: forced_pairs(dot(self.pairs(X[k], None, k).x, w)),
            range(len(X)),
            n_jobs,
        )

    def outputs(self, x: ArrayLike) -> Iterator[Indices]:
        """All m! / (m − n)! assignments."""
        n, m, _ = check_pairs(x).shape
        for columns in permutations(range(m), n):
            yield np.array(columns, dtype=np.intp)

    def task(
        self, X: Sequence[ArrayLike], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> AssignmentTask:
        """The learning problem on these examples."""
        check_lengths(X, Y)
        examples = [
            self.pairs(x, y, n) for n, (x, y) in enumerate(zip(X, Y, strict=True))
        ]
        keys = [fingerprint(*identity(self), e.x, e.allowed) for e in examples]
        return AssignmentTask(examples, keys, self.n_features, n_jobs)

    def predict(
        self, X: Sequence[ArrayLike], w: Array, n_jobs: int = 1
    ) -> list[Indices | None]:
        """The best assignment for each input."""
        w = check_weights(w, self.n_features)
        return map_examples(
            lambda n: self.pairs(X[n], None, n).best(w, Space.ALL, 0.0),
            range(len(X)),
            n_jobs,
        )


class AssignmentTask:
    """Assignments with partial annotations, as a Task."""

    spaces = ALL_SPACES
    loss_zero_iff_compatible = True

    def __init__(
        self,
        examples: Sequence[Example],
        keys: Sequence[bytes],
        n_features: int,
        n_jobs: int = 1,
    ) -> None:
        self.examples, self.n_jobs = examples, n_jobs
        self.keys: Sequence[bytes] | None = keys
        self.n_examples, self.n_features = len(examples), n_features

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Solve one assignment for each example; in Y° one for each annotated row where the best of all is in Y*."""
        w = check_weights(w, self.n_features)
        indices = (
            range(self.n_examples) if examples is None else [int(n) for n in examples]
        )
        best = map_examples(
            lambda n: self.examples[n].best(w, space, loss_weight), indices, self.n_jobs
        )
        features, loss = np.zeros((len(best), self.n_features)), np.zeros(len(best))
        for i, (n, y) in enumerate(zip(indices, best, strict=True)):
            if y is not None:
                features[i] = self.examples[n].joint_features(y)
                loss[i] = self.examples[n].mistakes(y) / self.examples[n].divisor
            elif space is not Space.INCOMPATIBLE:
                raise self.examples[n].conflict(n)
        return Argmax(
            sp.csr_array(features),
            loss,
            np.array([y is not None for y in best], dtype=bool),
        )

    def annotated_part(self) -> Task | None:
        """The same examples, where only rows with a single candidate have features."""
        determined = [
            (example.allowed.sum(axis=1) == 1) & example.annotated
            for example in self.examples
        ]
        if not any(rows.any() for rows in determined) or all(
            rows.all() for rows in determined
        ):
            return None
        parts = [
            replace(example, counted=rows)
            for rows, example in zip(determined, self.examples, strict=True)
        ]
        keys = [fingerprint("annotated part", key) for key in self.keys or ()]
        return AssignmentTask(parts, keys, self.n_features, self.n_jobs)


def assign(scores: Array) -> Indices | None:
    """(n,) a column for each row, with the largest sum of scores; −inf forbids. None where that is impossible."""
    try:
        return np.asarray(
            scipy.optimize.linear_sum_assignment(scores, maximize=True)[1],
            dtype=np.intp,
        )
    except (
        ValueError
    ):  # scipy has no other word for an infeasible matrix; NaN was refused before
        return None


def forced_pairs(scores: Array) -> Array:
    """(n, m) what the best assignment loses when row i must have column j.

    With a row of zeros for each column that is left over, assignments are permutations, and two of them differ by
    cycles: row i takes the column of row k, which takes another's, … until one takes the column of i. A step i → k
    costs s[i, yᵢ] − s[i, yₖ]; no cycle is negative, since y is best. So forcing (i, yₖ) costs that step and the
    shortest way from k back to i (Floyd 1962, Warshall 1962): all pairs in m³ steps, and not by an assignment for each.
    """
    n, m = scores.shape
    square = np.vstack([scores, np.zeros((m - n, m))])
    y = assign(square)
    if y is None or m == 0:
        return np.zeros((n, m))
    step = (
        np.diagonal(square[:, y])[:, None] - square[:, y]
    )  # [i, k]: row i takes the column of row k
    cost = np.empty((n, m))
    cost[:, y] = np.minimum(0.0, -(step + shortest_ways(step.copy()).T)[:n])
    return cost


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def shortest_ways(length: Array) -> Array:
    """(n, n) the length of the shortest way from each node to each, in place; there must be no negative cycle."""
    n = len(length)
    for i in range(n):
        length[i, i] = 0.0
    for via in range(n):
        for i in range(n):
            for k in range(n):
                length[i, k] = min(length[i, k], length[i, via] + length[via, k])
    return length


def check_pairs(
    x: ArrayLike, n_features: int | None = None, example: int | None = None
) -> Array:
    """X as a finite (n, m, F) array with n ≤ m."""
    where = name_place(example, unnamed="x")
    pairs = (
        check_floats(x, where) + 0.0
    )  # a copy of our own, without −0 that would have another fingerprint
    if pairs.ndim != 3:
        raise InputError(
            f"{where} has shape {pairs.shape}; expected (rows, columns, features)"
        )
    n, m, width = pairs.shape
    if n > m:
        raise InputError(
            f"{where} has {n} rows and {m} columns; each row needs a column of its own"
        )
    if n_features is not None and width != n_features:
        raise InputError(f"{where} has {width} features a pair; expected {n_features}")
    check_finite(pairs, where)
    return pairs


def columns_of(
    annotation: Annotation,
    n_rows: int | None,
    n_columns: int | None,
    example: int | None = None,
) -> list[list[int] | None]:
    """For each row its candidate columns, or None where it is not annotated or all columns are candidates."""
    if annotation is None:
        return [None] * (n_rows or 0)
    unordered = isinstance(annotation, (Set, Mapping, str, type)) or sp.issparse(
        annotation
    )
    if (
        unordered
        or not hasattr(annotation, "__len__")
        or getattr(annotation, "ndim", 1) == 0
    ):
        raise InputError(
            f"{name_place(example)} is {short_repr(annotation)}; expected a column, candidates or None for each row"
        )
    if n_rows is not None and len(annotation) != n_rows:
        raise InputError(
            f"{name_place(example)}: {len(annotation)} rows are annotated; x has {n_rows}"
        )
    if is_parsed(annotation):
        return [
            None if row.all() else np.flatnonzero(row).tolist() for row in annotation
        ]
    rows: list[list[int] | None] = []
    for row, given in enumerate(annotation):
        value = plain(given)
        if is_missing(value) or is_minus_one(value):
            rows.append(None)
            continue
        columns = (
            [plain(column) for column in value] if is_candidates(value) else [value]
        )
        if not columns:
            message = f"{name_place(example, row)}: the candidate set is empty; None marks an unknown column"
            raise InfeasibleAnnotation(message, example, (row,))
        for column in columns:
            if not is_whole(column) or column < 0:
                raise InputError(
                    f"{name_place(example, row)}: {short_repr(column)} is annotated; expected a column's index"
                )
        different = {int(column) for column in columns}
        rows.append(
            None if different == set(range(n_columns or 0)) else sorted(different)
        )
    return rows
