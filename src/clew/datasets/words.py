"""Simulated sequences to try clew on: noisy words of which only some letters were read by a person."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array
from clew.utils.validation import (
    check_choice,
    check_fraction,
    check_generator,
    check_int,
    check_list,
)

LETTERS = "ACDEILMNORST"
ROWS, COLUMNS = 7, 5
# one hexadecimal pair for each row of a glyph, a bit for each of its five pixels
GLYPHS = {
    "A": "0e1111111f1111",
    "C": "0e11101010110e",
    "D": "1c12111111121c",
    "E": "1f10101e10101f",
    "I": "0e04040404040e",
    "L": "1010101010101f",
    "M": "111b1515111111",
    "N": "11111915131111",
    "O": "0e11111111110e",
    "R": "1e11111e141211",
    "S": "0f10100e01011e",
    "T": "1f040404040404",
}
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
MAX_WORDS = 1_000_000
"""About 2 GB of pixels."""


def glyph(letter: str) -> Array:
    """(35,) the pixels of a letter, -1 and 1."""
    check_choice(letter, "letter", tuple(LETTERS))
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
    n_words, rng = (
        check_int(n_words, "n_words", 0, MAX_WORDS),
        check_generator(rng, "rng"),
    )
    begin, follow = language()
    words = []
    for length in rng.integers(4, 10, size=n_words):
        states = [rng.choice(len(LETTERS), p=begin)]
        while len(states) < length:
            states.append(rng.choice(len(LETTERS), p=follow[states[-1]]))
        words.append("".join(LETTERS[state] for state in states))
    clean = [np.array([glyph(letter) for letter in word]) for word in words]
    return [image + NOISE * rng.normal(size=image.shape) for image in clean], words


def annotate(
    words: list[str], fraction: float, rng: np.random.Generator
) -> list[list[str | None]]:
    """Each letter is known with the probability `fraction`, None otherwise."""
    share, rng = check_fraction(fraction, "fraction"), check_generator(rng, "rng")
    return [
        [letter if rng.random() < share else None for letter in word]
        for word in check_list(words, "words", str)
    ]
