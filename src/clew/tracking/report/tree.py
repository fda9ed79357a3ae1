"""The picture of who came from whom: time to the right, a line for each track, a fork for each division."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clew.learning.task import Array, Indices
from clew.tracking.events import Event
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.report.figures import WIDTH
from clew.tracking.report.forest import Forest
from clew.tracking.report.palette import (
    BLUE,
    HAIR,
    INK,
    MUTED,
    ORANGE,
    VERMILLION,
    strip_axes,
)

Segments = NDArray[np.float64]
"""(n, k, 2) polylines of k points (frame, row)."""

ROW = 0.135
"""Inches from one line to the next."""
SHARES = (0.01, 0.10)
"""Events are told apart by confidence: the least certain 1 %, those up to 10 %, and the rest."""
VISIBLE = 1 / 250
"""The least certain links are drawn no shorter than this part of the movie, or they would not be seen."""
LOOKS = [
    (INK, 0.9, "more certain"),
    (ORANGE, 2.0, "least certain 10 %"),
    (VERMILLION, 3.4, "least certain 1 %"),
]
MARKS = {
    Event.DIVIDE: "o",
    Event.APPEAR: ">",
    Event.DISAPPEAR: "x",
    Event.SPLIT: "d",
    Event.MERGE: "s",
}


def plot_lineage(lineage: Lineage, max_tracks: int = 120) -> Figure:
    """The largest families as trees, at most `max_tracks` lines; the less certain an event, the thicker and warmer."""
    forest = Forest(lineage, max_tracks)
    drawn = np.nanmax(forest.row, initial=0.0) + 1
    figure = Figure(figsize=(WIDTH, 0.95 + ROW * max(drawn, 4)), layout="constrained")
    axes = figure.subplots()
    strip_axes(axes)
    axes.grid(axis="x", color=HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlim(-0.5, max(lineage.n_frames - 0.5, 0.5))
    axes.set_ylim(max(drawn, 4), -1)
    axes.set_yticks([])
    axes.tick_params(axis="x", labeltop=drawn > 30)
    axes.xaxis.set_major_locator(
        MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10])
    )
    axes.set_xlabel("frame", fontsize=9, color=MUTED)
    keys = _draw_links(axes, forest) + _draw_marks(axes, forest)
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
    """(m,) 2 for the least certain events, 1 for the next, 0 for the rest and for all without an alternative."""
    rank = np.zeros(len(lineage.events), dtype=np.int8)
    for level, share in zip((2, 1), SHARES, strict=True):
        rows = lineage.least_certain(int(np.ceil(share * len(rank))))
        rank[rows] = np.maximum(rank[rows], level)
    rank[~np.isfinite(lineage.confidence)] = 0
    return rank


def _draw_links(axes: Axes, forest: Forest) -> list[Line2D]:
    """Lines of tracks and forks of divisions, by confidence, and dotted lines over gaps."""
    lineage, row = forest.lineage, forest.row
    source, target, event = lineage.edges
    of = lineage.track - 1  # tracks are numbered from 1 in the order of their table
    mother, daughter = of[source], of[target]
    drawn = ~np.isnan(row[mother]) & ~np.isnan(row[daughter])
    along = np.flatnonzero(drawn & (mother == daughter))
    fork = np.flatnonzero(
        drawn
        & (forest.parent[daughter] == mother)
        & (lineage.events.event[event] != Event.GAP)
    )
    level = rank_confidence(lineage)[event]
    time = lineage.frame[source]
    keys = []
    for rank, (colour, width, name) in enumerate(LOOKS):
        lines = along[level[along] == rank]
        begin, end = _runs(mother[lines], time[lines])
        at = row[mother[lines[begin]]]
        more = max(VISIBLE * lineage.n_frames - 1, 0) / 2 if rank == 2 else 0
        straight = _polylines(
            (time[lines[begin]] - more, at), (time[lines[end]] + 1 + more, at)
        )
        bent = fork[level[fork] == rank]
        t, high, low = time[bent], row[mother[bent]], row[daughter[bent]]
        forks = _polylines((t, high), (t + 0.5, high), (t + 0.5, low), (t + 1, low))
        if _draw(axes, [straight, forks], colour, width, zorder=2 + rank):
            keys.append(Line2D([], [], color=colour, linewidth=width, label=name))
    tracks, parent = lineage.tracks, forest.parent
    child = np.flatnonzero(~np.isnan(row) & (parent >= 0))
    child = child[tracks.begin[child] > tracks.end[parent[child]] + 1]
    gaps = _polylines(
        (tracks.end[parent[child]], row[parent[child]]),
        (tracks.begin[child], row[child]),
    )
    if _draw(axes, [gaps], MUTED, 0.9, zorder=2, style=":"):
        keys.append(
            Line2D(
                [],
                [],
                color=MUTED,
                linewidth=0.9,
                linestyle=":",
                label="merged or missed",
            )
        )
    return keys


def _runs(track: Indices, time: NDArray[np.int64]) -> tuple[Indices, Indices]:
    """The first and the last of each run of links in consecutive frames of one track."""
    order = np.lexsort((time, track))
    broken = (np.diff(track[order], prepend=-1) != 0) | (
        np.diff(time[order], prepend=-2) != 1
    )
    return order[broken], order[
        np.roll(broken, -1)
    ]  # a run ends where the next begins; the first is one


def _polylines(*points: tuple[Array | NDArray[np.int64], Array]) -> Segments:
    """Polylines from the coordinates of their first points, their second points …"""
    return np.stack([np.column_stack(point) for point in points], axis=1).astype(
        np.float64
    )


def _draw(
    axes: Axes,
    lines: list[Segments],
    colour: str,
    width: float,
    zorder: int,
    style: str = "-",
) -> bool:
    """All lines of one look as one path, which keeps the file small; whether there were any."""
    paths = [Path(line) for group in lines for line in group]
    if paths:
        whole = Path.make_compound_path(*paths)
        look: dict[str, Any] = {
            "edgecolor": colour,
            "linewidth": width,
            "linestyle": style,
        }
        axes.add_patch(
            PathPatch(
                whole,
                fill=False,
                zorder=zorder,
                capstyle="butt",
                joinstyle="round",
                **look,
            )
        )
    return bool(paths)


def _draw_marks(axes: Axes, forest: Forest) -> list[Line2D]:
    """A mark where a track begins or ends for another reason than the movie's."""
    lineage = forest.lineage
    of = lineage.track - 1
    keys = []
    for event, mark in MARKS.items():
        rows = np.flatnonzero(lineage.events.event == event)
        ends = event in (Event.DISAPPEAR, Event.MERGE, Event.DIVIDE)
        nodes = (lineage.sources if ends else lineage.targets)[rows].ravel()
        nodes = nodes[nodes >= 0]
        edge = lineage.tracks.end if ends else lineage.tracks.begin
        nodes = nodes[lineage.frame[nodes] == edge[of[nodes]]]
        nodes = nodes[~np.isnan(forest.row[of[nodes]])]
        if not len(nodes):
            continue
        look: dict[str, Any] = {
            "marker": mark,
            "color": BLUE,
            "markersize": 3.6 if event == Event.DIVIDE else 4.2,
        }
        time = lineage.frame[nodes] + (
            0.5 if event == Event.DIVIDE else 0
        )  # amid the fork
        axes.plot(time, forest.row[of[nodes]], linestyle="", zorder=6, **look)
        keys.append(Line2D([], [], linestyle="", label=str(event), **look))
    return keys


def _draw_names(axes: Axes, forest: Forest) -> None:
    """Each line's track, at the end of those without daughters and at the start of founders."""
    tracks, row = forest.lineage.tracks, forest.row
    has_children = np.isin(np.arange(len(row)), forest.parent[forest.shown])
    for track in forest.shown.tolist():
        if not has_children[track]:
            axes.annotate(
                str(tracks.id[track]),
                (tracks.end[track], row[track]),
                xytext=(5, 0),
                textcoords="offset points",
                fontsize=6,
                color=MUTED,
                va="center",
                annotation_clip=False,
            )
        if forest.parent[track] < 0 and has_children[track]:
            axes.annotate(
                str(tracks.id[track]),
                (tracks.begin[track], row[track]),
                xytext=(-4, 0),
                textcoords="offset points",
                fontsize=7,
                weight="bold",
                color=BLUE,
                va="center",
                ha="right",
                annotation_clip=False,
            )
