"""Split annotations into folds to choose λ by.

Folds hold out whole examples where there are many of them, and annotated parts of
each example where there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeGuard

import numpy as np

from clew.errors import InputError
from clew.estimators.data import TrainingData, count_parts
from clew.learning.selection import Fold
from clew.learning.task import Indices, Mask, Subset, Task, weight_examples
from clew.models.base import StructuredModel
from clew.models.examples import Annotation, Examples, take
from clew.utils.validation import check_choice, check_int

MIN_EXAMPLES_PER_FOLD = 10
"""With fewer examples, parts of the annotations are held out."""

Split = tuple[list[Annotation], list[Annotation]]
"""Annotations to learn from, and those held out; None or less for what is hidden."""
TaskFactory = Callable[[Examples, Examples], Task]
"""Makes a task from inputs and annotations."""


class HidingModel(StructuredModel, Protocol):
    """A model that can hide parts of an annotation."""

    def n_parts(self, annotation: Annotation, /) -> int:
        """Return the number of annotated parts."""
        ...

    def hide(self, annotation: Annotation, parts: Mask, /) -> Annotation:
        """Return the annotation without the marked parts."""
        ...


def can_hide(model: StructuredModel) -> TypeGuard[HidingModel]:
    """Return whether a model can hide parts of an annotation."""
    return hasattr(model, "n_parts") and hasattr(model, "hide")


def split_annotations(
    model: StructuredModel,
    Y: Examples,
    n_folds: int,
    hold_out: str,
    rng: np.random.Generator,
) -> list[Split]:
    """Split annotations so that each example or part is held out once.

    Parameters
    ----------
    model : StructuredModel
    Y : sequence of annotations
    n_folds : int
    hold_out : {"auto", "examples", "parts"}
        See `StructuredSVM`.
    rng : numpy.random.Generator

    Returns
    -------
    splits : list of Split
        One for each fold.
    """
    n_folds = check_int(n_folds, "folds", 2)
    is_annotated = count_parts(model, Y) > 0
    n_annotated = int(is_annotated.sum())
    holds_out = _resolve_hold_out(model, n_annotated, n_folds, hold_out)
    if holds_out == "parts" and can_hide(model):
        return _split_parts(model, Y, n_folds, rng)
    fold_of = np.full(len(Y), -1)
    fold_of[is_annotated] = rng.permutation(n_annotated) % n_folds
    splits = []
    for k in range(n_folds):
        pairs = list(zip(Y, fold_of, strict=True))
        train = [None if fold == k else annotation for annotation, fold in pairs]
        test = [annotation if fold == k else None for annotation, fold in pairs]
        splits.append((train, test))
    return splits


def _resolve_hold_out(
    model: StructuredModel, n_examples: int, n_folds: int, hold_out: str
) -> str:
    """Return whether "examples" or "parts" are held out."""
    check_choice(hold_out, "hold_out", ("auto", "examples", "parts"))
    if hold_out == "auto":
        is_enough = n_examples >= MIN_EXAMPLES_PER_FOLD * n_folds
        return "examples" if is_enough or not can_hide(model) else "parts"
    if hold_out == "parts" and not can_hide(model):
        raise InputError(
            "hold_out='parts' needs a model with n_parts and hide; "
            f"{type(model).__name__} has not both"
        )
    return hold_out


def _split_parts(
    model: HidingModel, Y: Examples, n_folds: int, rng: np.random.Generator
) -> list[Split]:
    """Hide a share of the annotated parts in each fold, and test on that share."""
    counts = count_parts(model, Y)
    n_parts = int(counts.sum())
    if n_parts < n_folds:
        raise InputError(
            f"{n_parts} annotated parts cannot be split into {n_folds} folds; annotate "
            "more, or to learn without folds, give lam a number"
        )
    fold_of = np.split(rng.permutation(n_parts) % n_folds, np.cumsum(counts)[:-1])
    splits = []
    for k in range(n_folds):
        train = []
        test = []
        for annotation, fold in zip(Y, fold_of, strict=True):
            is_open = annotation is None
            train.append(None if is_open else model.hide(annotation, fold == k))
            test.append(None if is_open else model.hide(annotation, fold != k))
        splits.append((train, test))
    return splits


def make_folds(
    data: TrainingData,
    make_training_task: TaskFactory,
    make_test_task: TaskFactory,
    splits: Sequence[Split],
) -> list[Fold]:
    """Make the tasks of each split.

    If whole examples are held out, the others keep their annotation, so that bounds
    carry over. Else an example stays in the training set without the held-out parts,
    and is tested on these alone.

    Parameters
    ----------
    data : TrainingData
    make_training_task, make_test_task : callable
        Make the task to learn from, and the one whose task loss is counted. They
        differ for CLPL.
    splits : sequence of Split
    """
    model, X, Y, weights = data
    if not can_hide(model) or all(map(_holds_out_examples, splits)):
        training_task = weight_examples(make_training_task(X, Y), weights)
        test_task = weight_examples(make_test_task(X, Y), weights)
        return _make_example_folds(training_task, test_task, splits)

    def make_task(factory: TaskFactory, partial: list[Annotation]) -> Task:
        used = np.flatnonzero(count_parts(model, partial))
        task = factory(take(X, used), take(partial, used))
        return weight_examples(task, None if weights is None else weights[used])

    return [
        Fold(make_task(make_training_task, train), make_task(make_test_task, test))
        for train, test in splits
    ]


def _holds_out_examples(split: Split) -> bool:
    """Return whether each example is on one side alone."""
    return all(
        (train is None) != (test is None) for train, test in zip(*split, strict=True)
    )


def _make_example_folds(
    training_task: Task, test_task: Task, splits: Sequence[Split]
) -> list[Fold]:
    """Make folds that hold out whole examples."""
    n_examples = training_task.n_examples
    if n_examples < len(splits):
        raise InputError(
            f"{n_examples} annotated examples cannot be split into {len(splits)} "
            "folds; annotate more, or to learn without folds, give lam a number"
        )
    folds = []
    for _, test in splits:
        is_held_out = np.array([annotation is not None for annotation in test])
        train: Indices = np.flatnonzero(~is_held_out)
        held_out: Indices = np.flatnonzero(is_held_out)
        folds.append(Fold(Subset(training_task, train), Subset(test_task, held_out)))
    return folds
