"""Simulated sentences: they grow like text, and what is measured on them is what it says."""

from __future__ import annotations

import numpy as np
import pytest

from clew.datasets import entity_f1, hide, sentences, token_features, vectorise


@pytest.fixture(scope="module")
def text():
    return sentences(1500, np.random.default_rng(0))


def test_the_vocabulary_grows_as_a_power_of_the_text(text):
    tokens = [token for sentence in text[0] for token in sentence]
    sizes = [2000, 4000, 8000, 16000]
    types = [len(set(tokens[:size])) for size in sizes]
    exponent = np.polyfit(np.log(sizes), np.log(types), 1)[0]
    assert (
        0.5 < exponent < 0.85
    )  # Heaps' law in real text: about 0.6 to 0.7 at this size


def test_labels_are_as_scarce_and_as_legal_as_in_named_entity_data(text):
    labels = np.concatenate(text[1])
    assert 0.75 < (labels == "O").mean() < 0.92
    for sentence in text[1]:
        for before, label in zip(["O", *sentence], sentence, strict=False):
            assert not label.startswith("I-") or before[2:] == label[2:]
    assert all(len(tokens) == len(marks) for tokens, marks in zip(*text, strict=True))


def test_the_same_seed_gives_the_same_text():
    one, other = (sentences(20, np.random.default_rng(3)) for _ in range(2))
    assert one[0] == other[0]
    np.testing.assert_array_equal(np.concatenate(one[1]), np.concatenate(other[1]))


def test_features_become_sparse_rows_in_known_columns():
    features = [token_features(["Dr", "Lima", "said"]), token_features(["said", "who"])]
    X, index = vectorise(features[:1])
    assert X[0].shape == (3, len(index))
    assert X[0][0, index["W=Dr"]] == 1
    assert X[0][0, index["1w=lima"]] == 1
    X_test, same = vectorise(features, index)
    assert same is index
    assert X_test[1].shape == (2, len(index))
    assert X_test[1].nnz < X[0].nnz


def test_entities_are_counted_as_wholes():
    truth = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert entity_f1(truth, truth) == 1.0
    assert entity_f1(truth, [["B-PER", "O", "O", "B-LOC"]]) == pytest.approx(0.5)
    assert entity_f1(truth, [["O", "O", "O", "O"]]) == 0.0
    assert entity_f1([["I-PER", "B-PER"]], [["B-PER", "B-PER"]]) == 1.0


def test_hidden_labels_are_none(text):
    hidden = hide(text[1], 0.25, np.random.default_rng(0))
    known = [label for sentence in hidden for label in sentence if label is not None]
    assert 0.22 < len(known) / sum(map(len, text[1])) < 0.28
