"""Tokens to annotate next: those that `suggest` names against tokens at random, on simulated sentences with names.

    OMP_NUM_THREADS=1 python benchmarks/suggest.py                         # 1,000 sentences, three draws
    OMP_NUM_THREADS=1 python benchmarks/suggest.py --sentences 4000 --seeds 1

Everybody begins with the same few tokens at random. Each round annotates as many more, either those that `suggest`
names or others at random. F1 over whole entities on 2,000 other sentences, beside 25 % at random.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew import Algorithm, StructuredSVM
from clew.datasets import entity_f1, sentences, token_features, vectorise
from clew.models import Chain

N_TEST = 2000
FRACTION = 0.25
C = 0.1
"""λ = 1 / (C N), as in benchmarks/text.py."""


class Text:
    """Sentences to annotate, and others to test on."""

    def __init__(self, n: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        tokens, self.truth = sentences(n + N_TEST, self.rng)
        features = [token_features(sentence) for sentence in tokens]
        self.X, index = vectorise(features[:n])
        self.X_test, _ = vectorise(features[n:], index)
        self.places = [
            (i, t)
            for i, labels in enumerate(self.truth[:n])
            for t in range(len(labels))
        ]

    def at_random(self, count: int, known: list[list[Any]]) -> list[tuple[int, int]]:
        """So many tokens that are not known."""
        unknown = [(i, t) for i, t in self.places if known[i][t] is None]
        return [unknown[k] for k in self.rng.permutation(len(unknown))[:count]]

    def answer(
        self, known: list[list[Any]], asked: list[tuple[int, int]]
    ) -> list[list[Any]]:
        """What is known when these tokens are annotated too."""
        more = [list(labels) for labels in known]
        for i, t in asked:
            more[i][t] = str(self.truth[i][t])
        return more

    def learn(self, known: list[list[Any]]) -> tuple[StructuredSVM, float]:
        """The learner, and its F1 on other sentences."""
        lam = 1 / (
            C * sum(any(label is not None for label in labels) for labels in known)
        )
        svm = StructuredSVM(
            Chain(), lam=lam, algorithm=Algorithm(tol=1e-2, eta=1e-2)
        ).fit(self.X, known)
        return svm, entity_f1(self.truth[len(self.X) :], svm.predict(self.X_test))


def run(text: Text, shares: list[float]) -> np.ndarray:
    """(2, len(shares) + 1) F1 of suggested and random tokens by share, and at 25 % at random."""
    n = len(text.places)
    nothing = [[None] * len(labels) for labels in text.truth[: len(text.X)]]
    counts = np.diff([round(share * n) for share in [0.0, *shares]])
    first = text.answer(nothing, text.at_random(counts[0], nothing))
    found = np.zeros((2, len(shares) + 1))
    found[:, -1] = text.learn(
        text.answer(nothing, text.at_random(round(FRACTION * n), nothing))
    )[1]
    for way in range(2):
        known = first
        for k in range(len(shares)):
            svm, found[way, k] = text.learn(known)
            if k + 1 < len(shares):
                asked = (
                    [
                        (query.example, query.part)
                        for query in svm.suggest(text.X, int(counts[k + 1]), known)
                    ]
                    if way == 0
                    else text.at_random(int(counts[k + 1]), known)
                )
                known = text.answer(known, asked)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--shares",
        type=float,
        nargs="+",
        default=[0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08],
    )
    arguments = parser.parse_args()
    console = Console(width=100)
    found = np.array(
        [
            run(Text(arguments.sentences, seed), arguments.shares)
            for seed in range(arguments.seeds)
        ]
    )
    table = Table("annotated", "suggested: F1", "at random: F1")
    for k, share in enumerate([*arguments.shares, FRACTION]):
        cells = [
            f"{100 * f1.mean():.1f} ± {100 * f1.std():.1f}" for f1 in found[:, :, k].T
        ]
        table.add_row(
            f"{share:.0%}", *([cells[0] if k < len(arguments.shares) else "", cells[1]])
        )
    console.print(table)


if __name__ == "__main__":
    main()
