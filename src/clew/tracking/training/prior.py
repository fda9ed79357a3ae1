"""What was known before the first annotation: the score of earlier weights as one more feature of every event.

Learning with features φ and ⟨w₀, φ⟩ gives weights w = v + u w₀. A short v and some u ≠ 0 are cheap, so that a few
annotations choose between scaling the earlier weights and moving away from them; many annotations settle v.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import GENERIC

TRUST = 10.0
"""How many times cheaper a step along the earlier weights is than one in another direction."""


def generic_weights(names: Sequence[str]) -> Array:
    """(d,) the weights that come with clew, for the features of these names."""
    return np.array([GENERIC.get(name, 0.0) for name in names])


def weights_by_name(tracker: Any, names: Sequence[str]) -> Array:
    """(d,) the weights of a fitted tracker for the features of these names; 0 for those that it does not know."""
    known = dict(zip(tracker.feature_names_, tracker.coef_.tolist(), strict=True))
    return np.array([known.get(name, 0.0) for name in names])


def prior_direction(
    prior: Any, names: Sequence[str], trust: float = TRUST
) -> Array | None:
    """(d,) earlier weights for these features, of norm `trust`; None for none."""
    if prior is None:
        return None
    if isinstance(prior, str):
        if prior != "generic":
            raise InputError(
                f"prior is {prior!r}; expected 'generic', a fitted Tracker or None"
            )
        weights = generic_weights(names)
    else:
        if not hasattr(prior, "coef_"):
            raise InputError(
                "prior is a Tracker that was not fitted; fit it first, or give 'generic' or None"
            )
        weights = weights_by_name(prior, names)
    norm = float(np.linalg.norm(weights))
    return None if norm == 0 else weights * (trust / norm)


def prior_calibration(prior: Any) -> Calibration:
    """How likely what earlier weights predict is right."""
    return GENERIC_CALIBRATION if isinstance(prior, str) else prior.calibration_


def with_prior(features: Any, prior: Array | None) -> Any:
    """(n, d + 1) the features with the prior's score; the features themselves without a prior."""
    return (
        features
        if prior is None
        else sp.hstack(
            [features, sp.csr_array((features @ prior)[:, None])], format="csr"
        )
    )


def first_weights(prior: Array | None) -> Any:
    """(d + 1,) where learning starts: the prior alone, which says what the annotations leave open; "auto" for none."""
    return "auto" if prior is None else np.append(np.zeros(len(prior)), 1.0)


def joined(w: Array, prior: Array | None) -> Array:
    """(d,) the weights that score events as `w` does the features with the prior's score."""
    return w if prior is None else w[:-1] + w[-1] * prior
