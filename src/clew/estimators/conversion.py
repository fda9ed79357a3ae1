"""Data of a caller on their way into a learner, and outputs on their way back, whatever the model is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from clew.errors import InputError
from clew.learning.task import Array, Indices, Task
from clew.models.base import ExampleTask, StructuredModel, check_kind
from clew.models.examples import Answers, Examples, Output
from clew.models.labels import Label
from clew.utils.validation import Seed, check_floats, short_repr


def as_examples(X: Examples) -> Examples:
    """A table of named columns, or what else is an array at heart, as an array; all else as it is."""
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        return X.to_numpy()
    return np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "__len__") else X


def parse(model: StructuredModel, X: Examples, Y: Examples) -> Examples:
    """The annotations as the model reads them fastest, where it offers that: parsed once, not at each use."""
    check_kind(model, X)
    return model.parsed(X, Y) if hasattr(model, "parsed") else Y


def count_parts(model: StructuredModel, Y: Examples) -> Indices:
    """(N,) how many parts of each example are annotated; a model that does not count them has one or none."""
    if hasattr(model, "count_parts"):
        return np.asarray(model.count_parts(Y), dtype=np.intp)
    count = getattr(model, "n_parts", lambda annotation: annotation is not None)
    return np.array([int(count(annotation)) for annotation in Y], dtype=np.intp)


def check_sample_weight(sample_weight: ArrayLike | None, n: int) -> Array | None:
    """(n,) finite weights that are not negative; None where none are given."""
    if sample_weight is None:
        return None
    weights = check_floats(sample_weight, "sample_weight")
    if weights.shape != (n,):
        raise InputError(
            f"sample_weight has shape {weights.shape}; expected ({n},), a number for each example"
        )
    if len(wrong := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))):
        raise InputError(
            f"sample_weight is {weights[wrong[0]]} for example {wrong[0]}; expected a finite number, not a negative one"
        )
    return weights


def why_nothing_is_annotated(model: StructuredModel) -> str:
    """The message for annotations from which nothing can be learned."""
    classes: Sequence[Label] = getattr(model, "classes_", [])
    if len(classes) == 1:
        return (
            f"Y has one class only, {classes[0]!r}, so that no output can be wrong; expected at least two classes. "
            "Give the model classes=[…] if there are others that were not annotated"
        )
    return "nothing is annotated: every one of the examples is unknown in all its parts"


def as_objects(outputs: Sequence[Output] | Answers) -> Answers:
    """(N,) outputs as an array: of labels where each is one, else of objects, so that they may differ in length."""
    if isinstance(outputs, np.ndarray):
        return outputs
    if {type(output) for output in outputs} in (
        {str},
        {bool},
        {int},
        {float},
        {int, float},
    ):
        return np.array(outputs)
    array = np.empty(len(outputs), dtype=object)
    for n, output in enumerate(outputs):
        array[n] = output
    return array


def make_generator(random_state: Seed) -> np.random.Generator:
    """NumPy's generator from what scikit-learn takes (None, a number, a RandomState), or a generator itself."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        return np.random.default_rng(check_random_state(random_state).randint(2**31))
    except (TypeError, ValueError):
        raise InputError(
            f"random_state is {short_repr(random_state)}; expected None, a seed, a RandomState or a NumPy Generator"
        ) from None


def make_task(
    model: StructuredModel, X: Examples, Y: Examples, n_jobs: int = 1
) -> Task:
    """The model's own Task if it makes one, else one that asks example by example."""
    if not hasattr(model, "task"):
        return ExampleTask(model, X, Y, n_jobs)
    task: Task = model.task(X, Y, n_jobs=n_jobs)
    return task
