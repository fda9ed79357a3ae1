"""The picture of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew import extras

if TYPE_CHECKING:
    from clew.learning.result import Result


def plot_result(result: Result) -> Any:
    """Objective and lower bound, gap and precision, and bounds, against passes over the data."""
    extras.require("plot", "a picture of a fit")
    import matplotlib.pyplot as plt

    passes = result.column("passes")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    axes[0].plot(passes, result.column("objective"), label="objective")
    axes[0].plot(passes, result.column("lower_bound"), label="lower bound")
    axes[0].set_ylabel("objective of the convexified problem")
    top = result.history[0].objective if result.history else 1.0
    axes[0].set_ylim(-0.05 * abs(top), 1.05 * top if top > 0 else 1.0)
    axes[0].legend()
    axes[1].semilogy(passes, result.column("gap").clip(1e-16), label="gap")
    axes[1].step(passes, result.column("precision"), where="post", linestyle="--", label="precision asked for")
    axes[1].set_ylabel("certified gap")
    axes[1].legend()
    axes[2].plot(passes, result.column("bounds"))
    axes[2].set_ylabel("bounds added")
    for axis in axes:
        axis.set_xlabel("passes over the data")
        axis.grid(alpha=0.3)
    figure.suptitle(
        f"{result.status.value}: objective {result.objective:.5g}, gap {result.gap:.2g}, λ = {result.lam:.3g}"
    )
    return figure
