"""How cells of a kind look and move, in figures that have no unit: simulated movies beside real ones.

CLEW_DATA=… python benchmarks/kind_statistics.py [--draws 3]

Real movies stand first where CLEW_DATA is set. All from true masks and tracks. Lengths are over the spacing, the median
distance of a cell from its nearest neighbour.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import typer
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.simulation.kinds import KINDS
from clew.simulation.simulate import settings_of, simulate

NEIGHBOURS = 6
"""A cell's surroundings: the median displacement of so many is taken from its own."""
COLUMNS = {
    "cells": "cells",
    "diameter": "diameter",
    "aspect": "aspect",
    "long": "aspect, 9th decile",
    "spacing": "spacing / diameter",
    "way": "displacement / spacing",
    "own_way": "relative to neighbours",
    "stray": "not to the nearest, %",
    "overlap": "IoU",
    "growth": "growth, % a frame",
    "births": "divisions, %",
    "apart": "daughters' distance / mother's length",
}


@dataclass(frozen=True)
class Shapes:
    """The cells of one frame: labels (n,) ascending, centroids (n, d), pixels (n,), length and width (n,)."""

    label: NDArray[np.int64]
    centre: NDArray[np.float64]
    size: NDArray[np.float64]
    length: NDArray[np.float64]
    width: NDArray[np.float64]
    mask: NDArray[Any]


def shapes(mask: NDArray[Any], spacing: tuple[float, ...]) -> Shapes:
    """Moments of all cells of a label image; an ellipse or ellipsoid of these moments has that length and width.

    The least of three axes counts as the width.
    """
    where = np.argwhere(mask > 0) * np.array(spacing)
    label, row = np.unique(mask[mask > 0], return_inverse=True)
    size = np.bincount(row).astype(np.float64)
    centre = np.column_stack([np.bincount(row, x) / size for x in where.T])
    away = where - centre[row]
    spread = np.stack(
        [[np.bincount(row, a * b) / size for b in away.T] for a in away.T]
    )  # (d, d, n)
    eigenvalue = np.linalg.eigvalsh(
        np.moveaxis(spread, -1, 0) + np.diag(np.square(spacing)) / 12
    )
    length, width = 4 * np.sqrt(eigenvalue[:, -1]), 4 * np.sqrt(eigenvalue[:, 0])
    return Shapes(label.astype(np.int64), centre, size, length, width, mask)


def statistics(
    masks: Iterable[NDArray[Any]],
    parents: dict[int, int],
    spacing: tuple[float, ...] = (1.0, 1.0),
) -> dict[str, float]:
    """The figures of `COLUMNS` for a movie; `parents` gives the mother's track of those that have one."""
    found: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    before: Shapes | None = None
    for mask in masks:
        now = shapes(mask, spacing)
        n, dims = now.centre.shape
        found["cells"].append([n])
        found["diameter"].append(
            2
            * (now.size * np.prod(spacing) * (1 if dims == 2 else 0.75) / np.pi)
            ** (1 / dims)
        )
        found["aspect"].append(now.length / now.width)
        if n > 1:
            found["spacing"].append(cKDTree(now.centre).query(now.centre, 2)[0][:, 1])
        if before is not None:
            _compare(before, now, parents, found)
        before = now
    values = {name: np.concatenate([*parts, []]) for name, parts in found.items()}
    middle = {
        name: float(np.median(v)) if len(v) else np.nan for name, v in values.items()
    }
    share = {name: 100 * float(values[name].mean()) for name in ("stray", "births")}
    result = (
        middle
        | share
        | {
            "long": float(np.quantile(values["aspect"], 0.9)),
            "growth": 100 * middle["growth"],
        }
    )
    result |= {name: middle[name] / middle["spacing"] for name in ("way", "own_way")}
    return result | {"spacing": middle["spacing"] / middle["diameter"]}


def _compare(
    before: Shapes, now: Shapes, parents: dict[int, int], found: dict[str, list[Any]]
) -> None:
    """Add what two consecutive frames show: moves, growth and divisions."""
    _, a, b = np.intersect1d(before.label, now.label, return_indices=True)
    way = now.centre[b] - before.centre[a]
    found["way"].append(np.linalg.norm(way, axis=1))
    if len(a) > NEIGHBOURS:
        near = cKDTree(before.centre[a]).query(before.centre[a], NEIGHBOURS + 1)[1][
            :, 1:
        ]
        found["own_way"].append(
            np.linalg.norm(way - np.median(way[near], axis=1), axis=1)
        )
    if len(a):
        nearest = cKDTree(now.centre).query(before.centre[a])[1]
        found["stray"].append((nearest != b).astype(float))
        found["growth"].append(np.log(now.size[b] / before.size[a]))
        same = before.mask[before.mask == now.mask]
        both = np.bincount(
            np.searchsorted(before.label, same[same > 0]), minlength=len(before.label)
        )[a]
        found["overlap"].append(both / (before.size[a] + now.size[b] - both))
    new = np.setdiff1d(now.label, before.label)
    mothers, count = np.unique(
        [parents.get(int(label), 0) for label in new], return_counts=True
    )
    mothers = mothers[(mothers > 0) & (count == 2)]
    found["births"].append(np.isin(before.label, mothers).astype(float))
    for mother in mothers:
        row = np.flatnonzero(before.label == mother)
        pair = now.centre[
            np.isin(
                now.label,
                [label for label in new if parents.get(int(label), 0) == mother],
            )
        ]
        if len(row) and len(pair) == 2:
            found["apart"].append(
                [np.linalg.norm(pair[0] - pair[1]) / before.length[row[0]]]
            )


def real_movies() -> Iterator[tuple[str, list[NDArray[Any]], dict[int, int]]]:
    """Movies of CLEW_DATA: name, masks with tracks as labels, mothers."""
    data = Path(os.environ["CLEW_DATA"])
    for name, folder in [
        ("HeLa nuclei", "Fluo-N2DL-HeLa/01_ST/SEG"),
        ("bacteria", "bacteria/01_GT/TRA"),
        ("phase contrast, PSC", "PhC-C2DL-PSC/01_ST/SEG"),
        ("SIM+ nuclei", "Fluo-N2DH-SIM+/01_GT/TRA"),
    ]:
        table = np.loadtxt(
            next((data / folder).parent.parent.glob("01_GT/TRA/man_track.txt")),
            dtype=int,
        )
        files = sorted((data / folder).glob("*.tif"))
        yield (
            name,
            [tifffile.imread(file) for file in files],
            {int(r[0]): int(r[3]) for r in table if r[3]},
        )


def table_of(rows: dict[str, dict[str, float]]) -> str:
    """Movies as rows of a markdown table."""
    lines = [
        f"| | {' | '.join(COLUMNS.values())} |",
        "| --- |" + " --- |" * len(COLUMNS),
    ]
    for name, values in rows.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{values[key]:.3g}" for key in COLUMNS) + " |"
        )
    return "\n".join(lines)


def simulated_movies(
    draws: int,
) -> Iterator[tuple[str, Iterable[NDArray[Any]], dict[int, int], tuple[float, ...]]]:
    """Movies of every kind with its own settings: name, masks, mothers, spacing."""
    for kind in KINDS:
        for seed in range(draws):
            movie = simulate(settings_of(kind, seed=seed))
            masks = [frame.truth for frame in movie]
            tracks = movie.tracks
            born = tracks.parent > 0
            parents = dict(
                zip(tracks.id[born].tolist(), tracks.parent[born].tolist(), strict=True)
            )
            yield kind, masks, parents, movie.settings.spacing


def main(draws: int = 3) -> None:
    """Print the table: real movies, then the mean over simulated ones of each kind."""
    rows = {}
    if os.environ.get("CLEW_DATA"):
        rows |= {
            f"**{name}**": statistics(masks, parents)
            for name, masks, parents in real_movies()
        }
    found: dict[str, list[dict[str, float]]] = {}
    for kind, masks, parents, spacing in simulated_movies(draws):
        found.setdefault(f"simulated {kind}", []).append(
            statistics(masks, parents, spacing)
        )
    rows |= {
        name: {key: float(np.mean([row[key] for row in many])) for key in COLUMNS}
        for name, many in found.items()
    }
    print(table_of(rows))


if __name__ == "__main__":
    typer.run(main)
