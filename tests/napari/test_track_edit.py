"""Actions of funtracks as answers, and answers as its actions."""

import numpy as np
import pytest

from clew.annotation.answers import Answer
from clew.errors import InputError
from clew.napari.track_edit import AUTHOR, TracksLink
from clew.tracking.events import Event
from clew.tracking.io.geff import write_geff
from tests.annotation.test_annotator import annotator  # noqa: F401

pytest.importorskip("funtracks")


@pytest.fixture
def link(annotator, tmp_path):  # noqa: F811
    """A link to the tracks that funtracks reads from clew's GEFF."""
    from funtracks.import_export import import_from_geff

    write_geff(tmp_path / "lineage.geff", annotator.build_lineage())
    tracks = import_from_geff(tmp_path / "lineage.geff")
    problems = []

    def do(work):
        try:
            work()
        except InputError as error:
            problems.append(str(error))

    link = TracksLink(tracks, annotator, do)
    link.problems = problems
    yield link
    link.close()


def list_moves(link):
    lineage = link.annotator.build_lineage()
    return [fact for fact in lineage.events if fact[1] is Event.MOVE]


def find_node(link, frame, label):
    (node,) = link._find_nodes(frame, [label])
    return node


def find_edge(link, fact):
    frame, _, (source_label,), (target_label,) = fact
    return find_node(link, frame, source_label), find_node(
        link, frame + 1, target_label
    )


def list_facts(link):
    return set(link.annotator.session.state.annotations.events)


def test_deleted_edge_is_an_answer_until_it_is_undone(link):
    from funtracks.user_actions import UserDeleteEdge

    fact = list_moves(link)[0]
    frame, _, sources, targets = fact
    UserDeleteEdge(link.tracks, find_edge(link, fact))
    expected = {
        (frame, Event.DISAPPEAR, sources, ()),
        (frame, Event.APPEAR, (), targets),
    }
    assert list_facts(link) == expected
    assert link.annotator.session.store.last_entry().author == AUTHOR
    link.tracks.undo()
    assert list_facts(link) == set()
    link.tracks.redo()
    assert list_facts(link) == expected


def test_undone_action_comes_back_after_another_one(link):
    from funtracks.user_actions import UserDeleteEdge

    first, second = list_moves(link)[0], list_moves(link)[-1]
    UserDeleteEdge(link.tracks, find_edge(link, first))
    of_first = list_facts(link)
    link.tracks.undo()
    UserDeleteEdge(link.tracks, find_edge(link, second))
    of_second = list_facts(link)
    link.tracks.undo()
    assert list_facts(link) == set()
    link.tracks.undo()  # the undo of the first
    assert list_facts(link) == of_first
    link.tracks.undo()
    assert list_facts(link) == set()
    assert of_first != of_second


def test_division_that_is_set_is_an_answer(link):
    from funtracks.user_actions import UserSetDivision

    moves = list_moves(link)
    frame, _, (mother,), (first,) = moves[0]
    second = next(t for f, _, _, (t,) in moves[1:] if f == frame)
    nodes = (
        find_node(link, frame, mother),
        find_node(link, frame + 1, first),
        find_node(link, frame + 1, second),
    )
    UserSetDivision(link.tracks, nodes)
    daughters = tuple(sorted([first, second]))
    assert (frame, Event.DIVIDE, (mother,), daughters) in list_facts(link)


def test_answer_that_the_tracks_contradict_is_made_there_and_undone_there(link):
    fact = list_moves(link)[0]
    answer = Answer.of(*fact, happened=False)
    edge = find_edge(link, fact)
    changes = link.list_changes(answer)
    assert changes == ([edge], [])
    link.annotator.say(answer, None, True, AUTHOR)
    link.apply(changes)
    assert not link.tracks.graph_solution.has_edge(*edge)
    assert link.annotator.n_answers == 1
    link.tracks.undo()
    assert link.tracks.graph_solution.has_edge(*edge)
    assert link.annotator.n_answers == 0


def test_undo_in_the_dock_undoes_the_action_too(link):
    from funtracks.user_actions import UserDeleteEdge

    fact = list_moves(link)[0]
    edge = find_edge(link, fact)
    UserDeleteEdge(link.tracks, edge)
    link.undo()
    assert link.tracks.graph_solution.has_edge(*edge)
    assert link.annotator.n_answers == 0


def test_answer_that_the_tracks_agree_with_changes_nothing(link):
    for fact in link.annotator.build_lineage().events:
        if fact[1] in (Event.MOVE, Event.DIVIDE):
            assert link.list_changes(Answer.of(*fact)) == ([], [])


def test_node_that_is_no_cell_is_refused(link):
    from funtracks.user_actions import UserAddEdge, UserAddNode

    fact = list_moves(link)[0]
    node = link.tracks.get_next_node_id()
    key = link.tracks.features
    place = np.array(link.tracks.get_position(find_edge(link, fact)[0])) + 1e6
    attributes = {key.time_key: 0, key.tracklet_key: link.tracks.get_next_track_id()}
    attributes[key.position_key] = place
    UserAddNode(link.tracks, node, attributes)
    target = find_edge(link, fact)[1]
    UserAddEdge(link.tracks, (node, target), force=True)
    assert "no cells of the masks" in link.problems[0]
    assert link.annotator.n_answers == 0


def test_edits_in_napari_track_edit_are_answers(dock, viewer, wait_until, tmp_path):
    pytest.importorskip("napari_track_edit")
    from funtracks.import_export import import_from_geff
    from napari_track_edit.data_views.views_coordinator.tracks_viewer import (
        TracksViewer,
    )

    write_geff(tmp_path / "lineage.geff", dock.lineage)
    tracks = import_from_geff(tmp_path / "lineage.geff")
    tracks_viewer = TracksViewer.get_instance(viewer)
    tracks_viewer.update_tracks(tracks, "clew")
    wait_until(lambda: dock.link is not None)
    fact = list_moves(dock.link)[0]
    edge = find_edge(dock.link, fact)
    tracks_viewer.selected_nodes.add_list(list(edge))
    tracks_viewer.disconnect_nodes()
    wait_until(lambda: dock.annotator.n_answers == 2)
    tracks_viewer.undo()
    wait_until(lambda: dock.annotator.n_answers == 0)
    # An answer in the dock that the tracks contradict changes them.
    wait_until(lambda: dock.asked is not None)
    while dock.asked.question.event is not Event.DIVIDE:
        skipped = dock.asked
        dock.act("skip")
        wait_until(lambda: dock.asked not in (None, skipped))  # noqa: B023
    n_edges = len(tracks.edges())
    dock.act("no")
    wait_until(lambda: len(tracks.edges()) == n_edges - 2)
    tracks_viewer.undo()
    wait_until(lambda: dock.annotator.n_answers == 0)
    dock.act("undo")
