"""Simulated words: noisy images of letters from a Markov chain."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array
from clew.utils.validation import check_choice, check_generator, check_int

LETTERS = "ACDEILMNORST"
ROWS = 7
COLUMNS = 5
# two hexadecimal digits for each row of a glyph, one bit for each of its pixels
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
# the source of the pairs of letters
LEXICON = (
    "animal artist candle cent claim clean close coast cold colt corn dance denial "
    "dial direct dome donor earn east editor email enter idea ideal iron island item "
    "lace last later lemon line lion listen local loan mail main master mean melon "
    "metal mile minor model moon motion nation near needle nice noise noon normal "
    "notice ocean oil onion orient radio rain ration read real record remain rest "
    "road roast rose sail salt sand scene season second senior silent silence sister "
    "smile snail social solid stair station steam stone store storm tail tale tan "
    "teal term tide tile tired toad toast tone trail train trial"
).upper()
PAIR_EXPONENT = 3.0
"""Pairs are as probable as their count to this power, so that words are predictable."""
NOISE = 1.7
"""Standard deviation of the noise; pixels are -1 and 1."""
MAX_WORDS = 1_000_000
"""About 2 GB of pixels."""


def draw_glyph(letter: str) -> Array:
    """Return the pixels of a letter, -1 and 1.

    Returns
    -------
    pixels : ndarray of shape (35,)
    """
    check_choice(letter, "letter", tuple(LETTERS))
    rows = np.frombuffer(bytes.fromhex(GLYPHS[letter]), np.uint8)
    pixels = np.unpackbits(rows[:, None], axis=1)[:, -COLUMNS:]
    return np.where(pixels.ravel() == 1, 1.0, -1.0)


def count_letter_pairs() -> tuple[Array, Array]:
    """Return the probabilities of first letters and of pairs of letters.

    Returns
    -------
    first : ndarray of shape (n_letters,)
    following : ndarray of shape (n_letters, n_letters)
        Rows are the probabilities of the letter after each letter.
    """
    first = np.zeros(len(LETTERS))
    following = np.zeros((len(LETTERS), len(LETTERS)))
    for word in LEXICON.split():
        states = [LETTERS.index(letter) for letter in word]
        first[states[0]] += 1
        np.add.at(following, (states[:-1], states[1:]), 1)
    following **= PAIR_EXPONENT
    return first / first.sum(), following / following.sum(axis=1, keepdims=True)


def make_words(n_words: int, rng: np.random.Generator) -> tuple[list[Array], list[str]]:
    """Simulate noisy images of words.

    Returns
    -------
    images : list of ndarray of shape (n_letters, 35)
    words : list of str
    """
    n_words = check_int(n_words, "n_words", 0, MAX_WORDS)
    rng = check_generator(rng, "rng")
    first, following = count_letter_pairs()
    words = []
    for length in rng.integers(4, 10, size=n_words):
        states = [rng.choice(len(LETTERS), p=first)]
        while len(states) < length:
            states.append(rng.choice(len(LETTERS), p=following[states[-1]]))
        words.append("".join(LETTERS[state] for state in states))
    images = [np.array([draw_glyph(letter) for letter in word]) for word in words]
    return [image + NOISE * rng.normal(size=image.shape) for image in images], words
