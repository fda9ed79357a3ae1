"""Settings of learning from annotations that grow."""

from __future__ import annotations

from dataclasses import dataclass

from clew.errors import InputError
from clew.tracking.training.prior import TRUST
from clew.tracking.training.pseudo_labels import PROBABILITY
from clew.utils.validation import check_positive, is_number, short_repr


@dataclass(frozen=True)
class LearnerSettings:
    """How the weights of a tracker are adapted to one movie."""

    stiffness: float = 5.0
    """λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one
    missed event. Cross-validation chooses a λ near this or above on real movies,
    whether 2 % or 25 % of the events are annotated."""
    trust: float = TRUST
    """How many times cheaper a step along the initial weights is than one in another
    direction, see prior.py."""
    window: int = 40
    """Cells of either frame in the training example around an annotated event."""
    pseudo_pairs: int = 8
    """Frame pairs, evenly spread over the movie, that are training examples by their
    pseudo-labels alone."""
    pseudo_window: int = 120
    """Cells of either frame in these examples."""
    pseudo_probability: float = PROBABILITY
    """Predictions of the initial weights with at least this probability are
    pseudo-labels."""
    kept_candidates: int = 3_000_000
    """Candidates whose features stay in memory, at about 100 bytes each."""
    min_steps: int = 10
    """Events of a frame pair, the least certain ones, whose step length is measured;
    at least a quarter of them."""

    def __post_init__(self) -> None:
        for name in (
            "stiffness",
            "trust",
            "window",
            "pseudo_window",
            "kept_candidates",
            "min_steps",
        ):
            check_positive(getattr(self, name), name)
        if not is_number(self.pseudo_pairs) or self.pseudo_pairs < 0:
            raise InputError(
                f"pseudo_pairs is {short_repr(self.pseudo_pairs)}; expected 0 or more"
            )
        probability = self.pseudo_probability
        if not is_number(probability) or not 0 <= probability <= 1:
            raise InputError(
                f"pseudo_probability is {short_repr(probability)}; expected 0 to 1"
            )


DEFAULT = LearnerSettings()
