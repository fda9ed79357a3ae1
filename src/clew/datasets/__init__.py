"""Simulated data to try clew on: noisy words, and sentences with named entities."""

from clew.datasets.entities import make_sentences, token_features, vectorize_features
from clew.datasets.hiding import hide_labels
from clew.datasets.words import (
    COLUMNS,
    LETTERS,
    ROWS,
    count_letter_pairs,
    draw_glyph,
    make_words,
)
from clew.sequence.entities import entity_f1

# earlier names
annotate = hide_labels
glyph = draw_glyph
hide = hide_labels
language = count_letter_pairs
sentences = make_sentences
simulate = make_words
vectorise = vectorize_features

__all__ = [
    "COLUMNS",
    "LETTERS",
    "ROWS",
    "annotate",
    "count_letter_pairs",
    "draw_glyph",
    "entity_f1",
    "glyph",
    "hide",
    "hide_labels",
    "language",
    "make_sentences",
    "make_words",
    "sentences",
    "simulate",
    "token_features",
    "vectorise",
    "vectorize_features",
]
