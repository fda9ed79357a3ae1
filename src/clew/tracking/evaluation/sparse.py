"""Score a result against a truth that has some of the cells only.

The measures are those of the cell tracking competition of the Chan Zuckerberg Biohub
(2026), from its published definition. Nodes are matched one to one within a distance
in each frame. A predicted edge is right if both ends match the ends of a true edge.
Other edges are false only where the truth speaks: if the source matches a true cell
that has a successor, or the target one that has a predecessor. All others, and links
over more than one frame, are ignored.

A true division is found if a predicted fork at most one frame earlier or later leads
to a match of each daughter (or of her next frame) by another branch, and is connected
to a match of the mother (or of her frame before). Forks and divisions are paired one
to one. A fork without a division is false if it matches a true cell that has a
successor, and ignored otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.evaluation.matching import (
    FileLineage,
    make_cell_reader,
    match_points,
)
from clew.tracking.evaluation.metrics import MatchCounts, build_track_graph
from clew.tracking.events import NONE
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.lineage.lineage import Lineage
from clew.utils.validation import check_positive

DISTANCE = 7.0
"""Largest distance of a match in the competition, in µm."""
NODE_PENALTY = 0.1
DIVISION_WEIGHT = 0.1
TOLERANCE = 1
"""Frames by which a fork may be early or late."""


class PointGraph(NamedTuple):
    """Cells and the links between them.

    Attributes
    ----------
    frame : ndarray of shape (n,)
        Ascending.
    position : ndarray of shape (n, ndim)
        Physical.
    links : ndarray of shape (k, 2)
        Rows of an earlier and a later cell.
    """

    frame: NDArray[np.int64]
    position: Array
    links: Indices


@dataclass(frozen=True)
class SparseScore:
    """Figures of a result against a partial truth.

    Attributes
    ----------
    edges, divisions : MatchCounts
    n_ignored_edges, n_ignored_forks : int
        Predictions that the truth leaves open.
    n_nodes, n_true_nodes, n_matched : int
        Cells of the result and of the truth, and pairs of both.
    n_estimated : float or None
        Estimated number of all cells; without it, the number of cells of the result
        is not judged.
    distance : float
        Largest distance of a match.
    """

    edges: MatchCounts
    divisions: MatchCounts
    n_ignored_edges: int
    n_ignored_forks: int
    n_nodes: int
    n_true_nodes: int
    n_matched: int
    n_estimated: float | None
    distance: float

    @property
    def edge_jaccard(self) -> float:
        """Jaccard index of edges; 1 if there are none."""
        return self.edges.jaccard

    @property
    def adjusted_edge_jaccard(self) -> float:
        """Jaccard index of edges, less a penalty for too many cells."""
        if self.n_estimated is None:
            return self.edge_jaccard
        excess = (self.n_nodes - self.n_estimated) / self.n_estimated
        return max(0.0, self.edge_jaccard * (1 - NODE_PENALTY * excess))

    @property
    def division_jaccard(self) -> float | None:
        """Jaccard index of divisions; None if there are none."""
        return None if self.divisions.is_empty else self.divisions.jaccard

    @property
    def score(self) -> float:
        """The score of the competition."""
        return self.adjusted_edge_jaccard + DIVISION_WEIGHT * (
            self.division_jaccard or 0.0
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures for JSON."""
        return {
            "score": self.score,
            "adjusted_edge_jaccard": self.adjusted_edge_jaccard,
            "edge_jaccard": self.edge_jaccard,
            "division_jaccard": self.division_jaccard,
            **asdict(self),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Names and figures for a table."""
        division = self.division_jaccard
        nodes = f"{self.n_matched:,} of {self.n_true_nodes:,}"
        estimate = "unknown" if self.n_estimated is None else f"{self.n_estimated:,.0f}"
        return [
            ("score", f"{self.score:.4f}"),
            ("adjusted edge Jaccard", f"{self.adjusted_edge_jaccard:.4f}"),
            ("edge Jaccard", f"{self.edge_jaccard:.4f} ({self.edges})"),
            (
                "division Jaccard",
                "no divisions"
                if division is None
                else f"{division:.4f} ({self.divisions})",
            ),
            ("true cells matched", f"{nodes}, at most {self.distance:g} apart"),
            ("cells predicted, estimated", f"{self.n_nodes:,}, {estimate}"),
            ("edges ignored", f"{self.n_ignored_edges:,}"),
            ("forks ignored", f"{self.n_ignored_forks:,}"),
        ]


def evaluate_sparse(
    result: str | Path | Lineage | FileLineage,
    truth: str | Path | FileLineage,
    *,
    distance: float = DISTANCE,
    spacing: Sequence[float] | None = None,
    n_estimated: float | None = None,
    frames: range | None = None,
) -> SparseScore:
    """Score a result against a truth of some cells.

    Parameters
    ----------
    result : path or Lineage
        Anything that has tracks.
    truth : path or lineage
    distance : float
        Largest distance of a match, in the unit of positions.
    spacing : sequence of float, optional
        Multiplies positions of the truth, and of masks of the result; by default the
        spacing that the result was tracked with.
    n_estimated : float, optional
        Number of all cells in all frames; by default as the truth says.
    frames : range, optional
        Frames of the truth; the result may have just these.

    Returns
    -------
    score : SparseScore
    """
    true = open_lineage(truth) if isinstance(truth, str | Path) else truth
    own = open_lineage(result) if isinstance(result, str | Path) else result
    if frames is not None:
        true = true[frames.start : frames.stop]
        if own.n_frames > len(frames) and not isinstance(own, Lineage):
            own = own[frames.start : frames.stop]
    if spacing is None and isinstance(own, PointLineage):
        spacing = own.spacing
    if n_estimated is None and isinstance(true, PointLineage):
        n_estimated = true.n_estimated
    is_physical = isinstance(true, PointLineage) and true.is_physical
    true_graph = build_point_graph(true, None if is_physical else spacing)
    has_masks = not isinstance(own, PointLineage | Lineage)
    graph = build_point_graph(own, spacing if has_masks else None)
    return score_graphs(graph, true_graph, distance, n_estimated)


def build_point_graph(
    lineage: FileLineage | Lineage, spacing: Sequence[float] | None
) -> PointGraph:
    """Build the graph of a lineage; `spacing` multiplies positions in files."""
    if isinstance(lineage, Lineage):
        source, target, _ = lineage.edges
        links = np.column_stack([source, target])
        return PointGraph(lineage.frame, lineage.position, links)
    graph = build_track_graph(lineage.tracks)
    read_cells = make_cell_reader(lineage, spacing)
    position = [read_cells(t)[1] for t in range(lineage.n_frames)]
    links = np.column_stack([graph.source, graph.target])
    return PointGraph(graph.frame, np.concatenate(position), links)


def score_graphs(
    result: PointGraph,
    truth: PointGraph,
    distance: float = DISTANCE,
    n_estimated: float | None = None,
) -> SparseScore:
    """Score a graph against a true one.

    Parameters
    ----------
    result, truth : PointGraph
    distance : float
        Largest distance of a match.
    n_estimated : float, optional
        Number of all cells in all frames.

    Returns
    -------
    score : SparseScore
    """
    distance = check_positive(distance, "distance")
    if n_estimated is not None:
        n_estimated = check_positive(n_estimated, "n_estimated")
    if result.position.shape[1] != truth.position.shape[1]:
        raise InputError(
            "the truth and the result have positions of different dimensions; "
            "expected both in 2D or 3D"
        )
    match = _match_nodes(result, truth, distance)
    links = _select_steps(result)
    true_links = _select_steps(truth)
    is_right, is_counted = _judge_links(match, links, true_links, len(truth.frame))
    n_right = int(is_right.sum())
    edges = MatchCounts(
        n_right, int((is_counted & ~is_right).sum()), len(true_links) - n_right
    )
    divisions, n_ignored_forks = _count_divisions(
        _Steps(result.frame, links), _Steps(truth.frame, true_links), match
    )
    return SparseScore(
        edges=edges,
        divisions=divisions,
        n_ignored_edges=len(result.links) - edges.right - edges.false,
        n_ignored_forks=n_ignored_forks,
        n_nodes=len(result.frame),
        n_true_nodes=len(truth.frame),
        n_matched=int((match >= 0).sum()),
        n_estimated=n_estimated,
        distance=distance,
    )


def _match_nodes(result: PointGraph, truth: PointGraph, distance: float) -> Indices:
    """(n,) row of the true cell that each cell of the result matches, or -1."""
    match = np.full(len(result.frame), -1, dtype=np.intp)
    for t in np.intersect1d(result.frame, truth.frame).tolist():
        first, last = np.searchsorted(result.frame, [t, t + 1])
        true_first, true_last = np.searchsorted(truth.frame, [t, t + 1])
        frame = match_points(
            np.arange(true_first, true_last),
            truth.position[true_first:true_last],
            np.arange(first + 1, last + 1),
            result.position[first:last],
            distance,
        )
        is_held = frame.holder != NONE
        match[frame.holder[is_held] - 1] = frame.cell[is_held]
    return match


def _select_steps(graph: PointGraph) -> Indices:
    """(k, 2) links from one frame to the next."""
    span = graph.frame[graph.links[:, 1]] - graph.frame[graph.links[:, 0]]
    return np.asarray(graph.links[span == 1])


def _judge_links(
    match: Indices, links: Indices, true_links: Indices, n_true: int
) -> tuple[Mask, Mask]:
    """(k,) whether predicted links are right, and whether the truth speaks of them."""
    ends = match[links]
    is_matched = ends >= 0
    keys = ends[:, 0] * n_true + ends[:, 1]
    true_keys = true_links[:, 0] * n_true + true_links[:, 1]
    is_right = is_matched.all(axis=1) & np.isin(keys, true_keys)
    has_successor = np.isin(ends[:, 0], true_links[:, 0]) & is_matched[:, 0]
    has_predecessor = np.isin(ends[:, 1], true_links[:, 1]) & is_matched[:, 1]
    return is_right, has_successor | has_predecessor


class _Steps:
    """Links of a graph by their cells."""

    def __init__(self, frame: NDArray[np.int64], links: Indices) -> None:
        self.frame = frame
        self.children: dict[int, list[int]] = {}
        self.parents: dict[int, list[int]] = {}
        for source, target in links.tolist():
            self.children.setdefault(source, []).append(target)
            self.parents.setdefault(target, []).append(source)

    def list_forks(self) -> list[int]:
        """Cells with two successors."""
        return [node for node, below in self.children.items() if len(below) == 2]

    def list_ancestors(self, node: int, first: int) -> set[int]:
        """The cell and its ancestors, back to a frame."""
        return self._walk(node, self.parents, lambda t: t >= first)

    def list_descendants(self, node: int, last: int) -> set[int]:
        """The cell and its descendants, up to a frame."""
        return self._walk(node, self.children, lambda t: t <= last)

    def _walk(self, node: int, links: dict[int, list[int]], is_inside: Any) -> set[int]:
        """Cells that links lead to within some frames."""
        reached: set[int] = set()
        queue = [node]
        while queue:
            current = queue.pop()
            if current in reached or not is_inside(self.frame[current]):
                continue
            reached.add(current)
            queue += links.get(current, [])
        return reached


def _count_divisions(
    result: _Steps, truth: _Steps, match: Indices
) -> tuple[MatchCounts, int]:
    """Count divisions that are right, false and missed, and forks that are ignored."""
    divisions = truth.list_forks()
    forks = result.list_forks()
    fork_frames = result.frame[np.array(forks, dtype=np.intp)]
    pairs = [
        (row, column)
        for row, division in enumerate(divisions)
        for column in np.flatnonzero(
            np.abs(fork_frames - truth.frame[division]) <= TOLERANCE
        ).tolist()
        if _is_found(division, forks[column], result, truth, match)
    ]
    if pairs:
        rows, columns = np.array(pairs, dtype=np.int32).T  # SciPy 1.14 takes no others
        shape = (len(divisions), len(forks))
        graph = coo_array((np.ones(len(pairs), bool), (rows, columns)), shape).tocsr()
        partner = maximum_bipartite_matching(graph, perm_type="column")
    else:
        partner = np.full(len(divisions), -1)
    n_right = int((partner >= 0).sum())
    paired = {forks[column] for column in partner[partner >= 0].tolist()}
    others = [fork for fork in forks if fork not in paired]
    n_false = sum(int(match[fork]) in truth.children for fork in others)
    counts = MatchCounts(n_right, n_false, len(divisions) - n_right)
    return counts, len(others) - n_false


def _is_found(
    division: int, fork: int, result: _Steps, truth: _Steps, match: Indices
) -> bool:
    """Whether a predicted fork shows a true division."""
    first = int(truth.frame[division]) - 1
    last = int(truth.frame[division]) + 2
    mother = {division, *truth.parents.get(division, [])}
    daughters = [
        {child, *truth.children.get(child, [])} for child in truth.children[division]
    ]
    branches = [
        {int(match[node]) for node in result.list_descendants(child, last)}
        for child in result.children[fork]
    ]
    before = {int(match[node]) for node in result.list_ancestors(fork, first)}
    if mother.isdisjoint(before.union(*branches)):
        return False
    return any(
        not one.isdisjoint(daughters[0]) and not other.isdisjoint(daughters[1])
        for one, other in (branches, branches[::-1])
    )
