"""Counts over time, and learned weights, as figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.markup import format_number, replace_control_characters
from clew.tracking.report.palette import (
    BLUE,
    EVENT_COLOUR,
    HAIR,
    INK,
    MUTED,
    VERMILLION,
    strip_axes,
)

WIDTH = 9.6
"""Inches of every figure: one point of theirs is one point of the page."""
MAX_BARS = 240
"""Longer movies are counted in windows of several frames."""


def plot_events(lineage: Lineage) -> Figure:
    """Cells in each frame, and below it one row for each kind of event that happens, all against time."""
    counts = lineage.counts()
    kinds = [event for event in Event if counts[:, event].any()]
    window = max(1, -(-len(counts) // MAX_BARS))
    figure = Figure(figsize=(WIDTH, 1.55 + 0.62 * len(kinds)), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.0)  # type: ignore[union-attr, call-arg]
    rows = figure.subplots(
        1 + len(kinds),
        1,
        sharex=True,
        squeeze=False,
        height_ratios=[1.7] + [1] * len(kinds),
    )[:, 0]

    cells = np.bincount(lineage.frame, minlength=lineage.n_frames)
    rows[0].plot(
        np.arange(lineage.n_frames),
        cells,
        color=INK,
        linewidth=1.3,
        marker="" if len(cells) > 1 else "o",
    )
    _name_row(rows[0], "cells", "in each frame", max(int(cells.max(initial=0)), 1))
    for row, event in zip(rows[1:], kinds, strict=True):
        heights, edges = _windows(counts[:, event], window)
        row.stairs(
            heights,
            edges,
            fill=True,
            color=EVENT_COLOUR[event],
            linewidth=0,
            alpha=0.55 if event == Event.MOVE else 1,
        )
        _name_row(
            row, str(event), f"{counts[:, event].sum():,} in all", int(heights.max())
        )
    rows[-1].set_xlim(-0.5, max(lineage.n_frames - 0.5, 0.5))
    rows[-1].xaxis.set_major_locator(
        MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10])
    )
    each = f", events counted over {window} frames each" if window > 1 else ""
    rows[-1].set_xlabel(f"frame{each}", fontsize=9, color=MUTED)
    return figure


def _windows(
    counts: NDArray[np.int64], window: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sums over windows of frames, and the edges between them; an event from t to t + 1 stands between the two."""
    starts = np.arange(0, len(counts), window)
    return np.add.reduceat(counts, starts), np.append(starts, len(counts)).astype(
        np.float64
    )


def _name_row(axes: Axes, name: str, more: str, most: int) -> None:
    """The name of a row at its left, and as much of a scale as a row so low can hold."""
    strip_axes(axes)
    axes.set_ylim(0, 1.08 * most)
    axes.set_yticks([0, most], ["0", f"{most:,}"])
    axes.grid(axis="y", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylabel(" ", rotation=0, labelpad=62)  # room for the two lines of the name
    axes.annotate(
        name,
        (-0.085, 0.56),
        xycoords="axes fraction",
        fontsize=9.5,
        color=INK,
        ha="right",
        va="bottom",
    )
    axes.annotate(
        more,
        (-0.085, 0.48),
        xycoords="axes fraction",
        fontsize=8,
        color=MUTED,
        ha="right",
        va="top",
    )


class WeightRow(NamedTuple):
    """One learned weight."""

    event: str
    feature: str
    weight: float


def make_weight_rows(names: Sequence[str], values: ArrayLike) -> list[WeightRow]:
    """Weights by event in the order of the names, the largest of each event first.

    A name is "divide: angle of the daughters": the event, a colon and the feature.
    """
    weights = np.asarray(values, dtype=np.float64)
    if weights.shape != (len(names),):
        raise InputError(
            f"{len(names)} names of weights need as many values, in one row; got the shape {weights.shape}"
        )
    split = [name.partition(": ") if ": " in name else ("", "", name) for name in names]
    rows = [
        WeightRow(event, feature, weight)
        for (event, _, feature), weight in zip(split, weights.tolist(), strict=True)
    ]
    first = {
        event: at for at, event in reversed(list(enumerate(row.event for row in rows)))
    }
    return sorted(rows, key=lambda row: (first[row.event], -abs(row.weight)))


def plot_weights(names: Sequence[str], values: ArrayLike) -> Figure:
    """Weights as bars under the names of their events; to the right what speaks for an event, to the left against."""
    rows = make_weight_rows(names, values)
    events = [row.event for row in rows]
    is_first = np.array(
        [at == 0 or events[at - 1] != event for at, event in enumerate(events)],
        dtype=bool,
    )
    y = np.arange(len(rows)) + 1.5 * np.cumsum(
        is_first
    )  # room for a heading above each event's weights
    weights = np.array([row.weight for row in rows])
    reach = float(np.abs(weights).max(initial=0.0)) or 1.0

    figure = Figure(
        figsize=(WIDTH, 0.55 + 0.185 * (y[-1] if len(y) else 1)), layout="constrained"
    )
    axes = figure.subplots()
    strip_axes(axes)
    axes.barh(
        y, weights, height=0.66, color=np.where(weights < 0, VERMILLION, BLUE).tolist()
    )
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set_yticks(
        y, [replace_control_characters(row.feature) for row in rows], parse_math=False
    )
    axes.tick_params(axis="y", labelcolor=INK, labelsize=8.5)
    for at, row in zip(y, rows, strict=True):
        axes.annotate(
            format_number(row.weight),
            (row.weight, at),
            xytext=(4 if row.weight >= 0 else -4, 0),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
            va="center",
            ha="left" if row.weight >= 0 else "right",
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
    axes.set_xlim(-1.15 * reach if (weights < 0).any() else -0.02 * reach, 1.15 * reach)
    axes.set_ylim(y[-1] + 0.7 if len(y) else 1, 0)
    axes.set_xlabel("weight (against the event ← 0 → for it)", fontsize=9, color=MUTED)
    axes.grid(axis="x", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure
