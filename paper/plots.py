"""Figures 3 to 6 and active annotation, in colors that are distinct for everyone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clew.tracking.report.markup import (
    BLUE,
    GREEN,
    HAIR,
    INK,
    MUTED,
    NO_METADATA,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
)
from paper import active_annotation, fig34
from paper.tables import Json, curve, summary, values, where

METHODS = {
    fig34.PARTIAL: ("clew, partial annotation", BLUE, "o"),
    fig34.PERCEPTRON: ("perceptron, partial annotation", VERMILLION, "s"),
    fig34.AVERAGED: ("averaged perceptron, partial annotation", ORANGE, "D"),
}
FULL = ("BMRM, full annotation", INK)
WAYS = {
    "yu-joachims": ("Yu & Joachims", VERMILLION, "s"),
    "recycling-only": ("recycling only", ORANGE, "^"),
    "adaptive-only": ("adaptive only", PURPLE, "v"),
    "paper": ("both (the paper)", BLUE, "o"),
    "clew": ("clew's default", GREEN, "D"),
}
STRATEGIES = {
    "random": ("at random, stratified", MUTED, "s"),
    "least-margin": ("least margin", SKY, "^"),
    "disagreement": ("disagreement", PURPLE, "v"),
    "expected-change": ("expected change", BLUE, "o"),
}
PRIORS = {
    active_annotation.GENERIC: "from generic weights",
    active_annotation.NOTHING: "from nothing",
}
MOVIES = {
    active_annotation.OWN: "annotated in the test movie",
    active_annotation.OTHER: "annotated in the training movie",
}
STARTS = {"zero": "from w = 0, as in the paper", "auto": "from clew's own start"}
SIZE = (6.8, 4.8)
BAR_OFFSET = 0.5
"""Horizontal offset between curves in %, so that their error bars do not overlap."""
FLOOR = 1e-5
"""Smallest difference of objectives that is drawn."""


def draw_fig3(entries: Sequence[Json]) -> Figure:
    """Test task loss against the annotated fraction."""
    return _plot_by_fraction(entries, "loss", 100.0, "test task loss (% of the events)")


def draw_fig4(entries: Sequence[Json]) -> Figure:
    """Training time against the annotated fraction."""
    return _plot_by_fraction(
        entries, "seconds", 1.0, "training time (s of processor time)"
    )


def draw_fig5(entries: Sequence[Json]) -> Figure:
    """Objective against time, of the first draw; a panel for each start."""
    figure, panels = _make_panels_by_start(
        entries, "processor time (s)", "objective above the best that was found"
    )
    for axes, shown in panels:
        best = min(entry["objective"] for entry in shown)
        for entry in shown:
            name, color, marker = WAYS[entry["way"]]
            history = entry["history"]
            seconds = np.array([*history["seconds"], entry["seconds"]])
            reached = (
                np.minimum.accumulate(
                    np.array([*history["objective"], entry["objective"]])
                )
                - best
            )
            axes.step(
                seconds, np.maximum(reached, FLOOR), where="post", color=color, lw=1.8
            )
            axes.plot(
                seconds[-1],
                max(reached[-1], FLOOR),
                marker,
                color=color,
                ms=7,
                label=name,
            )
        axes.set_yscale("log")
        axes.set_xscale("log")
        axes.axhline(1e-3, color=MUTED, lw=1, ls=":", label="precision 10⁻³")
    return _add_legend(figure, panels[0][0])


def draw_fig6(entries: Sequence[Json]) -> Figure:
    """Bounds computed so far against CCCP iteration, of the first draw; a panel for each start."""
    figure, panels = _make_panels_by_start(
        entries, "CCCP iteration", "bounds computed so far (passes)"
    )
    for axes, shown in panels:
        for entry in shown:
            name, color, marker = WAYS[entry["way"]]
            iteration = np.array(entry["history"]["iteration"])
            last = np.append(np.flatnonzero(np.diff(iteration)), len(iteration) - 1)
            bounds = np.array(entry["history"]["passes"])[last]
            axes.plot(
                iteration[last],
                bounds,
                marker=marker,
                ms=5.5,
                color=color,
                label=name,
                lw=1.8,
            )
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _add_legend(figure, panels[0][0])


def draw_active(entries: Sequence[Json]) -> Figure:
    """Test task loss against the share of the events that is annotated, for each way to choose them."""
    priors, movies = values(entries, "prior"), values(entries, "movie")
    figure = Figure(figsize=(10.4, 3.9 * len(priors)), layout="constrained")
    grid: Any = figure.subplots(len(priors), len(movies), squeeze=False)
    for row, prior in zip(grid, priors, strict=True):
        for axes, movie in zip(row, movies, strict=True):
            here = where(entries, prior=prior, movie=movie)
            _style_axes(
                axes,
                "annotated events (% of the movie)",
                "test task loss (% of the events)",
            )
            axes.set_title(
                f"{MOVIES[movie]}, {PRIORS[prior]}",
                fontsize=10.5,
                color=INK,
                loc="left",
            )
            _plot_sessions(axes, here)
    return _add_legend(figure, grid[0][0])


def _add_legend(figure: Figure, axes: Axes, columns: int = 3) -> Figure:
    """The same legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=10,
    )
    return figure


def _make_panels_by_start(
    entries: Sequence[Json], x: str, y: str
) -> tuple[Figure, list[tuple[Axes, list[Json]]]]:
    """A panel for each start, with the first draw's entries."""
    starts = values(entries, "start")
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    grid: Any = figure.subplots(1, len(starts), squeeze=False)
    for axes, start in zip(grid[0], starts, strict=True):
        _style_axes(axes, x, y)
        axes.set_title(STARTS[start], fontsize=10.5, color=INK, loc="left")
    return figure, [
        (axes, where(entries, draw=0, start=start))
        for axes, start in zip(grid[0], starts, strict=True)
    ]


def _plot_sessions(axes: Axes, entries: Sequence[Json]) -> None:
    """One panel: a curve for each strategy, and the level of a quarter at random."""
    for name in values(entries, "strategy"):
        label, color, marker = STRATEGIES[name]
        points = curve(where(entries, strategy=name), "loss")
        if name == active_annotation.RANDOM:
            level = points.pop()
            axes.axhline(
                100 * level[1].mean, color=INK, lw=1.2, ls="--", label="25 % at random"
            )
        axes.errorbar(
            [100 * share for share, _ in points],
            [100 * loss.mean for _, loss in points],
            [100 * loss.std for _, loss in points],
            color=color,
            marker=marker,
            ms=5.5,
            lw=1.8,
            capsize=3,
            label=label,
        )
    axes.axvline(8, color=MUTED, lw=1, ls=":")
    axes.set_ylim(bottom=0)


def _plot_by_fraction(
    entries: Sequence[Json], quantity: str, factor: float, name: str
) -> Figure:
    """A quantity against the annotated fraction, which falls from left to right as in the paper."""
    figure, axes = _make_axes("annotated events (%)", name)
    fractions = [f for f in values(entries, "fraction") if f < 1]
    for place, (method, (label, color, marker)) in enumerate(METHODS.items()):
        found = [
            summary(entries, quantity, method=method, fraction=f) for f in fractions
        ]
        if not any(one.n for one in found):
            continue
        axes.errorbar(
            [100 * f + BAR_OFFSET * (1 - place) for f in fractions],
            [factor * one.mean for one in found],
            [factor * one.std for one in found],
            color=color,
            marker=marker,
            ms=6,
            lw=1.8,
            capsize=3,
            label=label,
        )
    level = factor * summary(entries, quantity, method=fig34.FULL).mean
    axes.axhline(level, color=FULL[1], lw=1.4, ls="--", label=FULL[0])
    axes.set_xticks([100 * f for f in fractions])
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    return _add_legend(figure, axes, 2)


def _make_axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes: Axes = figure.subplots()
    _style_axes(axes, x, y)
    return figure, axes


def _style_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=10.5, color=INK)
    axes.set_ylabel(y, fontsize=10.5, color=INK)
    axes.tick_params(labelsize=9.5, labelcolor=INK, color=HAIR)
    axes.grid(color=HAIR, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[:].set_color(HAIR)


FIGURES: dict[str, tuple[str, Callable[[Sequence[Json]], Figure]]] = {
    "fig3": ("fig34", draw_fig3),
    "fig4": ("fig34", draw_fig4),
    "fig5": ("fig56", draw_fig5),
    "fig6": ("fig56", draw_fig6),
    "beyond": ("beyond", draw_active),
}
"""By name: the experiment whose results a figure shows, and how it is drawn."""


def render_figure(figure: Figure, suffix: str) -> bytes:
    """A figure as the bytes of a PNG or SVG file, the same for the same figure."""
    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "clew", "svg.fonttype": "none"}):
        metadata = NO_METADATA if suffix == "svg" else {"Software": None}
        figure.savefig(
            buffer, format=suffix, dpi=150, facecolor="white", metadata=metadata
        )
    return buffer.getvalue()
