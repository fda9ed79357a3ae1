"""Which letters to annotate next: the least certain ones, compared with letters drawn at random, in one picture.

Run it with `python examples/suggest.py suggest.png`. Everybody begins with the same few letters; each round a person
reads some more, either those that `suggest` names or as many others. What was learned is tested on new words.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

from clew import StructuredSVM
from clew.datasets import LETTERS, annotate, simulate
from clew.models import Chain

SEEDS = 5
FIRST, ROUNDS, EACH_ROUND = 0.03, 8, 25
WORDS, NEW_WORDS = 200, 300
SUGGESTED, RANDOM, GREY = "#00798c", "#d1495b", "#6b7a80"


def main(path: str = "suggest.png", seeds: int = SEEDS, rounds: int = ROUNDS) -> None:
    """Annotate in both ways, several times over, and draw what came of it."""
    accuracy = {name: np.zeros((seeds, rounds + 1)) for name in ("suggested", "random")}
    share = np.zeros((seeds, rounds + 1))
    at_quarter = np.zeros(seeds)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X, words = simulate(WORDS, rng)
        X_new, new = simulate(NEW_WORDS, rng)
        first = annotate(words, FIRST, rng)
        n_letters = sum(map(len, words))
        for name, right in accuracy.items():
            Y = [list(labels) for labels in first]
            for k in range(rounds + 1):
                svm = learn(X, Y)
                right[seed, k] = svm.score(X_new, [list(word) for word in new])
                share[seed, k] = (
                    sum(label is not None for labels in Y for label in labels)
                    / n_letters
                )
                for example, part in ask(svm, X, Y, rng, name):
                    Y[example][part] = words[example][part]
        at_quarter[seed] = learn(X, annotate(words, 0.25, rng)).score(
            X_new, [list(word) for word in new]
        )
    for k in range(rounds + 1):
        figures = ", ".join(
            f"{name} {100 * r[:, k].mean():.1f} ± {100 * r[:, k].std():.1f} %"
            for name, r in accuracy.items()
        )
        print(f"{share[:, k].mean():5.1%} annotated: {figures}")
    print(
        f"25.0% at random: {100 * at_quarter.mean():.1f} ± {100 * at_quarter.std():.1f} %"
    )
    draw(share, accuracy, at_quarter).savefig(path, dpi=130)
    print(f"written: {path}")


def learn(X: list, Y: list) -> StructuredSVM:
    """The same settings for everybody."""
    return StructuredSVM(Chain(classes=list(LETTERS)), lam=1.0).fit(X, Y)


def ask(
    svm: StructuredSVM, X: list, Y: list, rng: np.random.Generator, name: str
) -> list[tuple[int, int]]:
    """The letters of the next round."""
    if name == "suggested":
        return [
            (query.example, query.part)
            for query in svm.suggest(X, EACH_ROUND, Y, per_example=1)
        ]
    unknown = [
        (n, t)
        for n, labels in enumerate(Y)
        for t, label in enumerate(labels)
        if label is None
    ]
    return [unknown[i] for i in rng.permutation(len(unknown))[:EACH_ROUND]]


def draw(
    share: np.ndarray, accuracy: dict[str, np.ndarray], at_quarter: np.ndarray
) -> Figure:
    """Accuracy against annotation; thin lines are single seeds."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained", facecolor="white")
    axis = figure.subplots()
    for (name, right), color, style in zip(
        accuracy.items(), (SUGGESTED, RANDOM), ("o-", "s--"), strict=True
    ):
        axis.plot(100 * share.T, 100 * right.T, color=color, alpha=0.25, linewidth=0.8)
        axis.plot(
            100 * share.mean(axis=0),
            100 * right.mean(axis=0),
            style,
            color=color,
            label=name,
        )
    axis.axhline(
        100 * at_quarter.mean(), color=GREY, linestyle=":", label="25 % at random"
    )
    axis.set(
        xlabel="letters annotated (%)", ylabel="letters of new words read right (%)"
    )
    axis.set_title("Asking about the least certain letters", loc="left", fontsize=11)
    axis.legend(frameon=False, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
