"""Segment noisy pictures after a few scribbles: labels on a grid, learned with Graph from the annotated pixels alone.

Run it with `python examples/scribbles.py scribbles.png`.

Every pixel is a node with its noisy colour, every pair of neighbours an edge. Nobody outlines whole regions: a person
draws one stroke in each, and all other pixels stay unknown. What neighbours have in common is learned from them, too.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from clew import StructuredSVM
from clew.models import Graph, Multiclass

SIZE, CLASSES = 16, ["background", "cell", "nucleus"]
BRIGHTNESS, NOISE = np.array([0.0, 1.0, 2.0]), 0.55
COLOURS = ListedColormap(["#e8eef0", "#7fbcc4", "#00596a"])


def edges() -> np.ndarray:
    """The pairs of neighbouring pixels of a grid: (m, 2)."""
    number = np.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    across = np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.column_stack([number[:-1].ravel(), number[1:].ravel()])
    return np.vstack([across, down])


def simulate(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A cell with a nucleus: the noisy picture and the true labels, (SIZE, SIZE) each."""
    y, x = np.mgrid[:SIZE, :SIZE]
    centre, tilt = rng.uniform(6.5, 8.5, 2), rng.uniform(0, np.pi)
    along = (y - centre[0]) * np.sin(tilt) + (x - centre[1]) * np.cos(tilt)
    aside = (y - centre[0]) * np.cos(tilt) - (x - centre[1]) * np.sin(tilt)
    reach = rng.uniform(5.5, 6.5)
    truth = ((along / reach) ** 2 + (aside / 4.5) ** 2 < 1).astype(int)
    truth[(along - 1.0) ** 2 + aside**2 < 2.6**2] = 2
    return BRIGHTNESS[truth] + NOISE * rng.normal(size=truth.shape), truth


def scribble(
    truth: np.ndarray, rng: np.random.Generator, length: int = 9
) -> list[str | None]:
    """A random stroke in each region: the class of each pixel on it, and None elsewhere."""
    annotation: list[str | None] = [None] * truth.size
    for label, name in enumerate(CLASSES):
        at = rng.choice(np.argwhere(truth == label))
        for _ in range(length):
            annotation[at[0] * SIZE + at[1]] = name
            step = np.clip(at + rng.integers(-1, 2, 2), 0, SIZE - 1)
            at = step if truth[tuple(step)] == label else at
    return annotation


def main(path: str = "scribbles.png", shown: int = 4, new: int = 10) -> None:
    """Learn from strokes in the pictures that are shown, segment `new` ones with and without neighbours."""
    rng = np.random.default_rng(0)
    pictures = [simulate(rng) for _ in range(shown + new)]
    grid = edges()
    X = [(picture.reshape(-1, 1), grid) for picture, _ in pictures]
    Y = [scribble(truth, rng) for _, truth in pictures[:shown]]
    graph = StructuredSVM(Graph(classes=CLASSES, symmetric=True), lam=0.1).fit(
        X[:shown], Y
    )

    # the same strokes without the grid: each pixel on its own
    known = [
        (x[0][node], label)
        for x, y in zip(X, Y, strict=False)
        for node, label in enumerate(y)
        if label
    ]
    pixels, labels = (
        np.array([pixel for pixel, _ in known]),
        [label for _, label in known],
    )
    alone = StructuredSVM(Multiclass(classes=CLASSES), lam=0.01).fit(pixels, labels)

    names = np.array(CLASSES)
    by_graph = [np.array(found) for found in graph.predict(X[shown:])]
    by_pixel = [np.array(alone.predict(x[0])) for x in X[shown:]]
    right = {
        what: float(
            np.mean(
                np.array(found)
                == [names[truth.ravel()] for _, truth in pictures[shown:]]
            )
        )
        for what, found in (
            ("each pixel on its own", by_pixel),
            ("with its neighbours", by_graph),
        )
    }
    share = len(known) / (shown * SIZE * SIZE)
    print(f"{share:.1%} of the pixels annotated; {graph.result_}")
    print(
        "; ".join(
            f"{what}: {value:.1%} of new pixels right" for what, value in right.items()
        )
    )
    draw(
        [pictures[0], pictures[shown]], Y[0], by_pixel[0], by_graph[0], right, share
    ).savefig(path, dpi=130)
    print(f"written: {path}")


def draw(
    pictures: list,
    annotation: list,
    alone: np.ndarray,
    found: np.ndarray,
    right: dict[str, float],
    share: float,
) -> Figure:
    """The first picture with its strokes, the second, new one, and both ways to segment it beside the truth."""
    figure = Figure(figsize=(12, 3), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 5)
    numbers = np.array(
        [CLASSES.index(name) if name else -1 for name in annotation]
    ).reshape(SIZE, SIZE)
    axes[0].imshow(pictures[0][0], cmap="gray")
    axes[0].imshow(np.ma.masked_less(numbers, 0), cmap=COLOURS, vmin=0, vmax=2)
    axes[1].imshow(pictures[1][0], cmap="gray")
    for axis, labels in ((axes[2], alone), (axes[3], found)):
        axis.imshow(
            np.array([CLASSES.index(name) for name in labels]).reshape(SIZE, SIZE),
            cmap=COLOURS,
            vmin=0,
            vmax=2,
        )
    axes[4].imshow(pictures[1][1], cmap=COLOURS, vmin=0, vmax=2)
    titles = [f"Learned from: strokes\non {share:.0%} of the pixels", "A new picture\n"]
    titles += [
        f"{what}\n{value:.1%} right in new pictures" for what, value in right.items()
    ]
    for axis, title in zip(axes, [*titles, "The truth\n"], strict=True):
        axis.set_title(title[0].upper() + title[1:], loc="left", fontsize=10)
        axis.axis("off")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
