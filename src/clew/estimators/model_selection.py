"""How annotations are split to choose λ: by whole examples where there are many, else by their annotated parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeGuard

import numpy as np

from clew.errors import InputError
from clew.learning.selection import Fold
from clew.learning.task import Array, Mask, Subset, Task
from clew.learning.weighted import weighted
from clew.models.base import StructuredModel, take
from clew.models.examples import Annotation, Examples
from clew.utils.validation import check_choice, check_int

EXAMPLES_FOR_EACH_FOLD = 10


class HidingModel(StructuredModel, Protocol):
    """A model that can leave out parts of an annotation."""

    def n_parts(self, annotation: Annotation, /) -> int:
        """How many parts of the output are annotated."""
        ...

    def hide(self, annotation: Annotation, parts: Mask, /) -> Annotation:
        """The annotation without the marked ones of its parts."""
        ...


def can_hide(model: StructuredModel) -> TypeGuard[HidingModel]:
    """Whether a model offers that."""
    return all(hasattr(model, name) for name in ("n_parts", "hide"))


Split = tuple[list[Annotation], list[Annotation]]
"""The annotations to learn from and those held out, both with None or less for what is hidden."""


def make_folds(
    model: StructuredModel,
    X: Examples,
    Y: Examples,
    trained: Callable[[Examples, Examples], Task],
    ordinary: Callable[[Examples, Examples], Task],
    splits: Sequence[Split],
    weights: Array | None = None,
) -> list[Fold]:
    """Each fold leaves out a share of what is annotated, as one of the `splits` says.

    By examples, the training examples keep their annotation, so that bounds carry over. By parts, an example stays in
    the training set with a share of its annotation hidden, and is tested on the hidden share alone. `trained` makes
    the task that is learned from, `ordinary` the one whose task loss is counted: the same unless the loss is CLPL.
    `weights` are those of the examples.
    """
    if not can_hide(model) or all(map(_of_examples, splits)):
        return _by_examples(
            weighted(trained(X, Y), weights), weighted(ordinary(X, Y), weights), splits
        )
    return [
        Fold(
            _annotated(model, X, train, trained, weights),
            _annotated(model, X, test, ordinary, weights),
        )
        for train, test in splits
    ]


def what_to_hold_out(
    model: StructuredModel, n_examples: int, n_folds: int, hold_out: str
) -> str:
    """Either "examples" or "parts"."""
    check_int(n_folds, "folds", 2)
    check_choice(hold_out, "hold_out", ("auto", "examples", "parts"))
    if hold_out == "auto":
        enough = n_examples >= EXAMPLES_FOR_EACH_FOLD * n_folds
        return "examples" if enough or not can_hide(model) else "parts"
    if hold_out == "parts" and not can_hide(model):
        raise InputError(
            f"hold_out='parts' needs a model with n_parts and hide; {type(model).__name__} has not both"
        )
    return hold_out


def split_annotations(
    model: StructuredModel,
    Y: Examples,
    n_folds: int,
    hold_out: str,
    rng: np.random.Generator,
) -> list[Split]:
    """A split for each fold, which never needs more annotation; each part is held out once."""
    n_folds = check_int(n_folds, "folds", 2)
    annotated = [annotation is not None for annotation in Y]
    if hasattr(model, "n_parts"):
        annotated = [model.n_parts(annotation) > 0 for annotation in Y]
    if what_to_hold_out(
        model, sum(annotated), n_folds, hold_out
    ) == "parts" and can_hide(model):
        return _split_parts(model, Y, n_folds, rng)
    fold_of = np.full(len(Y), -1)
    fold_of[annotated] = rng.permutation(sum(annotated)) % n_folds
    return [
        (
            [
                None if fold == k else annotation
                for annotation, fold in zip(Y, fold_of, strict=True)
            ],
            [
                annotation if fold == k else None
                for annotation, fold in zip(Y, fold_of, strict=True)
            ],
        )
        for k in range(n_folds)
    ]


def _of_examples(split: Split) -> bool:
    """Whether each example is on one side alone; a model may hide all parts of some by None."""
    return all(
        (train is None) != (test is None) for train, test in zip(*split, strict=True)
    )


def _by_examples(task: Task, test: Task, splits: Sequence[Split]) -> list[Fold]:
    """Whole examples are left out."""
    if task.n_examples < len(splits):
        raise InputError(
            f"{task.n_examples} annotated examples cannot be split into {len(splits)} folds; annotate more, or to "
            "learn without folds, give lam a number"
        )
    left_out = [
        np.array([annotation is not None for annotation in held_out])
        for _, held_out in splits
    ]
    return [
        Fold(Subset(task, np.flatnonzero(~out)), Subset(test, np.flatnonzero(out)))
        for out in left_out
    ]


def _split_parts(
    model: HidingModel, Y: Examples, n_folds: int, rng: np.random.Generator
) -> list[Split]:
    """For each fold the annotations without a share of all annotated parts, and that share alone."""
    counts = [model.n_parts(annotation) for annotation in Y]
    total = sum(counts)
    if total < n_folds:
        raise InputError(
            f"{total} annotated parts cannot be split into {n_folds} folds; annotate more, or to learn without folds, "
            "give lam a number"
        )
    fold_of = np.split(rng.permutation(total) % n_folds, np.cumsum(counts)[:-1])
    return [
        (
            [
                model.hide(annotation, fold == k)
                for annotation, fold in zip(Y, fold_of, strict=True)
            ],
            [
                model.hide(annotation, fold != k)
                for annotation, fold in zip(Y, fold_of, strict=True)
            ],
        )
        for k in range(n_folds)
    ]


def _annotated(
    model: HidingModel,
    X: Examples,
    Y: Examples,
    make: Callable[[Examples, Examples], Task],
    weights: Array | None,
) -> Task:
    """The task of the examples that have any annotation left."""
    used = [i for i, annotation in enumerate(Y) if model.n_parts(annotation) > 0]
    return weighted(
        make(take(X, used), take(Y, used)), None if weights is None else weights[used]
    )
