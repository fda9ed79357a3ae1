"""Run with tracksdata: pip install 'clew-learn[tracksdata]'."""

import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from clew.errors import InputError, MissingExtra
from clew.tracking.graph import ClewSolver

EXAMPLE = Path(__file__).parents[3] / "examples/tracksdata_costs.py"


@pytest.mark.skipif(
    find_spec("tracksdata") is not None, reason="tracksdata is installed"
)
def test_solver_names_the_extra_that_is_missing():
    with pytest.raises(MissingExtra, match=r"clew-learn\[tracksdata\]"):
        ClewSolver(["distance"])


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("tracksdata", reason="tracksdata is not installed")
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def solver(example):
    return ClewSolver(["dy", "dx"]).fit(example["simulate_graph"](0))


@pytest.fixture
def graph(example):
    graph = example["simulate_graph"](1)
    graph.update_edge_attrs(attrs={"annotation": -1})
    return graph


def test_example_prints_right_edges(example, capsys):
    example["main"]()
    right, _, probability = re.findall(r"([\d.]+)", capsys.readouterr().out)[:3]
    assert float(right) > 95
    assert float(probability) > 80


def test_example_trains_and_solves_in_ten_lines():
    text = EXAMPLE.read_text()
    body = text.split("[start:solve]\n")[1].split("    # --8<-- [end")[0]
    assert len(body.splitlines()) <= 10


def test_solver_is_one_of_tracksdata(solver):
    from tracksdata.solvers._base_solver import BaseSolver

    assert isinstance(solver, BaseSolver)


def test_solution_is_marked_in_the_graph(solver, graph):
    solution = solver.solve(graph)
    marked = graph.edge_attrs(attr_keys=["solution", "probability"])
    assert marked["solution"].sum() == solution.num_edges()
    assert marked["probability"].is_between(0, 1).all()
    assert graph.node_attrs(attr_keys=["solution"])["solution"].all()


def test_solution_beats_nearest_neighbors_by_one_attribute(solver, graph):
    from tracksdata.solvers import NearestNeighborsSolver

    truth = solver.solve(graph).edge_attrs(attr_keys=["truth"])["truth"]
    nearest = NearestNeighborsSolver(edge_weight="dy", max_children=1)
    other = nearest.solve(graph).edge_attrs(attr_keys=["truth"])["truth"]
    assert truth.sum() > other.sum()


def test_annotation_of_the_graph_overrides_the_weights(solver, graph):
    edge = solver.solve(graph).edge_ids()[0]
    graph.update_edge_attrs(edge_ids=[edge], attrs={"annotation": 0})
    assert edge not in solver.solve(graph).edge_ids()


def test_earlier_solution_stays_without_reset(example, graph):
    keeping = ClewSolver(["dy", "dx"], reset=False, return_solution=False)
    keeping.fit(example["simulate_graph"](0))
    assert keeping.solve(graph) is None
    first = graph.edge_attrs(attr_keys=["solution"])["solution"]
    edge = graph.edge_ids()[first.to_list().index(True)]
    graph.update_edge_attrs(edge_ids=[edge], attrs={"annotation": 0})
    keeping.solve(graph)
    second = graph.edge_attrs(attr_keys=["solution"])["solution"]
    assert (second | ~first).all()


def test_graph_with_overlaps_is_rejected(solver, graph):
    graph.add_overlap(*graph.node_ids()[:2])
    with pytest.raises(InputError, match="overlapping nodes"):
        solver.solve(graph)
