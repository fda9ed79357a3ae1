"""A part of many annotations: a stratified draw, so that rare events are in it as often as in the whole."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.events import Annotations


def sample(
    annotations: Annotations,
    fraction: float | None = None,
    rng: np.random.Generator | int | None = None,
    *,
    number: int | None = None,
    frames: Iterable[int] | None = None,
) -> Annotations:
    """A stratified part of annotations: of each kind of event the same fraction, at least one, spread over the frames.

    Give the `fraction` of all, or the `number` of them. `frames` keeps the draw to events that lead on from these
    frames; a fraction is then one of these. What was annotated as not happened are kinds of their own. The part is in
    the order of the whole.
    """
    if (fraction is None) == (number is None):
        raise InputError("say how much to draw: either a fraction or a number")
    allowed = np.arange(len(annotations))
    if frames is not None:
        allowed = np.flatnonzero(
            np.isin(annotations.events.frame, np.fromiter(frames, dtype=np.int64))
        )
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(
            f"the fraction to draw is {fraction}; it must be over 0 and at most 1"
        )
    if number is not None and not 0 < number <= len(allowed):
        raise InputError(
            f"{number} annotations cannot be drawn from {len(allowed)}; the number must be from 1 to that"
        )
    if not len(allowed):
        return annotations[allowed]
    kind = (
        2 * annotations.events.event[allowed].astype(np.int64)
        + ~annotations.happened[allowed]
    )
    kinds, sizes = np.unique(kind, return_counts=True)
    quota = _quotas(
        sizes, fraction * len(allowed) if fraction is not None else float(number or 0)
    )
    generator = np.random.default_rng(rng)
    chosen = [
        allowed[kind == which][
            _spread(annotations.events.frame[allowed[kind == which]], n, generator)
        ]
        for which, n in zip(kinds.tolist(), quota.tolist(), strict=True)
    ]
    return annotations[np.sort(np.concatenate(chosen))]


def _quotas(sizes: NDArray[np.intp], wanted: float) -> NDArray[np.int64]:
    """(k,) how many to draw of each stratum: in proportion to its size, at least one, and `wanted` together.

    Where the sum is under the number of strata, each has one all the same.
    """
    exact = sizes * (wanted / sizes.sum())
    quota: NDArray[np.int64] = np.clip(np.floor(exact + 1e-9), 1, sizes).astype(
        np.int64
    )
    total = max(round(wanted), len(sizes))
    for _ in range(abs(total - int(quota.sum()))):
        if quota.sum() < total:
            quota[np.argmax(np.where(quota < sizes, exact - quota, -np.inf))] += 1
        else:
            quota[np.argmin(np.where(quota > 1, exact - quota, np.inf))] -= 1
    return quota


def _spread(frame: NDArray[np.int64], n: int, rng: np.random.Generator) -> Indices:
    """(n,) some of the events of one stratum, evenly spread over time; each has the same chance."""
    order = np.lexsort(
        (rng.random(len(frame)), frame)
    )  # within a frame in random order
    # a systematic draw: one from each of n stretches of the same length
    at = np.floor((np.arange(n) + rng.random()) * (len(frame) / n)).astype(np.intp)
    return np.asarray(order[np.minimum(at, len(frame) - 1)], dtype=np.intp)
