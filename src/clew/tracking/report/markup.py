"""Pieces of HTML for the report; all text from outside passes `escape_text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that no document may hold, though names of files may."""
LONG_FACT = 80
"""Characters of a value that stands below its name."""
NOTHING = "–"
"""Stands for a figure that does not exist."""


def replace_control_characters(value: object) -> str:
    """Text without characters that no document may hold."""
    return FORBIDDEN.sub("\ufffd", str(value))


def escape_text(value: object) -> str:
    """Text that a browser shows and never interprets."""
    return html.escape(replace_control_characters(value), quote=True)


def format_number(value: float, digits: int = 3) -> str:
    """Format a number with separators, few digits and a true minus sign."""
    if value != value:
        return NOTHING
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif 0.01 <= abs(value) < 1e6:
        text = f"{value:,.{digits}f}"
    else:
        text = f"{value:.{digits - 1}g}"
    return text.replace("-", "−")


def format_count(n: int, singular: str, plural: str | None = None) -> str:
    """Format a number with its noun: "1 track", "2,410 tracks"."""
    noun = singular if n == 1 else plural or f"{singular}s"
    return f"{n:,} {noun}"


def render_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, n_words: int = 1
) -> str:
    """Render a table; all but the first `n_words` columns are aligned right."""

    def render_row(cells: Sequence[object], tag: str) -> str:
        parts = []
        for place, cell in enumerate(cells):
            style = "" if place < n_words else ' class="figure"'
            parts.append(f"<{tag}{style}>{escape_text(cell)}</{tag}>")
        return f"<tr>{''.join(parts)}</tr>"

    header = render_row(head, "th")
    body = "".join(render_row(cells, "td") for cells in rows)
    return (
        f'<div class="scroll"><table><thead>{header}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def render_facts(facts: Iterable[tuple[object, object]]) -> str:
    """Render names and values, one a line; long values below their names."""
    parts = []
    for name, value in facts:
        style = ' class="words"' if len(str(value)) > LONG_FACT else ""
        parts.append(
            f"<div{style}><dt>{escape_text(name)}</dt>"
            f"<dd>{escape_text(value)}</dd></div>"
        )
    return f'<dl class="facts">{"".join(parts)}</dl>'


def render_section(title: str, *parts: str) -> str:
    """Render a section of the page; its parts are HTML."""
    return f"<section><h2>{escape_text(title)}</h2>{''.join(parts)}</section>"


def render_lead(sentence: str) -> str:
    """Render the sentences that say what a section shows."""
    return f'<p class="lead">{escape_text(sentence)}</p>'


def render_picture(svg: str) -> str:
    """Render a figure that scrolls if the window is too narrow."""
    return f'<div class="picture scroll">{svg}</div>'


def render_details(summary: str, body: str) -> str:
    """Render what is folded at first."""
    return f"<details><summary>{escape_text(summary)}</summary>{body}</details>"
