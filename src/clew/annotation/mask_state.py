"""The masks of a movie with all edits, and the cells in them; a new value for each edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clew.annotation import mask_tools
from clew.annotation.cell_positions import Positions
from clew.annotation.edited_movie import (
    Edits,
    edit_movie,
    edit_source,
    find_changed_frames,
)
from clew.annotation.mask_edits import Edit, EditKind
from clew.errors import InputError
from clew.learning.task import Indices
from clew.tracking.detections import Source
from clew.tracking.measurement.store import hash_frame
from clew.tracking.movie import Movie


@dataclass(frozen=True)
class MaskStroke:
    """What a person clicked or drew."""

    frame: int
    kind: EditKind
    """The tool."""
    cells: Sequence[int]
    """Labels that were clicked."""
    points: Sequence[tuple[float, float]]
    """X and y in pixels; one point is a click."""
    z: int | None
    """The slice; None for the projection, or in 2D."""


@dataclass(frozen=True, eq=False)
class MaskState:
    """A movie with some mask edits."""

    original: Movie
    source: Source
    """The detections without edits."""
    edits: Edits
    movie: Movie
    """With the edits."""
    positions: Positions
    """The cells with the edits."""

    @classmethod
    def of(cls, movie: Movie, source: Source, edits: Edits) -> MaskState:
        """Apply the edits that were made of these very masks."""
        positions = Positions(source, movie.spacing)
        return cls(movie, source, (), movie, positions).with_edits(edits)

    def with_edits(self, edits: Edits) -> MaskState:
        """Return the movie with other edits; only changed frames are measured."""
        fitting = tuple(edit for edit in edits if self._fits(edit))
        frames = find_changed_frames(self.edits, fitting)
        if not frames:
            return self
        source = edit_source(self.positions.source, self.edits, fitting)
        return replace(
            self,
            edits=fitting,
            movie=edit_movie(self.original, fitting),
            positions=self.positions.with_source(source, frames),
        )

    def _fits(self, edit: Edit) -> bool:
        """Return whether an edit was made of these masks, not of earlier ones."""
        return edit in self.edits or edit.base == self._fingerprint(edit.frame)

    def _fingerprint(self, frame: int) -> str:
        return hash_frame(self.original.label(frame)).hex()[:16]

    def make_edit(self, stroke: MaskStroke, used_labels: list[int]) -> Edit:
        """Return the edit that a stroke means.

        Parameters
        ----------
        stroke : MaskStroke
        used_labels : list of int
            Labels that edits of this frame ever gave; new cells get others.
        """
        n_frames = self.movie.n_frames
        if not 0 <= stroke.frame < n_frames:
            raise InputError(
                f"there is no frame {stroke.frame}; expected 0 to {n_frames - 1}"
            )
        n_slices = self.movie.shape[0] if self.movie.ndim == 3 else 0
        if stroke.z is not None and stroke.z >= n_slices:
            raise InputError(f"{self.movie.name} has no slice {stroke.z}")
        edit = self._apply_tool(stroke, used_labels)
        return replace(edit, base=self._fingerprint(stroke.frame))

    def paint(self, frame: int, pixels: Indices, label: int) -> Edit:
        """Return the edit that gives pixels, places in the flat image, to a label."""
        labels = self.movie.label(frame)
        is_new = not np.any(labels == label)
        if label == 0:
            kind = EditKind.DELETE
        elif is_new and labels.reshape(-1)[pixels].all():
            kind = EditKind.CUT
        else:
            kind = EditKind.ADD if is_new else EditKind.MERGE
        edit = Edit.of(frame, kind, labels, pixels, label)
        return replace(edit, base=self._fingerprint(frame))

    def _apply_tool(self, stroke: MaskStroke, used_labels: list[int]) -> Edit:
        kind = stroke.kind
        frame = mask_tools.MaskFrame(
            stroke.frame,
            self.movie.label(stroke.frame),
            self.movie.image(stroke.frame) if kind is EditKind.ADD else None,
            self.movie.spacing,
            self.diameter,
            stroke.z,
            used_labels,
        )
        if kind is EditKind.MERGE:
            return mask_tools.merge_cells(frame, stroke.cells)
        if kind is EditKind.DELETE:
            return mask_tools.delete_cell(frame, stroke.cells)
        points = stroke.points
        if not points:
            raise InputError("points is empty; expected the points of the stroke")
        if kind is EditKind.CUT:
            return mask_tools.cut_cell(frame, points)
        if len(points) > 1:
            return mask_tools.add_outline(frame, points)
        return mask_tools.grow_cell(frame, points[0])

    @cached_property
    def diameter(self) -> float:
        """The diameter of a disc or ball with the median volume of a few frames.

        In the unit of the spacing; without cells, a twentieth of the picture.
        """
        frames = np.linspace(0, self.movie.n_frames - 1, 5).astype(int)
        volumes = [self.positions.cells(t).volume for t in np.unique(frames).tolist()]
        volume = np.concatenate(volumes)
        measured = volume[volume > 0]
        if not len(measured):
            return max(self.movie.shape[-2:]) * self.movie.spacing[-1] / 20
        median = float(np.median(measured))
        if self.movie.ndim == 2:
            return float(2 * np.sqrt(median / np.pi))
        return float(2 * np.cbrt(3 * median / (4 * np.pi)))
