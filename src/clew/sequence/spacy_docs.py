"""spaCy's documents: partial annotations from them, and entities into them.

Needs ``pip install 'clew-learn[spacy]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from clew.errors import MissingExtra
from clew.sequence.entities import list_entities
from clew.sequence.files import TaggedText, exclude_beginning
from clew.utils.storage import atomic_write, read_bytes

INCORRECT_SPANS = "incorrect_spans"
"""Default key of spans that are known to be no entities."""


def read_docbin(
    path: str | Path, incorrect_spans_key: str | None = INCORRECT_SPANS
) -> TaggedText:
    """Read tokens and entities from a file of spaCy's `DocBin`.

    Parameters
    ----------
    path : str or Path
        A .spacy file.
    incorrect_spans_key : str, optional
        Key in `Doc.spans` of spans that are known to be no entities.
    """
    spacy = _import_spacy()
    docs = spacy.tokens.DocBin().from_bytes(read_bytes(path))
    return from_docs(docs.get_docs(spacy.blank("xx").vocab), incorrect_spans_key)


def write_docbin(
    path: str | Path, tokens: Sequence[Sequence[str]], labels: Sequence[Sequence[Any]]
) -> None:
    """Write tokens with their entities to a file of spaCy's `DocBin`.

    Parameters
    ----------
    path : str or Path
        A .spacy file.
    tokens, labels : sequences of sequences
        Labels as "B-PER", "I-PER" and "O", such as those of `SequenceTagger.predict`;
        None where they are unknown.
    """
    spacy = _import_spacy()
    vocab = spacy.blank("xx").vocab
    docs = [spacy.tokens.Doc(vocab, words=list(words)) for words in tokens]
    set_entities(docs, labels)
    with atomic_write(path) as file:
        file.write(spacy.tokens.DocBin(docs=docs).to_bytes())


def from_docs(
    docs: Iterable[Any], incorrect_spans_key: str | None = INCORRECT_SPANS
) -> TaggedText:
    """Return the tokens and entities of spaCy documents as partial annotations.

    A token whose entity is missing ("-") is None. Where a span is known to be wrong, it
    is known that no entity of its kind begins at its first token.

    Parameters
    ----------
    docs : iterable of spacy.tokens.Doc
    incorrect_spans_key : str, optional
        Key in `Doc.spans` of spans that are known to be no entities.
    """
    text = TaggedText([], [])
    wrong_starts: list[tuple[int, int, str]] = []
    kinds: set[str] = set()
    for n, doc in enumerate(docs):
        labels = [_read_label(token) for token in doc]
        text.tokens.append([token.text for token in doc])
        text.labels.append(labels)
        kinds.update(token.ent_type_ for token in doc if token.ent_type_)
        if incorrect_spans_key is not None and incorrect_spans_key in doc.spans:
            for span in doc.spans[incorrect_spans_key]:
                kinds.add(span.label_)
                wrong_starts.append((n, span.start, span.label_))
    for n, start, kind in wrong_starts:
        exclude_beginning(text.labels[n], start, kind, kinds)
    return text


def _read_label(token: Any) -> str | None:
    """Return the label of spaCy's token; None if it is missing."""
    if not token.ent_iob_:
        return None
    if not token.ent_type_:  # outside, or blocked
        return "O"
    return f"{token.ent_iob_}-{token.ent_type_}"


def set_entities(docs: Iterable[Any], labels: Sequence[Sequence[Any]]) -> None:
    """Set the entities of spaCy documents from labels of their tokens.

    Parameters
    ----------
    docs : iterable of spacy.tokens.Doc
    labels : sequence of sequences
        A label for each token; None is missing, as spaCy calls it.
    """
    make_span = _import_spacy().tokens.Span
    for doc, marks in zip(docs, labels, strict=True):
        known = ["O" if mark is None else mark for mark in marks]
        spans = [
            make_span(doc, entity.first, entity.last + 1, label=entity.kind)
            for entity in list_entities(known)
        ]
        missing = [doc[i : i + 1] for i, mark in enumerate(marks) if mark is None]
        doc.set_ents(spans, missing=missing, default="outside")


def _import_spacy() -> Any:
    """Return the module spacy; the error names the extra."""
    try:
        import spacy.tokens
    except ImportError:
        raise MissingExtra(
            "documents of spaCy need spacy: pip install 'clew-learn[spacy]'", "spacy"
        ) from None
    return spacy
