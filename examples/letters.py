"""Read noisy words after learning from some of their letters: how few are enough, in one picture.

Run it with `python examples/letters.py letters.png`.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

from clew import Algorithm, StructuredPerceptron, StructuredSVM
from clew.datasets import COLUMNS, LETTERS, ROWS, annotate, simulate
from clew.models import Chain

FRACTIONS = (0.05, 0.1, 0.25, 1.0)
SHOWN = 0.25
EXACT = Algorithm(stochastic=False)
CLEW, PERCEPTRON, GREY = "#00798c", "#d1495b", "#6b7a80"


def main(path: str = "letters.png", draws: int = 3, n_words: int = 200) -> None:
    """Learn from ever more letters, some times over, and draw what came of it."""
    chain = Chain(classes=list(LETTERS))
    right = {
        "clew": np.zeros((draws, len(FRACTIONS))),
        "perceptron": np.zeros((draws, len(FRACTIONS))),
    }
    for draw_number in range(draws):
        rng = np.random.default_rng(draw_number)
        X, words = simulate(n_words, rng)
        X_new, words_new = simulate(300, rng)
        truth = [list(word) for word in words_new]
        for i, fraction in enumerate(FRACTIONS):
            partial = annotate(words, fraction, rng)  # None where a letter is unknown
            svm = StructuredSVM(chain, lam=1.0).fit(X, partial)
            baseline = StructuredPerceptron(chain, random_state=0).fit(X, partial)
            right["clew"][draw_number, i] = 100 * svm.score(X_new, truth)
            right["perceptron"][draw_number, i] = 100 * baseline.score(X_new, truth)
            if fraction == SHOWN:  # by exact steps: all are certified
                exact = StructuredSVM(chain, lam=1.0, algorithm=EXACT).fit(X, partial)
                shown = X, words, partial, exact.result_
    for i, fraction in enumerate(FRACTIONS):
        means = ", ".join(
            f"{name} {values[:, i].mean():.1f} %" for name, values in right.items()
        )
        print(f"{fraction:4.0%} annotated: {means}")
    draw(*shown, right).savefig(path, dpi=130)
    print(f"{shown[-1]}\nwritten: {path}")


def draw(
    X: list,
    words: list[str],
    partial: list,
    certificate: object,
    right: dict[str, np.ndarray],
) -> Figure:
    """Annotated words above; below, accuracy against annotation, and the certificate of one fit."""
    figure = Figure(figsize=(11, 5.6), layout="constrained", facecolor="white")
    axes = figure.subplot_mosaic(
        [["words", "words"], ["right", "fit"]], height_ratios=[1, 2.1]
    )
    draw_words(axes["words"], X, words, partial)
    axis = axes["right"]
    percent = [100 * fraction for fraction in FRACTIONS]
    for name, color, style in (("clew", CLEW, "o-"), ("perceptron", PERCEPTRON, "s--")):
        axis.plot(percent, right[name].mean(axis=0), style, color=color, label=name)
        axis.plot(
            percent, right[name].T, style[0], color=color, alpha=0.3, markersize=3
        )
    axis.set(
        xlabel="letters annotated (%); small: each draw", xlim=(0, 103), xticks=percent
    )
    axis.set_title("Letters read right in 300 new words (%)", loc="left", fontsize=11)
    axis.legend(frameon=False, loc="lower right")
    axis = axes["fit"]
    passes, objective, lower = (
        certificate.column(name) for name in ("passes", "objective", "lower_bound")
    )
    axis.fill_between(
        passes, lower, objective, color=CLEW, alpha=0.15, linewidth=0, label="gap"
    )
    axis.plot(passes, objective, color=CLEW, label="objective")
    axis.plot(passes, lower, color=CLEW, linestyle=":", label="lower bound")
    axis.set(xlabel="passes over the words", ylim=(0, 1.15 * objective[0]))
    axis.set_title(
        f"The fit at {100 * SHOWN:g} % certifies itself: gap {certificate.gap:.1g}",
        loc="left",
        fontsize=11,
    )
    axis.legend(frameon=False, loc="lower right")
    for name in ("right", "fit"):
        axes[name].spines[["top", "right"]].set_visible(False)
        axes[name].grid(alpha=0.25)
    return figure


def draw_words(
    axis: object, X: list, words: list[str], partial: list, n_letters: int = 32
) -> None:
    """Some training words with what was annotated below each letter, and a dot where nothing was."""
    pitch, left = COLUMNS + 1.3, 0.0
    for x, word, labels in zip(X, words, partial, strict=True):
        if not any(labels) or left + pitch * len(word) > pitch * n_letters:
            continue
        for t, label in enumerate(labels):
            at = left + pitch * t
            axis.imshow(
                x[t].reshape(ROWS, COLUMNS),
                extent=(at, at + COLUMNS, ROWS, 0),
                cmap="bone_r",
                vmin=-4,
                vmax=3,
            )
            style = {"color": CLEW, "fontweight": "bold"} if label else {"color": GREY}
            axis.text(
                at + COLUMNS / 2,
                ROWS + 2.6,
                label or "·",
                ha="center",
                va="center",
                fontsize=14,
                **style,
            )
        left += pitch * (len(word) + 0.8)
    axis.set(xlim=(-0.5, left - pitch * 0.8), ylim=(ROWS + 4.6, -0.5))
    axis.set_title(
        "Learned from 200 words of which one letter in four was annotated",
        loc="left",
        fontsize=11,
    )
    axis.axis("off")


if __name__ == "__main__":
    main(*sys.argv[1:])
