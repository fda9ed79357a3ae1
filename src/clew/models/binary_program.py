"""Any 0/1 linear programme as a structured output, annotated variable by variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.base import check_finite, check_kind, check_lengths
from clew.models.examples import Annotation
from clew.models.highs_solver import Binary
from clew.models.labels import name_place
from clew.models.linear_program import Annotated, LinearModel
from clew.utils.validation import check_floats, is_number, short_repr

MAX_LISTED = 24
"""Variables up to which all outputs can be listed."""


@dataclass(frozen=True)
class Program:
    """An input: which y ∈ {0, 1}ⁿ are outputs (lower ≤ A y ≤ upper), and what each variable looks like."""

    features: Matrix
    """(n_vars, d) dense or sparse; φ(x, y) = featuresᵀ y."""
    A: Matrix
    """(m, n_vars) sparse."""
    lower: Any
    """(m,) the rows' lower bounds, −inf for none."""
    upper: Any
    """(m,) the rows' upper bounds, inf for none."""


class BinaryProgram(LinearModel):
    """Outputs y ∈ {0, 1}ⁿ of a `Program`: φ(x, y) = featuresᵀ y, Δ = Σ over annotated variables of [yᵢ ≠ y*ᵢ].

    With `normalize`, Δ is divided by the number of annotated variables. An annotation is an array with −1 for unknown,
    a mapping {variable: 0 or 1}, or None for nothing annotated.
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def prepare(self, X: Sequence[Program], Y: Sequence[Annotation]) -> Self:
        """A copy that knows how many features a variable has; refuses data that are not of its kind."""
        check_kind(self, X)
        model = self.learn_domain(X, Y)
        for n, x in enumerate(X):
            checked(x, model.n_features, n)
        return model

    def learn_domain(self, X: Sequence[Program], Y: Sequence[Annotation]) -> Self:
        """A copy that knows how many features a variable has."""
        check_lengths(X, Y)
        model: Self = type(self)(**self.get_params())
        model.n_features = checked(X[0], None, 0).features.shape[1]
        return model

    def encode(
        self, x: Program, annotation: Annotation, example: int | None = None
    ) -> Annotated:
        """The programme of x, with costs, bounds and a cut for what is annotated."""
        x = checked(x, self.n_features, example)
        fixed = values(annotation, x.A.shape[1], example)
        n_parts = int((fixed >= 0).sum())
        return Annotated(
            features=x.features,
            A=x.A,
            row_lower=x.lower,
            row_upper=x.upper,
            fixed=fixed,
            wrong=np.where(
                fixed < 0, 0.0, 1.0 - 2.0 * fixed
            ),  # |y − y*| is y where y* = 0, and 1 − y where y* = 1
            wrong_constant=int((fixed == 1).sum()),
            n_parts=n_parts,
            divisor=float(max(n_parts, 1)) if self.normalize else 1.0,
        )

    def decode(self, x: Program, z: Binary) -> Binary:  # noqa: ARG002  # a programme's output is z itself
        """(n_vars,) the output itself."""
        return z

    def joint_features(self, x: Program, y: ArrayLike) -> Array:
        """(d,) φ(x, y) = featuresᵀ y."""
        return np.asarray(
            checked(x, self.n_features).features.T @ np.asarray(y, dtype=float)
        )

    def mistakes(self, annotation: Annotation, y: ArrayLike) -> int:
        """How many annotated variables have another value in y."""
        y = np.asarray(y)
        fixed = values(annotation, len(y))
        return int(((fixed >= 0) & (fixed != y)).sum())

    def loss(self, annotation: Annotation, y: ArrayLike) -> float:
        """Δ(y*, y): `mistakes`, as a fraction of the annotated variables with `normalize`."""
        return self.mistakes(annotation, y) / (
            max(self.n_parts(annotation), 1) if self.normalize else 1
        )

    def outputs(self, x: Program) -> Iterator[Binary]:
        """Every output, in the order of the binary numbers; for few variables."""
        x = checked(x)
        n = x.A.shape[1]
        if n > MAX_LISTED:
            raise InputError(
                f"x has {n} variables; outputs are listed for {MAX_LISTED} at most"
            )
        for first in range(0, 2**n, 4096):
            numbers = np.arange(first, min(first + 4096, 2**n))
            ys = (numbers[:, None] >> np.arange(n)[::-1]) & 1
            sums = ys @ x.A.T
            yield from ys[
                ((sums >= x.lower - 1e-9) & (sums <= x.upper + 1e-9)).all(axis=1)
            ].astype(np.int8)

    def parts(self, x: Program, y: Sequence[int] | Binary) -> list[dict[int, int]]:  # noqa: ARG002
        """For each variable an annotation of it alone."""
        return [{variable: int(value)} for variable, value in enumerate(y)]

    def candidates(self, x: Program, annotation: Annotation) -> Mask:
        """(n_vars, 2) whether the annotation allows 0 and 1."""
        fixed = values(annotation, checked(x).A.shape[1])
        return np.column_stack([fixed != 1, fixed != 0])

    def choices(self, x: Program) -> tuple[Indices, Binary]:
        """(n_vars, 2) each variable at 0 and at 1."""
        n = checked(x).A.shape[1]
        return np.repeat(np.arange(n), 2).reshape(n, 2), np.tile(
            np.array([0, 1], dtype=np.int8), (n, 1)
        )

    def n_parts(self, annotation: Annotation) -> int:
        """How many variables are annotated."""
        if annotation is None:
            return 0
        return (
            len(annotation)
            if isinstance(annotation, Mapping)
            else int((check_floats(annotation, "Y") >= 0).sum())
        )

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation without the marked variables, counted among the annotated ones."""
        if len(parts) != self.n_parts(annotation):
            raise InputError(
                f"the mask has {len(parts)} entries for {self.n_parts(annotation)} annotated variables"
            )
        if annotation is None:
            return None
        if isinstance(annotation, Mapping):
            return {
                i: y
                for (i, y), hidden in zip(annotation.items(), parts, strict=True)
                if not hidden
            }
        shown = np.array(annotation)
        shown[np.flatnonzero(shown >= 0)[np.asarray(parts, dtype=bool)]] = -1
        return shown


def checked(
    x: object, n_features: int | None = None, example: int | None = None
) -> Program:
    """X with float arrays of the right shapes; an InputError names the example."""
    where = name_place(example, unnamed="x")
    if not isinstance(x, Program):
        raise InputError(
            f"{where} is a {type(x).__name__}; expected a clew.models.binary_program.Program"
        )
    sparse = sp.issparse(x.features)
    # a copy of our own, without −0, which would have another fingerprint
    features: Matrix = (
        sp.csr_array(x.features, dtype=float)
        if sparse
        else check_floats(x.features, f"{where}: features") + 0.0
    )
    rows = x.A if sp.issparse(x.A) else np.atleast_2d(check_floats(x.A, f"{where}: A"))
    if rows.ndim != 2:
        raise InputError(
            f"{where}: A has shape {rows.shape}; expected (rows, variables)"
        )
    A: Matrix = sp.csr_array(rows, dtype=float)
    if not A.has_canonical_format:
        A = A.copy()  # the caller's matrix stays as it is
        A.sum_duplicates()
    lower, upper = (
        check_floats(x.lower, f"{where}: lower"),
        check_floats(x.upper, f"{where}: upper"),
    )
    if features.ndim != 2 or features.shape[0] != A.shape[1]:
        raise InputError(
            f"{where}: features has shape {features.shape}; A has {A.shape[1]} variables, one row for each"
        )
    if n_features is not None and features.shape[1] != n_features:
        raise InputError(
            f"{where}: a variable has {features.shape[1]} features; expected {n_features}"
        )
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound.shape != (A.shape[0],):
            raise InputError(
                f"{where}: {name} has shape {bound.shape}; A has {A.shape[0]} rows, so expected ({A.shape[0]},)"
            )
        if np.isnan(bound).any():
            raise InputError(
                f"{where}: {name} has NaN at row {int(np.flatnonzero(np.isnan(bound))[0])}"
            )
    if sparse and not np.isfinite(features.data).all():
        raise InputError(
            f"{where}: features of variable {_row_of(features)} has NaN or infinity; it must be finite"
        )
    if not sparse:
        check_finite(features, f"{where}: features")
    if not np.isfinite(A.data).all():
        raise InputError(
            f"{where}: row {_row_of(A)} of A has NaN or infinity; coefficients must be finite"
        )
    return Program(features, A, lower, upper)


def values(annotation: Annotation, n_vars: int, example: int | None = None) -> Binary:
    """(n_vars,) the annotation as −1, 0 and 1."""
    where = name_place(example)
    if annotation is None:
        return np.full(n_vars, -1, dtype=np.int8)
    if isinstance(annotation, Mapping):
        full = np.full(n_vars, -1, dtype=np.int8)
        for variable, value in annotation.items():
            if not isinstance(variable, int | np.integer) or not 0 <= variable < n_vars:
                raise InputError(
                    f"{where}: variable {short_repr(variable)} is annotated; there are variables 0 to {n_vars - 1}"
                )
            if not isinstance(value, bool | np.bool_) and not (
                is_number(value) and value in (0, 1)
            ):
                raise InputError(
                    f"{where}: variable {variable} is annotated {short_repr(value)}; expected 0 or 1"
                )
            full[variable] = value
        return full
    given = check_floats(annotation, where)
    if given.shape != (n_vars,):
        raise InputError(
            f"{where}: the annotation has shape {given.shape}; expected ({n_vars},), one value a variable"
        )
    bad = np.flatnonzero(~np.isin(given, (-1, 0, 1)))
    if len(bad):
        raise InputError(
            f"{where}: variable {bad[0]} is annotated {given[bad[0]]}; expected −1 (unknown), 0 or 1"
        )
    return given.astype(np.int8)


def _row_of(matrix: Matrix) -> int:
    """The row of a CSR matrix' first entry that is not finite."""
    entry = int(np.flatnonzero(~np.isfinite(matrix.data))[0])
    return int(np.searchsorted(matrix.indptr, entry, side="right") - 1)
