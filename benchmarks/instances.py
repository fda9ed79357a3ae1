"""Assignment programmes like those of cell tracking: two frames of detections, and what may have become of each."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.models.highs_solver import Program, WarmStartedProgram

KINDS = ("move", "divide", "appear", "disappear")
NEIGHBOURS = 4
PER_DETECTION = NEIGHBOURS + NEIGHBOURS * (NEIGHBOURS - 1) // 2 + 2
BIAS = {"move": 2.0, "divide": -1.0, "appear": -1.6, "disappear": -1.2}
"""Hidden weights of the constants: most detections move."""


def assignment_programs(
    n_programs: int,
    n_vars_range: tuple[int, int] = (400, 5000),
    n_features: int = 40,
    seed: int = 0,
    noise: float = 0.1,
) -> tuple[list[Program], list[NDArray[np.int8]]]:
    """Programmes and their true outputs.

    The truth is the optimum under hidden weights on clean features; what is returned carries noise (in standard
    deviations of the features), so that no weights explain every truth: at 0.1 the best ones miss about a tenth of it.
    Rows: each detection of the first frame has exactly one fate, each of the second exactly one history.
    """
    rng = np.random.default_rng(seed)
    size = n_features // len(KINDS)
    if size < 4:
        raise ValueError(
            "each of the four kinds of events needs at least four features: n_features >= 16"
        )
    hidden = np.zeros(n_features)
    for k, kind in enumerate(KINDS):
        block = rng.normal(0.0, 0.4, size)
        block[:4] = (
            BIAS[kind],
            -1.5,
            -1.0,
            -0.7,
        )  # constant, distance, appearance, evenness; the rest is arbitrary
        hidden[k * size : (k + 1) * size] = block
    programs, truths = [], []
    for n_vars in np.linspace(*n_vars_range, n_programs).astype(int):
        clean, A = _candidates(
            max(NEIGHBOURS, round(n_vars / PER_DETECTION)), n_features, size, rng
        )
        ones = np.ones(A.shape[0])
        truth = (
            WarmStartedProgram(A, ones, ones, np.zeros(A.shape[1]), np.ones(A.shape[1]))
            .solve(clean @ hidden)
            .y
        )
        noisy = clean + noise * rng.normal(size=clean.shape) * (clean != 0) * (
            clean != 1
        )
        programs.append(Program(noisy, A, ones, ones))
        truths.append(truth)
    return programs, truths


def annotate(
    program: Program, truth: NDArray[np.int8], fraction: float, seed: int = 0
) -> NDArray[np.int8]:
    """−1/1 with a fraction of the events that happened annotated as 1, of each kind alike.

    1.0 annotates every event that happened; conservation then leaves no other output, as for a full annotation.
    """
    rng = np.random.default_rng(seed)
    kinds = kinds_of(program)
    annotation = np.full(len(truth), -1, dtype=np.int8)
    for k in range(len(KINDS)):
        happened = np.flatnonzero((kinds == k) & (truth == 1))
        # rounded at random, so that rare kinds keep their share over many programmes
        count = int(np.floor(fraction * len(happened) + rng.random()))
        annotation[rng.choice(happened, min(count, len(happened)), replace=False)] = 1
    return annotation


def kinds_of(program: Program) -> NDArray[np.intp]:
    """(n_vars,) the index in KINDS of each variable's event: the kind whose constant feature is one."""
    size = program.features.shape[1] // len(KINDS)
    return np.argmax(program.features[:, : size * len(KINDS) : size] == 1, axis=1)


def _candidates(
    n: int, n_features: int, size: int, rng: Any
) -> tuple[NDArray[np.float64], Any]:
    """(n_vars, d) clean features of the candidate events between two frames of about n detections, and their rows."""
    before = rng.random((n, 2)) * np.sqrt(n)  # one detection per unit of area
    look = rng.normal(size=(n, 3))
    stays = rng.random(n) > 0.05
    splits = stays & (rng.random(n) < 0.08)
    parents = np.concatenate([np.flatnonzero(stays), np.flatnonzero(splits)])
    born = rng.random((max(NEIGHBOURS, n // 20), 2)) * np.sqrt(n)
    after = np.concatenate(
        [before[parents] + rng.normal(0, 0.25, (len(parents), 2)), born]
    )
    look_after = np.concatenate(
        [
            look[parents] + rng.normal(0, 0.4, (len(parents), 3)),
            rng.normal(size=(len(born), 3)),
        ]
    )
    distance, near = cKDTree(after).query(before, k=NEIGHBOURS)
    unlike = np.linalg.norm(look[:, None] - look_after[near], axis=2) / 3

    events: list[
        tuple[int, list[float], list[int]]
    ] = []  # kind, (distance, appearance, evenness), rows
    for i in range(n):
        events += [
            (0, [distance[i, a], unlike[i, a], 0.3], [i, n + near[i, a]])
            for a in range(NEIGHBOURS)
        ]
        for a, b in combinations(range(NEIGHBOURS), 2):
            middle = np.linalg.norm(
                (after[near[i, a]] + after[near[i, b]]) / 2 - before[i]
            )
            cues = [
                distance[i, a] + middle,
                (unlike[i, a] + unlike[i, b]) / 2,
                abs(distance[i, a] - distance[i, b]),
            ]
            events.append((1, cues, [i, n + near[i, a], n + near[i, b]]))
        events.append(
            (
                3,
                [np.min(np.minimum(before[i], np.sqrt(n) - before[i])) / 3, 0.5, 0.5],
                [i],
            )
        )
    border = np.min(np.minimum(after, np.sqrt(n) - after), axis=1) / 3
    events += [(2, [border[j], 0.5, 0.5], [n + j]) for j in range(len(after))]

    kinds = np.array([event[0] for event in events])
    blocks = np.hstack(
        [
            np.ones((len(events), 1)),
            [event[1] for event in events],
            rng.normal(size=(len(events), size - 4)),
        ]
    )
    features = np.zeros((len(events), n_features))
    features[
        np.arange(len(events))[:, None], kinds[:, None] * size + np.arange(size)
    ] = blocks
    columns = np.repeat(np.arange(len(events)), [len(event[2]) for event in events])
    rows = np.concatenate([event[2] for event in events])
    A = sp.csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(n + len(after), len(events))
    )
    return features, A
