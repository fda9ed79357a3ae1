"""The displacement vote: which shift of a whole frame brings most of its cells onto cells of the next.

All shifts are tried at once, by the cross-correlation of the two point patterns in bins, smoothed over neighbouring
bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from clew.learning.task import Array


@dataclass(frozen=True, slots=True)
class Vote:
    """How many cells each shift of a whole frame brings onto others."""

    hits: Array
    """By shift, in bins; negative shifts from the end."""
    width: float
    """Of a bin."""
    chance: float
    """Hits more than those of no shift that chance does not explain."""

    def winner(self) -> Array:
        """(ndim,) the shift with the most hits; 0 unless it has more than chance explains."""
        return (
            self.best()
            if self.hits.max() - self.hits.flat[0] > self.chance
            else np.zeros(self.hits.ndim)
        )

    def best(self) -> Array:
        """(ndim,) the shift with the most hits, even if chance explains them."""
        return self._shift(
            np.array(np.unravel_index(int(np.argmax(self.hits)), self.hits.shape))
        )

    def _shift(self, at: NDArray[np.integer[Any]]) -> Array:
        """(ndim,) in physical units."""
        size = np.array(self.hits.shape)
        return np.asarray(np.where(at < size // 2, at, at - size) * self.width)


def lie_on_others(x: Array, y: Array, width: float) -> float:
    """How many points lie on others: within about `width`, weighted by a Gaussian."""
    return float(np.exp(-0.5 * (cKDTree(y).query(x)[0] / width) ** 2).sum())


def unlikely(n: int, ndim: int, bin: float, significance: float) -> float:
    """Hits more or fewer than expected that are not chance: so many standard deviations of n random ones.

    By chance a bin gets n q hits, q the share of the plane (or space) that such neighbourhoods cover when there is a
    cell for each spacing; `bin` is in units of it.
    """
    q = float((np.sqrt(2 * np.pi) * bin) ** ndim)
    return significance * float(np.sqrt(n * q * (1 - q)))


def around_middle(x: Array, y: Array, n: int) -> tuple[Array, Array]:
    """The points of both patterns in a box around the middle one of `x` that has n of these; all where there are fewer.

    Not around the middle itself, where an embryo may have no cells.
    """
    if len(x) <= n:
        return x, y
    middle = x[np.argmin(((x - np.median(x, axis=0)) ** 2).sum(axis=1))]
    half = cKDTree(x).query(middle, k=[n], p=np.inf)[0][0]
    first, second = (
        points[(np.abs(points - middle) <= half).all(axis=1)] for points in (x, y)
    )
    return first, second


def n_bins(x: Array, y: Array, width: float) -> Array:
    """(ndim,) how many bins the votes of two point patterns take along each axis; a float, for it may be any number."""
    extent = np.maximum(x.max(axis=0), y.max(axis=0)) - np.minimum(
        x.min(axis=0), y.min(axis=0)
    )
    return np.asarray(
        2 * (np.ceil(extent / width) + 1)
    )  # zeros around, so that shifts do not wrap


def vote(x: Array, y: Array, width: float, chance: float) -> Vote:
    """The votes of two point patterns."""
    ndim = x.shape[1]
    low = np.minimum(x.min(axis=0), y.min(axis=0))
    # a few more bins than are needed, so that none of the transforms is of a large prime length
    shape = tuple(
        scipy.fft.next_fast_len(n, real=True)
        for n in n_bins(x, y, width).astype(int).tolist()
    )
    first, second = (
        scipy.fft.rfftn(_rasterised(points, low, width, shape)) for points in (x, y)
    )
    hits = gaussian_filter(
        scipy.fft.irfftn(first.conj() * second, shape), 1.0, mode="wrap"
    )
    # a filter's weights sum to 1; as counts, the middle one is 1
    return Vote(hits * (2 * np.pi) ** (ndim / 2), width, chance)


def _rasterised(
    points: Array, low: Array, width: float, shape: tuple[int, ...]
) -> Array:
    """How many points each bin of a grid has."""
    grid = np.zeros(shape)
    np.add.at(grid, tuple(np.rint((points - low) / width).astype(int).T), 1.0)
    return grid
