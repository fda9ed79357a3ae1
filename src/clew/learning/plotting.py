"""Matplotlib figures of a fit and of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from clew.utils.extras import require_extra
from clew.utils.validation import check_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clew.learning.result import Result
    from clew.learning.task import Array


class NamedBlock(Protocol):
    """Block of weights with a name for each index of each axis."""

    @property
    def name(self) -> str:
        """Name of the block."""
        ...

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        """Names along each axis."""
        ...

    def values(self, w: Array) -> Array:
        """Return the block of w."""
        ...


def plot_result(result: Result) -> Figure:
    """Plot objective and lower bound, gap and precision, and bounds, against passes."""
    require_extra("plot", "a picture of a fit")
    import matplotlib.pyplot as plt

    passes = result.column("passes")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    axes[0].plot(passes, result.column("objective"), ".-", label="objective")
    axes[0].plot(passes, result.column("lower_bound"), ".-", label="lower bound")
    axes[0].set_ylabel("objective of the convexified problem")
    top = result.history[0].objective if result.history else 1.0
    axes[0].set_ylim(-0.05 * abs(top), 1.05 * top if top > 0 else 1.0)
    axes[0].legend()
    axes[1].semilogy(passes, result.column("gap").clip(1e-16), ".-", label="gap")
    axes[1].step(
        passes,
        result.column("precision"),
        where="post",
        linestyle="--",
        label="precision asked for",
    )
    axes[1].set_ylabel("certified gap")
    axes[1].legend()
    axes[2].plot(passes, result.column("bounds"), ".-")
    axes[2].set_ylabel("bounds added")
    for axis in axes:
        axis.set_xlabel("passes over the data")
        axis.grid(alpha=0.3)
    figure.suptitle(
        f"{result.status.value}: objective {result.objective:.5g}, gap "
        f"{result.gap:.2g}, λ = {result.lam:.3g}"
    )
    return leave_to_notebook(figure)


def plot_blocks(blocks: Sequence[NamedBlock], w: Array, top: int = 20) -> Figure:
    """Plot weights by block, scaled to the largest weight of each block.

    Parameters
    ----------
    blocks : sequence of NamedBlock
    w : ndarray of shape (n_features,)
    top : int
        Largest number of columns per block; those with the largest weights are shown.

    Returns
    -------
    figure : matplotlib.figure.Figure
    """
    require_extra("plot", "a picture of weights")
    import matplotlib.pyplot as plt

    top = check_int(top, "top", 1)
    panels = [panel for block in blocks for panel in _make_panels(block, w, top)]
    sizes = [max(0.9, 0.28 * values.shape[1]) for _, values, _, _ in panels]
    height = max(2.4, 0.24 * max(values.shape[0] for _, values, _, _ in panels) + 1.2)
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(sum(sizes) + 1.4 * len(panels), height),
        width_ratios=sizes,
        layout="constrained",
        squeeze=False,
    )
    for axis, (title, values, rows, columns) in zip(axes[0], panels, strict=True):
        largest = float(np.abs(values).max(initial=0.0))
        scaled = values / (largest or 1.0)
        image = axis.imshow(
            scaled,
            cmap="RdBu_r",
            vmin=-1.0,
            vmax=1.0,
            aspect="auto",
            interpolation="nearest",
        )
        literal = {"parse_math": False}  # labels such as PRP$ are no formulas
        axis.set_title(f"{title}\n±{largest:.2g}", loc="left", fontsize=9, **literal)
        columns = columns if any(columns) else []
        axis.set_xticks(range(len(columns)), columns, **literal)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
        axis.set_yticks(range(len(rows)), rows, fontsize=7, **literal)
    figure.colorbar(
        image, ax=axes[0, -1], ticks=[-1, 0, 1], label="added to the score, of ±"
    )
    return leave_to_notebook(figure)


def leave_to_notebook(figure: Figure) -> Figure:
    """Return the figure, closed in a notebook, which would show it twice otherwise.

    A notebook shows all open figures, and also what the last line of a cell returns.
    """
    import matplotlib.pyplot as plt

    if "inline" in plt.get_backend():
        plt.close(figure)
    return figure


def _make_panels(
    block: NamedBlock, w: Array, top: int
) -> list[tuple[str, Array, Sequence[str], Sequence[str]]]:
    """Split a block into matrices, one per index of a third axis, with labels."""
    values = block.values(w)
    if values.ndim == 1:
        labels = block.axes[0]
        keep = np.arange(len(labels))
        if len(labels) > top:
            keep = np.sort(np.argsort(-np.abs(values), kind="stable")[:top])
        return [(block.name, values[keep, None], [labels[i] for i in keep], [""])]
    if values.ndim == 3:
        names = (
            [f"{block.name} {label}" for label in block.axes[0]]
            if len(values) > 1
            else [block.name]
        )
        return [
            (name, part, *block.axes[1:])
            for name, part in zip(names, values, strict=True)
        ]
    rows, columns = block.axes
    title = block.name
    if len(columns) > top:
        keep = np.argsort(-np.abs(values).max(axis=0), kind="stable")[:top]
        values = values[:, keep]
        columns = tuple(columns[i] for i in keep)
        title = f"{block.name}: the {top} largest of {len(block.axes[1])}"
    return [(title, values, rows, columns)]
