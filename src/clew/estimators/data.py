"""Convert and check the data that estimators take and return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from clew.errors import InputError
from clew.learning.task import Array, Indices, Task, as_task
from clew.models.base import ExampleTask, StructuredModel, check_kind
from clew.models.examples import Answers, Examples, Output
from clew.models.labels import Label
from clew.utils.validation import Seed, check_floats, short_repr


class TrainingData(NamedTuple):
    """A prepared model, and annotated examples to learn its weights from."""

    model: StructuredModel
    X: Examples
    Y: Examples
    """Parsed annotations."""
    weights: Array | None = None
    """Weights of the examples."""


def choose_annotations(Y: Examples, y: Examples) -> Examples:
    """Return the annotations, which scikit-learn passes as `y`."""
    if Y is not None and y is not None:
        raise InputError("annotations are given as Y and as y; expected one of both")
    return y if Y is None else Y


def list_columns(X: Examples) -> list[Any] | None:
    """Return the names of the columns of a table, or of the first in a list of them."""
    table = X[0] if isinstance(X, list) and len(X) else X
    return list(table.columns) if hasattr(table, "columns") else None


def convert_inputs(X: Examples) -> Examples:
    """Convert tables to arrays, and sparse matrices that cannot be sliced to CSR."""
    is_series = hasattr(X, "iloc") and not hasattr(X, "columns")
    if is_series:  # indexed by labels, not by places
        X = list(X.to_numpy())
    if isinstance(X, list):
        return [_convert_table(x) for x in X]
    if hasattr(X, "__array__") and not hasattr(X, "__len__"):
        return np.asarray(X)
    return _convert_table(X)


def _convert_table(x: Any) -> Any:
    """Return a table as an array, and a sparse matrix as one that can be sliced."""
    if hasattr(x, "columns") and hasattr(x, "to_numpy"):
        return x.to_numpy()
    if sp.issparse(x) and x.format in ("lil", "dok"):
        return x.tocsr()
    return x


def convert_annotations(Y: Examples) -> Examples:
    """Convert pandas objects to arrays in which missing values are None."""
    if isinstance(Y, list):
        return [_convert_series(y) for y in Y]
    return convert_inputs(_convert_series(Y))


def _convert_series(y: Any) -> Any:
    if hasattr(y, "isna") and hasattr(y, "to_numpy") and not hasattr(y, "columns"):
        return y.to_numpy(dtype=object, na_value=None)
    return y


def parse_annotations(model: StructuredModel, X: Examples, Y: Examples) -> Examples:
    """Parse annotations once, if the model offers a faster representation."""
    check_kind(model, X)
    return model.encode_annotations(X, Y) if hasattr(model, "encode_annotations") else Y


def count_parts(model: StructuredModel, Y: Examples) -> Indices:
    """Count the annotated parts of each example.

    A model that does not count parts has one for each annotation. None has no parts,
    and the model is not asked about it.

    Returns
    -------
    counts : ndarray of shape (n_examples,)
    """
    if hasattr(model, "count_parts"):
        return np.asarray(model.count_parts(Y), dtype=np.intp)
    is_given = np.array([annotation is not None for annotation in Y], dtype=bool)
    counts = is_given.astype(np.intp)
    if hasattr(model, "n_parts"):
        counts[is_given] = [int(model.n_parts(Y[n])) for n in np.flatnonzero(is_given)]
    return counts


def check_sample_weight(sample_weight: ArrayLike | None, n: int) -> Array | None:
    """Return `n` finite weights that are not negative; None if there are none."""
    if sample_weight is None:
        return None
    weights = check_floats(sample_weight, "sample_weight")
    if weights.shape != (n,):
        raise InputError(
            f"sample_weight has shape {weights.shape}; expected ({n},), a number for "
            "each example"
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise InputError(
            f"sample_weight is {weights[wrong[0]]} for example {wrong[0]}; expected a "
            "finite number, not a negative one"
        )
    return weights


def explain_missing_annotations(model: StructuredModel) -> str:
    """Return the message for annotations from which nothing can be learned."""
    classes: Sequence[Label] = getattr(model, "classes_", [])
    if len(classes) == 1:
        return (
            f"Y has one class only, {classes[0]!r}, so that no output can be wrong; "
            "expected at least two classes. Give the model classes=[…] if there are "
            "others that were not annotated"
        )
    return "nothing is annotated: every one of the examples is unknown in all its parts"


def convert_outputs(outputs: Sequence[Output] | Answers) -> Answers:
    """Convert outputs to an array of labels, or of objects if they have parts."""
    if isinstance(outputs, np.ndarray):
        return outputs
    types = {type(output) for output in outputs}
    if types in ({str}, {bool}, {int}, {float}, {int, float}):
        return np.array(outputs)
    array = np.empty(len(outputs), dtype=object)
    for n, output in enumerate(outputs):
        array[n] = output
    return array


def make_generator(random_state: Seed) -> np.random.Generator:
    """Make a generator from what scikit-learn takes as `random_state`."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except (TypeError, ValueError):
        raise InputError(
            f"random_state is {short_repr(random_state)}; expected None, a seed, a "
            "RandomState or a NumPy Generator"
        ) from None


def make_task(
    model: StructuredModel, X: Examples, Y: Examples, n_jobs: int = 1
) -> Task:
    """Make the model's own Task, or one that asks for one example at a time."""
    if not hasattr(model, "task"):
        return ExampleTask(model, X, Y, n_jobs)
    return as_task(model.task(X, Y, n_jobs=n_jobs))
