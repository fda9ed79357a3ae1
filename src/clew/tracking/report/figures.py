"""Figures of counts over time and of learned weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.markup import (
    BLUE,
    EVENT_COLOR,
    HAIR,
    INK,
    MUTED,
    VERMILLION,
    format_number,
    strip_axes,
)
from clew.utils.validation import replace_control_characters

WIDTH = 9.6
"""Inches of every figure: a point of it is a point of the page."""
MAX_BARS = 240
"""Longer movies are counted in windows of several frames."""


def plot_events(lineage: Lineage) -> Figure:
    """Plot the number of cells over time, and below it each kind of event."""
    counts = lineage.counts()
    kinds = [event for event in Event if counts[:, event].any()]
    window = max(1, -(-len(counts) // MAX_BARS))
    figure = Figure(figsize=(WIDTH, 1.55 + 0.62 * len(kinds)), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.0)  # type: ignore[union-attr, call-arg]
    heights = [1.7] + [1] * len(kinds)
    grid = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, height_ratios=heights
    )
    rows = grid[:, 0]

    cells = np.bincount(lineage.frame, minlength=lineage.n_frames)
    marker = "" if len(cells) > 1 else "o"
    frames = np.arange(lineage.n_frames)
    rows[0].plot(frames, cells, color=INK, linewidth=1.3, marker=marker)
    _name_row(rows[0], "cells", "in each frame", max(int(cells.max(initial=0)), 1))
    for row, event in zip(rows[1:], kinds, strict=True):
        sums, edges = _sum_windows(counts[:, event], window)
        row.stairs(
            sums,
            edges,
            fill=True,
            color=EVENT_COLOR[event],
            linewidth=0,
            alpha=0.55 if event == Event.MOVE else 1,
        )
        total = f"{counts[:, event].sum():,} in all"
        _name_row(row, str(event), total, int(sums.max()))
    axes = rows[-1]
    axes.set_xlim(-0.5, max(lineage.n_frames - 0.5, 0.5))
    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10])
    )
    note = f", events counted over {window} frames each" if window > 1 else ""
    axes.set_xlabel(f"frame{note}", fontsize=9, color=MUTED)
    return figure


def _sum_windows(
    counts: NDArray[np.int64], window: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sum counts (n,) over windows of frames; also return the edges of the windows."""
    starts = np.arange(0, len(counts), window)
    edges = np.append(starts, len(counts)).astype(np.float64)
    return np.add.reduceat(counts, starts), edges


def _name_row(axes: Axes, name: str, note: str, largest: int) -> None:
    """Write the name of a row at its left, and a scale of two values."""
    strip_axes(axes)
    axes.set_ylim(0, 1.08 * largest)
    axes.set_yticks([0, largest], ["0", f"{largest:,}"])
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylabel(" ", rotation=0, labelpad=62)  # room for the name
    at: Any = {"xycoords": "axes fraction", "ha": "right"}
    axes.annotate(name, (-0.085, 0.56), fontsize=9.5, color=INK, va="bottom", **at)
    axes.annotate(note, (-0.085, 0.48), fontsize=8, color=MUTED, va="top", **at)


class WeightRow(NamedTuple):
    """One learned weight."""

    event: str
    feature: str
    weight: float


def make_weight_rows(names: Sequence[str], values: ArrayLike) -> list[WeightRow]:
    """Group weights by event, the largest of each event first.

    Parameters
    ----------
    names : sequence of str
        Event, colon and feature: "divide: angle of the daughters".
    values : array-like of shape (n,)

    Returns
    -------
    rows : list of WeightRow
        Events are in the order of the names.
    """
    weights = np.asarray(values, dtype=np.float64)
    if weights.shape != (len(names),):
        raise InputError(
            f"there are {len(names)} names, but values have shape {weights.shape}; "
            f"expected ({len(names)},)"
        )
    rows = []
    for name, weight in zip(names, weights.tolist(), strict=True):
        event, separator, feature = name.partition(": ")
        rows.append(WeightRow(event, feature, weight))
        if not separator:
            rows[-1] = WeightRow("", name, weight)
    order = list(dict.fromkeys(row.event for row in rows))
    return sorted(rows, key=lambda row: (order.index(row.event), -abs(row.weight)))


def plot_weights(names: Sequence[str], values: ArrayLike) -> Figure:
    """Plot weights as bars below the names of their events.

    Bars to the right make an event more likely, bars to the left less.

    Parameters
    ----------
    names, values
        See `make_weight_rows`.
    """
    rows = make_weight_rows(names, values)
    events = [row.event for row in rows]
    is_first = np.array([event not in events[:at] for at, event in enumerate(events)])
    is_first = is_first.astype(bool)
    y = np.arange(len(rows)) + 1.5 * np.cumsum(is_first)  # room for headings
    bottom = float(y[-1]) if len(y) else 0.3
    weights = np.array([row.weight for row in rows])
    largest = float(np.abs(weights).max(initial=0.0)) or 1.0

    height = 0.55 + 0.185 * (bottom if len(y) else 1)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    strip_axes(axes)
    colors = np.where(weights < 0, VERMILLION, BLUE).tolist()
    axes.barh(y, weights, height=0.66, color=colors)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    features = [replace_control_characters(row.feature) for row in rows]
    axes.set_yticks(y, features, parse_math=False)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
    for at, row in zip(y, rows, strict=True):
        is_positive = row.weight >= 0
        axes.annotate(
            format_number(row.weight),
            (row.weight, at),
            xytext=(4 if is_positive else -4, 0),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
            va="center",
            ha="left" if is_positive else "right",
        )
    for at in np.flatnonzero(is_first):
        axes.annotate(
            replace_control_characters(events[at]) or "other",
            (0, y[at] - 1.05),
            xycoords=("axes fraction", "data"),
            xytext=(-6, 0),
            textcoords="offset points",
            fontsize=9.5,
            weight="bold",
            color=INK,
            ha="right",
            va="center",
            parse_math=False,
        )
    left = -1.15 if (weights < 0).any() else -0.02
    axes.set_xlim(left * largest, 1.15 * largest)
    axes.set_ylim(bottom + 0.7, 0)
    axes.set_xlabel("weight (against the event ← 0 → for it)", fontsize=9, color=MUTED)
    axes.grid(axis="x", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
