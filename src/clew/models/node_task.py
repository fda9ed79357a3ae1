"""What the Tasks of labelled nodes share: the spaces, and the annotated part that a fit starts from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

from clew.learning.task import Mask
from clew.models.base import ALL_SPACES


class NodeTask:
    """Base of the Tasks whose outputs are labels of nodes, with a set of allowed labels for each node."""

    spaces = ALL_SPACES
    loss_zero_iff_compatible = True
    keys: Sequence[bytes] | None = None
    allowed: Mask
    """(nodes, S) the labels that the annotation allows at each node."""
    counted: Mask
    """(nodes,) the nodes that have features; so have edges between two of them."""

    @property
    def determined(self) -> bool:
        """Whether Y* is one output for each example."""
        return bool((self.allowed.sum(axis=1) == 1).all())

    def fingerprints(self) -> list[bytes]:
        """A fingerprint of each example: what its features and its annotation are, however they were given."""
        raise NotImplementedError

    def annotated_part(self) -> Self | None:
        """The same examples, where nodes with more than one allowed label have no features."""
        determined = self.allowed.sum(axis=1) == 1
        if not determined.any() or determined.all():
            return None
        part = copy.copy(self)
        part.counted = determined
        part.keys = part.fingerprints()
        return part
