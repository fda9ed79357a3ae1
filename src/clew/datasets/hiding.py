"""Make partial annotations from full ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clew.utils.validation import check_fraction, check_generator, check_list


def hide_labels(
    labels: Sequence[Sequence[str]], fraction: float, rng: np.random.Generator
) -> list[list[str | None]]:
    """Keep each label with a probability, and replace the others by None.

    Parameters
    ----------
    labels : sequence of sequences of str
        Labels of the tokens of sentences, or words as labels of their letters.
    fraction : float
        Probability that a label is kept.
    rng : numpy.random.Generator
    """
    fraction = check_fraction(fraction, "fraction")
    rng = check_generator(rng, "rng")
    annotations: list[list[str | None]] = []
    for sequence in check_list(labels, "labels"):
        if not isinstance(sequence, str):
            sequence = check_list(sequence, "labels of a sequence", str)
        annotations.append(
            [str(label) if rng.random() < fraction else None for label in sequence]
        )
    return annotations
