"""Simulated sentences with named entities, with as many sparse features as text.

Words are reused in proportion to earlier use, and new ones keep coming (a Pitman–Yor
process, Goldwater et al. 2006): the vocabulary grows as a power of the text, and
frequencies follow Zipf's law. People, places and organizations have their own lexicons;
endings and contexts hint at the kind, and some names are shared between kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.utils.validation import check_generator, check_int, check_list, short_repr

T = TypeVar("T")
Rng = np.random.Generator
MAX_SENTENCES = 10_000_000

KINDS = ("PER", "LOC", "ORG", "MISC")
LABELS = ("O", *(f"{place}-{kind}" for kind in KINDS for place in "BI"))
ONSETS = "b c d f g h l m n p r s t v w k st tr"
VOWELS = "a e i o u ai ou"
SYLLABLES = [onset + vowel for onset in ONSETS.split() for vowel in VOWELS.split()]
ENDINGS = {
    "common": ["", "s", "ing", "ed", "ly", "er", "tion", "ment", "al", "y"],
    "PER": ["son", "ez", "ov", "man", "i", "a", "elli", ""],
    "LOC": ["ton", "land", "burg", "ia", "ville", "stan", ""],
    "ORG": ["tech", "corp", "ex", "co", "bank", ""],
    "MISC": ["ian", "ish", "ese", "ic", "an", ""],
}
LENGTHS = {
    "PER": [0.35, 0.6, 0.05],
    "LOC": [0.8, 0.17, 0.03],
    "ORG": [0.45, 0.35, 0.2],
    "MISC": [0.75, 0.2, 0.05],
}
"""Probabilities of entities of one, two and three tokens."""
BEFORE = {
    "PER": "mr dr president by with",
    "LOC": "in at from near to",
    "ORG": "the of at for by",
    "MISC": "the a all an",
}
AFTER = {
    "PER": "said who told won '",
    "LOC": ", on . where and",
    "ORG": "shares said reported will '",
    "MISC": "team minister and in",
}
FUNCTION_WORDS = (
    "the of to in a and on for that with was at by from as it is he said has have be "
    "his an but are not"
)
P_ENTITY = 0.12
"""Probability that an entity comes next."""
P_HINT = 0.35
"""Probability that a word beside an entity hints at its kind."""
P_SHARED = 0.35
"""Probability that a new name is one of another kind."""
P_TYPICAL_ENDING = 0.35
"""Probability that a new name has an ending of its kind."""
P_CAPITALIZED = 0.04
"""Probability that a common word is capitalized."""
DISCOUNT = 0.65
"""Exponent by which the vocabulary grows in the Pitman–Yor process."""
STRENGTH = 30.0
"""Strength of the Pitman–Yor process."""


class Lexicon:
    """Words of one kind, reused in proportion to their use.

    Parameters
    ----------
    kind : str
        "common", or a kind of entity.
    rng : numpy.random.Generator
    words : sequence of str
        Words that count as used already.
    """

    def __init__(self, kind: str, rng: Rng, words: Sequence[str] = ()) -> None:
        self.kind = kind
        self.rng = rng
        self.used: list[str] = list(words)
        self.n_types = len(words)

    def draw_word(self, others: Sequence[Lexicon] = ()) -> str:
        """Draw a used or a new word; some new ones come from other lexicons."""
        n_used = len(self.used)
        p_new = (STRENGTH + DISCOUNT * self.n_types) / (STRENGTH + n_used)
        if n_used and self.rng.random() >= p_new:
            word = self._choose(self.used)
        else:
            others = [other for other in others if other.used]
            if others and self.rng.random() < P_SHARED:
                word = self._choose(self._choose(others).used)
            else:
                word = self._make_word()
            self.n_types += 1
        self.used.append(word)
        return word

    def _make_word(self) -> str:
        """Make a word of one to three syllables and an ending."""
        n_syllables = self.rng.integers(1, 4)
        syllables = self.rng.integers(len(SYLLABLES), size=n_syllables)
        stem = "".join(SYLLABLES[k] for k in syllables)
        if self.kind == "common" or self.rng.random() < P_TYPICAL_ENDING:
            endings = ENDINGS[self.kind]
        else:
            endings = ENDINGS["PER"] + ENDINGS["LOC"] + ENDINGS["ORG"]
        word = stem + self._choose(endings)
        return word if self.kind == "common" else word.capitalize()

    def _choose(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]


def make_sentences(n: int, rng: Rng) -> tuple[list[list[str]], list[NDArray[np.str_]]]:
    """Simulate sentences of about 14 tokens; a sixth of the tokens are names.

    Returns
    -------
    texts : list of lists of str
        Tokens.
    labels : list of ndarray of str
        B-PER, I-PER, …, O for each token.
    """
    n = check_int(n, "n", 0, MAX_SENTENCES)
    rng = check_generator(rng, "rng")
    common = Lexicon("common", rng, FUNCTION_WORDS.split() * 4)
    names = {kind: Lexicon(kind, rng) for kind in KINDS}
    texts = []
    labels = []
    for length in np.maximum(3, rng.negative_binomial(4, 4 / 18.0, size=n) + 1):
        tokens: list[str] = []
        marks: list[str] = []
        topic = rng.dirichlet(np.full(len(KINDS), 0.7))
        while len(tokens) < length:
            if rng.random() < P_ENTITY:
                kind = str(rng.choice(KINDS, p=topic))
                entity_tokens, entity_marks = _make_entity(kind, names, common, rng)
                tokens += entity_tokens
                marks += entity_marks
            else:
                word = common.draw_word()
                is_capitalized = rng.random() < P_CAPITALIZED
                tokens.append(word.capitalize() if is_capitalized else word)
                marks.append("O")
        tokens[0] = tokens[0][:1].upper() + tokens[0][1:]
        texts.append([*tokens, "."])
        labels.append(np.array([*marks, "O"]))
    return texts, labels


def _make_entity(
    kind: str, names: dict[str, Lexicon], common: Lexicon, rng: Rng
) -> tuple[list[str], list[str]]:
    """Return tokens and labels of an entity, with a word on each side."""

    def draw_context(words: str) -> str:
        choices = words.split()
        if rng.random() < P_HINT:
            return choices[rng.integers(len(choices))]
        return common.draw_word()

    others = [lexicon for other, lexicon in names.items() if other != kind]
    size = 1 + int(rng.choice(3, p=LENGTHS[kind]))
    tokens = [
        draw_context(BEFORE[kind]),
        *(names[kind].draw_word(others) for _ in range(size)),
        draw_context(AFTER[kind]),
    ]
    marks = ["O", f"B-{kind}", *([f"I-{kind}"] * (size - 1)), "O"]
    return tokens, marks


def token_features(tokens: Sequence[str]) -> list[list[str]]:
    """Return common features of taggers: form, affixes, shape, and four neighbors."""
    tokens = check_list(tokens, "tokens", str)
    padded = ["<s>", "<s>", *tokens, "</s>", "</s>"]
    features = []
    for i, token in enumerate(tokens):
        names = [
            f"w={token.lower()}",
            f"W={token}",
            f"p2={token[:2]}",
            f"p3={token[:3]}",
            f"s2={token[-2:]}",
            f"s3={token[-3:]}",
            f"shape={_token_shape(token)}",
        ]
        for step in (-2, -1, 1, 2):
            other = padded[i + 2 + step]
            names += [
                f"{step}w={other.lower()}",
                f"{step}shape={_token_shape(other)}",
                f"{step}s3={other[-3:]}",
            ]
        features.append(names)
    return features


def _token_shape(token: str) -> str:
    """Return one character for each run of a kind: "Xx" for a capitalized word."""
    kinds = [
        "X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c
        for c in token
    ]
    return "".join(c for i, c in enumerate(kinds) if i == 0 or kinds[i - 1] != c)


def vectorize_features(
    features: Sequence[Sequence[Sequence[str]]], index: dict[str, int] | None = None
) -> tuple[list[Any], dict[str, int]]:
    """Convert features of tokens to sparse rows.

    Parameters
    ----------
    features : sequence of sentences, each a sequence of lists of str
    index : dict from feature to column, optional
        Features that are not in it are left out. By default all features get a column.

    Returns
    -------
    X : list of csr_array of shape (n_tokens, n_columns)
    index : dict
    """
    if index is not None:
        _check_index(index)
    columns_of: dict[str, int] = {} if index is None else index
    rows = []
    for sentence in check_list(features, "features"):
        indices: list[int] = []
        indptr = [0]
        for token in check_list(sentence, "a sentence"):
            names = check_list(token, "the features of a token", str)
            if index is None:
                columns = [columns_of.setdefault(f, len(columns_of)) for f in names]
            else:
                columns = [columns_of[f] for f in names if f in columns_of]
            indices += sorted(set(columns))
            indptr.append(len(indices))
        rows.append(
            (np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int32))
        )
    n_columns = len(columns_of)
    X = [
        sp.csr_array(
            (np.ones(len(indices)), indices, indptr),
            shape=(len(indptr) - 1, n_columns),
        )
        for indices, indptr in rows
    ]
    return X, columns_of


def _check_index(index: object) -> None:
    """Refuse what is no dict from features to the columns 0, 1, …"""
    if isinstance(index, dict):
        columns = check_list(index.values(), "columns", int)
        if sorted(columns) == list(range(len(columns))):
            return
    raise InputError(
        f"index is {short_repr(index)}; expected a dict from features to the columns "
        "0, 1, …, or None"
    )
