"""The few pieces of HTML that the report is made of; everything that comes from outside passes through `text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# characters that no document may hold; a file's name may
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
SENTENCE = 80
"""Characters from which on a fact is a sentence."""


def replace_control_characters(value: object) -> str:
    """Anything as characters that every document may hold."""
    return FORBIDDEN.sub("\ufffd", str(value))


def escape_text(value: object) -> str:
    """Anything as text that a browser shows and never obeys."""
    return html.escape(replace_control_characters(value), quote=True)


def format_number(value: float, digits: int = 3) -> str:
    """A number for people: thousands apart, few digits, a true minus sign."""
    if value != value:
        return "–"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e15:
        plain = f"{int(value):,}"
    else:
        plain = (
            f"{value:,.{digits}f}"
            if 0.01 <= abs(value) < 1e6
            else f"{value:.{digits - 1}g}"
        )
    return plain.replace("-", "−")


def format_count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 track", "2,410 tracks"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def render_table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    words: int = 1,
    caption: str = "",
) -> str:
    """A table whose first `words` columns are words and whose others are figures, aligned right."""

    def row(cells: Sequence[object], tag: str) -> str:
        marks = ["" if at < words else ' class="figure"' for at in range(len(cells))]
        return (
            "<tr>"
            + "".join(
                f"<{tag}{m}>{escape_text(c)}</{tag}>"
                for m, c in zip(marks, cells, strict=True)
            )
            + "</tr>"
        )

    title = f"<caption>{escape_text(caption)}</caption>" if caption else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table>{title}<thead>{row(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def _words(value: object) -> str:
    """Sentences stand under their names, as the figures beside theirs would be too narrow for them."""
    return ' class="words"' if len(str(value)) > SENTENCE else ""


def render_facts(facts: Iterable[tuple[object, object]]) -> str:
    """Names and values, one a line."""
    return (
        '<dl class="facts">'
        + "".join(
            f"<div{_words(value)}><dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd></div>"
            for name, value in facts
        )
        + "</dl>"
    )


def render_section(title: str, *parts: str) -> str:
    """A part of the page under its heading; the parts are HTML already."""
    return f"<section><h2>{escape_text(title)}</h2>{''.join(parts)}</section>"


def render_lead(sentence: str) -> str:
    """What a section shows, in a sentence or two."""
    return f'<p class="lead">{escape_text(sentence)}</p>'


def render_picture(svg: str) -> str:
    """A figure that scrolls by itself where the window is narrower than it can be read."""
    return f'<div class="picture scroll">{svg}</div>'


def render_details(summary: str, body: str) -> str:
    """What most readers need not see at once."""
    return f"<details><summary>{escape_text(summary)}</summary>{body}</details>"
