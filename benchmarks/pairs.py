"""Frame pairs of moving, dividing, appearing and disappearing cells: as programmes of clew and as graphs of motile.

Both get the same candidates, the same features and the same joint features φ(y), so that the same weights give every
output the same score. A cell's edges lead to its nearest neighbours in the next frame; a division takes two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import motile
import numpy as np
from motile.constraints import Constraint
from motile.costs import Cost, Weight
from motile.variables import EdgeSelected, NodeSelected, Variable
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.models.binary_program import Program
from clew.simulation.simulate import NucleiSettings, simulate
from clew.tracking.assignment.assignment import make_program
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.features import compute_feature_blocks
from clew.tracking.detections import Source
from clew.tracking.evaluation.truth import derive_track_events
from clew.tracking.events import Event, EventTable
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.scales import Scales, estimate_scales

NEIGHBOURS = 4
EVENTS = (Event.MOVE, Event.DIVIDE, Event.APPEAR, Event.DISAPPEAR)
SLOW = {"speed": 9.0, "cycle": 30.0}
"""The simulator's default movie seen at a third of its frame rate, for else hardly anything is hard to tell."""
CLEAN = {"merging": 0.0, "over_segmentation": 0.0, "missed": 0.0}
"""Without splits and merges, which motile has no events for."""


@dataclass(frozen=True)
class Pair:
    """The candidate events between two frames, and what happened."""

    candidates: Candidates
    features: NDArray[np.float64]
    """(n, d) of each candidate; the columns of `blocks`, one after the other."""
    blocks: dict[Event, slice]
    """The columns of each event. A division has those of moves too: the sum over its two edges, as in motile."""
    truth: NDArray[np.int8]
    """(n,) 1 where the event happened."""

    @property
    def program(self) -> Program:
        """The choices that give each cell one fate and one history."""
        return make_program(self.candidates, self.features)

    def edges(self, y: Any) -> set[tuple[int, int]]:
        """(source, target) of all moves and divisions that y chooses."""
        rows = np.flatnonzero(np.asarray(y) == 1)
        return {
            (int(s), int(t))
            for s, targets in zip(
                self.candidates.sources[rows, 0],
                self.candidates.targets[rows],
                strict=True,
            )
            for t in targets
            if s >= 0 and t >= 0
        }

    def output(self, edges: set[tuple[int, int]]) -> NDArray[np.int8]:
        """(n,) the choice that has exactly these edges."""
        c = self.candidates
        fates: dict[int, list[int]] = {}
        for s, t in sorted(edges):
            fates.setdefault(s, []).append(t)
        reached = {t for _, t in edges}
        wanted = {(s, *targets) for s, targets in fates.items()}
        wanted |= {(s,) for s in range(c.n_sources) if s not in fates}
        wanted |= {(-1, t) for t in range(c.n_targets) if t not in reached}
        rows = zip(c.sources[:, 0].tolist(), c.targets.tolist(), strict=True)
        y = np.array(
            [(s, *(t for t in targets if t >= 0)) in wanted for s, targets in rows],
            dtype=np.int8,
        )
        assert y.sum() == len(wanted), "edges that are no choice of candidates"
        return y


def make_pairs(n_pairs: int, cells: int, seed: int = 0) -> list[Pair]:
    """The consecutive frame pairs of a simulated movie with about so many cells; its detections are the true masks."""
    simulation = simulate(
        NucleiSettings(frames=n_pairs + 1, cells=cells, seed=seed, **SLOW, **CLEAN)
    )
    frames = list(simulation)
    source = measure_movie(
        Movie.from_arrays([f.truth for f in frames], [f.image for f in frames]),
        cache=None,
        n_jobs=1,
    )
    happened = derive_track_events(simulation.tracks, n_pairs + 1)
    scales = estimate_scales(source)
    return [
        _pair(source, t, happened[happened.frame == t], scales) for t in range(n_pairs)
    ]


def _pair(source: Source, t: int, happened: EventTable, scales: Scales) -> Pair:
    """Edges to the nearest cells and those that happened; each two edges of a cell may be a division."""
    a, b = source.detections(t), source.detections(t + 1)
    near = cKDTree(b.position).query(a.position, k=NEIGHBOURS)[1]
    edges = {(s, int(target)) for s, targets in enumerate(near) for target in targets}
    for s, targets in zip(
        a.rows(happened.sources[:, 0]), b.rows(happened.targets), strict=True
    ):
        edges |= {(int(s), int(target)) for target in targets if s >= 0 and target >= 0}
    following = [
        sorted(target for s, target in edges if s == row) for row in range(len(a))
    ]
    divisions = [
        (s, *two)
        for s, targets in enumerate(following)
        for two in combinations(targets, 2)
    ]
    columns: dict[Event, Any] = {
        Event.MOVE: tuple(np.array(sorted(edges)).T),
        Event.DIVIDE: tuple(np.array(divisions).T),
        Event.APPEAR: (np.arange(len(b)),),
        Event.DISAPPEAR: (np.arange(len(a)),),
    }
    candidates = Candidates.from_columns(columns, len(a), len(b))
    found = compute_feature_blocks(
        candidates, a, b, source.overlap(t), scales, source.has
    )
    begins = np.cumsum([0, *(found[event].shape[1] for event in EVENTS)]).tolist()
    blocks = {
        event: slice(*ends)
        for event, ends in zip(EVENTS, pairwise(begins), strict=True)
    }
    features = np.zeros((len(candidates), begins[-1]))
    for event, block in blocks.items():
        features[candidates.of_event(event), block] = found[event]
    row_of = {edge: row for row, edge in enumerate(sorted(edges))}
    two = np.array(
        [[row_of[s, target], row_of[s, other]] for s, target, other in divisions]
    )
    features[candidates.of_event(Event.DIVIDE), blocks[Event.MOVE]] = found[Event.MOVE][
        two
    ].sum(axis=1)
    truth = np.zeros(len(candidates), dtype=np.int8)
    truth[candidates.find(happened, a, b)] = 1
    pair = Pair(candidates, features, blocks, truth)
    assert (pair.program.A @ truth == 1).all(), (
        "the truth leaves a cell without fate or history"
    )
    return pair


class Divide(Variable[Any]):  # type: ignore[misc]
    """A variable of motile for each two edges of a cell, which are its division."""

    @staticmethod
    def instantiate(solver: Any) -> list[Any]:
        """Every two edges of a node."""
        return [
            two
            for node in solver.graph.nodes
            for two in combinations(solver.graph.next_edges[node], 2)
        ]


class Appear(Variable[Any]):  # type: ignore[misc]
    """A variable of motile for each cell of a pair's second frame."""

    @staticmethod
    def instantiate(solver: Any) -> list[Any]:
        """The targets."""
        return [node for node, data in solver.graph.nodes.items() if data["t"] == 1]


class Disappear(Variable[Any]):  # type: ignore[misc]
    """A variable of motile for each cell of a pair's first frame."""

    @staticmethod
    def instantiate(solver: Any) -> list[Any]:
        """The sources."""
        return [node for node, data in solver.graph.nodes.items() if data["t"] == 0]


class OneFateOneHistory(Constraint):  # type: ignore[misc]
    """Conservation as equations: much tighter than motile's own variables for splits, which cost it minutes."""

    def instantiate(self, solver: Any) -> Any:
        """Yield a row for each node, and one for each edge: an edge is a move, or part of at most one division."""
        graph = solver.graph
        edge, divide, node = (
            solver.get_variables(kind) for kind in (EdgeSelected, Divide, NodeSelected)
        )
        appear, disappear = (
            solver.get_variables(Appear),
            solver.get_variables(Disappear),
        )
        divisions: dict[Any, list[Any]] = {
            key: [] for key in (*graph.nodes, *graph.edges)
        }
        for two, variable in divide.items():
            for key in (two[0][0], *two):
                divisions[key].append(variable)
        for cell in graph.nodes:
            yield node[cell] == 1
            if cell in disappear:
                yield (
                    sum((edge[e] for e in graph.next_edges[cell]), disappear[cell])
                    - sum(divisions[cell])
                    == 1
                )
            else:
                yield sum((edge[e] for e in graph.prev_edges[cell]), appear[cell]) == 1
        for e in graph.edges:
            if divisions[e]:
                yield edge[e] - sum(divisions[e]) >= 0


VARIABLES = {
    Event.MOVE: EdgeSelected,
    Event.DIVIDE: Divide,
    Event.APPEAR: Appear,
    Event.DISAPPEAR: Disappear,
}


class FeatureCost(Cost):  # type: ignore[misc]
    """A cost of motile with any number of features: <weights, features of the key>."""

    def __init__(self, variable: Any, features: Mapping[Any, Sequence[float]]) -> None:
        self.variable, self.features = variable, features
        self.weights = [Weight(0.0) for _ in next(iter(features.values()))]
        vars(self).update(
            {f"weight_{k}": weight for k, weight in enumerate(self.weights)}
        )  # where motile looks

    def apply(self, solver: Any) -> None:
        """Register the features of each variable that has some."""
        for key, index in solver.get_variables(self.variable).items():
            for weight, value in zip(
                self.weights, self.features.get(key, ()), strict=False
            ):
                solver.add_variable_cost(index, value, weight)


def motile_graph(pairs: Sequence[Pair]) -> Any:
    """One graph of all pairs: nodes (pair, frame, row), each of which must be part of the solution."""
    graph = motile.TrackGraph()
    for p, pair in enumerate(pairs):
        for t, n in enumerate((pair.candidates.n_sources, pair.candidates.n_targets)):
            for row in range(n):
                graph.add_node((p, t, row), {"t": t})
        moves = pair.candidates.of_event(Event.MOVE)
        for s, t in zip(
            pair.candidates.sources[moves, 0].tolist(),
            pair.candidates.targets[moves, 0].tolist(),
            strict=True,
        ):
            graph.add_edge(((p, 0, s), (p, 1, t)), {})
    return graph


def motile_solver(
    graph: Any, pairs: Sequence[Pair], events: Sequence[Event] = EVENTS
) -> Any:
    """The same choices as a model of motile; its weights are those of clew with the other sign, event after event.

    Only the given events have features, and a weight for each.
    """
    features: dict[Event, dict[Any, list[float]]] = {event: {} for event in EVENTS}
    for p, pair in enumerate(pairs):
        c = pair.candidates
        for number, (s, _), (a, b), row in zip(
            c.event.tolist(),
            c.sources.tolist(),
            c.targets.tolist(),
            pair.features,
            strict=True,
        ):
            source, target, other, event = (
                (p, 0, s),
                (p, 1, a),
                (p, 1, b),
                Event(number),
            )
            key = {
                Event.MOVE: (source, target),
                Event.DIVIDE: ((source, target), (source, other)),
                Event.APPEAR: target,
                Event.DISAPPEAR: source,
            }[event]
            features[event][key] = row[pair.blocks[event]].tolist()
    solver = motile.Solver(graph)
    for event in events:
        solver.add_cost(FeatureCost(VARIABLES[event], features[event]), str(event))
    solver.add_constraint(OneFateOneHistory())
    return solver


def motile_outputs(
    solver: Any, solution: Any, pairs: Sequence[Pair]
) -> list[NDArray[np.int8]]:
    """What motile chose, as outputs of the programmes."""
    edges: list[set[tuple[int, int]]] = [set() for _ in pairs]
    for ((p, _, s), (_, _, t)), index in solver.get_variables(EdgeSelected).items():
        if solution[int(index)] > 0.5:
            edges[p].add((s, t))
    return [pair.output(chosen) for pair, chosen in zip(pairs, edges, strict=True)]
