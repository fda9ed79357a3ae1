"""Try a user's model: does its argmax agree with its features and its task loss?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from clew.errors import InexactArgmaxWarning
from clew.learning.task import Array, Space
from clew.models.base import ALL_SPACES, StructuredModel
from clew.models.examples import Annotation, Examples, Input, Output, check_lengths

TOLERANCE = 1e-6
"""Shortfall of an argmax that rounding explains, relative to the score."""


def check_model(
    model: StructuredModel,
    X: Examples,
    Y: Examples,
    *,
    n_weights: int = 5,
    max_outputs: int = 10_000,
    random_state: int = 0,
) -> list[str]:
    """Try a model's argmax with random weights, and warn of what is wrong.

    The argmax has to be the best output in its space, by `joint_features` and `loss`.
    It is compared with all outputs if the model has ``outputs(x)`` and they are few,
    and otherwise with all outputs that it returned itself for other weights.

    Parameters
    ----------
    model : StructuredModel
    X, Y : sequences
        A few small inputs and their annotations.
    n_weights : int
        Number of random weights.
    max_outputs : int
        Most outputs of an input that are listed.
    random_state : int
        Seed of the weights.

    Returns
    -------
    problems : list of str
        Each is also an `InexactArgmaxWarning`; empty if all is well.
    """
    check_lengths(X, Y)
    if hasattr(model, "prepare"):
        model = model.prepare(X, Y)
    rng = np.random.default_rng(random_state)
    weights = rng.normal(size=(n_weights, int(model.n_features)))
    problems: dict[str, None] = {}
    for n, (x, annotation) in enumerate(zip(X, Y, strict=True)):
        for problem in _find_problems(model, x, annotation, weights, max_outputs):
            problems.setdefault(f"example {n}: {problem}")
    for problem in problems:
        warnings.warn(problem, InexactArgmaxWarning, stacklevel=2)
    return list(problems)


def _find_problems(
    model: StructuredModel,
    x: Input,
    annotation: Annotation,
    weights: Array,
    max_outputs: int,
) -> Iterator[str]:
    """Yield what is wrong with the model on one example."""
    spaces = getattr(model, "spaces", ALL_SPACES)
    settings = list(product(sorted(spaces, key=lambda s: s.name), (0.0, 1.0)))
    answers: list[tuple[Array, Space, float, Output | None]] = []
    for w in weights:
        for space, loss_weight in settings:
            y = model.argmax(x, w, annotation, space, loss_weight)
            answers.append((w, space, loss_weight, y))
    outputs = [y for _, _, _, y in answers if y is not None]
    is_listed = False
    if hasattr(model, "outputs"):
        listed = list(islice(model.outputs(x), max_outputs + 1))
        is_listed = len(listed) <= max_outputs
        outputs = listed + outputs if is_listed else outputs
    if not outputs:
        yield "argmax returns no output in any space"
        return
    features = np.array([np.asarray(model.joint_features(x, y)) for y in outputs])
    if features.shape != (len(outputs), weights.shape[1]):
        yield (
            f"joint_features has shape {features.shape[1:]}; expected "
            f"({weights.shape[1]},), the model's n_features"
        )
        return
    losses = np.array([float(model.loss(annotation, y)) for y in outputs])
    if not np.isfinite(features).all() or not np.isfinite(losses).all():
        yield "a feature or a loss is not finite"
        return
    if (losses < 0).any():
        yield f"loss is {losses.min():g} for an output; expected 0 or more"
    is_exact = getattr(model, "loss_zero_iff_compatible", False)
    inside = {
        Space.ALL: np.ones(len(outputs), dtype=bool),
        Space.COMPATIBLE: losses == 0,
        Space.INCOMPATIBLE: losses > 0,
    }
    for w, space, loss_weight, y in answers:
        name = f"argmax in {space.value} with loss_weight {loss_weight:g}"
        if space is not Space.ALL and not is_exact:
            continue  # the loss does not say which outputs are inside
        scores = (features @ w + loss_weight * losses)[inside[space]]
        best = float(scores.max(initial=-np.inf))
        if y is None:
            if best > -np.inf:
                yield f"{name} returns None, but there is an output in this space"
            continue
        loss = float(model.loss(annotation, y))
        wanted = {Space.COMPATIBLE: loss == 0, Space.INCOMPATIBLE: loss > 0}
        if not wanted.get(space, True):
            yield f"{name} returns an output of loss {loss:g}, outside of this space"
            continue
        score = float(np.asarray(model.joint_features(x, y)) @ w) + loss_weight * loss
        if best - score > TOLERANCE * max(1.0, abs(best)):
            source = "in outputs(x)" if is_listed else "that it returned before"
            yield (
                f"{name} returns an output whose score is not the best: by "
                f"joint_features and loss there is a better one {source}"
            )
