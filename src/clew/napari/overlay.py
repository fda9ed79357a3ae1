"""The event in question, drawn over the layers of a viewer, and the way to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.annotation.cell_positions import Positions
from clew.learning.task import Array

CELLS = "clew: cells in question"
LINKS = "clew: links in question"
SOURCE_COLOR = "#00d0ff"
TARGET_COLOR = "#ffb000"
VIEW_DIAMETERS = 14.0
"""Cell diameters across the view of a question."""
CANVAS = (600, 600)
"""Pixels of the canvas, if the viewer does not say."""


def list_rings(
    frame: int, before: Array, after: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Return points at the cells of an event, in both frames.

    Parameters
    ----------
    frame : int
        The first one.
    before, after : ndarray of shape (n, ndim)
        Positions of sources and targets in pixels.

    Returns
    -------
    points : ndarray of shape (2 n, 1 + ndim)
    is_target : ndarray of shape (2 n,)
    """
    cells = np.vstack([before, after])
    is_target = np.arange(len(cells)) >= len(before)
    parts = [
        np.column_stack([np.full(len(cells), frame + step), cells]) for step in (0, 1)
    ]
    return np.vstack(parts), np.tile(is_target, 2)


def list_arrows(frame: int, before: Array, after: Array) -> Array:
    """Return (n, 2, 1 + ndim) arrows from sources to targets, in both frames."""
    n_axes = 1 + before.shape[1]
    arrows = [
        [np.append(frame + step, source), np.append(0, target - source)]
        for step in (0, 1)
        for source in before
        for target in after
    ]
    return np.array(arrows).reshape(-1, 2, n_axes)


class QuestionOverlay:
    """Two layers that show an event; they are made when they are first needed.

    Parameters
    ----------
    viewer : napari.Viewer
    labels : napari.layers.Labels
        The masks, whose frames the viewer shows.
    diameter : float
        Of a cell, in pixels.
    """

    def __init__(self, viewer: Any, labels: Any, diameter: float) -> None:
        self.viewer = viewer
        self.labels = labels
        self.diameter = diameter

    def show(
        self,
        positions: Positions,
        frame: int,
        sources: Sequence[int],
        targets: Sequence[int],
    ) -> None:
        """Draw an event from a frame to the next one."""
        before = positions.cells(frame).of_labels(sources)
        after = positions.cells(frame + 1).of_labels(targets)
        points, is_target = list_rings(frame, before, after)
        colors = np.where(is_target, TARGET_COLOR, SOURCE_COLOR)
        rings = self.get_layer(CELLS)
        rings.data = points
        rings.size = 1.3 * self.diameter
        rings.border_color = colors.tolist() or SOURCE_COLOR
        self.get_layer(LINKS).data = list_arrows(frame, before, after)

    def get_layer(self, name: str) -> Any:
        """Return one of the two layers; add it if the viewer does not have it."""
        if name in self.viewer.layers:
            return self.viewer.layers[name]
        selected = set(self.viewer.layers.selection)
        options: dict[str, Any] = {
            "name": name,
            "scale": self.labels.scale,
            "translate": self.labels.translate,
            "out_of_slice_display": self.labels.ndim > 3,
        }
        n_axes = self.labels.ndim
        if name == CELLS:
            layer = self.viewer.add_points(
                np.zeros((0, n_axes)),
                ndim=n_axes,
                face_color="transparent",
                border_width=0.08,
                **options,
            )
        else:
            layer = self.viewer.add_vectors(
                np.zeros((0, 2, n_axes)),
                ndim=n_axes,
                edge_color=TARGET_COLOR,
                edge_width=max(self.diameter / 12, 0.5),
                vector_style="arrow",
                **options,
            )
        # The layer that the person works in stays the active one.
        self.viewer.layers.selection = selected
        return layer

    def go_to(
        self, positions: Positions, frame: int, cells: Mapping[int, Sequence[int]]
    ) -> None:
        """Show a frame, and the slice and place of cells.

        Parameters
        ----------
        positions : Positions
        frame : int
            To show.
        cells : mapping
            Labels by frame.
        """
        self.show_frame(frame)
        places = np.vstack(
            [positions.cells(t).of_labels(labels) for t, labels in cells.items()]
        )
        if not len(places):
            return
        scale = np.asarray(self.labels.scale)[1:]
        shift = np.asarray(self.labels.translate)[1:]
        center = places.mean(axis=0) * scale + shift
        first_axis = self.viewer.dims.ndim - len(center)
        if self.viewer.dims.ndisplay == 2 and len(center) == 3:
            self.viewer.dims.set_point(first_axis, center[0])
        # From 0.9 on the camera is part of the scene.
        camera = getattr(self.viewer, "scene", self.viewer).camera
        camera.center = center
        reach = np.ptp(places[:, -2:], axis=0).max() + VIEW_DIAMETERS * self.diameter
        canvas = min(getattr(self.viewer, "_canvas_size", CANVAS)) or min(CANVAS)
        camera.zoom = canvas / (reach * scale[-1])

    def show_frame(self, frame: int) -> None:
        """Let the viewer show a frame of the movie."""
        axis = self.viewer.dims.ndim - self.labels.ndim
        time = frame * self.labels.scale[0] + self.labels.translate[0]
        self.viewer.dims.set_point(axis, time)

    def shown_frame(self) -> int:
        """Return the frame that the viewer shows."""
        axis = self.viewer.dims.ndim - self.labels.ndim
        time = self.viewer.dims.point[axis] - self.labels.translate[0]
        return round(float(time / self.labels.scale[0]))
