"""Learn the weights of gaps from simulated movies that lose masks.

Movies of all simulated kinds with random settings lose 5 % of their masks, half of the
movies at random and half in runs. A logistic regression learns which pairs of an end
and a beginning are the same cell. Prints precision and recall with each kind left out,
and writes src/clew/tracking/training/gap_weights.json.

    python benchmarks/gap_weights.py [--seeds N] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from holes import SIMULATED, remove_masks
from sklearn.linear_model import LogisticRegression

from clew.simulation.kinds import random_settings
from clew.simulation.write import write_simulation
from clew.tracking.blocks import MovieProblem
from clew.tracking.evaluation.matching import match_frames
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.lineage import gaps
from clew.tracking.lineage.build import join_events
from clew.tracking.lineage.gaps import INTENSITY, SIZE, GapCandidates, GapWeights
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker
from clew.tracking.training import generic_weights

TARGET = Path(generic_weights.__file__).with_name(gaps.FILE)
GROUPS = (frozenset(), frozenset({SIZE}), frozenset({SIZE, INTENSITY}))
REGULARIZATION = 10.0


def collect(kind: str, seed: int, folder: Path) -> tuple[GapCandidates, Any, Any]:
    """Candidates of a movie, whether each is right, and whether that is known."""
    home = folder / f"{kind}-{seed}"
    if not (home / "01_simulation.json").exists():
        settings = random_settings(kind, np.random.default_rng([seed, len(kind)]))
        write_simulation(home, settings)
    movie = open_movie(home / "01")
    truth = open_ctc_lineage(home / "01_GT" / "TRA")
    labels = np.stack([movie.label(t) for t in range(movie.n_frames)])
    images = np.stack([movie.image(t) for t in range(movie.n_frames)])
    labels = remove_masks(labels, truth, in_runs=bool(seed % 2), seed=seed)
    movie = Movie.from_arrays(labels, images, movie.spacing, home.name)
    tracker = Tracker.generic(n_jobs=1)
    source = measure_movie(movie, cache=None, n_jobs=1)
    builder = tracker.pairs(source, tracker.groups_for(source))
    problem = MovieProblem(builder, tracker.coef_)
    links = join_events([block.solve().links() for block in problem.blocks()])
    candidates = GapCandidates.find(links, gaps.LONGEST_GAP)
    cell = np.zeros(len(links) + 1, dtype=np.int64)
    matched = match_frames(truth, movie)
    for t, match in enumerate(matched):
        held = match.holder != 0
        nodes = links.nodes_of(np.full(held.sum(), t), match.holder[held])
        is_shared = np.bincount(nodes, minlength=len(links)) > 1
        cell[nodes] = np.where(is_shared[nodes], -1, match.cell[held])
    before = cell[candidates.source]
    after = cell[candidates.target]
    parent = dict(
        zip(truth.tracks.id.tolist(), truth.tracks.parent.tolist(), strict=True)
    )
    is_child = np.array(
        [
            parent.get(b) == a
            for a, b in zip(before.tolist(), after.tolist(), strict=True)
        ],
        dtype=bool,
    )
    is_known = (before > 0) & (after > 0) & ~is_child
    is_same = is_known & (before == after)
    # A cell that is missing twice is back at the first beginning, not at the second.
    first = np.full(len(candidates.ends), len(links), dtype=np.int64)
    np.minimum.at(first, candidates.end_row[is_same], candidates.target[is_same])
    right = is_same & (candidates.target == first[candidates.end_row])
    return candidates, right, is_known & (right | ~is_same)


def fit(features: Any, right: Any) -> Any:
    """Fit weights, the first of them the bias."""
    model = LogisticRegression(C=REGULARIZATION, fit_intercept=False, max_iter=1000)
    return model.fit(features, right).coef_[0]


def names_of(groups: frozenset[str], names: list[str]) -> list[str]:
    """Features that a movie with these measurements has."""
    return [name for name in names if name not in {SIZE, INTENSITY} - groups]


def main() -> None:
    """Collect, validate and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--folder", type=Path, default=Path("holes"))
    parser.add_argument("--kinds", nargs="*", default=SIMULATED)
    options = parser.parse_args()
    samples = []
    for kind in options.kinds:
        for seed in range(options.seeds):
            candidates, right, known = collect(kind, seed, options.folder)
            samples.append((kind, candidates, right, known))
            print(kind, seed, len(right), int(right[known].sum()), flush=True)
    samples = [sample for sample in samples if len(sample[2])]
    names = list(samples[0][1].features)
    content = []
    for groups in GROUPS:
        chosen = names_of(groups, names)
        tables = [
            np.column_stack([item[1].features[name] for name in chosen])[item[3]]
            for item in samples
        ]
        answers = [item[2][item[3]] for item in samples]
        for kind in options.kinds:
            train = [k for k, item in enumerate(samples) if item[0] != kind]
            w = fit(
                np.concatenate([tables[k] for k in train]),
                np.concatenate([answers[k] for k in train]),
            )
            weights = GapWeights({groups: dict(zip(chosen, w.tolist(), strict=True))})
            report(kind, groups, samples, weights)
        w = fit(np.concatenate(tables), np.concatenate(answers))
        weights_by_name = dict(zip(chosen, w.round(4).tolist(), strict=True))
        print(sorted(groups), weights_by_name)
        content.append({"groups": sorted(groups), "weights": weights_by_name})
    TARGET.write_text(json.dumps({"links": content}, indent=2) + "\n")


def report(
    kind: str, groups: frozenset[str], samples: Any, weights: GapWeights
) -> None:
    """Print how the assignment of a kind that was left out does."""
    n_chosen = n_right = n_true = 0
    expected = 0.0
    for name, candidates, right, known in samples:
        if name != kind:
            continue
        score = weights.score(candidates.features, groups)
        found = gaps._assign_gaps(candidates, score, np.flatnonzero(score > 0))
        n_nodes = int(max(candidates.source.max(), candidates.target.max())) + 1
        keys = candidates.source.astype(np.int64) * n_nodes + candidates.target
        row = np.searchsorted(
            keys, found.source.astype(np.int64) * n_nodes + found.target
        )
        row_known = known[row]
        n_chosen += int(row_known.sum())
        n_right += int(right[row][row_known].sum())
        expected += float(found.probability[row_known].sum())
        n_true += len(np.unique(candidates.end_row[right & known]))
    print(
        f"  {kind} left out, {sorted(groups)}: {n_right} of {n_chosen} right "
        f"({n_right / max(n_chosen, 1):.1%}, expected {expected / max(n_chosen, 1):.1%}), "
        f"{n_right} of {n_true} found ({n_right / max(n_true, 1):.1%})",
        flush=True,
    )


if __name__ == "__main__":
    main()
