"""Types of X and Y, checks of their lengths, and fingerprints of examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from numbers import Number
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices

# A method may widen the type of a parameter that it overrides, never narrow it. Only
# Any lets Chain take a matrix, BinaryProgram a Program, and a user's model what it
# likes.

Input: TypeAlias = Any
"""One x: what the model takes, such as a matrix, a graph or a Program."""
Annotation: TypeAlias = Any
"""One y*: a whole output, part of it, candidates, or None for nothing."""
Output: TypeAlias = Any
"""One y: a label, an array of labels or columns, or an object of the user's model."""
Examples: TypeAlias = Any
"""X or Y: a sequence, an array, for rows a sparse matrix or a table.

`n_examples` raises an error for anything else.
"""
Answers: TypeAlias = NDArray[Any]
"""(N,) one output for each example; objects where an output is no number or label."""


def n_examples(values: Examples, name: str = "X") -> int:
    """Return the length of a sequence, an array or a sparse matrix.

    Parameters
    ----------
    values : sequence, array or sparse matrix
    name : str
        Name of the argument, for the error if it is none of these.
    """
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    is_indexed = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    is_unordered = isinstance(values, (str, bytes, type, Mapping, Set))
    if is_unordered or not is_indexed or shape is not None:
        kind = "None" if values is None else f"a {type(values).__name__}"
        hint = ""
        if name == "Y" and values is None:
            hint = ": learning requires y to be passed, but the target y is None"
        raise InputError(
            f"{name} is {kind}; expected a sequence or an array with an entry for "
            f"each example{hint}"
        )
    return len(values)


def check_lengths(X: Examples, Y: Examples) -> None:
    """Raise an error unless there are as many annotations as inputs, at least one."""
    if sp.issparse(Y):
        raise InputError(
            f"Y is a sparse matrix of shape {Y.shape}; expected a sequence or an "
            "array of annotations"
        )
    n_inputs = n_examples(X, "X")
    n_annotations = n_examples(Y, "Y")
    if n_inputs != n_annotations:
        raise InputError(
            f"X has {n_inputs} examples and Y has {n_annotations}; they must have "
            "the same length"
        )
    if n_inputs == 0:
        raise InputError("there are no examples: X is empty")


def take(values: Examples, indices: Sequence[int] | Indices) -> Examples:
    """Return some elements of a list, an array or a sparse matrix."""
    if hasattr(values, "shape"):
        return values[indices]
    return [values[int(i)] for i in indices]


def fingerprint(*values: object) -> bytes:
    """Return 16 bytes that differ if the content differs.

    Arrays count by value, so that copies and other memory orders agree. joblib's
    `hash` pickles its argument: that distinguishes int32 from int64 and takes five
    times as long for a sentence.
    """
    digest = blake2b(digest_size=16)
    try:
        for value in values:
            _add_to_digest(digest, value)
    except RecursionError:  # an object that contains itself
        return uuid4().bytes
    return digest.digest()


def fingerprint_arrays(common: bytes, *arrays: NDArray[np.generic]) -> bytes:
    """Return 16 bytes for contiguous arrays whose types are always the same."""
    digest = blake2b(common, digest_size=16)
    for array in arrays:
        digest.update(len(array).to_bytes(8, "little"))
        digest.update(array.data)
    return digest.digest()


def _add_to_digest(digest: blake2b, value: Any) -> None:
    """Add a value, after its kind and length, so that no two nestings collide."""
    if sp.issparse(value):
        csr = sp.csr_array(value)
        csr.sum_duplicates()
        indices = csr.indices.astype(np.int64)
        indptr = csr.indptr.astype(np.int64)
        _add_to_digest(digest, ("sparse", csr.shape, csr.data, indices, indptr))
    elif isinstance(value, np.ndarray) and value.dtype != object:
        # numbers of the same value have the same digest, whatever their type, and -0
        # is 0
        is_numeric = value.dtype.kind in "biuf"
        array = value.astype(np.float64) + 0.0 if is_numeric else value.astype(str)
        digest.update(f"a{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).data)
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.compare]
        _add_to_digest(digest, {name: getattr(value, name) for name in names})
    elif isinstance(value, Mapping):
        digest.update(f"m{len(value)}".encode())
        for key in sorted(value, key=repr):
            _add_to_digest(digest, (key, value[key]))
    elif isinstance(value, Set):
        _add_to_digest(digest, ["set", *sorted(value, key=repr)])
    elif isinstance(value, (str, bytes, complex, Number, Enum, np.generic)) or (
        value is None or callable(value)
    ):
        item = value.item() if isinstance(value, np.generic) else value
        digest.update(f"{type(item).__name__}{item!r};".encode())
    elif isinstance(value, (Sequence, np.ndarray)):
        digest.update(f"s{len(value)}".encode())
        for item in value:
            _add_to_digest(digest, item)
    else:
        _add_object_to_digest(digest, value)


def _add_object_to_digest(digest: blake2b, value: Any) -> None:
    """Add what a copy is made of, since different objects may print alike."""
    try:
        function, *parts = value.__reduce_ex__(2)
    except TypeError:
        digest.update(uuid4().bytes)  # equal to no other
        return
    content = [list(part) if isinstance(part, Iterator) else part for part in parts]
    _add_to_digest(digest, [function.__qualname__, *content])
