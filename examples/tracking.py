"""Tracking by assignment with BinaryProgram: learn which cell became which from a few confirmed events.

Run it with `python examples/tracking.py tracking.png`.

Between two frames, every cell of the first has one fate (it moves, divides or disappears) and every cell of the second
has one history (Eqs. 16 to 18 of the paper). An event is a 0/1 variable; the rows of A say what excludes what.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure

from clew import StructuredSVM
from clew.models import BinaryProgram, Program

NEAR = 0.22
CLEW, GREY, RED = "#00798c", "#b8c4c8", "#d1495b"


@dataclass
class Pair:
    """Two frames: positions (n, 2) and sizes (n,), and the true events."""

    before: np.ndarray
    sizes_before: np.ndarray
    after: np.ndarray
    sizes_after: np.ndarray
    truth: set


def simulate(rng: np.random.Generator, n: int = 25) -> Pair:
    """Cells that drift to the right; some divide into two halves, some leave, some enter."""
    before, sizes = rng.random((n, 2)), rng.lognormal(0, 0.25, n)
    after, sizes_after, truth = [], [], set()
    for i in range(n):
        fate, here = rng.random(), before[i] + [0.05, 0.0]
        if fate < 0.12:
            apart = rng.normal(size=2)
            apart *= 0.035 / np.linalg.norm(apart)
            truth.add(("divide", i, len(after), len(after) + 1))
            after += [here + apart, here - apart]
            sizes_after += list(
                sizes[i] * (0.5 + 0.05 * rng.normal() * np.array([1, -1]))
            )
        elif fate < 0.94:
            truth.add(("move", i, len(after)))
            after.append(here + 0.035 * rng.normal(size=2))
            sizes_after.append(sizes[i] * rng.lognormal(0, 0.08))
        else:
            truth.add(("disappear", i))
    truth.add(("appear", len(after)))
    return Pair(
        before,
        sizes,
        np.array([*after, rng.random(2)]),
        np.array([*sizes_after, rng.lognormal(0, 0.25)]),
        truth,
    )


def events(pair: Pair) -> list[tuple]:
    """Everything that may have happened."""
    distance = np.linalg.norm(pair.before[:, None] - pair.after[None], axis=2)
    near = [np.flatnonzero(row < NEAR) for row in distance]
    return [
        *(("move", i, int(j)) for i, js in enumerate(near) for j in js),
        *(
            ("divide", i, int(j), int(k))
            for i, js in enumerate(near)
            for j, k in combinations(js, 2)
        ),
        *(("disappear", i) for i in range(len(pair.before))),
        *(("appear", j) for j in range(len(pair.after))),
    ]


def program(pair: Pair, candidates: list[tuple]) -> Program:
    """One variable for each event, one row for each cell: exactly one of its events happens."""
    n, m = len(pair.before), len(pair.after)
    features, rows, columns = np.zeros((len(candidates), 10)), [], []
    for e, (kind, *cells) in enumerate(candidates):
        match kind, cells:
            case "move", [i, j]:
                d, growth = (
                    pair.after[j] - pair.before[i],
                    np.log(pair.sizes_after[j] / pair.sizes_before[i]),
                )
                features[e, :4] = 1, 20 * d[0], 100 * d @ d, growth**2
                touched = [i, n + j]
            case "divide", [i, j, k]:
                d = (pair.after[j] + pair.after[k]) / 2 - pair.before[i]
                growth = np.log(
                    (pair.sizes_after[j] + pair.sizes_after[k]) / pair.sizes_before[i]
                )
                features[e, 4:8] = 1, 20 * d[0], 100 * d @ d, growth**2
                touched = [i, n + j, n + k]
            case "disappear", [i]:
                features[e, 8], touched = 1, [i]
            case "appear", [j]:
                features[e, 9], touched = 1, [n + j]
        rows += touched
        columns += [e] * len(touched)
    A = sp.csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(n + m, len(candidates))
    )
    return Program(features, A, np.ones(n + m), np.ones(n + m))


def main(path: str = "tracking.png") -> None:
    """Confirm a few events in 10 pairs of frames, learn, and track 20 new pairs."""
    rng = np.random.default_rng(0)
    pairs = [simulate(rng) for _ in range(30)]
    candidates = [events(pair) for pair in pairs]
    X = [
        program(pair, all_events)
        for pair, all_events in zip(pairs, candidates, strict=True)
    ]
    Y = [
        {
            e: 1
            for e, event in enumerate(all_events)
            if event in pair.truth and rng.random() < 0.2
        }
        for pair, all_events in zip(pairs[:10], candidates, strict=False)
    ]
    svm = StructuredSVM(BinaryProgram(), lam=0.01).fit(X[:10], Y)
    print(f"{sum(map(len, Y))} events confirmed; {svm.result_}")
    happened = [
        {event for event, chosen in zip(all_events, y, strict=True) if chosen}
        for all_events, y in zip(candidates[10:], svm.predict(X[10:]), strict=True)
    ]
    found = sum(
        len(tracked & pair.truth)
        for tracked, pair in zip(happened, pairs[10:], strict=True)
    )
    total = sum(len(pair.truth) for pair in pairs[10:])
    print(f"new pairs: {found} of {total} events found ({found / total:.1%})")
    draw(pairs[0], candidates[0], Y[0], pairs[10], happened[0]).savefig(
        path, dpi=130, bbox_inches="tight"
    )
    print(f"written: {path}")


def draw(
    known: Pair, candidates: list[tuple], annotation: dict, new: Pair, tracked: set
) -> Figure:
    """What was annotated in one pair, and what was tracked in another."""
    figure = Figure(figsize=(10, 5.4), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    for event in candidates:
        if event[0] == "move":
            draw_event(left, known, event, color=GREY, linewidth=0.6, zorder=1)
    for e in annotation:
        draw_event(left, known, candidates[e], color=CLEW, linewidth=3, zorder=2)
    left.set_title(
        f"Learned from: {len(annotation)} confirmed events in this pair",
        loc="left",
        fontsize=11,
    )
    for event in tracked:
        draw_event(
            right,
            new,
            event,
            color=CLEW if event in new.truth else RED,
            linewidth=2,
            zorder=2,
        )
    right.set_title(
        f"A new pair: {len(tracked & new.truth)} of {len(new.truth)} events right",
        loc="left",
        fontsize=11,
    )
    for axis, pair in ((left, known), (right, new)):
        axis.scatter(
            *pair.before.T,
            s=60 * pair.sizes_before,
            color="white",
            edgecolors="black",
            zorder=3,
        )
        axis.scatter(*pair.after.T, s=60 * pair.sizes_after, color="black", zorder=3)
        axis.set(aspect="equal", xticks=[], yticks=[])
    left.set_xlabel("white: frame t, black: frame t + 1; grey: candidate moves")
    return figure


def draw_event(axis: object, pair: Pair, event: tuple, **style: object) -> None:
    """Lines from a cell to what became of it; rings around cells that left or came."""
    kind, *cells = event
    if kind in ("move", "divide"):
        for j in cells[1:]:
            axis.plot(*np.array([pair.before[cells[0]], pair.after[j]]).T, **style)
    else:
        where = pair.before[cells[0]] if kind == "disappear" else pair.after[cells[0]]
        axis.scatter(
            *where,
            s=260,
            facecolors="none",
            edgecolors=style["color"],
            linewidths=style["linewidth"],
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
