from __future__ import annotations

import numpy as np
import pytest

from clew.sequence import Entity, entity_f1, list_entities


@pytest.mark.parametrize(
    ("labels", "entities"),
    [
        ("B-P I-P O B-L", [(0, 1, "P"), (3, 3, "L")]),
        ("I-P I-P O", [(0, 1, "P")]),  # IOB1
        ("I-P B-P I-L", [(0, 0, "P"), (1, 1, "P"), (2, 2, "L")]),
        ("B-P I-P E-P S-L O", [(0, 2, "P"), (3, 3, "L")]),
        ("B-P L-P U-L U-L", [(0, 1, "P"), (2, 2, "L"), (3, 3, "L")]),
        ("O O", []),
        ("B I O B", [(0, 1, ""), (3, 3, "")]),
    ],
)
def test_entities_of_all_schemes(labels, entities):
    assert list_entities(labels.split()) == [Entity(*entity) for entity in entities]


def test_f1_agrees_with_seqeval():
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    rng = np.random.default_rng(0)
    labels = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("X", "Y"))]
    for _ in range(300):
        lengths = rng.integers(1, 8, size=3)
        truth, predicted = (
            [rng.choice(labels, size=n).tolist() for n in lengths] for _ in range(2)
        )
        expected = metrics.f1_score(truth, predicted, zero_division=0)
        assert entity_f1(truth, predicted) == pytest.approx(expected)
