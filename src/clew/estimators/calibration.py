"""Calibrate margins to probabilities, on annotations that were not learned from.

The scores of a structural SVM rank outputs and are no log-probabilities. Let m_s ≤ 0
be what the best output loses if a part is forced to the choice s (its max-marginals;
0 for the choice s⁰ of the best output). Platt scaling (Platt 1999) for any number of
choices, with the max-marginals in place of scores, is

    P(s) ∝ exp(a · m_s + b · [s = s⁰]),   a ≥ 0.

With two choices this is Platt's sigmoid of the margin. a and b maximize the likelihood
of held-out annotations, with Platt's smoothed targets; a set of candidates has the sum
of their probabilities. "isotonic" makes P(s⁰) any non-decreasing function of the
margin (Zadrozny & Elkan 2002) and distributes the rest as above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # imports scipy.optimize on first use, which takes a second
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
    """a, in units of 1 / score."""
    offset: float
    """b."""
    n_parts: int
    """Number of held-out parts that it was fitted to."""
    margins: tuple[float, ...] = ()
    """Ascending margins at which `certainty` is known; empty for Platt scaling."""
    certainty: tuple[float, ...] = ()
    """P(s⁰) at these margins; linear in between."""

    def probabilities(self, max_marginals: Array) -> Array:
        """Return P(s) of each part.

        Parameters
        ----------
        max_marginals : ndarray of shape (n_parts, n_choices)

        Returns
        -------
        probabilities : ndarray of shape (n_parts, n_choices)
        """
        platt = _scale_platt(max_marginals, self.slope, self.offset)
        if not self.margins or not len(platt):
            return platt
        margin = best_alternative(max_marginals)
        best = max_marginals.argmax(axis=1)
        rows = np.arange(len(best))
        certainty = np.interp(
            np.minimum(margin, self.margins[-1]), self.margins, self.certainty
        )
        certainty[np.isinf(margin)] = 1.0
        others = platt.copy()
        others[rows, best] = 0.0
        total = others.sum(axis=1)
        share = (1.0 - certainty) / np.where(total > 0, total, 1.0)
        probabilities = others * share[:, None]
        probabilities[rows, best] = np.where(total > 0, certainty, 1.0)
        return probabilities


def fit_calibration(
    max_marginals: Sequence[Array], candidates: Sequence[Mask], method: Method = "platt"
) -> Calibration:
    """Fit a calibration to held-out annotations.

    Parameters
    ----------
    max_marginals : sequence of ndarray of shape (n_parts, n_choices)
        One for each example.
    candidates : sequence of boolean ndarray of shape (n_parts, n_choices)
        The choices that each annotation allows.
    method : {"platt", "isotonic"}
    """
    check_choice(method, "method", ("platt", "isotonic"))
    marginals, allowed = _stack_annotated_parts(max_marginals, candidates)
    n_parts = len(marginals)
    if n_parts == 0:
        raise InputError(
            "nothing is annotated in Y, so there is nothing to calibrate on"
        )
    # in units of a typical margin, so that the search does not depend on the scale
    unit = _typical_margin(marginals)
    optimum = scipy.optimize.minimize(
        _smoothed_loss,
        np.array([1.0, 0.0]),
        args=(marginals / unit, allowed),
        method="L-BFGS-B",
        bounds=[(0.0, 1e3), (-50.0, 50.0)],
    )
    slope = float(optimum.x[0]) / unit
    offset = float(optimum.x[1])
    margin = best_alternative(marginals)
    is_finite = np.isfinite(margin)
    if method == "platt" or not is_finite.any():
        return Calibration(slope, offset, n_parts)

    # imported here, since it loads slowly
    from sklearn.isotonic import IsotonicRegression

    is_right = allowed[np.arange(n_parts), marginals.argmax(axis=1)].astype(float)
    smallest = 1.0 / (n_parts + 2.0)
    target = np.clip(is_right, smallest, 1.0 - smallest)
    regression = IsotonicRegression(out_of_bounds="clip")
    regression.fit(margin[is_finite], target[is_finite])
    return Calibration(
        slope,
        offset,
        n_parts,
        tuple(regression.X_thresholds_.tolist()),
        tuple(regression.y_thresholds_.tolist()),
    )


def _typical_margin(marginals: Array) -> float:
    """Return the median loss of score over all choices but the best; 1 if none."""
    losses = -marginals[np.isfinite(marginals) & (marginals < 0)]
    median = float(np.median(losses)) if len(losses) else 1.0
    return median if np.isfinite(median) and median > 0 else 1.0


def _scale_platt(max_marginals: Array, slope: float, offset: float) -> Array:
    """Return the softmax of a · m_s + b · [s = s⁰] for each part."""
    if not max_marginals.size:
        return np.zeros_like(max_marginals)
    with np.errstate(invalid="ignore"):  # 0 · −∞ shall be −∞
        logits = np.where(np.isneginf(max_marginals), -np.inf, slope * max_marginals)
    logits[np.arange(len(logits)), max_marginals.argmax(axis=1)] += offset
    return np.asarray(softmax(logits, axis=1))


def _smoothed_loss(parameters: Array, marginals: Array, allowed: Mask) -> float:
    """Return minus the mean log-likelihood with targets 1 − 1/(n + 2) (Platt 1999)."""
    probabilities = _scale_platt(marginals, *parameters)
    inside = np.where(allowed, probabilities, 0.0).sum(axis=1)
    inside = np.clip(inside, 1e-300, 1.0)
    outside = np.maximum(1.0 - inside, 1e-300)
    miss = 1.0 / (len(marginals) + 2.0)
    likelihood = (1.0 - miss) * np.log(inside) + miss * np.log(outside)
    return float(-likelihood.mean())


def _stack_annotated_parts(
    max_marginals: Sequence[Array], candidates: Sequence[Mask]
) -> tuple[Array, Mask]:
    """Stack the annotated parts of all examples; missing choices are impossible."""
    n_choices = max((m.shape[1] for m in max_marginals), default=0)
    marginals = [np.zeros((0, n_choices))]
    allowed = [np.zeros((0, n_choices), dtype=bool)]
    for values, mask in zip(max_marginals, candidates, strict=True):
        padding = ((0, 0), (0, n_choices - values.shape[1]))
        is_annotated = ~mask.all(axis=1)
        padded = np.pad(values, padding, constant_values=-np.inf)
        marginals.append(padded[is_annotated])
        allowed.append(np.pad(mask, padding)[is_annotated])
    return np.concatenate(marginals), np.concatenate(allowed)
