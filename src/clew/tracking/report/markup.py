"""HTML, figures, colors and style of the report; all text from outside passes `escape_text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clew.tracking.events import Event
from clew.utils.validation import replace_control_characters

LONG_FACT = 80
"""Characters of a value that stands below its name."""
NOTHING = "–"
"""Stands for a figure that does not exist."""
INK = "#1c2128"
"""Text and lines."""
MUTED = "#636c76"
"""Secondary text."""
HAIR = "#d5dae0"
"""Rules and grids."""
# Okabe and Ito's colors, which people with any common color vision can tell apart
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#009e73"
ORANGE = "#e69f00"
SKY = "#56b4e9"
PURPLE = "#cc79a7"

EVENT_COLOR = {
    Event.MOVE: MUTED,
    Event.DIVIDE: BLUE,
    Event.APPEAR: GREEN,
    Event.DISAPPEAR: VERMILLION,
    Event.SPLIT: PURPLE,
    Event.MERGE: ORANGE,
    Event.GAP: SKY,
}
VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    HAIR: "hair",
    BLUE: "blue",
    VERMILLION: "vermillion",
    GREEN: "green",
    ORANGE: "orange",
    SKY: "sky",
    PURPLE: "purple",
    "#ffffff": "paper",
}
"""Names of the CSS variables of the colors."""
SVG_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "clew",
    "path.simplify": True,
}
NO_METADATA = dict.fromkeys(["Date", "Creator", "Format", "Type"])

STYLE = """
:root {
  color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif;
  --paper: #ffffff; --raised: #f6f8fa; --ink: #1c2128; --muted: #636c76; --hair: #d5dae0;
  --blue: #0072b2; --vermillion: #d55e00; --green: #009e73; --orange: #e69f00; --sky: #56b4e9; --purple: #cc79a7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --raised: #1c2229; --ink: #e3e7ec; --muted: #9aa4af; --hair: #333b45;
    --blue: #4aa8e0; --vermillion: #f0803c; --green: #2fc49a; --orange: #edb440; --sky: #7cc7f2; --purple: #dc9bc0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.55 var(--font); }
main { max-width: 1010px; margin: 0 auto; padding: 48px 24px 80px; }
header { margin-bottom: 32px; }
h1 { margin: 0 0 6px; font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -.015em; }
h1, .facts dd, header p { overflow-wrap: anywhere; }
h2 { margin: 0 0 6px; font-size: 20px; line-height: 1.3; font-weight: 620; letter-spacing: -.01em; }
h3 { margin: 28px 0 8px; font-size: 15px; font-weight: 620; }
header p, .lead, .note { margin: 0; color: var(--muted); max-width: 92ch; text-wrap: pretty; }
section { margin-top: 52px; padding-top: 24px; border-top: 1px solid var(--hair); }
.lead { margin-bottom: 18px; }
.note { margin-top: 14px; font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin: 0; }
.tiles div { padding: 14px 16px 12px; background: var(--raised); border-radius: 8px; }
.tiles dt { color: var(--muted); font-size: 13px; }
.tiles dd { margin: 0; font-size: 26px; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 8px 48px; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); font-size: 13px; padding-bottom: 6px; }
th { color: var(--muted); font-weight: 500; font-size: 13px; text-align: left; vertical-align: bottom; }
th, td { padding: 6px 0 6px 16px; border-bottom: 1px solid var(--hair); }
th:first-child, td:first-child { padding-left: 0; }
.figure { text-align: right; white-space: nowrap; }
.facts { margin: 0; font-size: 14px; }
.facts div { display: flex; gap: 16px; justify-content: space-between; }
.facts div { padding: 6px 0; border-bottom: 1px solid var(--hair); }
.facts dt { color: var(--muted); flex: none; max-width: 50%; }
.facts dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.facts .words { display: block; }
.facts .words dd { text-align: left; }
.picture svg { display: block; width: 100%; min-width: 640px; height: auto; }
.doubts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 36px 48px; }
.doubts { padding: 0; margin: 0; list-style: none; }
.doubts svg { display: block; width: 100%; height: auto; }
.doubts h3 { margin: 10px 0 2px; display: flex; justify-content: space-between; gap: 16px; }
.doubts h3 span:last-child { font-weight: 500; font-variant-numeric: tabular-nums; white-space: nowrap; }
.doubts p { margin: 0; color: var(--muted); font-size: 13.5px; }
.crop { image-rendering: pixelated; }
tbody tr:last-child td { border-bottom-color: transparent; }
details { margin-top: 18px; }
summary { cursor: pointer; color: var(--muted); font-size: 14px; margin-bottom: 8px; }
footer { margin-top: 56px; color: var(--muted); font-size: 13px; }
@media print { main { max-width: none; padding: 0; } section, .doubts li { break-inside: avoid; } }
"""


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


def strip_axes(axes: Axes) -> None:
    """Remove the frame and the ticks of a plot."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=MUTED, pad=4)
    axes.set_facecolor("none")


def render_svg(figure: Figure, label: str, prefix: str) -> str:
    """Render a figure as inline SVG.

    Parameters
    ----------
    figure : Figure
    label : str
        What the figure shows, for screen readers.
    prefix : str
        Keeps its ids apart from those of other figures.
    """
    buffer = StringIO()
    with mpl.rc_context(SVG_SETTINGS):
        figure.savefig(buffer, format="svg", metadata=NO_METADATA, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    body = svg[svg.index(">") + 1 :].replace("xlink:href", "href")
    body = re.sub(r'(?<=[\s{])id="([^"]*)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", body)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'font: ([^;"]*?[\d.]+px) [^;"]*', r"font: \1 var(--font)", body)
    body = re.sub("#[0-9a-f]{6}", lambda match: _name_color(match[0]), body)
    return f'<svg {box[0]} role="img" aria-label="{escape_text(label)}">{body.strip()}'


def _name_color(color: str) -> str:
    """The CSS variable of a color; other colors stay."""
    return f"var(--{VARIABLES[color]})" if color in VARIABLES else color
