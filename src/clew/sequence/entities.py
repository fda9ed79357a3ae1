"""Entities in labels of tokens: BIO, IOB1, IOBES and BILOU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from clew.models.chain import LabelPair
from clew.utils.validation import check_list

BEGIN = frozenset("BSU")
"""Marks of a first token."""
END = frozenset("ESLU")
"""Marks of a last token, where the scheme has them."""
INSIDE = frozenset("IEL")
"""Marks of a token after the first."""
OPEN = frozenset("BI")
"""Marks after which an entity may continue."""


class Entity(NamedTuple):
    """Tokens `first` to `last`, both included, of one kind."""

    first: int
    last: int
    kind: str


def split_label(label: str) -> tuple[str, str]:
    """Return the mark and the kind, as ("B", "PER"); ("O", "") outside of entities."""
    if label == "O":
        return "O", ""
    return label[:1], label[1:].removeprefix("-")


def list_entities(labels: Sequence[str]) -> list[Entity]:
    """Return the entities of one sentence.

    Labels that cannot be are read as the CoNLL shared tasks do: an I or E that follows
    no label of its kind begins an entity.

    Parameters
    ----------
    labels : sequence of str
        "O", and "B-PER", "I-PER" and so on.
    """
    entities = []
    first = 0
    before = "O"
    kind_before = ""
    for i, label in enumerate([*check_list(labels, "labels", str), "O"]):
        mark, kind = split_label(label)
        is_new = mark in BEGIN or before in END or kind != kind_before
        if before != "O" and (mark == "O" or is_new):
            entities.append(Entity(first, i - 1, kind_before))
        if mark != "O" and (before == "O" or is_new):
            first = i
        before = mark
        kind_before = kind
    return entities


def entity_f1(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> float:
    """Return the harmonic mean of precision and recall over whole entities."""
    expected = _list_all_entities(truth)
    actual = _list_all_entities(predicted)
    return 2 * len(expected & actual) / max(1, len(expected) + len(actual))


def _list_all_entities(labels: Sequence[Sequence[str]]) -> set[tuple[int, Entity]]:
    """Return the entities of all sentences, with the number of their sentence."""
    sentences = check_list(labels, "labels")
    return {
        (n, entity)
        for n, sentence in enumerate(sentences)
        for entity in list_entities(sentence)  # type: ignore[arg-type]  # checked there
    }


def forbid_pairs(labels: Iterable[str]) -> list[LabelPair]:
    """Return the pairs of neighboring labels that the labels' scheme excludes.

    Inside an entity, a label follows one of the same kind. With marks of last tokens
    (IOBES, BILOU), an entity that began also has to end. Labels of another form than
    "O" and a mark with a kind, or marks of no scheme, give no pairs.
    """
    marks = {label: split_label(label) for label in labels}
    used = {mark for mark, _ in marks.values()}
    if not used & INSIDE or not used <= {"O"} | BEGIN | END | INSIDE:
        return []
    has_ends = bool(used & END)
    pairs: list[LabelPair] = []
    for before in [None, *marks]:
        mark, kind = marks.get(before or "", ("O", ""))
        is_open = mark in OPEN
        for after in [None, *marks]:
            next_mark, next_kind = marks.get(after or "", ("O", ""))
            continues = next_mark in INSIDE
            is_same = is_open and kind == next_kind
            is_cut = has_ends and is_open and not continues
            if is_cut or (continues and not is_same):
                pairs.append((before, after))
    return pairs


def has_pair(
    sentences: Iterable[Sequence[object] | None], pairs: Sequence[LabelPair]
) -> bool:
    """Whether two neighboring labels in an annotation are one of these pairs."""
    searched = set(pairs)
    for labels in sentences:
        if labels is None:
            continue
        ends = [None if isinstance(y, str) else "" for y in (labels[0], labels[-1])]
        singles = [y if isinstance(y, str) else "" for y in labels]
        for pair in pairwise([ends[0], *singles, ends[1]]):
            if pair in searched:
                return True
    return False
