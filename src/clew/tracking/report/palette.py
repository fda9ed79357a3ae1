"""Colours, and matplotlib's figures as inline SVG that follows the page from light to dark."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clew.tracking.events import Event
from clew.tracking.report.markup import escape_text

INK, MUTED, HAIR = "#1c2128", "#636c76", "#d5dae0"
"""Text and lines; what stands behind them; rules and grids."""
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#e69f00",
    "#56b4e9",
    "#cc79a7",
)
"""Okabe and Ito's colours, which people with any common kind of colour vision can tell apart."""

EVENT_COLOUR = {
    Event.MOVE: MUTED,
    Event.DIVIDE: BLUE,
    Event.APPEAR: GREEN,
    Event.DISAPPEAR: VERMILLION,
    Event.SPLIT: PURPLE,
    Event.MERGE: ORANGE,
    Event.GAP: SKY,
}

# each of the colours is a variable of the page's style, where dark mode gives it another value
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
PLAIN: Any = {"svg.fonttype": "none", "svg.hashsalt": "clew", "path.simplify": True}
NO_METADATA = dict.fromkeys(["Date", "Creator", "Format", "Type"])


def strip_axes(axes: Axes) -> None:
    """Leave of a plot's frame only what carries information: small ticks and muted labels."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=MUTED, pad=4)
    axes.set_facecolor("none")


def render_svg(figure: Figure, label: str, prefix: str) -> str:
    """A figure as inline SVG; `label` says in words what it shows, and `prefix` keeps its ids apart from others'."""
    buffer = StringIO()
    with mpl.rc_context(PLAIN):  # how text is written can be said nowhere else
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
    body = re.sub("#[0-9a-f]{6}", lambda found: _variable(found[0]), body)
    return f'<svg {box[0]} role="img" aria-label="{escape_text(label)}">{body.strip()}'


def _variable(colour: str) -> str:
    """The page's variable for one of the palette's colours, and any other colour as it is."""
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour
