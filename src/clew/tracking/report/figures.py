"""Figures of the report: events over time, lineage trees and learned weights.

In a lineage tree, time goes to the right, a track is a line, and a division a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices
from clew.tracking.events import LINEAGE_KINDS, Event
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.markup import (
    BLUE,
    EVENT_COLOR,
    HAIR,
    INK,
    MUTED,
    ORANGE,
    VERMILLION,
    format_count,
    format_number,
    strip_axes,
)
from clew.utils.validation import replace_control_characters

WIDTH = 9.6
"""Inches of every figure: a point of it is a point of the page."""
MAX_BARS = 240
"""Longer movies are counted in windows of several frames."""
Polylines = NDArray[np.float64]
"""(n, k, 2) lines of k points (frame, row)."""
ROW_HEIGHT = 0.135
"""Inches from one line to the next."""
LEAST_CERTAIN = 0.01
LESS_CERTAIN = 0.10
"""Shares of events that are highlighted."""


def plot_events(lineage: Lineage) -> Figure:
    """Plot the number of cells over time, and below it each kind of event."""
    counts = lineage.counts()
    kinds = [event for event in LINEAGE_KINDS if counts[:, event].any()]
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


MIN_LENGTH = 1 / 250
"""Least length of a highlighted link, relative to the movie."""
LINE_STYLES = [
    (INK, 0.9, "more certain"),
    (ORANGE, 2.0, "least certain 10 %"),
    (VERMILLION, 3.4, "least certain 1 %"),
]
"""Color, width and name by rank of confidence, see `rank_confidence`."""
MARKERS = {
    Event.DIVIDE: "o",
    Event.APPEAR: ">",
    Event.DISAPPEAR: "x",
    Event.SPLIT: "d",
    Event.MERGE: "s",
}
ENDING = (Event.DISAPPEAR, Event.MERGE, Event.DIVIDE)
"""Events that end a track."""
FAMILY_SPACE = 0.7
"""Rows between two families."""


def plot_lineage(lineage: Lineage, max_tracks: int = 120) -> Figure:
    """Plot the largest families as trees.

    The less certain an event, the thicker and warmer its line.

    Parameters
    ----------
    lineage : Lineage
    max_tracks : int
        Largest number of lines.
    """
    forest = Forest(lineage, max_tracks)
    n_rows = max(float(np.nanmax(forest.row, initial=0.0)) + 1, 4)
    figure = Figure(figsize=(WIDTH, 0.95 + ROW_HEIGHT * n_rows), layout="constrained")
    axes = figure.subplots()
    strip_axes(axes)
    axes.grid(axis="x", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(-0.5, max(lineage.n_frames - 0.5, 0.5))
    axes.set_ylim(n_rows, -1)
    axes.set_yticks([])
    axes.tick_params(axis="x", labeltop=n_rows > 30)
    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10])
    )
    axes.set_xlabel("frame", fontsize=9, color=MUTED)
    keys = _draw_links(axes, forest) + _draw_markers(axes, forest)
    _draw_names(axes, forest)
    if keys:
        figure.legend(
            handles=keys,
            loc="outside upper left",
            ncols=len(keys),
            frameon=False,
            fontsize=8,
            labelcolor=MUTED,
            handlelength=1.6,
            columnspacing=1.3,
            borderpad=0,
            handletextpad=0.6,
        )
    return figure


def rank_confidence(lineage: Lineage) -> NDArray[np.int8]:
    """Rank events by confidence.

    Returns
    -------
    rank : ndarray of shape (n_events,)
        2 for the least certain 1 %, 1 up to 10 %, 0 for the rest and for events
        without an alternative.
    """
    rank = np.zeros(len(lineage.events), dtype=np.int8)
    for value, share in ((1, LESS_CERTAIN), (2, LEAST_CERTAIN)):
        rank[lineage.least_certain(int(np.ceil(share * len(rank))))] = value
    rank[~np.isfinite(lineage.confidence)] = 0
    return rank


def _draw_links(axes: Axes, forest: Forest) -> list[Line2D]:
    """Draw tracks and forks by confidence, and dotted lines over gaps."""
    lineage = forest.lineage
    row = forest.row
    source, target, event = lineage.edges
    track_row = lineage.track - 1  # tracks are numbered in the order of their table
    mother = track_row[source]
    daughter = track_row[target]
    is_drawn = ~np.isnan(row[mother]) & ~np.isnan(row[daughter])
    is_gap = lineage.events.event[event] == Event.GAP
    is_child = forest.parent[daughter] == mother
    along = np.flatnonzero(is_drawn & (mother == daughter))
    fork = np.flatnonzero(is_drawn & is_child & ~is_gap)
    rank = rank_confidence(lineage)[event]
    time = lineage.frame[source]
    keys = []
    for level, (color, width, name) in enumerate(LINE_STYLES):
        lines = along[rank[along] == level]
        begin, end = _find_runs(mother[lines], time[lines])
        height = row[mother[lines[begin]]]
        extra = 0.0
        if level == len(LINE_STYLES) - 1:
            extra = max(MIN_LENGTH * lineage.n_frames - 1, 0) / 2
        straight = _make_polylines(
            (time[lines[begin]] - extra, height),
            (time[lines[end]] + 1 + extra, height),
        )
        bent = fork[rank[fork] == level]
        t = time[bent]
        high = row[mother[bent]]
        low = row[daughter[bent]]
        forks = _make_polylines(
            (t, high), (t + 0.5, high), (t + 0.5, low), (t + 1, low)
        )
        if _draw_polylines(axes, [straight, forks], color, width, zorder=2 + level):
            keys.append(Line2D([], [], color=color, linewidth=width, label=name))
    gaps = _find_gaps(forest)
    style: Any = {"linestyle": ":"}
    if _draw_polylines(axes, [gaps], MUTED, 0.9, zorder=2, **style):
        key = Line2D(
            [], [], color=MUTED, linewidth=0.9, label="merged or missed", **style
        )
        keys.append(key)
    return keys


def _find_gaps(forest: Forest) -> Polylines:
    """Lines from parents to children that begin more than a frame later."""
    tracks = forest.lineage.tracks
    child = np.flatnonzero(~np.isnan(forest.row) & (forest.parent >= 0))
    child = child[tracks.begin[child] > tracks.end[forest.parent[child]] + 1]
    parent = forest.parent[child]
    return _make_polylines(
        (tracks.end[parent], forest.row[parent]),
        (tracks.begin[child], forest.row[child]),
    )


def _find_runs(track: Indices, time: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """First and last link of each run in consecutive frames of a track."""
    order = np.lexsort((time, track))
    is_other_track = np.diff(track[order], prepend=-1) != 0
    is_first = is_other_track | (np.diff(time[order], prepend=-2) != 1)
    is_last = np.roll(is_first, -1)  # the first link begins a run, so this is right
    return order[is_first], order[is_last]


def _make_polylines(*points: tuple[Array | NDArray[np.int64], Array]) -> Polylines:
    """Lines from the coordinates of their first points, second points and so on."""
    stacked = np.stack([np.column_stack(point) for point in points], axis=1)
    return stacked.astype(np.float64)


def _draw_polylines(
    axes: Axes,
    lines: list[Polylines],
    color: str,
    width: float,
    zorder: int,
    **style: Any,
) -> bool:
    """Draw all lines as one path, which keeps the file small; False if there are none."""
    paths = [Path(line) for group in lines for line in group]
    if not paths:
        return False
    patch = PathPatch(
        Path.make_compound_path(*paths),
        fill=False,
        zorder=zorder,
        capstyle="butt",
        joinstyle="round",
        edgecolor=color,
        linewidth=width,
        **style,
    )
    axes.add_patch(patch)
    return True


def _draw_markers(axes: Axes, forest: Forest) -> list[Line2D]:
    """Mark where an event begins or ends a track."""
    lineage = forest.lineage
    track_row = lineage.track - 1
    keys = []
    for event, marker in MARKERS.items():
        rows = np.flatnonzero(lineage.events.event == event)
        is_ending = event in ENDING
        nodes = (lineage.sources if is_ending else lineage.targets)[rows].ravel()
        nodes = nodes[nodes >= 0]
        limit = lineage.tracks.end if is_ending else lineage.tracks.begin
        nodes = nodes[lineage.frame[nodes] == limit[track_row[nodes]]]
        nodes = nodes[~np.isnan(forest.row[track_row[nodes]])]
        if not len(nodes):
            continue
        is_division = event == Event.DIVIDE
        style: Any = {
            "marker": marker,
            "color": BLUE,
            "markersize": 3.6 if is_division else 4.2,
            "linestyle": "",
        }
        time = lineage.frame[nodes] + (0.5 if is_division else 0)  # amid the fork
        axes.plot(time, forest.row[track_row[nodes]], zorder=6, **style)
        keys.append(Line2D([], [], label=str(event), **style))
    return keys


def _draw_names(axes: Axes, forest: Forest) -> None:
    """Write track ids at the end of leaves and at the start of founders."""
    tracks = forest.lineage.tracks
    rows = forest.row
    has_children = np.isin(np.arange(len(rows)), forest.parent[forest.shown])
    for track in forest.shown.tolist():
        name = str(tracks.id[track])
        style: Any = {
            "textcoords": "offset points",
            "va": "center",
            "annotation_clip": False,
        }
        if not has_children[track]:
            end = (tracks.end[track], rows[track])
            axes.annotate(name, end, xytext=(5, 0), fontsize=6, color=MUTED, **style)
        elif forest.parent[track] < 0:
            begin = (tracks.begin[track], rows[track])
            style |= {"fontsize": 7, "weight": "bold", "color": BLUE, "ha": "right"}
            axes.annotate(name, begin, xytext=(-4, 0), **style)


@dataclass(frozen=True)
class Forest:
    """The largest families of a lineage, up to `max_tracks` tracks."""

    lineage: Lineage
    max_tracks: int

    @cached_property
    def parent(self) -> Indices:
        """(n,) rows of the parents of tracks; -1 for none."""
        return self.lineage.tracks.parent_row()

    @cached_property
    def founder(self) -> Indices:
        """(n,) rows of the first ancestors of tracks."""
        founder = np.where(self.parent < 0, np.arange(len(self.parent)), self.parent)
        while True:
            further = founder[founder]  # twice as many generations each time
            if np.array_equal(further, founder):
                return founder
            founder = further

    @cached_property
    def n_families(self) -> int:
        """Number of families in all."""
        return int((self.parent < 0).sum())

    @cached_property
    def shown(self) -> Indices:
        """(k,) rows of the tracks that are drawn, by family, mothers first.

        Of a family that is too large, the tracks that begin first.
        """
        tracks = self.lineage.tracks
        founder = self.founder
        size = np.bincount(founder, minlength=len(tracks))
        length = tracks.end - tracks.begin + 1
        lifetime = np.bincount(founder, weights=length, minlength=len(tracks))
        order = np.lexsort((tracks.begin, founder, -lifetime[founder], -size[founder]))
        ends = np.flatnonzero(np.diff(founder[order], append=-1)) + 1
        fitting = ends[ends <= self.max_tracks]
        return order[: fitting[-1] if len(fitting) else self.max_tracks]

    @cached_property
    def row(self) -> Array:
        """(n,) row of each track, NaN if it is not drawn.

        Tracks without daughters have a row each; mothers are amid their daughters.
        """
        rows = np.full(len(self.parent), np.nan)
        children: dict[int, list[int]] = {}
        for track in self.shown.tolist():
            children.setdefault(int(self.parent[track]), []).append(track)
        next_row = 0.0
        for founder in children.get(-1, []):
            family = _list_family(founder, children)
            for track in family:
                if track not in children:
                    rows[track] = next_row
                    next_row += 1
            for track in reversed(family):
                if track in children:
                    rows[track] = np.mean(rows[children[track]])
            next_row += FAMILY_SPACE
        return rows

    def describe(self) -> str:
        """Say what is drawn and what is left out."""
        n = len(self.parent)
        n_shown = len(self.shown)
        n_families = len(np.unique(self.founder[self.shown]))
        if n_shown == n:
            families = format_count(n_families, "family", "families")
            return f"{format_count(n, 'track')} in {families}, all of them."
        size = int((self.founder == self.founder[self.shown[0]]).sum())
        if n_shown < size:
            n_others = self.n_families - 1
            others = format_count(n_others, "other family", "other families")
            return (
                f"The first {n_shown:,} tracks of the largest family, which has "
                f"{size:,}. Left out: its later tracks and {others}, {n - n_shown:,} "
                "tracks in all."
            )
        n_hidden = self.n_families - n_families
        return (
            f"The largest {n_families:,} of {self.n_families:,} families, with "
            f"{n_shown:,} of {n:,} tracks; left out: "
            f"{format_count(n_hidden, 'family', 'families')} with "
            f"{format_count(n - n_shown, 'track')}."
        )


def _list_family(founder: int, children: dict[int, list[int]]) -> list[int]:
    """List a family in depth-first order."""
    family = []
    stack = [founder]
    while stack:
        track = stack.pop()
        family.append(track)
        stack += reversed(children.get(track, []))
    return family
