"""Names for what an example is made of, where the model that reads it is not known."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

# A method's parameter may be wider than that of the method it stands in for, never narrower. So a type that every
# model's own input can take the place of would have to be narrower than all of them, and there is none: only Any lets
# Chain ask for a matrix, BinaryProgram for a Program, and a model of a user's own for what it likes.

Input: TypeAlias = Any
"""One x: whatever the model takes, such as a matrix, a graph or a Program."""
Annotation: TypeAlias = Any
"""One y*: what is known of the output, which may be part of it, candidates, or None for nothing."""
Output: TypeAlias = Any
"""One y: a label, an array of labels or columns, or an object of a user's own."""
Examples: TypeAlias = Any
"""X or Y as callers give them: a sequence, an array, for rows a sparse matrix or a table of named columns.

scipy.sparse and tables come without types, and sparse matrices have no len; `n_examples` refuses what is none of these.
"""
Answers: TypeAlias = NDArray[Any]
"""(N,) an entry for each example: of numbers or labels where each is one, else of objects, so of no one dtype."""
