"""Read annotated text: IOB, CoNLL and JSONL as Prodigy writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from clew.errors import InputError
from clew.utils.storage import read_bytes
from clew.utils.validation import short_repr

Format: TypeAlias = Literal["conll", "iob", "jsonl"]
UNKNOWN = frozenset(("_", "?", "-", ""))
"""Labels of tokens that are not annotated."""
TOKEN = re.compile(r"\w+|[^\w\s]")


class TaggedText(NamedTuple):
    """Tokens and labels of each sentence."""

    tokens: list[list[str]]
    labels: list[list[Any]]
    """For each token a label, a set of labels one of which is right, or None."""


def read_tagged_text(
    path: str | Path,
    format: Format | None = None,
    *,
    token_column: int = 0,
    label_column: int = -1,
    is_complete: bool = True,
) -> TaggedText:
    """Read sentences with partially annotated tokens from one file.

    Parameters
    ----------
    path : str or Path
        CoNLL: a token a line with columns, an empty line after each sentence. IOB: a
        sentence a line, each token as "word|label" or "word|tag|label". JSONL: a JSON
        object a line with "text", "spans" and, optionally, "tokens" and "answer", as
        Prodigy exports. A label "_", "?" or "-" is unknown; in CoNLL files "B-PER|B-ORG"
        is a set of labels.
    format : {"conll", "iob", "jsonl"}, optional
        By default it follows from the content.
    token_column, label_column : int
        Columns of a CoNLL file.
    is_complete : bool
        Whether tokens outside of the spans of an accepted JSONL line are "O". Otherwise
        they are unknown, as they are in lines that Prodigy marks as binary.

    Notes
    -----
    Of a rejected JSONL line it is known that no entity of the span's kind begins at its
    first token. Ignored lines are left out.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8 ({error.reason})") from None
    lines = text.splitlines()
    if format is None:
        format = _guess_format(lines)
    if format == "jsonl":
        return _read_jsonl(path, lines, is_complete)
    if format == "iob":
        return _read_iob(path, lines)
    if format == "conll":
        return _read_conll(path, lines, token_column, label_column)
    raise InputError(
        f"format is {short_repr(format)}; expected 'conll', 'iob', 'jsonl' or None"
    )


def _guess_format(lines: Sequence[str]) -> Format:
    """Return the format of a file's first line that is not empty."""
    for line in lines:
        if line.strip():
            if line.lstrip().startswith("{"):
                return "jsonl"
            words = line.split()
            has_bars = all("|" in word for word in words)
            return "iob" if has_bars else "conll"
    return "conll"


def _read_conll(
    path: str | Path, lines: Sequence[str], token_column: int, label_column: int
) -> TaggedText:
    """Read a token a line."""
    text = TaggedText([], [])
    tokens: list[str] = []
    labels: list[Any] = []
    for number, line in enumerate([*lines, ""], 1):
        columns = line.split("\t") if "\t" in line else line.split()
        is_document = bool(columns) and columns[0] == "-DOCSTART-"
        if not line.strip() or is_document:
            if tokens:
                text.tokens.append(tokens)
                text.labels.append(labels)
                tokens = []
                labels = []
            continue
        if line.startswith("# ") and "\t" not in line:  # a comment of CoNLL-U
            continue
        try:
            token = columns[token_column]
            label = columns[label_column]
        except IndexError:
            raise InputError(
                f"{path}, line {number}: there are {len(columns)} columns; expected "
                f"column {token_column} and column {label_column}"
            ) from None
        if len(columns) == 1:
            raise InputError(
                f"{path}, line {number}: expected a token and a label, not "
                f"{short_repr(line)}"
            )
        tokens.append(token)
        labels.append(_parse_label(label))
    return text


def _parse_label(label: str) -> Any:
    """Return a label, a set of labels, or None."""
    label = label.strip()
    if label in UNKNOWN:
        return None
    names = label.split("|")
    return set(names) if len(names) > 1 else label


def _read_iob(path: str | Path, lines: Sequence[str]) -> TaggedText:
    """Read a sentence a line."""
    text = TaggedText([], [])
    for number, line in enumerate(lines, 1):
        words = [word.split("|") for word in line.split()]
        if not words:
            continue
        if any(len(word) < 2 for word in words):
            raise InputError(f"{path}, line {number}: expected word|label at each word")
        text.tokens.append([word[0] for word in words])
        text.labels.append([_parse_label(word[-1]) for word in words])
    return text


class _Line(NamedTuple):
    """One JSONL line: places of its tokens, and entities as token ranges."""

    number: int
    tokens: list[tuple[str, int, int]]
    spans: list[tuple[int, int, str]]
    is_rejected: bool
    is_complete: bool


def _read_jsonl(
    path: str | Path, lines: Sequence[str], is_complete: bool
) -> TaggedText:
    """Read a JSON object a line."""
    records = list(_parse_jsonl(path, lines, is_complete))
    kinds = {kind for record in records for _, _, kind in record.spans}
    text = TaggedText([], [])
    for record in records:
        outside = "O" if record.is_complete else None
        labels: list[Any] = [outside] * len(record.tokens)
        for first, last, kind in record.spans:
            if record.is_rejected:
                exclude_beginning(labels, first, kind, kinds)
            else:
                inside = [f"I-{kind}"] * (last - first)
                labels[first : last + 1] = [f"B-{kind}", *inside]
        text.tokens.append([token for token, _, _ in record.tokens])
        text.labels.append(labels)
    return text


def exclude_beginning(
    labels: list[Any], first: int, kind: str, kinds: Iterable[str]
) -> None:
    """Note that no entity of a kind begins at a token, unless its label is known.

    Parameters
    ----------
    labels : list
        Labels of a sentence; the one of the token is changed.
    first : int
    kind : str
    kinds : iterable of str
        All kinds of entities.
    """
    known = labels[first]
    if known is None:
        known = {"O", *(f"{mark}-{name}" for name in kinds for mark in "BI")}
    if isinstance(known, set):
        labels[first] = known - {f"B-{kind}"}


def _parse_jsonl(
    path: str | Path, lines: Sequence[str], is_complete: bool
) -> Iterator[_Line]:
    """Yield the lines that were accepted or rejected."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
            answer = record.get("answer", "accept")
            if answer == "ignore" or (answer == "reject" and not record.get("spans")):
                continue
            tokens = _list_tokens(record)
            spans = [
                (*_find_tokens(span, tokens, where), str(span["label"]))
                for span in record.get("spans") or []
            ]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{where}: expected a JSON object with text and spans ({error!r})"
            ) from None
        if not tokens:
            continue
        is_rejected = answer == "reject"
        is_binary = bool(record.get("_is_binary"))
        knows_all = is_complete and not is_binary and not is_rejected
        yield _Line(number, tokens, spans, is_rejected, knows_all)


def _list_tokens(record: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return each token with its first and last character."""
    if record.get("tokens"):
        return [(t["text"], int(t["start"]), int(t["end"])) for t in record["tokens"]]
    return [(m.group(), m.start(), m.end()) for m in TOKEN.finditer(record["text"])]


def _find_tokens(
    span: dict[str, Any], tokens: Sequence[tuple[str, int, int]], where: str
) -> tuple[int, int]:
    """Return the first and last token of a span."""
    starts = {start: i for i, (_, start, _) in enumerate(tokens)}
    ends = {end: i for i, (_, _, end) in enumerate(tokens)}
    start = int(span["start"])
    end = int(span["end"])
    if start not in starts or end not in ends or starts[start] > ends[end]:
        raise InputError(
            f"{where}: the span from character {start} to {end} does not begin and end "
            "with tokens"
        )
    return starts[start], ends[end]
