"""Simulated data to try clew on: noisy words of letters, and sentences with named entities."""

from clew.datasets.entities import entity_f1, hide, sentences, token_features, vectorise
from clew.datasets.words import LETTERS, annotate, glyph, language, simulate

__all__ = [
    "LETTERS",
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
