"""Simulated data to try clew on: noisy words of letters, and sentences with named entities."""

from clew.datasets.entities import entity_f1, hide, sentences, token_features, vectorise
from clew.datasets.words import (
    COLUMNS,
    LETTERS,
    ROWS,
    annotate,
    glyph,
    language,
    simulate,
)

__all__ = [
    "COLUMNS",
    "LETTERS",
    "ROWS",
    "annotate",
    "entity_f1",
    "glyph",
    "hide",
    "language",
    "sentences",
    "simulate",
    "token_features",
    "vectorise",
]
