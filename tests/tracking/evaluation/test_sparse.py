"""The sparse metric: by hand, against brute force, and through files."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.sparse import (
    PointGraph,
    SparseScore,
    evaluate_sparse,
    score_graphs,
)
from clew.tracking.events import Event

DISTANCE = 1.5


def make_graph(cells, links):
    """Make a graph of cells {name: (frame, x)} and links "ab bc"."""
    names = sorted(cells, key=lambda name: cells[name][0])
    row = {name: k for k, name in enumerate(names)}
    return PointGraph(
        np.array([cells[name][0] for name in names], dtype=np.int64),
        np.array([[0.0, cells[name][1]] for name in names]).reshape(-1, 2),
        np.array([[row[a], row[b]] for a, b in links.split()], int).reshape(-1, 2),
    )


# a mother m of two frames, and two daughters of two frames each:
#   n ─ m ┬ c ─ e
#         └ d ─ f
FAMILY = {
    "n": (0, 0),
    "m": (1, 0),
    "c": (2, -4),
    "d": (2, 4),
    "e": (3, -4),
    "f": (3, 4),
}
LINKS = "nm mc md ce df"
# cells far away, of which the truth does not speak
OTHERS = {"x": (0, 90), "y": (1, 90), "z": (2, 80), "w": (2, 99)}


def get_counts(score: SparseScore):
    """Edges, divisions and what is ignored, as tuples."""
    edges = (score.edges.right, score.edges.false, score.edges.missed)
    divisions = score.divisions
    forks = (divisions.right, divisions.false, divisions.missed)
    return edges, forks, (score.n_ignored_edges, score.n_ignored_forks)


HAND = {
    "the same": (FAMILY, LINKS, (5, 0, 0), (1, 0, 0), (0, 0)),
    "nothing": ({}, "", (0, 0, 5), (0, 0, 1), (0, 0)),
    "others are ignored": (
        FAMILY | OTHERS,
        f"{LINKS} xy yz yw",
        (5, 0, 0),
        (1, 0, 0),
        (3, 1),
    ),
    "one daughter is lost": (FAMILY, "nm mc ce df", (4, 0, 1), (0, 0, 1), (0, 0)),
    "the wrong daughter": (
        FAMILY | {"g": (2, 50)},
        "nm mc mg ce df",
        (4, 1, 1),
        (0, 1, 1),
        (0, 0),
    ),
    "crossing links": (FAMILY, "nm mc md cf de", (3, 2, 2), (1, 0, 0), (0, 0)),
    "a link over a gap is ignored": (
        {name: FAMILY[name] for name in "nce"},
        "nc ce",
        (1, 0, 4),
        (0, 0, 1),
        (1, 0),
    ),
    "late by one frame": (
        {**FAMILY, "d": (2, 60)},
        "nm mc ce cf",
        (3, 1, 2),
        (1, 0, 0),
        (0, 0),
    ),
    "early by one frame": (
        {**FAMILY, "o": (1, 40)},
        "nm no mc od ce df",
        (4, 2, 1),
        (1, 0, 0),
        (0, 0),
    ),
    "a fork at an annotated cell": (
        FAMILY | {"h": (3, 70)},
        f"{LINKS} ch",
        (5, 1, 0),
        (1, 1, 0),
        (0, 0),
    ),
}


@pytest.mark.parametrize("name", HAND)
def test_graph_by_hand(name):
    cells, links, *expected = HAND[name]
    score = score_graphs(make_graph(cells, links), make_graph(FAMILY, LINKS), DISTANCE)
    assert get_counts(score) == tuple(expected)


def test_ends_of_true_tracks_are_not_counted():
    truth = make_graph({"m": (1, 0), "c": (2, 0)}, "mc")
    result = make_graph({k: (k, 0) for k in range(5)}, "")
    result = result._replace(links=np.array([[0, 1], [1, 2], [2, 3], [3, 4]]))
    assert get_counts(score_graphs(result, truth, DISTANCE)) == (
        (1, 0, 0),
        (0, 0, 0),
        (3, 0),
    )


def test_score_penalizes_cells_beyond_the_estimate():
    graph = make_graph(FAMILY, LINKS)
    assert score_graphs(graph, graph, DISTANCE).score == 1.1
    assert score_graphs(graph, graph, DISTANCE, 6).score == 1.1
    halved = score_graphs(graph, graph, DISTANCE, 3)
    assert halved.adjusted_edge_jaccard == pytest.approx(0.9)
    assert score_graphs(graph, graph, DISTANCE, 0.3).adjusted_edge_jaccard == 0
    more = score_graphs(graph, graph, DISTANCE, 12)
    assert more.adjusted_edge_jaccard == pytest.approx(1.05)


def test_truth_without_divisions_has_no_division_score():
    graph = make_graph({"m": (1, 0), "c": (2, 0)}, "mc")
    score = score_graphs(graph, graph, DISTANCE)
    assert score.division_jaccard is None
    assert score.score == 1.0


def draw_graph(rng, n_frames=5):
    """Draw a forest in which cells have at most one parent and two children."""
    counts = rng.integers(0, 5, n_frames)
    frame = np.repeat(np.arange(n_frames), counts)
    position = rng.uniform(0, 5, (len(frame), 2))
    links = []
    n_children = np.zeros(len(frame), int)
    for child in rng.permutation(len(frame)):
        span = 1 if rng.random() < 0.9 else 2
        parents = np.flatnonzero((frame == frame[child] - span) & (n_children < 2))
        if len(parents) and rng.random() < 0.85:
            parent = rng.choice(parents)
            n_children[parent] += 1
            links.append((parent, child))
    return PointGraph(frame, position, np.array(links, dtype=int).reshape(-1, 2))


def perturb(rng, graph):
    """Move, drop and add cells, and rewire some links."""
    keep = rng.random(len(graph.frame)) < 0.9
    row = np.cumsum(keep) - 1
    links = graph.links[keep[graph.links].all(axis=1)]
    links = links[rng.random(len(links)) < 0.9]
    noise = rng.normal(0, 0.4, (int(keep.sum()), 2))
    moved = PointGraph(graph.frame[keep], graph.position[keep] + noise, row[links])
    extra = draw_graph(rng)
    frame = np.concatenate([moved.frame, extra.frame])
    order = np.argsort(frame, kind="stable")
    place = np.argsort(order)
    both = np.vstack([moved.links, extra.links + len(moved.frame)])
    position = np.vstack([moved.position, extra.position])
    return PointGraph(frame[order], position[order], place[both])


def choose_pairs(allowed, rows, columns):
    """Of all one-to-one choices, the one with most pairs and the smallest sum."""
    best = ((0, 0.0), {})
    padded = [*columns, *[None] * len(rows)]
    for choice in set(permutations(padded, len(rows))):
        pairs = {a: b for a, b in zip(rows, choice, strict=True) if (a, b) in allowed}
        value = (len(pairs), -sum(allowed[pair] for pair in pairs.items()))
        if value > best[0]:
            best = (value, pairs)
    return best[1]


def score_by_brute_force(result, truth):
    """Count edges and divisions by the words of the definition."""
    match = {}
    for t in range(5):
        mine = np.flatnonzero(result.frame == t).tolist()
        true = np.flatnonzero(truth.frame == t).tolist()
        allowed = {}
        for a in true:
            for b in mine:
                length = np.linalg.norm(truth.position[a] - result.position[b])
                if length <= DISTANCE:
                    allowed[a, b] = length
        near = sorted({b for _, b in allowed})
        far = sorted({a for a, _ in allowed})
        pairs = choose_pairs(allowed, far, near)
        match |= {b: a for a, b in pairs.items()}
    graphs = []
    for graph in (result, truth):
        graphs.append(nx.DiGraph())
        graphs[-1].add_nodes_from(range(len(graph.frame)))
        span = graph.frame[graph.links[:, 1]] - graph.frame[graph.links[:, 0]]
        graphs[-1].add_edges_from(graph.links[span == 1].tolist())
    mine, true = graphs

    right = sum(
        match.get(a) is not None and true.has_edge(match[a], match.get(b, -1))
        for a, b in mine.edges
    )
    counted = 0
    for a, b in mine.edges:
        leaves = a in match and true.out_degree(match[a]) > 0
        enters = b in match and true.in_degree(match[b]) > 0
        counted += leaves or enters
    edges = (right, counted - right, true.number_of_edges() - right)

    forks = [node for node in mine if mine.out_degree(node) == 2]
    splits = [node for node in true if true.out_degree(node) == 2]
    allowed = {}
    for split in splits:
        t = truth.frame[split]
        inside = mine.subgraph(
            [node for node in mine if t - 1 <= result.frame[node] <= t + 2]
        )
        for fork in forks:
            if not t - 1 <= result.frame[fork] <= t + 1:
                continue
            sides = []
            for child in inside.successors(fork):
                reached = {child} | nx.descendants(inside, child)
                sides.append({match.get(node) for node in reached})
            if len(sides) < 2:
                continue
            family = nx.ancestors(inside, fork) | nx.descendants(inside, fork) | {fork}
            hits = {match.get(node) for node in family}
            lineages = [
                {child, *true.successors(child)} for child in true.successors(split)
            ]
            anchored = hits & {split, *true.predecessors(split)}
            straight = sides[0] & lineages[0] and sides[1] & lineages[1]
            swapped = sides[0] & lineages[1] and sides[1] & lineages[0]
            if anchored and (straight or swapped):
                allowed[split, fork] = 0.0
    found = choose_pairs(allowed, sorted({a for a, _ in allowed}), forks)
    n_right = len(found)
    # which forks are paired may differ between choices; matched ones count alike
    annotated = [f for f in forks if f in match and true.out_degree(match[f]) > 0]
    n_false = {
        len([f for f in annotated if f not in used])
        for used in list_choices(allowed, n_right)
    }
    return edges, n_right, n_false, len(splits) - n_right


def list_choices(allowed, n):
    """All sets of forks in pairings of `n` divisions."""
    rows = sorted({a for a, _ in allowed})
    columns = sorted({b for _, b in allowed})
    padded = [*columns, *[None] * len(rows)]
    choices = set()
    for choice in set(permutations(padded, len(rows))):
        used = frozenset(
            b for a, b in zip(rows, choice, strict=True) if (a, b) in allowed
        )
        if len(used) == n:
            choices.add(used)
    return choices or {frozenset()}


def test_random_graphs_agree_with_brute_force():
    n_divisions = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        truth = draw_graph(rng)
        result = perturb(rng, truth)
        score = score_graphs(result, truth, DISTANCE)
        edges, right, false, missed = score_by_brute_force(result, truth)
        found, (n_right, n_false, n_missed), _ = get_counts(score)
        assert found == edges, seed
        assert (n_right, n_missed) == (right, missed), seed
        assert n_false in false, seed
        n_divisions += right
    assert n_divisions > 20


def test_tables_are_scored(tmp_path):
    text = "frame,track,parent,y,x\n0,1,0,0,0\n1,1,0,0,1\n2,2,1,0,0\n2,3,1,0,9\n"
    (tmp_path / "truth.csv").write_text(text)
    (tmp_path / "result.csv").write_text(text + "0,4,0,50,50\n1,4,0,50,50\n")
    score = evaluate_sparse(tmp_path / "result.csv", tmp_path / "truth.csv", distance=2)
    assert get_counts(score) == ((3, 0, 0), (1, 0, 0), (1, 0))
    assert (score.n_nodes, score.n_true_nodes, score.n_matched) == (6, 4, 4)


TRUTH = "frame,track,parent,y,x\n0,1,0,0,0\n1,1,0,0,1\n2,2,1,0,0\n2,3,1,0,9\n"


def write_tables(folder, truth):
    """Write a truth of some cells, and a result with others and a false end."""
    others = "".join(
        f"{t},{k},0,{20 * k},{t}\n" for t in range(4) for k in (4, 5, 6, 7)
    )
    (folder / "truth.csv").write_text(truth)
    later = "3,2,1,0,0\n3,3,1,0,9\n"
    (folder / "result.csv").write_text(TRUTH + later + others)
    return folder / "result.csv", folder / "truth.csv"


def test_partial_truth_does_not_count_other_cells(tmp_path):
    result, truth = write_tables(tmp_path, TRUTH)
    found = evaluate(result, truth, distance=3)
    assert found.truth_is.startswith("partial (it has 18% of the result's cells")
    assert found.aogm is None
    assert found.loss.n_errors == 0
    assert set(found.loss.annotated) >= {Event.MOVE, Event.DIVIDE}
    assert found.loss.annotated[Event.DISAPPEAR] == 0
    assert found.sparse.edge_jaccard == 1
    assert evaluate(result, truth, distance=3, complete=True).loss.n_errors == 2


def test_truth_without_parents_says_nothing_of_divisions(tmp_path):
    rows = [line.split(",") for line in TRUTH.splitlines()]
    bare = "\n".join(",".join(row[:2] + row[3:]) for row in rows)
    result, truth = write_tables(tmp_path, bare)
    found = evaluate(result, truth, distance=3)
    assert "no parents" in found.truth_is
    assert found.divisions == {}
    assert found.sparse.divisions.false == 0
    assert found.loss.n_errors == 0


def test_other_dimensions_are_refused():
    flat = make_graph(FAMILY, LINKS)
    deep = flat._replace(position=np.zeros((6, 3)))
    with pytest.raises(InputError, match="different dimensions"):
        score_graphs(flat, deep)
