"""Pictures of the simulated kinds, beside the real movies of CLEW_DATA where it is set.

python benchmarks/kind_pictures.py FOLDER          # FOLDER/kinds.png, and FOLDER/kinds-and-real.png to look at

What is shown of real movies may not be redistributed: the second picture stays at home.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import tifffile
import typer
from numpy.typing import NDArray

from clew.simulation.kinds import KINDS
from clew.simulation.simulate import settings_of, simulate

REAL = {
    "nuclei": ("Fluo-N2DL-HeLa/01", "Fluo-N2DL-HeLa/01_ST/SEG", 45),
    "rods": ("bacteria/01", "bacteria/01_GT/TRA", 36),
    "flat": ("PhC-C2DL-PSC/01", "PhC-C2DL-PSC/01_ST/SEG", 100),
}
"""Images, masks and frame of the real movie beside a kind."""
SIDE = 420
"""Pixels of a crop, at most."""


def shown(image: NDArray[Any]) -> NDArray[Any]:
    """Grey values between 0 and 1; a maximum projection in 3D."""
    flat = image.max(axis=0) if image.ndim == 3 else image
    low, high = np.percentile(flat, [0.5, 99.7])
    return np.clip((flat - low) / max(high - low, 1), 0, 1)


def coloured(mask: NDArray[Any]) -> NDArray[Any]:
    """A colour for each label, the same in all frames."""
    flat = mask.max(axis=0) if mask.ndim == 3 else mask
    colour = np.random.default_rng(1).uniform(0.25, 1, (int(flat.max()) + 1, 3))
    colour[0] = 0
    return colour[flat]


def crop(picture: NDArray[Any], centre: NDArray[Any]) -> NDArray[Any]:
    """The part about a point."""
    begin = np.clip(
        centre - SIDE // 2, 0, np.maximum(np.array(picture.shape[:2]) - SIDE, 0)
    ).astype(int)
    return picture[begin[0] : begin[0] + SIDE, begin[1] : begin[1] + SIDE]


def panel(axes: Any, title: str, image: NDArray[Any], mask: NDArray[Any]) -> None:
    """An image and its masks, one above the other, cropped where the cells are."""
    flat = mask.max(axis=0) if mask.ndim == 3 else mask
    centre = np.argwhere(flat > 0).mean(axis=0)
    axes[0].imshow(crop(shown(image), centre), cmap="gray")
    axes[1].imshow(crop(coloured(mask), centre), interpolation="nearest")
    axes[0].set_title(title, fontsize=11)
    for one in axes:
        one.set_axis_off()


def main(folder: Annotated[Path, typer.Argument()]) -> None:
    """Draw both pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    lasts = {kind: list(simulate(settings_of(kind, seed=1)))[-1] for kind in KINDS}
    figure, axes = plt.subplots(
        2, len(lasts), figsize=(2.6 * len(lasts), 5.4), layout="constrained"
    )
    for column, (kind, frame) in zip(axes.T, lasts.items(), strict=True):
        panel(column, kind, frame.image, frame.truth)
    figure.savefig(folder / "kinds.png", dpi=80)
    if os.environ.get("CLEW_DATA"):
        data = Path(os.environ["CLEW_DATA"])
        figure, axes = plt.subplots(
            2, 2 * len(REAL), figsize=(5.2 * len(REAL), 5.4), layout="constrained"
        )
        for n, (kind, (images, masks, t)) in enumerate(REAL.items()):
            image, mask = (
                tifffile.imread(sorted((data / one).glob("*.tif"))[t])
                for one in (images, masks)
            )
            panel(axes[:, 2 * n], f"{kind}, real", image, mask)
            panel(
                axes[:, 2 * n + 1],
                f"{kind}, simulated",
                lasts[kind].image,
                lasts[kind].truth,
            )
        figure.savefig(folder / "kinds-and-real.png", dpi=80)


if __name__ == "__main__":
    typer.run(main)
