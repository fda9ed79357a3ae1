from __future__ import annotations

import pickle
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from clew.datasets import hide_labels, make_sentences
from clew.errors import InfeasibleAnnotation, InputError, NotCalibrated
from clew.sequence import SequenceTagger, entity_f1
from clew.sequence.features import FeatureDictionary

FORBIDDEN_AFTER_O = {"I-PER", "I-LOC", "I-ORG", "I-MISC"}


def describe(tokens):
    """Feature dicts with strings, booleans and a number."""
    return [
        {
            "word": token.lower(),
            "ending": token[-3:],
            "title": token.istitle(),
            "bias": 1.0,
            "before": tokens[i - 1].lower() if i else "<s>",
            "length": len(token) / 10,
        }
        for i, token in enumerate(tokens)
    ]


@pytest.fixture(scope="module")
def text():
    """X, y and y of which a tenth is annotated, of 250 sentences."""
    rng = np.random.default_rng(0)
    tokens, labels = make_sentences(250, rng)
    X = [describe(sentence) for sentence in tokens]
    y = [list(map(str, sentence)) for sentence in labels]
    return X, y, hide_labels(labels, 0.1, rng)


@pytest.fixture(scope="module")
def tagger(text):
    X, y, _ = text
    return SequenceTagger().fit(X[:200], y[:200])


def count_illegal(predicted):
    """The number of I that begin a sentence or follow O or another kind."""
    return sum(
        after.startswith("I-") and before[1:] != after[1:]
        for sentence in predicted
        for before, after in zip(["O", *sentence], sentence, strict=False)
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("loss", ["bridge", "crf", "perceptron"])
def test_losses_predict_entities(text, loss):
    X, y, _ = text
    tagger = SequenceTagger(loss, random_state=0, max_iterations=30)
    tagger.fit(X[:200], y[:200])
    predicted = tagger.predict(X[200:])
    assert entity_f1(y[200:], predicted) > 0.3
    assert tagger.score(X[200:], y[200:]) > 0.8
    assert tagger.predict_single(X[200]) == predicted[0]
    assert count_illegal(predicted) == 0


def test_constraints_hold_where_few_tokens_are_annotated(text):
    X, _, partial = text
    free = SequenceTagger(constraints=None).fit(X[:200], partial[:200])
    legal = SequenceTagger().fit(X[:200], partial[:200])
    assert count_illegal(free.predict(X)) > 0
    assert count_illegal(legal.predict(X)) == 0
    assert ("O", "I-PER") in legal.forbidden_
    assert free.forbidden_ == []


def test_constraints_are_off_where_the_labels_break_them(text):
    X, y, _ = text
    iob1 = [[label.replace("B-", "I-") for label in labels] for labels in y]
    assert SequenceTagger().fit(X[:30], iob1[:30]).forbidden_ == []
    pairs = [("I-PER", "I-LOC")]
    assert SequenceTagger(constraints=pairs).fit(X[:30], iob1[:30]).forbidden_ == pairs


def test_fixed_labels_stay_and_neighbors_follow(text, tagger):
    X, _, _ = text
    tokens = X[200]
    assert len(tokens) > 2
    fixed = [None] * len(tokens)
    fixed[1] = "I-LOC"
    labels = tagger.predict_single(tokens, fixed=fixed)
    assert labels[1] == "I-LOC"
    assert labels[0] in ("B-LOC", "I-LOC")
    fixed[1] = {"B-ORG", "B-PER"}
    assert tagger.predict_single(tokens, fixed=fixed)[1] in fixed[1]
    with pytest.raises(InfeasibleAnnotation):
        tagger.predict_single(tokens, fixed=["I-PER", *[None] * (len(tokens) - 1)])


def test_fixed_labels_are_the_best_that_agree():
    rng = np.random.default_rng(3)
    X = [[{"a": float(rng.normal()), "b": float(rng.normal())} for _ in range(4)]]
    tagger = SequenceTagger("crf").fit(
        X * 3, [list("OBIO"), list("BIOO"), list("OOBI")]
    )
    model = tagger.estimator_.model_
    rows = tagger.features_.transform(X)[0]
    fixed = [None, {"B", "O"}, None, "I"]
    best = max(
        (y for y in model.outputs(rows) if y[3] == "I" and y[1] in "BO"),
        key=lambda y: model.joint_features(rows, y) @ tagger.estimator_.coef_,
    )
    assert tagger.predict_single(X[0], fixed=fixed) == best.tolist()


def test_sets_of_labels_are_learned_from():
    X = [[{"w": w} for w in "abcab"], [{"w": w} for w in "cab"]]
    y = [["A", {"B", "C"}, "C", None, None], None]
    tagger = SequenceTagger("crf", c2=0.01).fit(X, y)
    assert tagger.classes_ == ["A", "B", "C"]
    assert tagger.predict_single(X[1])[:2] == ["C", "A"]


def test_marginals_are_the_models_own_or_calibrated(text, tagger):
    X, y, _ = text
    with pytest.raises(NotCalibrated):
        tagger.predict_marginals(X[:1])
    crf = SequenceTagger("crf", tol=0.1).fit(X[:50], y[:50])
    for marginals in (
        crf.predict_marginals(X[:2]),
        clone(tagger)
        .fit(X[:60], y[:60])
        .calibrate(X[:60], y[:60])
        .predict_marginals(X[:2]),
    ):
        assert [len(sentence) for sentence in marginals] == [len(X[0]), len(X[1])]
        assert sum(marginals[0][0].values()) == pytest.approx(1)
    assert crf.predict_marginals_single(X[0])[0].keys() == set(crf.classes_)


def test_suggestions_leave_out_annotated_tokens(text, tagger):
    X, _, partial = text
    queries = tagger.suggest(X, 20, partial)
    assert len(queries) == 20
    assert all(partial[query.example][query.part] is None for query in queries)


def test_interface_is_that_of_crfsuite_and_scikit_learn(text):
    X, y, _ = text
    parameters = {"algorithm": "lbfgs", "c1": 0.1, "c2": 0.1, "max_iterations": 20}
    tagger = SequenceTagger(**parameters, all_possible_transitions=True)
    with pytest.warns(UserWarning, match="algorithm and c1 and c2"):
        tagger.fit(X[:60], y[:60])
    with pytest.warns(UserWarning, match="c1 of CRFsuite"):
        SequenceTagger("crf", c1=0.1, c2=0.5).fit(X[:5], y[:5])
    assert tagger.size_ > 0
    assert ("O", "O") in tagger.transition_features_
    assert ("O", "I-PER") not in tagger.transition_features_
    assert any(name == "bias" for name, _ in tagger.state_features_)
    search = GridSearchCV(SequenceTagger(), {"C": [0.01, 0.1]}, cv=2)
    search.fit(X[:40], y[:40])
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert again.predict(X[:5]) == search.predict(X[:5])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "hinge"}, "expected 'bridge'"),
        ({"constraints": "BIO"}, "expected 'auto'"),
    ],
)
def test_unknown_parameters_are_refused(text, parameters, message):
    X, y, _ = text
    with pytest.raises(InputError, match=message):
        SequenceTagger(**parameters).fit(X[:3], y[:3])


def test_feature_dictionary_reads_all_values_of_crfsuite():
    X = [
        [{"a": "x", "b": True, "c": 0.5, "d": False}, {"a": "y", "c": 2}],
        [{"e": ["u", "v"], "f": {"g": 3.0, "h": "z"}}, ["a:x", "b"]],
    ]
    features = FeatureDictionary()
    rows = [row.toarray() for row in features.fit_transform(X)]
    names = features.get_feature_names_out().tolist()
    assert sorted(names) == ["a:x", "a:y", "b", "c", "e:u", "e:v", "f:g", "f:h:z"]
    values = [
        {names[k]: row[k] for k in np.flatnonzero(row)} for part in rows for row in part
    ]
    assert values == [
        {"a:x": 1, "b": 1, "c": 0.5},
        {"a:y": 1, "c": 2},
        {"e:u": 1, "e:v": 1, "f:g": 3, "f:h:z": 1},
        {"a:x": 1, "b": 1},
    ]
    other = features.transform([[{"a": "x", "new": "x", "c": 4}, {"new": 1}]])[0]
    assert other.toarray().sum() == 5
    assert other.shape == (2, len(names))


def test_feature_dictionary_drops_rare_features():
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "a"}, {"w": "c"}]]
    features = FeatureDictionary(min_freq=2)
    rows = features.fit_transform(X)
    assert features.columns_ == {"w:a": 0}
    assert [row.toarray().ravel().tolist() for row in rows] == [[1, 0], [1, 0]]


@pytest.mark.parametrize("bad", ["text", {"w": "a"}, [3], [{"w": object()}]])
def test_feature_dictionary_refuses_what_is_no_token(bad):
    with pytest.raises(InputError):
        FeatureDictionary().fit([bad])


def test_forbidden_pairs_leave_the_legal_labelings():
    from clew.sequence.entities import forbid_pairs

    labels = ["O", "B-a", "I-a", "E-a", "S-a", "B-b", "E-b"]
    pairs = set(forbid_pairs(labels))
    legal = {
        y
        for y in product(labels, repeat=2)
        if not pairs & set(zip([None, *y], [*y, None], strict=True))
    }
    single = ["O", "S-a"]
    assert legal == {("B-a", "E-a"), ("B-b", "E-b"), *product(single, repeat=2)}
