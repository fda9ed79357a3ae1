"""Stratified samples of annotations: rare events are as frequent as in the whole."""

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
    """Return a stratified part of annotations, in the order of the whole.

    The same fraction of each kind of event is drawn, at least one, spread over the
    frames. Events that did not happen count as separate kinds.

    Parameters
    ----------
    annotations : Annotations
    fraction : float, optional
        Of the annotations; give this or `number`.
    rng : Generator or int, optional
    number : int, optional
        Of annotations to draw.
    frames : iterable of int, optional
        Draw only events that start in these frames; `fraction` is of those.
    """
    if (fraction is None) == (number is None):
        raise InputError("expected either a fraction or a number of annotations")
    allowed = np.arange(len(annotations))
    if frames is not None:
        chosen_frames = np.fromiter(frames, dtype=np.int64)
        allowed = np.flatnonzero(np.isin(annotations.events.frame, chosen_frames))
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(f"fraction is {fraction}; expected over 0 and at most 1")
    if number is not None and not 0 < number <= len(allowed):
        raise InputError(f"number is {number}; expected 1 to {len(allowed)}")
    if not len(allowed):
        return annotations[allowed]

    event = annotations.events.event[allowed].astype(np.int64)
    stratum = 2 * event + ~annotations.happened[allowed]
    strata, sizes = np.unique(stratum, return_counts=True)
    total = float(number or 0) if fraction is None else fraction * len(allowed)
    quotas = _divide_into_quotas(sizes, total)
    generator = np.random.default_rng(rng)
    parts = []
    for which, quota in zip(strata.tolist(), quotas.tolist(), strict=True):
        rows = allowed[stratum == which]
        parts.append(
            rows[_draw_evenly(annotations.events.frame[rows], quota, generator)]
        )
    return annotations[np.sort(np.concatenate(parts))]


def _divide_into_quotas(sizes: NDArray[np.intp], total: float) -> NDArray[np.int64]:
    """Return (k,) how many to draw of each stratum, in proportion to its size.

    Each stratum has at least one, even if the sum is then more than `total`.
    """
    exact = sizes * (total / sizes.sum())
    quotas: NDArray[np.int64] = np.clip(np.floor(exact + 1e-9), 1, sizes).astype(
        np.int64
    )
    wanted = max(round(total), len(sizes))
    for _ in range(abs(wanted - int(quotas.sum()))):
        if quotas.sum() < wanted:
            lacking = np.where(quotas < sizes, exact - quotas, -np.inf)
            quotas[np.argmax(lacking)] += 1
        else:
            spare = np.where(quotas > 1, exact - quotas, np.inf)
            quotas[np.argmin(spare)] -= 1
    return quotas


def _draw_evenly(frame: NDArray[np.int64], n: int, rng: np.random.Generator) -> Indices:
    """Return (n,) rows of one stratum, evenly spread over time.

    A systematic sample: one row of each of n stretches of equal length; within a frame
    the order is random, so that every row has the same chance.
    """
    order = np.lexsort((rng.random(len(frame)), frame))
    stretch = len(frame) / n
    places = np.floor((np.arange(n) + rng.random()) * stretch).astype(np.intp)
    return np.asarray(order[np.minimum(places, len(frame) - 1)], dtype=np.intp)
