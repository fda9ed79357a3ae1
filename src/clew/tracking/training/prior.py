"""Prior weights: the score of earlier weights as one more feature of every event.

Learning with features φ and ⟨w₀, φ⟩ gives weights w = v + u w₀. A short v and any u are
cheap, so that a few annotations choose between scaling the earlier weights and moving
away from them; many annotations determine v.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.measured_groups import GENERIC_SETS
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import GENERIC

TRUST = 10.0
"""How many times cheaper a step along the prior is than one in another direction."""


def generic_weights(names: Sequence[str], generic_set: str | None = None) -> Array:
    """Return the weights that come with clew for features by name, (d,).

    They are those of a set, or of the largest one that has no other features; 0 for
    features that the set lacks.
    """
    if generic_set is None:
        available = set(names)
        generic_set = max(
            (name for name in GENERIC_SETS if available >= GENERIC[name].keys()),
            key=lambda name: len(GENERIC[name]),
            default="points",
        )
    weights = GENERIC[generic_set]
    return np.array([weights.get(name, 0.0) for name in names])


def weights_by_name(
    tracker: Any, names: Sequence[str], generic_set: str | None = None
) -> Array:
    """Return the weights of a fitted tracker for features by name, (d,).

    0 for features that it does not have. A tracker with generic weights takes those of
    `generic_set`, or of the largest set for these features.
    """
    known = dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True))
    if known in GENERIC.values():
        return generic_weights(names, generic_set)
    return np.array([known.get(name, 0.0) for name in names])


def scale_prior(
    prior: Any,
    names: Sequence[str],
    trust: float = TRUST,
    generic_set: str | None = None,
) -> Array | None:
    """Return prior weights of norm `trust` for features by name, (d,).

    Parameters
    ----------
    prior : Tracker, "generic" or None
    names : sequence of str
    trust : float
    generic_set : str, optional
        See `generic_weights`.

    Returns
    -------
    ndarray of shape (d,) or None
    """
    if prior is None:
        return None
    if isinstance(prior, str):
        if prior != "generic":
            raise InputError(
                f"prior is {prior!r}; expected 'generic', a fitted Tracker or None"
            )
        weights = generic_weights(names, generic_set)
    elif hasattr(prior, "coef_"):
        weights = weights_by_name(prior, names, generic_set)
    else:
        raise InputError(
            "prior is a Tracker that was not fitted; fit it first, or give 'generic' "
            "or None"
        )
    norm = float(np.linalg.norm(weights))
    return None if norm == 0 else weights * (trust / norm)


def prior_calibration(prior: Any) -> Calibration:
    """Return the calibration of the prior's predictions."""
    return GENERIC_CALIBRATION if isinstance(prior, str) else prior.calibration_


def add_prior_feature(features: Any, prior: Array | None) -> Any:
    """Append the prior's score to the features, (n, d + 1); without a prior, (n, d)."""
    if prior is None:
        return features
    score = sp.csr_array((features @ prior)[:, None])
    return sp.hstack([features, score], format="csr")


def initial_weights(prior: Array | None) -> Any:
    """Return the weights of the prior alone, (d + 1,); "auto" without a prior."""
    if prior is None:
        return "auto"
    return np.append(np.zeros(len(prior)), 1.0)


def combine_with_prior(w: Array, prior: Array | None) -> Array:
    """Return weights (d,) with the scores of `w` (d + 1,) on the prior's feature too."""
    if prior is None:
        return w
    return np.asarray(w[:-1] + w[-1] * prior)
