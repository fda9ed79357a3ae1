"""Any 0/1 linear program as a structured output, annotated variable by variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.base import check_finite, check_kind
from clew.models.examples import Annotation, check_lengths
from clew.models.highs_solver import Binary, Program
from clew.models.labels import name_place
from clew.models.linear_program import AnnotatedProgram, LinearModel
from clew.utils.validation import check_floats, is_number, short_repr

MAX_LISTED = 24
"""Most variables for which all outputs can be listed."""

LISTED_AT_A_TIME = 4096


class BinaryProgram(LinearModel):
    """Outputs y ∈ {0, 1}ⁿ of a `Program`, with φ(x, y) = featuresᵀ y.

    Δ = Σ over annotated variables of [yᵢ ≠ y*ᵢ]. An annotation is an array with -1 for
    unknown, a mapping {variable: 0 or 1}, or None for nothing annotated.

    Parameters
    ----------
    normalize : bool
        Whether Δ is divided by the number of annotated variables.
    """

    def __init__(self, normalize: bool = True) -> None:
        self.normalize = normalize

    def prepare(self, X: Sequence[Program], Y: Sequence[Annotation]) -> Self:
        """Return a copy with the number of features; raise an error if X is invalid."""
        check_kind(self, X)
        model = self.learn_domain(X, Y)
        for n, x in enumerate(X):
            validate_program(x, model.n_features, n)
        return model

    def learn_domain(self, X: Sequence[Program], Y: Sequence[Annotation]) -> Self:
        """Return a copy with the number of features of a variable."""
        check_lengths(X, Y)
        model: Self = type(self)(**self.get_params())
        model.n_features = validate_program(X[0], None, 0).features.shape[1]
        return model

    def encode(
        self, x: Program, annotation: Annotation, example: int | None = None
    ) -> AnnotatedProgram:
        """Return the program of x with this annotation; `example` is for errors."""
        x = validate_program(x, self.n_features, example)
        fixed = encode_values(annotation, x.A.shape[1], example)
        n_parts = int((fixed >= 0).sum())
        # |y - y*| is y where y* = 0, and 1 - y where y* = 1
        wrong = np.where(fixed < 0, 0.0, 1.0 - 2.0 * fixed)
        return AnnotatedProgram(
            features=x.features,
            A=x.A,
            row_lower=x.lower,
            row_upper=x.upper,
            fixed=fixed,
            wrong=wrong,
            wrong_constant=int((fixed == 1).sum()),
            n_parts=n_parts,
            divisor=float(max(n_parts, 1)) if self.normalize else 1.0,
        )

    def decode(self, x: Program, z: Binary) -> Binary:  # noqa: ARG002
        """(n_vars,) z itself."""
        return z

    def joint_features(self, x: Program, y: ArrayLike) -> Array:
        """(d,) φ(x, y) = featuresᵀ y."""
        features = validate_program(x, self.n_features).features
        return np.asarray(features.T @ np.asarray(y, dtype=float))

    def mistakes(self, annotation: Annotation, y: ArrayLike) -> int:
        """The number of annotated variables with another value in y."""
        y = np.asarray(y)
        fixed = encode_values(annotation, len(y))
        return int(((fixed >= 0) & (fixed != y)).sum())

    def outputs(self, x: Program) -> Iterator[Binary]:
        """Every output of a small program, in the order of the binary numbers."""
        x = validate_program(x)
        n = x.A.shape[1]
        if n > MAX_LISTED:
            raise InputError(
                f"x has {n} variables; outputs are listed for {MAX_LISTED} at most"
            )
        bits = np.arange(n)[::-1]
        for first in range(0, 2**n, LISTED_AT_A_TIME):
            numbers = np.arange(first, min(first + LISTED_AT_A_TIME, 2**n))
            ys = (numbers[:, None] >> bits) & 1
            sums = ys @ x.A.T
            holds = (sums >= x.lower - 1e-9) & (sums <= x.upper + 1e-9)
            yield from ys[holds.all(axis=1)].astype(np.int8)

    def candidates(self, x: Program, annotation: Annotation) -> Mask:
        """(n_vars, 2) whether the annotation allows 0 and 1."""
        fixed = encode_values(annotation, validate_program(x).A.shape[1])
        return np.column_stack([fixed != 1, fixed != 0])

    def choices(self, x: Program) -> tuple[Indices, Binary]:
        """(n_vars, 2) each variable at 0 and at 1."""
        n = validate_program(x).A.shape[1]
        variables = np.repeat(np.arange(n), 2).reshape(n, 2)
        return variables, np.tile(np.array([0, 1], dtype=np.int8), (n, 1))

    def n_parts(self, annotation: Annotation) -> int:
        """The number of annotated variables."""
        if annotation is None:
            return 0
        if isinstance(annotation, Mapping):
            return len(annotation)
        return int((check_floats(annotation, "Y") >= 0).sum())

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation without the marked ones of its annotated variables."""
        if len(parts) != self.n_parts(annotation):
            raise InputError(
                f"the mask has {len(parts)} entries for {self.n_parts(annotation)} "
                "annotated variables"
            )
        if annotation is None:
            return None
        if isinstance(annotation, Mapping):
            items = zip(annotation.items(), parts, strict=True)
            return {variable: y for (variable, y), hidden in items if not hidden}
        values = np.array(annotation)
        annotated = np.flatnonzero(values >= 0)
        values[annotated[np.asarray(parts, dtype=bool)]] = -1
        return values


def validate_program(
    x: object, n_features: int | None = None, example: int | None = None
) -> Program:
    """Return x with float arrays of the right shapes.

    Parameters
    ----------
    x : Program
    n_features : int, optional
        Expected number of features.
    example : int, optional
        Number of the example, for error messages.
    """
    name = name_place(example, unnamed="x")
    if not isinstance(x, Program):
        raise InputError(
            f"{name} is a {type(x).__name__}; expected a "
            "clew.models.binary_program.Program"
        )
    A = _validate_rows(x.A, name)
    m, n = A.shape
    features = _validate_features(x.features, name)
    if features.ndim != 2 or features.shape[0] != n:
        raise InputError(
            f"{name}: features has shape {features.shape}; A has {n} variables, one "
            "row for each"
        )
    if n_features is not None and features.shape[1] != n_features:
        raise InputError(
            f"{name}: a variable has {features.shape[1]} features; expected "
            f"{n_features}"
        )
    bounds = {}
    for bound in ("lower", "upper"):
        values = check_floats(getattr(x, bound), f"{name}: {bound}")
        if values.shape != (m,):
            raise InputError(
                f"{name}: {bound} has shape {values.shape}; A has {m} rows, so "
                f"expected ({m},)"
            )
        if np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise InputError(f"{name}: {bound} has NaN at row {row}")
        bounds[bound] = values
    return Program(features, A, **bounds)


def _validate_rows(A: Matrix, name: str) -> Matrix:
    """Return A as a CSR matrix without duplicates; the caller's stays unchanged."""
    rows = A if sp.issparse(A) else np.atleast_2d(check_floats(A, f"{name}: A"))
    if rows.ndim != 2:
        raise InputError(
            f"{name}: A has shape {rows.shape}; expected (rows, variables)"
        )
    csr = sp.csr_array(rows, dtype=float)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if not np.isfinite(csr.data).all():
        raise InputError(
            f"{name}: row {_find_infinite_row(csr)} of A has NaN or infinity; "
            "coefficients must be finite"
        )
    return csr


def _validate_features(features: Matrix, name: str) -> Matrix:
    """Return finite features, dense or CSR."""
    if not sp.issparse(features):
        # a copy without -0, which would have another fingerprint
        dense = check_floats(features, f"{name}: features") + 0.0
        check_finite(dense, f"{name}: features")
        return dense
    csr = sp.csr_array(features, dtype=float)
    if not np.isfinite(csr.data).all():
        raise InputError(
            f"{name}: features of variable {_find_infinite_row(csr)} has NaN or "
            "infinity; it must be finite"
        )
    return csr


def _find_infinite_row(matrix: Matrix) -> int:
    """Return the row of a CSR matrix' first entry that is not finite."""
    entry = int(np.flatnonzero(~np.isfinite(matrix.data))[0])
    return int(np.searchsorted(matrix.indptr, entry, side="right") - 1)


def encode_values(
    annotation: Annotation, n_vars: int, example: int | None = None
) -> Binary:
    """(n_vars,) the annotation as -1, 0 and 1."""
    name = name_place(example)
    if annotation is None:
        return np.full(n_vars, -1, dtype=np.int8)
    if isinstance(annotation, Mapping):
        return _encode_mapping(annotation, n_vars, name)
    values = check_floats(annotation, name)
    if values.shape != (n_vars,):
        raise InputError(
            f"{name}: the annotation has shape {values.shape}; expected ({n_vars},), "
            "one value a variable"
        )
    bad = np.flatnonzero(~np.isin(values, (-1, 0, 1)))
    if len(bad):
        raise InputError(
            f"{name}: variable {bad[0]} is annotated {values[bad[0]]}; expected −1 "
            "(unknown), 0 or 1"
        )
    return values.astype(np.int8)


def _encode_mapping(annotation: Mapping[Any, Any], n_vars: int, name: str) -> Binary:
    """(n_vars,) a mapping {variable: 0 or 1} as -1, 0 and 1."""
    fixed = np.full(n_vars, -1, dtype=np.int8)
    for variable, value in annotation.items():
        is_index = isinstance(variable, int | np.integer)
        if not is_index or not 0 <= variable < n_vars:
            raise InputError(
                f"{name}: variable {short_repr(variable)} is annotated; there are "
                f"variables 0 to {n_vars - 1}"
            )
        is_binary = is_number(value) and value in (0, 1)
        if not is_binary and not isinstance(value, bool | np.bool_):
            raise InputError(
                f"{name}: variable {variable} is annotated {short_repr(value)}; "
                "expected 0 or 1"
            )
        fixed[variable] = value
    return fixed
