"""Learn from a tenth of the tracks of one 3D embryo, and track another.

The detections of both embryos are corrupted: 5 % are missing, 5 % are false, and places
have noise of a tenth of the spacing. The annotated tracks are a sparse GEFF with the true
places. Prints the sparse measures on the other embryo, whose whole truth is known.
CLEW_DATA names the folder of the embryos (ascidian/Pm02, Pm03).

    python benchmarks/sparse_embryos.py [--share 0.1] [--seed 0] [--program clew]

Programs are clew, laptrack and motile; PEERS names a folder where these two are installed.
laptrack's cutoffs are those with the largest edge Jaccard on the annotated tracks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import geff
import networkx as nx
import numpy as np
from scipy.spatial import cKDTree

from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.sparse import PointGraph, SparseScore, score_graphs
from clew.tracking.io.annotations import open_annotations
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.tracker import Tracker

MISSING = 0.05
FALSE = 0.05
NOISE = 0.1
MATCH = 0.5
"""Largest distance of a match, in spacings."""


def measure_spacing(frame: np.ndarray, position: np.ndarray) -> float:
    """Median distance to the nearest other cell."""
    near = []
    for t in np.unique(frame):
        cells = position[frame == t]
        if len(cells) > 1:
            near.append(cKDTree(cells).query(cells, k=2)[0][:, 1])
    return float(np.median(np.concatenate(near)))


def make_detections(lineage: PointLineage, seed: int) -> DetectionTable:
    """Corrupt the cells of a lineage."""
    rng = np.random.default_rng(seed)
    spacing = measure_spacing(lineage.frame, lineage.position)
    n = len(lineage.frame)
    kept = rng.random(n) >= MISSING
    noisy = lineage.position + rng.normal(0, NOISE * spacing, lineage.position.shape)
    frames, places = [lineage.frame[kept]], [noisy[kept]]
    for t in range(lineage.n_frames):
        cells = lineage.position[lineage.frame == t]
        n_false = rng.poisson(FALSE * len(cells))
        frames.append(np.full(n_false, t))
        places.append(rng.uniform(cells.min(axis=0), cells.max(axis=0), (n_false, 3)))
    frame = np.concatenate(frames)
    order = np.lexsort((rng.random(len(frame)), frame))
    frame = frame[order]
    label = np.arange(len(frame)) - np.searchsorted(frame, frame) + 1
    return DetectionTable(frame, label, np.concatenate(places)[order])


def make_graph(lineage: PointLineage, rows: np.ndarray | None = None) -> PointGraph:
    """Build the graph of all cells, or of some; no links over gaps."""
    rows = np.arange(len(lineage.frame)) if rows is None else rows
    last: dict[int, tuple[int, int]] = {}
    parent = dict(zip(lineage.tracks.id, lineage.tracks.parent, strict=True))
    links = []
    for k, row in enumerate(rows.tolist()):
        track, t = int(lineage.track[row]), int(lineage.frame[row])
        before = last.get(track, last.get(int(parent[track])))
        if before is not None and before[0] == t - 1:
            links.append((before[1], k))
        last[track] = (t, k)
    position = lineage.position[rows]
    return PointGraph(lineage.frame[rows], position, np.array(links).reshape(-1, 2))


def write_sparse(path: Path, graph: PointGraph) -> Path:
    """Write a graph as a GEFF of another program."""
    nodes = nx.DiGraph()
    for k, (t, place) in enumerate(zip(graph.frame, graph.position, strict=True)):
        nodes.add_node(k, t=int(t), **dict(zip("zyx", place.tolist(), strict=True)))
    nodes.add_edges_from(graph.links.tolist())
    metadata = geff.GeffMetadata(
        directed=True, node_props_metadata={}, edge_props_metadata={}
    )
    kinds = ["time", "space", "space", "space"]
    geff.write(nodes, path, metadata, axis_names=list("tzyx"), axis_types=kinds)
    return path


def report(name: str, score: SparseScore, seconds: float) -> None:
    edges, divisions = score.edges, score.divisions
    print(
        f"{name}: edge Jaccard {score.edge_jaccard:.4f} ({edges.right} right, "
        f"{edges.false} false, {edges.missed} missed), division Jaccard "
        f"{score.division_jaccard or 0:.3f} ({divisions.right}, {divisions.false}, "
        f"{divisions.missed}); {seconds:.0f} CPU s",
        flush=True,
    )


class Experiment:
    """The two embryos, and the tracks that are annotated in the first."""

    def __init__(self, share: float, seed: int) -> None:
        folder = Path(os.environ["CLEW_DATA"]) / "ascidian"
        lineages = [
            open_lineage(folder / f"{name}-tracks.csv") for name in ("Pm02", "Pm03")
        ]
        self.first, self.second = lineages
        self.table = make_detections(self.first, seed)
        self.other = make_detections(self.second, seed + 1)
        rng = np.random.default_rng(seed)
        ids = self.first.tracks.id
        chosen = rng.choice(ids, round(share * len(ids)), replace=False)
        rows = np.flatnonzero(np.isin(self.first.track, chosen))
        self.sparse = make_graph(self.first, rows)
        self.truth = make_graph(self.second)

    def score(self, result: PointGraph) -> SparseScore:
        """Score a lineage of the second embryo."""
        spacing = measure_spacing(self.truth.frame, self.truth.position)
        return score_graphs(result, self.truth, MATCH * spacing)


def list_cells(table: DetectionTable) -> tuple[np.ndarray, np.ndarray]:
    """Frames and places of all cells, by frame."""
    cells = [table.detections(t) for t in range(table.n_frames)]
    frame = np.repeat(np.arange(len(cells)), [len(part) for part in cells])
    return frame, np.concatenate([part.position for part in cells])


def run_clew(data: Experiment, scratch: Path, lam: float | str, chosen: str) -> None:
    def track(name: str, tracker: Tracker, start: float) -> None:
        lineage = tracker.track(data.other)
        source, target, _ = lineage.edges
        links = np.column_stack([source, target])
        graph = PointGraph(lineage.frame, lineage.position, links)
        report(name, data.score(graph), time.process_time() - start)

    start = time.process_time()
    track("generic weights", Tracker.generic(n_jobs=1), start)
    graphs = {"some tracks": data.sparse, "all tracks": make_graph(data.first)}
    for name, graph in graphs.items():
        if not name.startswith(chosen):
            continue
        start = time.process_time()
        path = write_sparse(scratch / f"{name}.geff", graph)
        is_complete = name == "all tracks"
        reading = open_annotations(path, data.table, complete=is_complete)
        print(reading.summary.split(": ", 1)[1], flush=True)
        tracker = Tracker(cache=None, n_jobs=1, lam=lam)
        tracker.fit([data.table], [reading.annotations])
        note = "" if tracker.improved_ else " (kept the generic weights)"
        words = f"learned from {name}{note}, λ = {tracker.lam_:.3g}"
        track(words, tracker, start)


def run_laptrack(data: Experiment) -> None:
    from laptrack import LapTrack

    def link(table: DetectionTable, **factors: float) -> PointGraph:
        frame, place = list_cells(table)
        spacing = measure_spacing(frame, place)
        cutoffs: dict[str, Any] = {
            name: (factor * spacing) ** 2 if factor else False
            for name, factor in factors.items()
        }
        tracker = LapTrack(**cutoffs, merging_cutoff=False)
        begin = np.searchsorted(frame, np.arange(table.n_frames + 1))
        tree = tracker.predict([place[a:b] for a, b in pairwise(begin)])
        links = [(begin[a] + i, begin[b] + j) for (a, i), (b, j) in tree.edges()]
        return PointGraph(frame, place, np.array(links).reshape(-1, 2))

    limit = MATCH * measure_spacing(data.first.frame, data.first.position)
    untuned = {"cutoff": 1.0, "splitting_cutoff": 1.0, "gap_closing_cutoff": 0.0}
    start = time.process_time()
    result = data.score(link(data.other, **untuned))
    report("laptrack, cutoffs of one spacing", result, time.process_time() - start)
    start = time.process_time()
    best = untuned
    for name, values in (
        ("cutoff", (0.5, 0.75, 1.0, 1.5, 2.0)),
        ("splitting_cutoff", (0.0, 0.75, 1.0, 1.5, 2.0)),
        ("gap_closing_cutoff", (0.0, 1.0)),
    ):
        tried = [best | {name: value} for value in values]
        scores = [
            score_graphs(link(data.table, **one), data.sparse, limit).score
            for one in tried
        ]
        best = tried[int(np.argmax(scores))]
    result = data.score(link(data.other, **best))
    report(f"laptrack, tuned {best}", result, time.process_time() - start)


def make_candidates(table: DetectionTable, frames: range) -> nx.DiGraph:
    """Each cell with its three nearest cells of the next frame."""
    graph = nx.DiGraph()
    frame, place = list_cells(table)
    spacing = measure_spacing(frame, place)
    for t in frames:
        here = np.flatnonzero(frame == t)
        for k in here.tolist():
            graph.add_node(k, t=t)
        before = np.flatnonzero(frame == t - 1)
        if t == frames.start or not len(before) or not len(here):
            continue
        far, near = cKDTree(place[here]).query(place[before], k=min(3, len(here)))
        for k, row in enumerate(before.tolist()):
            for length, j in zip(
                np.atleast_1d(far[k]), np.atleast_1d(near[k]), strict=True
            ):
                graph.add_edge(row, int(here[j]), distance=float(length / spacing))
    return graph


def run_motile(data: Experiment, n_edges: int) -> None:
    """Learn from the first frames with so many edges; solve the other embryo."""
    from graph_costs import make_motile_solver

    whole = make_candidates(data.table, range(data.table.n_frames))
    frame, place = list_cells(data.table)
    limit = MATCH * measure_spacing(frame, place)
    last = 1
    while last < data.table.n_frames and (
        whole.subgraph([k for k in whole if frame[k] <= last + 1]).number_of_edges()
        <= n_edges
    ):
        last += 1
    part = make_candidates(data.table, range(last + 1))
    right = annotate_edges(part, frame, place, data.sparse, limit)
    for u, v in part.edges:
        part.edges[u, v]["gt"] = int((u, v) in right)
        part.edges[u, v]["score"] = 0.0
    nx.set_node_attributes(part, 1, "gt")
    start = time.process_time()
    learner = make_motile_solver(part)
    learner.fit_weights("gt")
    weights = learner.weights.to_ndarray()
    print(f"motile learned from {part.number_of_edges()} edges, frames 0 to {last}")
    other = make_candidates(data.other, range(data.other.n_frames))
    nx.set_edge_attributes(other, 0.0, "score")
    solver = make_motile_solver(other, weights)
    solver.solve(verbose=False)
    links = np.array(list(solver.get_selected_subgraph().edges)).reshape(-1, 2)
    graph = PointGraph(*list_cells(data.other), links)
    report("motile", data.score(graph), time.process_time() - start)


def annotate_edges(
    graph: nx.DiGraph,
    frame: np.ndarray,
    place: np.ndarray,
    truth: PointGraph,
    limit: float,
) -> set[tuple[int, int]]:
    """Candidate edges whose ends are nearest to the ends of a true one."""
    cell = np.full(len(truth.frame), -1)
    for t in np.unique(truth.frame):
        here = np.flatnonzero(frame == t)
        rows = np.flatnonzero(truth.frame == t)
        if len(here):
            far, near = cKDTree(place[here]).query(truth.position[rows])
            cell[rows] = np.where(far < limit, here[near], -1)
    pairs = {tuple(pair) for pair in cell[truth.links].tolist()}
    return {edge for edge in graph.edges if edge in pairs}


def main() -> None:
    """Print a row for each way of tracking."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", default="clew")
    parser.add_argument("--edges", type=int, default=500, help="motile learns from")
    parser.add_argument("--lam", type=float, help="clew chooses it by default")
    parser.add_argument("--annotated", default="", choices=["some", "all", ""])
    options = parser.parse_args()
    sys.path.append(os.environ.get("PEERS", ""))
    data = Experiment(options.share, options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        if options.program == "laptrack":
            run_laptrack(data)
        elif options.program == "motile":
            run_motile(data, options.edges)
        else:
            run_clew(data, Path(scratch), options.lam or "auto", options.annotated)


if __name__ == "__main__":
    main()
