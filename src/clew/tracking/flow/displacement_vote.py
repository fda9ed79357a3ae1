"""Detect a jump of the stage: the shift that brings most cells of a frame onto others.

All shifts are tried at once by the cross-correlation of the two point patterns, binned
and smoothed over neighboring bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from clew.learning.task import Array
from clew.tracking.detections import Detections
from clew.tracking.flow.nearest_points import measure_spacing

MIN_CELLS = 4
"""Cells in each frame below which no flow is estimated."""


@dataclass(frozen=True, slots=True)
class VoteSettings:
    """Settings of the displacement vote."""

    bin_width: float = 0.25
    """Width of a bin, in spacings between cells."""
    significance: float = 4.0
    """Standard deviations by which the hits of a shift must exceed those of no shift.
    The largest of 16 n random counts exceeds their mean by √(2 ln 16 n), 3.8 for
    n = 100."""
    max_voters: int = 8_000
    """Cells that vote at most: in larger frames, those around the middle cell."""
    max_bins: int = 2**22
    """Bins at most, at about 40 bytes each. Where cells lie in clumps far apart, only
    those of the middle clump vote."""


VOTE_SETTINGS = VoteSettings()


@dataclass(frozen=True, slots=True)
class Vote:
    """How many cells each shift of a frame brings onto cells of the next."""

    hits: Array
    """By shift, in bins; negative shifts count from the end."""
    bin_width: float
    """In physical units."""
    chance: float
    """Hits above those of no shift that chance explains."""

    def find_best_shift(self) -> Array:
        """Return (ndim,) the shift with the most hits."""
        shape = np.array(self.hits.shape)
        place = np.array(np.unravel_index(int(np.argmax(self.hits)), self.hits.shape))
        return np.where(place < shape // 2, place, place - shape) * self.bin_width

    def find_significant_shift(self) -> Array:
        """Return (ndim,) the shift with the most hits, or 0 if chance explains them."""
        if self.hits.max() - self.hits.flat[0] > self.chance:
            return self.find_best_shift()
        return np.zeros(self.hits.ndim)


def detect_jump(
    source: Detections, target: Detections, settings: VoteSettings = VOTE_SETTINGS
) -> Array:
    """Detect a shift of the whole frame.

    Parameters
    ----------
    source, target : Detections
        The first and the second frame.
    settings : VoteSettings, optional

    Returns
    -------
    ndarray of shape (ndim,)
        0 where no shift is significant.
    """
    x = source.position
    y = target.position
    vote = None
    if min(len(x), len(y)) >= MIN_CELLS:
        vote = vote_for_shifts(x, y, settings)
    if vote is None:
        return np.zeros(x.shape[1])
    return vote.find_significant_shift()


def vote_for_shifts(
    x: Array, y: Array, settings: VoteSettings = VOTE_SETTINGS
) -> Vote | None:
    """Count the hits of all shifts of one point pattern onto another.

    Parameters
    ----------
    x : ndarray of shape (n, ndim)
    y : ndarray of shape (m, ndim)
    settings : VoteSettings, optional

    Returns
    -------
    Vote or None
        None if nearly all cells already lie on others, or if cells are too far apart
        to count.
    """
    width = settings.bin_width * measure_spacing(x)
    if len(x) - _count_coincident(x, y, width) <= _hits_by_chance(x, settings):
        return None
    n_voters = settings.max_voters
    while n_voters >= MIN_CELLS:
        x, y = crop_around_middle(x, y, n_voters)
        if min(len(x), len(y)) < MIN_CELLS:
            break
        width = settings.bin_width * measure_spacing(x)
        if np.prod(_count_bins(x, y, width)) <= settings.max_bins:
            return _correlate_patterns(x, y, width, _hits_by_chance(x, settings))
        n_voters = 3 * min(n_voters, len(x)) // 4
    return None


def crop_around_middle(x: Array, y: Array, n: int) -> tuple[Array, Array]:
    """Crop both patterns to a box with n points of x around their middle one.

    The box is centered on a point, since an embryo may have no cells in its middle.
    """
    if len(x) <= n:
        return x, y
    middle = x[np.argmin(((x - np.median(x, axis=0)) ** 2).sum(axis=1))]
    half = cKDTree(x).query(middle, k=[n], p=np.inf)[0][0]
    in_x = (np.abs(x - middle) <= half).all(axis=1)
    in_y = (np.abs(y - middle) <= half).all(axis=1)
    return x[in_x], y[in_y]


def _count_coincident(x: Array, y: Array, width: float) -> float:
    """Count points of x that lie on points of y, weighted by a Gaussian."""
    distance = cKDTree(y).query(x)[0]
    return float(np.exp(-0.5 * (distance / width) ** 2).sum())


def _hits_by_chance(x: Array, settings: VoteSettings) -> float:
    """Standard deviation of the hits by chance, times the significance.

    By chance a bin gets n q hits, q the share of the plane (or space) that the
    neighborhoods of a bin cover if there is one cell for each spacing.
    """
    n, ndim = x.shape
    q = float((np.sqrt(2 * np.pi) * settings.bin_width) ** ndim)
    return settings.significance * float(np.sqrt(n * q * (1 - q)))


def _count_bins(x: Array, y: Array, width: float) -> Array:
    """Count (ndim,) the bins along each axis; a float, since it may be any number."""
    low = np.minimum(x.min(axis=0), y.min(axis=0))
    high = np.maximum(x.max(axis=0), y.max(axis=0))
    # twice the extent, so that shifts do not wrap
    return np.asarray(2 * (np.ceil((high - low) / width) + 1))


def _correlate_patterns(x: Array, y: Array, width: float, chance: float) -> Vote:
    """Cross-correlate two point patterns."""
    low = np.minimum(x.min(axis=0), y.min(axis=0))
    n_bins = _count_bins(x, y, width).astype(int).tolist()
    # a few more bins, so that no transform has a large prime length
    shape = tuple(scipy.fft.next_fast_len(n, real=True) for n in n_bins)
    spectrum_x = scipy.fft.rfftn(_count_by_bin(x, low, width, shape))
    spectrum_y = scipy.fft.rfftn(_count_by_bin(y, low, width, shape))
    hits = scipy.fft.irfftn(spectrum_x.conj() * spectrum_y, shape)
    smooth = gaussian_filter(hits, 1.0, mode="wrap")
    # the filter's weights sum to 1; as counts, the middle one is 1
    return Vote(smooth * (2 * np.pi) ** (x.shape[1] / 2), width, chance)


def _count_by_bin(
    points: Array, low: Array, width: float, shape: tuple[int, ...]
) -> Array:
    """Count the points in each bin of a grid."""
    grid = np.zeros(shape)
    np.add.at(grid, tuple(np.rint((points - low) / width).astype(int).T), 1.0)
    return grid
