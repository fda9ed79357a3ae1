"""Prior weights: the score of earlier weights as one more feature of every event.

Learning with features φ and ⟨w₀, φ⟩ gives weights w = v + u w₀. A short v and any u are
cheap, so that a few annotations choose between scaling the earlier weights and moving
away from them; many annotations determine v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.events import Event
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import generic_weights, weights_by_name

OTHERWISE = {
    Event.DIVIDE: (Event.MOVE, Event.APPEAR),
    Event.SPLIT: (Event.MOVE, Event.APPEAR),
    Event.MERGE: (Event.MOVE, Event.DISAPPEAR),
}
"""Events of the same cells that happen if an event does not."""
TRUST = 10.0
"""How many times cheaper a step along the prior is than one in another direction."""


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


def make_basis(
    prior: Array | None,
    names: Sequence[str],
    annotated: Mapping[Event, Array] | None = None,
) -> Any:
    """Make the matrix that turns learned weights into weights of features.

    Learned weights are v and u, weights of features v + u w₀, where w₀ is the prior.
    Kinds of events that are not annotated are only known not to have happened. Weights
    learned from that alone would forget them: v is zero for their features, and their
    score changes as much as the typical score of the annotated events in their place.
    Thus their odds against these stay those of the prior.

    Parameters
    ----------
    prior : ndarray of shape (d,), optional
    names : sequence of str
        Of the features.
    annotated : mapping of Event to ndarray of shape (d,), optional
        Mean features of the annotated events of each kind; all kinds are learned
        without it.

    Returns
    -------
    csr_array of shape (d, d + 1)
        The identity of shape (d, d) without a prior.
    """
    if prior is None:
        return sp.eye_array(len(names), format="csr")
    basis = np.eye(len(names))
    kinds = [name.partition(": ")[0] for name in names]
    for event, others in OTHERWISE.items():
        if annotated is None or event in annotated or str(event) not in kinds:
            continue
        basis[np.array(kinds) == str(event)] = 0.0
        known = [annotated[other] for other in others if other in annotated]
        basis[names.index(f"{event}: bias")] = np.sum(known, axis=0)
    return sp.csr_array(np.column_stack([basis, prior]))


def initial_weights(prior: Array | None) -> Any:
    """Return the weights of the prior alone, (d + 1,); "auto" without a prior."""
    if prior is None:
        return "auto"
    return np.append(np.zeros(len(prior)), 1.0)
