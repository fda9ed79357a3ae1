"""sklearn-crfsuite's tutorial with CRF and with SequenceTagger, in one run.

    pip install -e . sklearn-crfsuite seqeval
    OMP_NUM_THREADS=1 python benchmarks/tagger.py --sizes 1000 4000

The features are those of the tutorial (words, endings, case, neighbors), the text is
simulated (clew.datasets.sentences). Only the import differs between the first two rows
of a size. Seconds are CPU seconds of `fit` and of `predict` on 2,000 other sentences,
from lists of dicts; kernels were compiled before.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import sklearn_crfsuite
from rich.console import Console
from rich.table import Table
from seqeval.metrics import f1_score

from clew.datasets import hide, sentences
from clew.sequence import SequenceTagger

N_TEST = 2000
TUTORIAL: dict[str, Any] = {
    "algorithm": "lbfgs",
    "c1": 0.1,
    "c2": 0.1,
    "max_iterations": 100,
    "all_possible_transitions": True,
}
TAGGERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sklearn_crfsuite.CRF": (sklearn_crfsuite.CRF, TUTORIAL),
    "SequenceTagger, the same parameters": (SequenceTagger, TUTORIAL),
    "SequenceTagger()": (SequenceTagger, {}),
    "SequenceTagger(constraints=None)": (SequenceTagger, {"constraints": None}),
    "SequenceTagger('crf')": (SequenceTagger, {"loss": "crf"}),
    "SequenceTagger('perceptron')": (SequenceTagger, {"loss": "perceptron"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console = Console(width=110)
    warnings.simplefilter("ignore")
    table = Table("sentences", "annotated", "tagger", "F1", "fit s", "predict s")
    for n in arguments.sizes:
        rng = np.random.default_rng(arguments.seed)
        texts, truth = sentences(n + N_TEST, rng)
        X = [sentence_features(tokens) for tokens in texts]
        expected = [[str(label) for label in labels] for labels in truth[n:]]
        for fraction in arguments.fractions:
            y = truth[:n] if fraction == 1 else hide(truth[:n], fraction, rng)
            for name, (tagger, parameters) in TAGGERS.items():
                is_peer = tagger is not SequenceTagger
                train = annotated_runs(X[:n], y) if is_peer else (X[:n], y)
                tagger(**parameters).fit(X[:20], truth[:20]).predict(X[:20])
                fitted, fit_s = time_call(tagger(**parameters).fit, *train)
                predicted, predict_s = time_call(fitted.predict, X[n:])
                f1 = f1_score(expected, [list(labels) for labels in predicted])
                figures = (f"{100 * f1:.1f}", f"{fit_s:.2f}", f"{predict_s:.2f}")
                table.add_row(str(n), f"{fraction:.0%}", name, *figures)
            table.add_section()
    console.print(table)


def time_call(function: Any, *arguments: Any) -> tuple[Any, float]:
    """Return what a function returns, and its CPU seconds."""
    began = time.process_time()
    value = function(*arguments)
    return value, time.process_time() - began


def annotated_runs(X: Sequence[Any], y: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the runs of annotated tokens, which is all that CRFsuite can take."""
    inputs = []
    labels = []
    for tokens, marks in zip(X, y, strict=True):
        known = [i for i, mark in enumerate(marks) if mark is not None]
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            if len(run):
                inputs.append([tokens[i] for i in run])
                labels.append([str(marks[i]) for i in run])
    return inputs, labels


def sentence_features(tokens: Sequence[str]) -> list[dict[str, object]]:
    """Return the features of the tutorial, without parts of speech."""
    features = []
    for i, word in enumerate(tokens):
        token: dict[str, object] = {
            "bias": 1.0,
            "word.lower()": word.lower(),
            "word[-3:]": word[-3:],
            "word[-2:]": word[-2:],
            "word.isupper()": word.isupper(),
            "word.istitle()": word.istitle(),
            "word.isdigit()": word.isdigit(),
        }
        for step, end in ((-1, "BOS"), (1, "EOS")):
            if not 0 <= i + step < len(tokens):
                token[end] = True
                continue
            other = tokens[i + step]
            token[f"{step:+d}:word.lower()"] = other.lower()
            token[f"{step:+d}:word.istitle()"] = other.istitle()
            token[f"{step:+d}:word.isupper()"] = other.isupper()
        features.append(token)
    return features


if __name__ == "__main__":
    main()
