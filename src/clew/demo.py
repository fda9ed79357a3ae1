"""A simulated problem to try clew on: noisy words of which only some letters were read by a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.estimator import StructuredPerceptron, StructuredSVM
from clew.learning.task import Array
from clew.models.chain import Chain
from clew.models.multiclass import Multiclass

LETTERS = "ACDEILMNORST"
ROWS, COLUMNS = 7, 5
# one hexadecimal pair for each row of a glyph, a bit for each of its five pixels
GLYPHS = {
    "A": "0e1111111f1111", "C": "0e11101010110e", "D": "1c12111111121c", "E": "1f10101e10101f", "I": "0e04040404040e",
    "L": "1010101010101f", "M": "111b1515111111", "N": "11111915131111", "O": "0e11111111110e", "R": "1e11111e141211",
    "S": "0f10100e01011e", "T": "1f040404040404",
}  # fmt: skip
# their pairs of neighbours are what makes the simulated words look like a language
LEXICON = (
    "animal artist candle cent claim clean close coast cold colt corn dance denial dial direct dome donor earn east "
    "editor email enter idea ideal iron island item lace last later lemon line lion listen local loan mail main "
    "master mean melon metal mile minor model moon motion nation near needle nice noise noon normal notice ocean oil "
    "onion orient radio rain ration read real record remain rest road roast rose sail salt sand scene season second "
    "senior silent silence sister smile snail social solid stair station steam stone store storm tail tale tan teal "
    "term tide tile tired toad toast tone trail train trial"
).upper()
PREDICTABLE = 3.0
"""Pairs follow each other in proportion to their count to this power."""
NOISE = 1.7
TEST_WORDS = 300
LAMS = (3.0, 1.0, 0.3)
"""Every large-margin learner chooses its λ among these, on its own annotation."""


@dataclass(frozen=True)
class Contestant:
    """One way to learn, and how many of the held-out letters it reads right."""

    name: str
    annotation: str
    accuracy: float
    readings: list[str]
    """Of the held-out words."""


@dataclass(frozen=True)
class Demo:
    """Everything that the demonstration found out."""

    contestants: tuple[Contestant, ...]
    svm: StructuredSVM
    """The large-margin chain that was learned from the partial annotation."""
    images: list[Array]
    """The held-out words: (T, 35) pixels each."""
    words: list[str]
    n_words: int
    n_letters: int
    n_annotated: int


def glyph(letter: str) -> Array:
    """(35,) the pixels of a letter, -1 and 1."""
    rows = np.frombuffer(bytes.fromhex(GLYPHS[letter]), np.uint8)
    pixels = np.unpackbits(rows[:, None], axis=1)[:, -COLUMNS:]
    return np.where(pixels.ravel() == 1, 1.0, -1.0)


def language() -> tuple[Array, Array]:
    """(S,) and (S, S): how probable it is that a word begins with a letter, and that a letter follows another."""
    begin, follow = np.zeros(len(LETTERS)), np.zeros((len(LETTERS), len(LETTERS)))
    for word in LEXICON.split():
        states = [LETTERS.index(letter) for letter in word]
        begin[states[0]] += 1
        np.add.at(follow, (states[:-1], states[1:]), 1)
    follow **= PREDICTABLE
    return begin / begin.sum(), follow / follow.sum(axis=1, keepdims=True)


def simulate(n_words: int, rng: np.random.Generator) -> tuple[list[Array], list[str]]:
    """Noisy images (T, 35) of words of a Markov chain, and the words."""
    begin, follow = language()
    words = []
    for length in rng.integers(4, 10, size=n_words):
        states = [rng.choice(len(LETTERS), p=begin)]
        while len(states) < length:
            states.append(rng.choice(len(LETTERS), p=follow[states[-1]]))
        words.append("".join(LETTERS[state] for state in states))
    clean = [np.array([glyph(letter) for letter in word]) for word in words]
    return [image + NOISE * rng.normal(size=image.shape) for image in clean], words


def annotate(words: list[str], fraction: float, rng: np.random.Generator) -> list[list[str | None]]:
    """Each letter is known with the probability `fraction`, None otherwise."""
    return [[letter if rng.random() < fraction else None for letter in word] for word in words]


def run(
    n_words: int = 300,
    fraction: float = 0.25,
    seed: int = 0,
    *,
    verbose: bool = False,
    tell: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> Demo:
    """Learn four ways from the same words; `tell` hears which one is at work."""
    if n_words < 1 or seed < 0 or not 0 < fraction <= 1:
        raise InputError(
            f"words must be at least 1, seed at least 0, and fraction above 0 and at most 1; not {n_words}, {seed} and "
            f"{fraction}"
        )
    rng = np.random.default_rng(seed)
    X, words = simulate(n_words, rng)
    X_test, words_test = simulate(TEST_WORDS, rng)
    partial = annotate(words, fraction, rng)
    known = [(x[t], label) for x, labels in zip(X, partial, strict=True) for t, label in enumerate(labels) if label]
    if not known:
        raise InputError(f"no letter was annotated: take more than {n_words} words or a fraction above {fraction}")
    share = f"{100 * fraction:g}% of the letters"
    chain = Chain(classes=list(LETTERS))

    def large_margin(model: Any) -> StructuredSVM:
        return StructuredSVM(model, loss="bridge", lam=list(LAMS), verbose=verbose, random_state=seed)

    def contest(name: str, annotation: str, learn: Callable[[], Callable[[list[Array]], list[Any]]]) -> Contestant:
        tell(f"{name}, from {annotation}")
        readings = ["".join(labels) for labels in learn()(X_test)]
        right = sum(
            a == b for word, read in zip(words_test, readings, strict=True) for a, b in zip(word, read, strict=True)
        )
        return Contestant(name, annotation, right / sum(map(len, words_test)), readings)

    def letter_by_letter() -> Callable[[list[Array]], list[Any]]:
        svm = large_margin(Multiclass(classes=list(LETTERS))).fit(
            np.array([x for x, _ in known]), [y for _, y in known]
        )
        return lambda images: [svm.predict(image) for image in images]

    svm, full = large_margin(chain), large_margin(chain)
    perceptron = StructuredPerceptron(chain, verbose=verbose, random_state=seed)
    contestants = (
        contest("each letter alone", share, letter_by_letter),
        contest("perceptron, chain", share, lambda: perceptron.fit(X, partial).predict),
        contest("clew, chain", share, lambda: svm.fit(X, partial).predict),
        contest("clew, chain", "all letters", lambda: full.fit(X, [list(word) for word in words]).predict),
    )
    return Demo(contestants, svm, X_test, words_test, n_words, sum(map(len, words)), len(known))


RIGHT, WRONG, OURS, OTHER = "#3a3a3a", "#d1495b", "#00798c", "#b8c4c8"
OURS_INDEX = 2
"""Of the contestant whose certificate is shown: `Demo.svm`."""
LETTERS_SHOWN = 25


def picture(demo: Demo) -> Any:
    """A matplotlib figure: some held-out words and how each learner reads them, the accuracies, and the certificate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.6), layout="constrained", facecolor="white")
    figure.suptitle(
        f"Reading noisy words: {demo.n_annotated} of {demo.n_letters} letters were annotated",
        fontsize=16, fontweight="bold",
    )  # fmt: skip
    axes = figure.subplot_mosaic([["words", "words"], ["bars", "fit"]], height_ratios=[1, 1.15])
    _draw_words(axes["words"], demo)
    _draw_accuracies(axes["bars"], demo)
    _draw_convergence(axes["fit"], demo)
    return figure


def _draw_words(axis: Any, demo: Demo) -> None:
    """The first words that not all learners read alike: as seen, and as read."""
    pitch, line, left = COLUMNS + 1.2, 3.0, 0.0
    rows = [("truth", demo.words), *((f"{c.name}, from {c.annotation}", c.readings) for c in demo.contestants)]
    for i, word in enumerate(demo.words):
        if len({c.readings[i] for c in demo.contestants}) == 1 or left + pitch * len(word) > pitch * LETTERS_SHOWN:
            continue
        for t, image in enumerate(demo.images[i]):
            x = left + pitch * t
            axis.imshow(
                image.reshape(ROWS, COLUMNS), extent=(x, x + COLUMNS, ROWS, 0), cmap="bone_r", vmin=-4.0, vmax=3.0,
                interpolation="nearest",
            )  # fmt: skip
            for row, (_, readings) in enumerate(rows):
                wrong = readings[i][t] != word[t]
                axis.text(
                    x + COLUMNS / 2, ROWS + line * (row + 0.8), readings[i][t], ha="center", va="center", fontsize=15,
                    family="monospace", color=WRONG if wrong else RIGHT,
                    fontweight="bold" if wrong or row == 0 else "normal",
                )  # fmt: skip
        left += pitch * (len(word) + 1)
    for row, (label, _) in enumerate(rows):
        own = row == 1 + OURS_INDEX
        axis.text(
            -pitch / 2, ROWS + line * (row + 0.8), label, ha="right", va="center", fontsize=11,
            color=OURS if own else RIGHT, fontweight="bold" if own or row == 0 else "normal",
        )  # fmt: skip
    axis.set_xlim(0, max(left, pitch))
    axis.set_ylim(ROWS + line * (len(rows) + 0.6), -0.5)
    axis.axis("off")


def _draw_accuracies(axis: Any, demo: Demo) -> None:
    """One bar for each learner."""
    values = [100 * c.accuracy for c in demo.contestants]
    bars = axis.barh(range(len(values)), values, color=OTHER, height=0.66)
    bars[OURS_INDEX].set_color(OURS)
    axis.bar_label(bars, fmt="%.1f %%", padding=4, fontsize=11)
    axis.set_yticks(range(len(values)), [f"{c.name}\nfrom {c.annotation}" for c in demo.contestants])
    axis.invert_yaxis()
    axis.set_xlim(0, 115)
    axis.set_title(f"Letters read right in {len(demo.words)} new words", loc="left", fontsize=12)
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.tick_params(left=False)


def _draw_convergence(axis: Any, demo: Demo) -> None:
    """Objective above, lower bound below: the space between is what is not certain yet."""
    result = demo.svm.result_
    passes, objective, lower = (result.column(name) for name in ("passes", "objective", "lower_bound"))
    axis.fill_between(passes, lower, objective, color=OURS, alpha=0.15, linewidth=0, label="gap")
    axis.plot(passes, objective, color=OURS, label="objective")
    axis.plot(passes, lower, color=OURS, linestyle=":", label="lower bound")
    axis.set_title(f"The fit certifies itself: {result.status.value}, gap {result.gap:.1g}", loc="left", fontsize=12)
    axis.set_xlabel("passes over the words")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
