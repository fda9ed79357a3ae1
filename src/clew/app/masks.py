"""The masks of a movie with a person's edits, and the cells in them; a new state for every edit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from clew.annotation import mask_tools
from clew.annotation.cell_positions import Positions
from clew.annotation.edited_movie import (
    Edits,
    changed_frames,
    edited_movie,
    edited_source,
)
from clew.annotation.mask_edits import Edit, EditKind
from clew.app.api_models import AskedEdit
from clew.errors import InputError
from clew.tracking.detections import Source
from clew.tracking.measurement.store import hash_frame
from clew.tracking.movie import Movie


@dataclass(frozen=True, eq=False)
class Masks:
    """A movie as it is with some edits of its masks, and where its cells are."""

    original: Movie
    source: Source
    """The cells of the original."""
    edits: Edits
    movie: Movie
    positions: Positions

    @classmethod
    def of(cls, movie: Movie, source: Source, edits: Edits) -> Masks:
        """A movie with the edits that fit its masks."""
        bare = cls(movie, source, (), movie, Positions(source, movie.spacing))
        return bare.with_edits(edits)

    def with_edits(self, edits: Edits) -> Masks:
        """The same movie with other edits; only frames in which these differ are measured."""
        fitting = tuple(edit for edit in edits if self._fits(edit))
        frames = changed_frames(self.edits, fitting)
        if not frames:
            return self
        source = edited_source(self.positions.source, self.edits, fitting)
        movie = edited_movie(self.original, fitting)
        return replace(
            self,
            edits=fitting,
            movie=movie,
            positions=self.positions.edited(source, frames),
        )

    def _fits(self, edit: Edit) -> bool:
        """Whether an edit was made of these masks: they may have been replaced by others since."""
        return edit in self.edits or edit.base == self._base(edit.frame)

    def _base(self, frame: int) -> str:
        return hash_frame(self.original.label(frame)).hex()[:16]

    def make(self, asked: AskedEdit, used: list[int]) -> Edit:
        """An edit as a person asked for it; `used` are the labels that edits of this frame ever gave."""
        if not 0 <= asked.frame < self.movie.n_frames:
            raise InputError(
                f"there is no frame {asked.frame}; they are 0 to {self.movie.n_frames - 1}"
            )
        if asked.z is not None and (
            self.movie.ndim == 2 or asked.z >= self.movie.shape[0]
        ):
            raise InputError(f"{self.movie.name} has no slice {asked.z}")
        return replace(self._made(asked, used), base=self._base(asked.frame))

    def _made(self, asked: AskedEdit, used: list[int]) -> Edit:
        t, labels, points = asked.frame, self.movie.label(asked.frame), asked.points
        if asked.kind is EditKind.MERGE:
            return mask_tools.merge(t, labels, asked.cells)
        if asked.kind is EditKind.DELETE:
            if len(asked.cells) != 1:
                raise InputError(
                    f"cells is {list(asked.cells)}; expected the one that is to be deleted"
                )
            return mask_tools.delete(t, labels, asked.cells[0])
        if not points:
            raise InputError("points is empty; expected where the stroke went")
        if asked.kind is EditKind.CUT:
            return mask_tools.cut(t, labels, points, asked.z, used)
        image, spacing = self.movie.image(t), self.movie.spacing
        if len(points) > 1:
            return mask_tools.outline(t, labels, image, points, spacing, asked.z, used)
        return mask_tools.grow(
            t, labels, image, points[0], self.diameter, spacing, asked.z, used
        )

    @cached_property
    def diameter(self) -> float:
        """Of a usual cell, in the unit of the spacing: of a disc or ball with the median volume of a few frames."""
        some = np.unique(
            np.linspace(0, self.movie.n_frames - 1, 5).astype(int)
        ).tolist()
        volume = np.concatenate([self.positions.cells(t).volume for t in some])
        usual = float(np.median(volume[volume > 0])) if (volume > 0).any() else 0.0
        if not usual:  # no cell to go by: a twentieth of the picture
            return max(self.movie.shape[-2:]) * self.movie.spacing[-1] / 20
        return float(
            2 * np.sqrt(usual / np.pi)
            if self.movie.ndim == 2
            else 2 * np.cbrt(3 * usual / (4 * np.pi))
        )
