"""A simulated movie as sample data of napari."""

from __future__ import annotations

import numpy as np

from clew.napari.layers import LayerData
from clew.simulation.simulate import NucleiSettings, simulate

SETTINGS = NucleiSettings(frames=30, cells=30, seed=1)


def make_sample(settings: NucleiSettings = SETTINGS) -> list[LayerData]:
    """Return the images of a simulated movie, and masks with segmentation errors."""
    frames = list(simulate(settings))
    images = np.stack([frame.image for frame in frames])
    labels = np.stack([frame.detections for frame in frames])
    scale = (1.0, *settings.spacing)
    return [
        (images, {"name": "nuclei", "scale": scale}, "image"),
        (labels, {"name": "nuclei masks", "scale": scale}, "labels"),
    ]
