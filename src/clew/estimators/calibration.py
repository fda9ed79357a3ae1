"""From margins to probabilities: calibration on annotations that the weights were not learned from.

A structural SVM's scores rank outputs and are no log-probabilities. Let m_s ≤ 0 be what the best output loses when a
part is forced to the choice s (its max-marginals; 0 for the choice s⁰ of the best output). Platt scaling (Platt 1999),
for any number of choices and with the max-marginals in place of scores, is

    P(s) ∝ exp(a · m_s + b · [s = s⁰]),   a ≥ 0.

With two choices this is Platt's sigmoid of the margin. a and b maximise the likelihood of held-out annotations, where a
set of candidates has the sum of their probabilities, with Platt's smoothed targets. "isotonic" makes P(s⁰) any
non-decreasing function of the margin (Zadrozny & Elkan 2002) and shares out the rest as above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # its parts are imported when they are used, and scipy.optimize takes a second
from scipy.special import softmax

from clew.errors import InputError
from clew.learning.task import Array, Mask
from clew.models.base import best_alternative
from clew.utils.validation import check_choice

Method = Literal["platt", "isotonic"]


@dataclass(frozen=True)
class Calibration:
    """A map from max-marginals to probabilities."""

    slope: float
    """The a above, in units of 1 / score."""
    offset: float
    """The b above."""
    n_parts: int
    """Held-out parts that it was fitted to."""
    margins: tuple[float, ...] = ()
    """Margins at which `certainty` is known, in rising order; none for Platt scaling."""
    certainty: tuple[float, ...] = ()
    """P(s⁰) at these margins; in between it is interpolated."""

    def probabilities(self, max_marginals: Array) -> Array:
        """(parts, choices) P(s) for each part, from (parts, choices) max-marginals."""
        raw = _platt(max_marginals, self.slope, self.offset)
        if not self.margins or not len(raw):
            return raw
        margin, top = best_alternative(max_marginals), max_marginals.argmax(axis=1)
        rows = np.arange(len(top))
        first = np.interp(
            np.minimum(margin, self.margins[-1]), self.margins, self.certainty
        )
        first[np.isinf(margin)] = 1.0
        others = raw.copy()
        others[rows, top] = 0.0
        total = others.sum(axis=1)
        shared = others * ((1.0 - first) / np.where(total > 0, total, 1.0))[:, None]
        shared[rows, top] = np.where(total > 0, first, 1.0)
        return shared


def calibrate(
    max_marginals: Sequence[Array], candidates: Sequence[Mask], method: Method = "platt"
) -> Calibration:
    """Fit a map to held-out parts: for each example (parts, choices) max-marginals, and what its annotation allows."""
    check_choice(method, "method", ("platt", "isotonic"))
    marginals, allowed = _annotated_parts(max_marginals, candidates)
    n = len(marginals)
    if n == 0:
        raise InputError(
            "nothing is annotated in Y, so there is nothing to calibrate on"
        )
    unit = (
        float(np.median(-marginals[np.isfinite(marginals) & (marginals < 0)]))
        if (marginals < 0).any()
        else 1.0
    )
    unit = unit if np.isfinite(unit) and unit > 0 else 1.0
    # in units of a typical margin, so that the search does not depend on the scale of the scores
    best = scipy.optimize.minimize(
        _smoothed_loss,
        np.array([1.0, 0.0]),
        args=(marginals / unit, allowed),
        method="L-BFGS-B",
        bounds=[(0.0, 1e3), (-50.0, 50.0)],
    )
    slope, offset = float(best.x[0]) / unit, float(best.x[1])
    if method == "platt":
        return Calibration(slope, offset, n)
    margin = best_alternative(marginals)
    right = allowed[np.arange(n), marginals.argmax(axis=1)].astype(float)
    smoothed = np.clip(right, 1.0 / (n + 2.0), 1.0 - 1.0 / (n + 2.0))
    finite = np.isfinite(margin)
    if not finite.any():
        return Calibration(slope, offset, n)
    from sklearn.isotonic import (
        IsotonicRegression,
    )  # not before somebody asks for it: it loads slowly

    fitted = IsotonicRegression(out_of_bounds="clip").fit(
        margin[finite], smoothed[finite]
    )
    return Calibration(
        slope,
        offset,
        n,
        tuple(fitted.X_thresholds_.tolist()),
        tuple(fitted.y_thresholds_.tolist()),
    )


def _platt(max_marginals: Array, slope: float, offset: float) -> Array:
    """(parts, choices) softmax of a · m_s + b · [s = s⁰]."""
    if not max_marginals.size:
        return np.zeros_like(max_marginals)
    with np.errstate(invalid="ignore"):
        logits = np.where(
            np.isneginf(max_marginals), -np.inf, slope * max_marginals
        )  # 0 · −∞ is −∞ here
    logits[np.arange(len(logits)), max_marginals.argmax(axis=1)] += offset
    return np.asarray(softmax(logits, axis=1))


def _smoothed_loss(parameters: Array, marginals: Array, allowed: Mask) -> float:
    """Minus the mean log-likelihood, with a target of 1 − 1/(n + 2) in place of 1 (Platt 1999)."""
    inside = np.where(allowed, _platt(marginals, *parameters), 0.0).sum(axis=1)
    inside = np.clip(inside, 1e-300, 1.0)
    miss = 1.0 / (len(marginals) + 2.0)
    return float(
        -(
            (1.0 - miss) * np.log(inside)
            + miss * np.log(np.maximum(1.0 - inside, 1e-300))
        ).mean()
    )


def _annotated_parts(
    max_marginals: Sequence[Array], candidates: Sequence[Mask]
) -> tuple[Array, Mask]:
    """All annotated parts of all examples as rows; where examples differ in choices, the others are impossible."""
    widest = max((m.shape[1] for m in max_marginals), default=0)
    marginals, allowed = [np.zeros((0, widest))], [np.zeros((0, widest), dtype=bool)]
    for m, c in zip(max_marginals, candidates, strict=True):
        pad = (0, 0), (0, widest - m.shape[1])
        known = ~c.all(axis=1)
        marginals.append(np.pad(m, pad, constant_values=-np.inf)[known])
        allowed.append(np.pad(c, pad)[known])
    return np.concatenate(marginals), np.concatenate(allowed)
