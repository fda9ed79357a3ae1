"""Simulated sentences with named entities: token sequences with as many sparse features as real text has.

Words are reused in proportion to how often they were used before, and new ones keep coming (a Pitman–Yor process:
Goldwater et al. 2006), so that the vocabulary grows as a power of the text and frequencies follow Zipf's law. Names
have lexicons of their own for people, places and organisations; endings and contexts hint at the kind, not always, and
some names are shared between kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError
from clew.utils.validation import (
    check_fraction,
    check_generator,
    check_int,
    check_list,
    short_repr,
)

Rng = np.random.Generator
MAX_SENTENCES = 10_000_000

KINDS = ("PER", "LOC", "ORG", "MISC")
LABELS = ("O", *(f"{place}-{kind}" for kind in KINDS for place in "BI"))
ONSETS, VOWELS = "b c d f g h l m n p r s t v w k st tr", "a e i o u ai ou"
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
"""How probable an entity of one, two and three tokens is."""
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
FUNCTION_WORDS = "the of to in a and on for that with was at by from as it is he said has have be his an but are not"
HINTED = 0.35
"""How often a context word hints at the kind of an entity; otherwise any word stands there."""
SHARED = 0.35
"""How often a new name is one that another kind has already."""
TELLING = 0.35
"""How often a new name ends as names of its kind do."""
CAPITALISED = 0.04
"""How often a common word is written like a name."""
DISCOUNT, STRENGTH = 0.65, 30.0
"""Of the Pitman–Yor process: the vocabulary grows about as n^0.65."""


class Lexicon:
    """Words of one kind, reused in proportion to their use."""

    def __init__(self, kind: str, rng: Rng, reserved: Sequence[str] = ()) -> None:
        self.kind, self.rng = kind, rng
        self.used: list[str] = list(reserved)
        self.n_types = len(reserved)

    def word(self, others: Sequence[Lexicon] = ()) -> str:
        """An old word or a new one; some new ones come from other lexicons."""
        n = len(self.used)
        if n and self.rng.random() >= (STRENGTH + DISCOUNT * self.n_types) / (
            STRENGTH + n
        ):
            word = self.used[self.rng.integers(n)]
        else:
            filled = [other for other in others if other.used]
            if filled and self.rng.random() < SHARED:
                other = filled[self.rng.integers(len(filled))]
                word = other.used[self.rng.integers(len(other.used))]
            else:
                word = self._new()
            self.n_types += 1
        self.used.append(word)
        return word

    def _new(self) -> str:
        """A word that is made of syllables, with an ending of its kind."""
        stem = "".join(
            SYLLABLES[k]
            for k in self.rng.integers(len(SYLLABLES), size=self.rng.integers(1, 4))
        )
        telling = self.kind == "common" or self.rng.random() < TELLING
        endings = (
            ENDINGS[self.kind]
            if telling
            else ENDINGS["PER"] + ENDINGS["LOC"] + ENDINGS["ORG"]
        )
        word = stem + endings[self.rng.integers(len(endings))]
        return word if self.kind == "common" else word.capitalize()


def sentences(n: int, rng: Rng) -> tuple[list[list[str]], list[NDArray[np.str_]]]:
    """Tokens and labels (B-PER, I-PER, …, O) of n sentences of about 14 tokens, a sixth of which are names."""
    n, rng = check_int(n, "n", 0, MAX_SENTENCES), check_generator(rng, "rng")
    common = Lexicon("common", rng, FUNCTION_WORDS.split() * 4)
    names = {kind: Lexicon(kind, rng) for kind in KINDS}
    texts, labels = [], []
    for length in np.maximum(3, rng.negative_binomial(4, 4 / 18.0, size=n) + 1):
        tokens: list[str] = []
        marks: list[str] = []
        topic = rng.dirichlet(np.full(len(KINDS), 0.7))
        while len(tokens) < length:
            if rng.random() < 0.12:
                _add_entity(
                    tokens, marks, str(rng.choice(KINDS, p=topic)), names, common, rng
                )
            else:
                word = common.word()
                tokens.append(word.capitalize() if rng.random() < CAPITALISED else word)
                marks.append("O")
        tokens[0] = tokens[0][:1].upper() + tokens[0][1:]
        texts.append([*tokens, "."])
        labels.append(np.array([*marks, "O"]))
    return texts, labels


def _add_entity(
    tokens: list[str],
    marks: list[str],
    kind: str,
    names: dict[str, Lexicon],
    common: Lexicon,
    rng: Rng,
) -> None:
    """One entity with the word before it and the word after it."""

    def context(words: str) -> str:
        choices = words.split()
        return (
            choices[rng.integers(len(choices))]
            if rng.random() < HINTED
            else common.word()
        )

    others = [lexicon for other, lexicon in names.items() if other != kind]
    size = 1 + int(rng.choice(3, p=LENGTHS[kind]))
    tokens += [
        context(BEFORE[kind]),
        *(names[kind].word(others) for _ in range(size)),
        context(AFTER[kind]),
    ]
    marks += ["O", f"B-{kind}", *([f"I-{kind}"] * (size - 1)), "O"]


def token_features(tokens: Sequence[str]) -> list[list[str]]:
    """What taggers commonly see of each token: its form, affixes and shape, and the forms of its four neighbours."""
    tokens = check_list(tokens, "tokens", str)
    own = [
        [
            f"w={t.lower()}",
            f"W={t}",
            f"p2={t[:2]}",
            f"p3={t[:3]}",
            f"s2={t[-2:]}",
            f"s3={t[-3:]}",
            f"shape={_shape(t)}",
        ]
        for t in tokens
    ]
    padded = ["<s>", "<s>", *tokens, "</s>", "</s>"]
    found = []
    for i, features in enumerate(own):
        around = []
        for step in (-2, -1, 1, 2):
            other = padded[i + 2 + step]
            around += [
                f"{step}w={other.lower()}",
                f"{step}shape={_shape(other)}",
                f"{step}s3={other[-3:]}",
            ]
        found.append([*features, *around])
    return found


def _shape(token: str) -> str:
    """Xx for a capitalised word, and so on: every run of a kind of character as one."""
    kinds = [
        "X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c
        for c in token
    ]
    return "".join(c for i, c in enumerate(kinds) if i == 0 or kinds[i - 1] != c)


def vectorise(
    features: Sequence[Sequence[Sequence[str]]], index: dict[str, int] | None = None
) -> tuple[list[Any], dict[str, int]]:
    """(T, F) sparse rows of each sentence, and the column of each feature; those not in a given index are left out."""
    if index is not None:
        columns_of = (
            check_list(index.values(), "columns", int)
            if isinstance(index, dict)
            else [None]
        )
        if sorted(columns_of) != list(range(len(columns_of))):
            raise InputError(
                f"index is {short_repr(index)}; expected a dict from features to the columns 0, 1, …, or None"
            )
    known: dict[str, int] = {} if index is None else index
    rows = []
    for sentence in check_list(features, "features"):
        columns: list[int] = []
        begins = [0]
        for token in (
            check_list(token, "the features of a token", str)
            for token in check_list(sentence, "a sentence")
        ):
            found = (
                [known.setdefault(f, len(known)) for f in token]
                if index is None
                else [known[f] for f in token if f in known]
            )
            columns += sorted(set(found))
            begins.append(len(columns))
        rows.append(
            (np.array(columns, dtype=np.int32), np.array(begins, dtype=np.int32))
        )
    shape = len(known)
    return [
        sp.csr_array((np.ones(len(c)), c, b), shape=(len(b) - 1, shape))
        for c, b in rows
    ], known


def hide(
    labels: Sequence[NDArray[np.str_]], fraction: float, rng: Rng
) -> list[list[str | None]]:
    """The labels of a fraction of the tokens; None for the others."""
    share, rng = check_fraction(fraction, "fraction"), check_generator(rng, "rng")
    return [
        [
            str(label) if rng.random() < share else None
            for label in check_list(sentence, "labels of a sentence", str)
        ]
        for sentence in check_list(labels, "labels")
    ]


def entity_f1(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> float:
    """The harmonic mean of precision and recall over whole entities."""
    one, other = (set(_entities(labels)) for labels in (truth, predicted))
    return 2 * len(one & other) / max(1, len(one) + len(other))


def _entities(labels: Sequence[Sequence[str]]) -> list[tuple[int, int, int, str]]:
    """(sentence, first token, last token, kind) of every entity; an I without its B begins one."""
    found = []
    for n, sentence in enumerate(check_list(labels, "labels")):
        begin, kind = 0, ""
        for i, label in enumerate(
            [*check_list(sentence, "labels of a sentence", str), "O"]
        ):
            if kind and label != f"I-{kind}":
                found.append((n, begin, i - 1, kind))
                kind = ""
            if label != "O" and not kind:
                begin, kind = i, str(label)[2:]
    return found
