"""A person looks at detected cells, and chooses the settings, before a movie is opened."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np

from clew.annotation.notebook import stretch_contrast
from clew.app.images import SECTION_INK, encode_png
from clew.tracking.frames import Frames
from clew.tracking.segmentation.threshold import (
    DetectionSettings,
    detect_frame,
    fit_settings,
)


class DetectionChoice:
    """The settings by which the cells of a movie without masks are detected.

    Parameters
    ----------
    images : Frames
    settings : DetectionSettings
        To begin with; the diameter is estimated if it is missing.
    """

    def __init__(self, images: Frames, settings: DetectionSettings) -> None:
        self.images = images
        self.settings = fit_settings(images, settings)
        self.is_made = threading.Event()
        self._n_cells: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what the page shows beside the picture."""
        return {
            "frames": len(self.images),
            "diameter": round(self.settings.diameter or 0.0, 1),
            "sensitivity": self.settings.sensitivity,
            "cells": self._n_cells,
        }

    def choose(self, diameter: float, sensitivity: float) -> None:
        """Detect with these settings."""
        self.settings = self._with(diameter, sensitivity)
        self.is_made.set()

    def draw(self, frame: int, diameter: float, sensitivity: float) -> bytes:
        """Return the PNG of a frame with outlines of the cells found by settings."""
        from skimage.segmentation import find_boundaries

        image = self.images[frame]
        settings = self._with(diameter, sensitivity)
        labels = detect_frame(image, settings=settings)
        self._n_cells = int(labels.max(initial=0))
        if image.ndim == 3:
            image = image.max(axis=0)
            labels = labels.max(axis=0)
        picture = stretch_contrast(image)
        picture[find_boundaries(labels, mode="inner")] = SECTION_INK
        return encode_png(np.ascontiguousarray(picture))

    def _with(self, diameter: float, sensitivity: float) -> DetectionSettings:
        return replace(self.settings, diameter=diameter, sensitivity=sensitivity)
