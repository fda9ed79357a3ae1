"""Learn the weights of gaps from simulated movies that lose masks.

Movies of all simulated kinds with random settings lose 5 % of their masks, half of the
movies at random and half in runs. Of every second two movies, only the cells of a field
of interest have masks, as in the Cell Tracking Challenge: a cell that leaves the field
and comes back is another one. A logistic regression learns which pairs of an end and a
beginning are the same cell, another one what images show of the cells between them, and
a third one when to stop following an end into the image; movies that keep all masks are
among its examples. Prints precision and recall with each kind left out, and writes
src/clew/tracking/training/gap_weights.json.

    python benchmarks/gap_weights.py [--seeds 0 1 …] [--complete 0 2] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from holes import SIMULATED, remove_masks
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from clew.simulation.kinds import random_settings
from clew.simulation.write import write_simulation
from clew.tracking.blocks import MovieProblem
from clew.tracking.evaluation.matching import match_frames
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.lineage import fill, follow, gaps
from clew.tracking.lineage.build import LEAST_PROBABILITY, insert_runs, join_events
from clew.tracking.lineage.gaps import (
    INTENSITY,
    SIZE,
    Field,
    GapCandidates,
    GapLinks,
    GapWeights,
)
from clew.tracking.lineage.links import MovieLinks
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker
from clew.tracking.training import generic_weights

TARGET = Path(generic_weights.__file__).with_name(gaps.FILE)
GROUPS = (frozenset(), frozenset({SIZE}), frozenset({SIZE, INTENSITY}))
REGULARIZATION = 10.0
RATE = "rate of holes"
"""The logarithm of a prior: its weight is 1."""


@dataclass(frozen=True)
class Sample:
    """The candidates of a movie."""

    kind: str
    movie: Movie
    links: MovieLinks
    candidates: GapCandidates
    right: Any
    """(p,) whether each candidate is right."""
    known: Any
    """(p,) whether that is known."""

    def find(self, found: GapLinks) -> Any:
        """Rows of the candidates that were chosen."""
        n = np.int64(len(self.links))
        keys = self.candidates.source.astype(np.int64) * n + self.candidates.target
        order = np.argsort(keys)
        wanted = found.source.astype(np.int64) * n + found.target
        return order[np.searchsorted(keys[order], wanted)]

    def choose(self, groups: frozenset[str], weights: GapWeights, least: float) -> Any:
        """The gaps that weights close."""
        offset = float(logit(least))
        score = weights.score(self.candidates.features, groups)
        rows = np.flatnonzero(score > offset)
        return gaps._assign_gaps(self.candidates, score, rows, offset)


def choose_margin(labels: Any, rng: np.random.Generator) -> int:
    """Half to two diameters of a cell, in pixels."""
    areas = np.bincount(labels[0].ravel())[1:]
    diameter = np.median(areas[areas > 0]) ** (1 / labels[0].ndim)
    return round(float(diameter * 2 ** rng.uniform(-1, 1)))


def inside_of(shape: tuple[int, ...], margin: int) -> tuple[slice, ...]:
    """The field of interest; stacks have all their sections."""
    whole = (slice(None),) * (len(shape) - 2)
    return (*whole, *(slice(margin, side - margin) for side in shape[-2:]))


def limit_field(labels: Any, margin: int) -> Any:
    """Remove the masks that have no pixel in the field of interest."""
    limited = []
    for frame in labels:
        is_inside = np.zeros(int(frame.max()) + 1, dtype=bool)
        is_inside[np.unique(frame[inside_of(frame.shape, margin)])] = True
        limited.append(np.where(is_inside[frame], frame, 0))
    return np.stack(limited)


def count_visits(truth: Any, margin: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Each cell of the field by frame and cell, and how often it has left it before."""
    visits: dict[tuple[int, int], tuple[int, int]] = {}
    latest: dict[int, tuple[int, int]] = {}
    for t in range(len(truth.masks)):
        mask = np.asarray(truth.masks[t])
        for cell in np.unique(mask[inside_of(mask.shape, margin)]).tolist():
            if not cell:
                continue
            frame, number = latest.get(cell, (t - 1, 0))
            number += frame < t - 1
            latest[cell] = (t, number)
            visits[t, cell] = (cell, number)
    return visits


def number_visits(visits: dict[tuple[int, int], tuple[int, int]]) -> dict[Any, int]:
    """Numbers from 1 of cells, each visit of the field being one."""
    return {visit: 1 + k for k, visit in enumerate(sorted(set(visits.values())))}


def margin_of(labels: Any, seed: int) -> int:
    """Pixels around the field of interest; 0 if all cells are of interest."""
    if not seed // 2 % 2:
        return 0
    return choose_margin(labels, np.random.default_rng([seed, 1]))


class Solved(NamedTuple):
    """A movie that lost masks, its links, and what is true of its nodes."""

    movie: Movie
    links: MovieLinks
    cell: Any
    """(n,) the true cell that each node holds; 0 for none, −1 for several or an unknown one."""
    parent: dict[int, int]
    """Of true cells; each visit of the field of interest is a cell of its own."""


def solve(kind: str, seed: int, folder: Path, complete: bool = False) -> Solved:
    """Simulate a movie, remove masks and track it; the result stays in a file."""
    home = folder / f"{kind}-{seed}"
    stored = home / ("complete.pickle" if complete else "solved.pickle")
    if stored.exists():
        solved: Solved = pickle.loads(stored.read_bytes())
        return solved
    if not (home / "01_simulation.json").exists():
        settings = random_settings(kind, np.random.default_rng([seed, len(kind)]))
        write_simulation(home, settings)
    movie = open_movie(home / "01")
    truth = open_ctc_lineage(home / "01_GT" / "TRA")
    labels = np.stack([movie.label(t) for t in range(movie.n_frames)])
    images = np.stack([movie.image(t) for t in range(movie.n_frames)])
    margin = margin_of(labels, seed)
    if margin:
        labels = limit_field(labels, margin)
    if not complete:
        labels = remove_masks(labels, truth, in_runs=bool(seed % 2), seed=seed)
    movie = Movie.from_arrays(labels, images, movie.spacing, home.name)
    tracker = Tracker.generic(n_jobs=1)
    source = measure_movie(movie, cache=None, n_jobs=1)
    builder = tracker.pairs(source, tracker.groups_for(source))
    problem = MovieProblem(builder, tracker.coef_)
    links = join_events([block.solve() for block in problem.blocks()])
    visits = count_visits(truth, margin)
    numbers = number_visits(visits)
    cell = np.zeros(len(links), dtype=np.int64)
    for t, match in enumerate(match_frames(truth, movie)):
        held = match.holder != 0
        nodes = links.nodes_of(np.full(held.sum(), t), match.holder[held])
        here = [visits.get((t, one)) for one in match.cell[held].tolist()]
        number = [numbers.get(visit, -1) for visit in here]
        is_shared = np.bincount(nodes, minlength=len(links)) > 1
        cell[nodes] = np.where(is_shared[nodes], -1, number)
    ids = zip(truth.tracks.id.tolist(), truth.tracks.parent.tolist(), strict=True)
    parent_of = dict(ids)
    latest = {one: number for (one, _), number in sorted(numbers.items())}
    parent = {
        number: latest.get(parent_of[one], 0)
        for (one, visit), number in numbers.items()
        if not visit and parent_of[one]
    }
    solved = Solved(movie, links, cell, parent)
    stored.write_bytes(pickle.dumps(solved))
    return solved


def collect(kind: str, seed: int, folder: Path) -> Sample:
    """The candidates of a movie that loses masks."""
    movie, links, cell, parent = solve(kind, seed, folder)
    candidates = GapCandidates.find(links, gaps.LONGEST_GAP)
    before = cell[candidates.source]
    after = cell[candidates.target]
    pairs = zip(before.tolist(), after.tolist(), strict=True)
    is_child = np.array([parent.get(b) == a for a, b in pairs], dtype=bool)
    is_known = (before > 0) & (after > 0) & ~is_child
    is_same = is_known & (before == after)
    # A cell that is missing twice is back at the first beginning, not at the second.
    first = np.full(len(candidates.ends), len(links), dtype=np.int64)
    np.minimum.at(first, candidates.end_row[is_same], candidates.target[is_same])
    right = is_same & (candidates.target == first[candidates.end_row])
    known = is_known & (right | ~is_same)
    return Sample(kind, movie, links, candidates, right, known)


class Ends(NamedTuple):
    """Where ends of a movie were followed to, frame by frame; (n,) each."""

    kind: str
    features: Any
    """(n, d)"""
    names: list[str]
    trail: Any
    right: Any
    known: Any


def collect_ends(kind: str, seed: int, folder: Path, complete: bool) -> Ends:
    """Follow the ends of a movie for as long as there is room."""
    movie, links, cell, _ = solve(kind, seed, folder, complete)
    truth = open_ctc_lineage(folder / f"{kind}-{seed}" / "01_GT" / "TRA")
    full = open_movie(folder / f"{kind}-{seed}" / "01")
    visits = count_visits(truth, margin_of([full.label(0)], seed))
    numbers = number_visits(visits)
    true_cell = {number: one for (one, _), number in numbers.items()}
    found = gaps.find_gaps(links, least_probability=LEAST_PROBABILITY)
    filled = fill.fill_gaps(movie, links, found, map).runs
    given = links
    links, _ = insert_runs(links, filled)
    rate = float(np.log((len(filled.cells) + 0.5) / len(links)))
    excluded = np.zeros(len(links), dtype=bool)
    trails = follow.find_trails(links, movie, rate, excluded, follow.N_FOLLOWED)
    painted = fill.add_recovered(movie, filled.cells)
    seen = follow.follow_trails(painted, Field.of(links), trails, map, None)
    rows = []
    for number, (trail, sightings) in enumerate(zip(trails, seen, strict=True)):
        step = -1 if trail.is_backward else 1
        t = movie.n_frames - 1 - trail.frame if trail.is_backward else trail.frame
        node = given.nodes_of(np.array([t]), np.array([trail.label]))[0]
        own = cell[node] if node >= 0 else -1
        for k, sighting in enumerate(sightings, 1):
            place = t + step * k
            one = true_cell.get(own, 0)
            mask = np.asarray(truth.masks[place]) == one
            covered = (mask[sighting.patch.box] & sighting.patch.mask).sum()
            is_there = numbers.get(visits.get((place, one))) == own
            right = is_there and 2 * covered > mask.sum()
            rows.append((number, sighting.features, bool(right), own > 0))
    names = list(rows[0][1]) if rows else []
    return Ends(
        kind,
        np.array([[row[1][name] for name in names] for row in rows]),
        names,
        *(np.array([row[k] for row in rows]) for k in (0, 2, 3)),
    )


def fit_with_prior(features: Any, right: Any, prior: Any) -> Any:
    """Logistic regression with log odds that are added."""
    sign = np.where(right, 1.0, -1.0)

    def objective(w: Any) -> tuple[float, Any]:
        margin = sign * (features @ w + prior)
        slope = -sign * expit(-margin)
        loss = np.logaddexp(0, -margin).sum() + w @ w / 2
        return loss, features.T @ slope + w

    start = np.zeros(features.shape[1])
    answer = minimize(objective, start, jac=True, method="L-BFGS-B")
    if not answer.success:
        raise RuntimeError(answer.message)
    return answer.x


def learn_to_follow(movies: list[Ends], kinds: Any) -> dict[str, float]:
    """Learn the weights that decide how far ends are followed."""
    movies = [ends for ends in movies if len(ends.right)]
    names = movies[0].names
    is_rate = np.array([name == RATE for name in names])

    def learn(chosen: list[Ends]) -> Any:
        table = np.concatenate([ends.features[ends.known] for ends in chosen])
        right = np.concatenate([ends.right[ends.known] for ends in chosen])
        w = np.ones(len(names))
        w[~is_rate] = fit_with_prior(table[:, ~is_rate], right, table[:, is_rate][:, 0])
        return w

    for kind in kinds:
        w = learn([ends for ends in movies if ends.kind != kind])
        n_right = n_followed = n_true = 0
        for ends in movies:
            if ends.kind != kind:
                continue
            n_true += int(ends.right.sum())
            is_stop = ends.features @ w <= 0
            n_stops = np.cumsum(is_stop)
            first = np.searchsorted(ends.trail, ends.trail)
            stops = n_stops - n_stops[first] + is_stop[first]
            followed = (stops == 0) & ends.known
            n_followed += int(followed.sum())
            n_right += int(ends.right[followed].sum())
        print(
            f"  {kind} left out, ends: {n_right} of {n_followed} followed cells right, "
            f"of {n_true} true ones",
            flush=True,
        )
    weights = dict(zip(names, learn(movies).round(4).tolist(), strict=True))
    print("follow", weights)
    return weights


def fit(features: Any, right: Any, n_cells: Any = None) -> Any:
    """Fit weights, the first of them the bias; each gap counts by its missing cells."""
    model = LogisticRegression(C=REGULARIZATION, fit_intercept=False, max_iter=1000)
    return model.fit(features, right, n_cells).coef_[0]


def names_of(groups: frozenset[str], names: list[str]) -> list[str]:
    """Features that a movie with these measurements has."""
    return [name for name in names if name not in {SIZE, INTENSITY} - groups]


def collect_evidence(sample: Sample, found: GapLinks) -> Any:
    """What images show of gaps, (g, d)."""
    missing = fill._find_missing(sample.links, found)
    cells = fill._find_shapes(sample.movie, sample.links, found, missing, map)
    evidence = fill.measure_evidence(sample.links, found, missing.gap, cells)
    evidence.pop(fill.VISIBILITY)
    return np.column_stack(list(evidence.values())), list(evidence)


def main() -> None:
    """Collect, validate and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(6)])
    parser.add_argument("--complete", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--folder", type=Path, default=Path("holes"))
    parser.add_argument("--kinds", nargs="*", default=SIMULATED)
    options = parser.parse_args()
    samples = []
    for kind in options.kinds:
        for seed in options.seeds:
            sample = collect(kind, seed, options.folder)
            if len(sample.right):
                samples.append(sample)
                n_right = int(sample.right[sample.known].sum())
                print(kind, seed, len(sample.right), n_right, flush=True)
    names = list(samples[0].candidates.features)
    content = []
    left_out = {}
    for groups in GROUPS:
        chosen = names_of(groups, names)
        tables = [
            np.column_stack([item.candidates.features[name] for name in chosen])[
                item.known
            ]
            for item in samples
        ]
        answers = [item.right[item.known] for item in samples]
        for kind in options.kinds:
            train = [k for k, item in enumerate(samples) if item.kind != kind]
            w = fit(
                np.concatenate([tables[k] for k in train]),
                np.concatenate([answers[k] for k in train]),
            )
            by_name = dict(zip(chosen, w.tolist(), strict=True))
            left_out[kind] = GapWeights({groups: by_name}, {}, {})
            report(kind, groups, samples, left_out[kind])
        w = fit(np.concatenate(tables), np.concatenate(answers))
        weights_by_name = dict(zip(chosen, w.round(4).tolist(), strict=True))
        print(sorted(groups), weights_by_name)
        content.append({"groups": sorted(groups), "weights": weights_by_name})
    # Scores of weights that have not seen the kind, as for a movie of a new kind.
    seen = learn_evidence(samples, left_out, options.kinds)
    ends = [
        collect_ends(kind, seed, options.folder, complete)
        for complete in (False, True)
        for seed in (options.complete if complete else options.seeds)
        for kind in options.kinds
    ]
    followed = learn_to_follow(ends, options.kinds)
    weights = {"links": content, "evidence": seen, "follow": followed}
    TARGET.write_text(json.dumps(weights, indent=2) + "\n")


def learn_evidence(
    samples: list[Sample], left_out: dict[str, GapWeights], kinds: Any
) -> dict[str, float]:
    """Learn the weights of what images show."""
    tables = []
    answers = []
    counts = []
    names: list[str] = []
    for sample in samples:
        found = sample.choose(GROUPS[-1], left_out[sample.kind], LEAST_PROBABILITY)
        table, names = collect_evidence(sample, found)
        rows = sample.find(found)
        known = sample.known[rows]
        tables.append(table[known])
        answers.append(sample.right[rows][known])
        counts.append(np.round(np.exp(table[known][:, names.index("frames")])))
    for kind in kinds:
        train = [k for k, item in enumerate(samples) if item.kind != kind]
        test = [k for k, item in enumerate(samples) if item.kind == kind]
        w = fit(
            np.concatenate([tables[k] for k in train]),
            np.concatenate([answers[k] for k in train]),
            np.concatenate([counts[k] for k in train]),
        )
        n_cells = np.concatenate([counts[k] for k in test])
        right = np.concatenate([answers[k] for k in test])
        score = np.concatenate([tables[k] for k in test]) @ w
        link = np.concatenate([tables[k] for k in test])[:, names.index("link")]
        print(
            f"  {kind} left out, evidence: {n_cells[right & (score > 0)].sum():g} of "
            f"{n_cells[score > 0].sum():g} cells right (expected "
            f"{np.average(expit(score[score > 0]), weights=n_cells[score > 0]):.1%}), "
            f"of {n_cells[right].sum():g} true ones; without images "
            f"{n_cells[right & (link > 0)].sum():g} of {n_cells[link > 0].sum():g}",
            flush=True,
        )
    w = fit(*map(np.concatenate, (tables, answers, counts)))
    weights = dict(zip(names, w.round(4).tolist(), strict=True))
    print("evidence", weights)
    return weights


def report(
    kind: str, groups: frozenset[str], samples: list[Sample], weights: GapWeights
) -> None:
    """Print how the assignment of a kind that was left out does."""
    n_chosen = n_right = n_true = 0
    expected = 0.0
    for sample in samples:
        if sample.kind != kind:
            continue
        found = sample.choose(groups, weights, 0.5)
        rows = sample.find(found)
        known = sample.known[rows]
        n_chosen += int(known.sum())
        n_right += int(sample.right[rows][known].sum())
        expected += float(found.probability[known].sum())
        n_true += int((sample.right & sample.known).sum())
    print(
        f"  {kind} left out, {sorted(groups)}: {n_right} of {n_chosen} right "
        f"({n_right / max(n_chosen, 1):.1%}, expected {expected / max(n_chosen, 1):.1%}), "
        f"{n_right} of {n_true} found ({n_right / max(n_true, 1):.1%})",
        flush=True,
    )


if __name__ == "__main__":
    main()
