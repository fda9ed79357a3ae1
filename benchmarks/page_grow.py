"""Clicks that add a cell: cells of real movies are removed, clicked in their middles, and compared with what grows."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from page_server import console
from rich.table import Table

from clew.annotation.mask_edits import apply_edits
from clew.annotation.mask_tools import MaskFrame, grow_cell
from clew.errors import InputError
from clew.tracking.movie import open_movie

FRAMES = 6
CELLS = 6


def grow(options: argparse.Namespace) -> None:
    """Overlap of what grows from a click with the cell that was there."""
    table = Table("movie", "clicks", "refused", "median IoU", "IoU ≥ 0.5, %")
    for name in options.movies:
        movie = open_movie(Path(os.environ["CLEW_DATA"]) / name / "01")
        rng = np.random.default_rng(0)
        frames = rng.choice(movie.n_frames, FRAMES, replace=False).tolist()
        sizes = np.concatenate(
            [np.bincount(movie.label(t).ravel())[1:] for t in frames]
        )
        diameter = 2 * np.sqrt(np.median(sizes[sizes > 0]) / np.pi)
        overlaps: list[float] = []
        refused = 0
        for t in frames:
            labels = movie.label(t)
            cells = np.setdiff1d(labels, [0])
            for cell in rng.choice(cells, min(CELLS, len(cells)), replace=False):
                own = np.argwhere(labels == cell)
                middle = own[
                    np.argmin(((own - own.mean(axis=0)) ** 2).sum(axis=1))
                ].tolist()
                others = np.where(labels == cell, 0, labels)
                click = (middle[1] + 0.5, middle[0] + 0.5)
                try:
                    frame = MaskFrame(t, others, movie.image(t), diameter=diameter)
                    edit = grow_cell(frame, click)
                except InputError:
                    refused += 1
                    continue
                grown = apply_edits(others, [edit]) != others
                shared = np.count_nonzero(grown & (labels == cell))
                overlaps.append(shared / (np.count_nonzero(grown) + len(own) - shared))
        known = np.array(overlaps)
        table.add_row(
            name,
            str(len(known) + refused),
            str(refused),
            f"{np.median(known):.2f}",
            f"{100 * np.mean(known >= 0.5):.0f}",
        )
    console.print(table)
