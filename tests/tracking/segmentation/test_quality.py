"""Detections that look wrong are noticed without a truth."""

import os
from pathlib import Path

import numpy as np
import pytest

from clew.simulation.simulate import random_settings, simulate
from clew.tracking.movie import open_frames
from clew.tracking.segmentation import DetectionSettings, detect_frame, fit_settings
from clew.tracking.segmentation.quality import find_doubts, summarize_frame


def make_frames(counts, size=100, spread=0.2, share=0.2, seed=0):
    """Summaries of frames with these numbers of cells."""
    rng = np.random.default_rng(seed)
    frames = []
    for n_cells in counts:
        sizes = np.round(size * np.exp(spread * rng.standard_normal(n_cells)))
        labels = np.repeat(np.arange(1, n_cells + 1), np.maximum(sizes, 1).astype(int))
        background = np.zeros(max(1, round(len(labels) * (1 / share - 1))), int)
        frames.append(summarize_frame(np.concatenate([labels, background])))
    return frames


def test_summary_counts_cells_and_pixels():
    labels = np.array([[0, 3, 3], [7, 0, 0]])
    summary = summarize_frame(labels)
    assert summary.n_cells == 2
    assert summary.foreground == 0.5
    assert summary.sizes.tolist() == [2, 1]


def test_growing_colony_is_plausible():
    assert (
        find_doubts(make_frames(np.round(5 * 1.06 ** np.arange(40)).astype(int))) == []
    )


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (make_frames([0, 1, 0, 0, 1]), "hardly anything was found: 2 cells in 5"),
        (make_frames([40, 12, 44, 9, 41]), "jumps from frame to frame: 44 in frame 2"),
        (make_frames([30] * 5, spread=1.5), "sizes vary wildly"),
        (make_frames([30] * 5, share=0.8), "80% of the picture is foreground"),
    ],
)
def test_implausible_detections_are_described(frames, words):
    doubts = find_doubts(frames)
    assert len(doubts) == 1
    assert words in doubts[0]


def test_one_empty_frame_has_no_sizes():
    assert len(find_doubts(make_frames([0]))) == 1


@pytest.mark.parametrize("kind", ["nuclei", "tissue", "sparse"])
def test_simulated_cells_are_plausible(kind):
    movie = simulate(random_settings(kind, 3, dims=2, frames=6, cells=30))
    frames = [summarize_frame(frame.truth) for frame in movie]
    assert find_doubts(frames) == []


@pytest.mark.skipif(
    "CLEW_DATA" not in os.environ, reason="CLEW_DATA is not set: no recorded movies"
)
@pytest.mark.parametrize(
    ("name", "is_doubtful"),
    [
        ("Fluo-N2DL-HeLa/01", False),
        ("Fluo-N2DH-SIM+/01", False),
        ("DIC-C2DH-HeLa/01", True),
        ("PhC-C2DH-U373/01", True),
    ],
)
def test_recorded_cells_that_the_threshold_cannot_find_are_doubted(name, is_doubtful):
    images = open_frames(Path(os.environ["CLEW_DATA"]) / name)
    settings = fit_settings(images, DetectionSettings())
    frames = [
        summarize_frame(detect_frame(images[t], settings=settings)) for t in range(4)
    ]
    assert bool(find_doubts(frames)) == is_doubtful
