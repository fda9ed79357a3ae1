"""Every switch of learning from annotations that grow; benchmarks/ablation.py measures what each one earns."""

from __future__ import annotations

from dataclasses import dataclass

from clew.errors import InputError
from clew.tracking.training.prior import TRUST
from clew.tracking.training.pseudo_labels import PROBABILITY
from clew.utils.validation import check_positive, is_number, short_repr


@dataclass(frozen=True)
class Adaptation:
    """How the weights of a tracker are adapted to one movie."""

    stiffness: float = 5.0
    """λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed event. The λ that
    cross-validation chooses on real movies is near this or above, whether 2 % or 25 % of the events are annotated."""
    trust: float = TRUST
    """How many times cheaper a step along the initial weights is than one in another direction, see prior.py."""
    window: int = 40
    """Cells of either frame, those nearest to an annotated event, that its training example is about."""
    pseudo_pairs: int = 8
    """Frame pairs, evenly spread over the movie, that are training examples by their pseudo-labels alone."""
    pseudo_window: int = 120
    """Cells of either frame that these are about."""
    pseudo_probability: float = PROBABILITY
    """Predictions of the initial weights that are right with this probability, or a higher one, are pseudo-labels."""
    kept_candidates: int = 3_000_000
    """Candidates whose features stay in memory, at about 100 bytes each; those of other frame pairs are made again."""

    def __post_init__(self) -> None:
        for name in (
            "stiffness",
            "trust",
            "window",
            "pseudo_window",
            "kept_candidates",
        ):
            check_positive(getattr(self, name), name)
        if not is_number(self.pseudo_pairs) or self.pseudo_pairs < 0:
            raise InputError(
                f"pseudo_pairs is {short_repr(self.pseudo_pairs)}; expected 0 or more"
            )
        if (
            not is_number(self.pseudo_probability)
            or not 0 <= self.pseudo_probability <= 1
        ):
            raise InputError(
                f"pseudo_probability is {short_repr(self.pseudo_probability)}; expected 0 to 1"
            )


DEFAULT = Adaptation()
