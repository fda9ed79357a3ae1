"""Edits in napari-track-edit (funtracks) as answers, and answers as its edits.

Neither program is imported here: only one that shows tracks already is listened to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from clew.annotation.annotator import Annotator
from clew.annotation.answers import Answer
from clew.annotation.store.history import Author
from clew.errors import InputError
from clew.napari.corrections import find_cells_at, match_cells
from clew.tracking.events import Event

VIEWER_MODULE = "napari_track_edit.data_views.views_coordinator.tracks_viewer"
AUTHOR = Author("", "funtracks")
"""Of answers that belong to an action: undo there does not take back others."""
Edge = tuple[int, int]
"""Source and target, numbers of nodes."""


def find_edited_tracks(viewer: Any) -> Any:
    """Return the tracks that napari-track-edit shows in a viewer; None without it."""
    module = sys.modules.get(VIEWER_MODULE)
    shown = getattr(getattr(module, "TracksViewer", None), "_instance", None)
    return shown.tracks if shown is not None and shown.viewer is viewer else None


def list_edge_answers(
    tracks: Any, edges: set[Edge], find_label: Callable[[int], int]
) -> list[Answer]:
    """Return what tracks say now of the cells whose edges changed.

    Parameters
    ----------
    tracks : funtracks.data_model.Tracks
    edges : set of (source, target)
        Nodes between which an edge was added or deleted.
    find_label : callable
        Returns the label of the cell of a node.
    """
    sources = {source for source, _ in edges if tracks.graph_solution.has_node(source)}
    targets = {target for _, target in edges if tracks.graph_solution.has_node(target)}
    facts = {_describe_fate(tracks, node) for node in sources}
    for node in targets:
        before = tracks.predecessors(node)
        facts |= {_describe_fate(tracks, source) for source in before}
        if not before and tracks.get_time(node) > 0:
            facts.add((tracks.get_time(node) - 1, Event.APPEAR, (), (node,)))
    answers = []
    for frame, event, nodes, children in sorted(facts):
        labels = [sorted(map(find_label, part)) for part in (nodes, children)]
        answers.append(Answer.of(frame, event, *labels))
    return answers


def _describe_fate(
    tracks: Any, node: int
) -> tuple[int, Event, tuple[int, ...], tuple[int, ...]]:
    """Return the event that a node goes into, with nodes in place of cells."""
    frame = tracks.get_time(node)
    children = tuple(sorted(tracks.successors(node)))
    spans = {tracks.get_time(child) - frame for child in children}
    if len(children) == 1 and spans == {2}:
        return frame, Event.GAP, (node,), children
    if spans == {1}:
        event = Event.MOVE if len(children) == 1 else Event.DIVIDE
        return frame, event, (node,), children
    return frame, Event.DISAPPEAR, (node,), ()


class TracksLink:
    """Passes edits between tracks of funtracks and an annotator.

    Its actions become answers, and undoing an action there takes its answers back. An
    answer that the tracks contradict is made there as actions, so that undo there works
    too. The methods run in the thread that edits the tracks.

    Parameters
    ----------
    tracks : funtracks.data_model.Tracks
    annotator : Annotator
    do : callable
        Runs work that waits for the annotator in another thread.
    """

    def __init__(
        self, tracks: Any, annotator: Annotator, do: Callable[[Callable[[], Any]], None]
    ) -> None:
        self.tracks = tracks
        self.annotator = annotator
        self._do = do
        self._edges: set[Edge] = set()
        self._nodes: dict[int, dict[int, int]] = {}
        # How many answers each action of the history brought; below 0 if it took some
        # back: once a person goes on after undo, the undone actions and their inverses
        # stay in the history.
        self._n_answers = [0] * len(tracks.action_history.undo_stack)
        self._n_undone = len(tracks.action_history.redo_stack)
        self._is_ours = False
        tracks.action_applied.connect(self._on_action)
        tracks.refresh.connect(self._on_refresh)

    def close(self) -> None:
        """Stop listening."""
        self.tracks.action_applied.disconnect(self._on_action)
        self.tracks.refresh.disconnect(self._on_refresh)

    # From actions to answers

    def _on_action(self, action: Any) -> None:
        """Collect the edges that change; one action of a person changes several."""
        edge = getattr(action, "edge", None)
        if edge is not None:
            self._edges.add((int(edge[0]), int(edge[1])))
        if hasattr(action, "node"):
            self._nodes = {}

    def _on_refresh(self, *_: Any) -> None:
        """Follow a finished action, its undo, or its redo."""
        edges = self._edges
        self._edges = set()
        history = self.tracks.action_history
        n_before = self._n_undone
        n_undone = len(history.redo_stack)
        self._n_undone = n_undone
        if len(history.undo_stack) > len(self._n_answers):
            undone = self._n_answers[len(self._n_answers) - n_before :]
            self._n_answers += [-n for n in reversed(undone)]
            n_new = 0 if self._is_ours else self._store(edges)
            self._n_answers.append(n_new)
            return
        place = len(self._n_answers) - max(n_undone, n_before)
        n_answers = self._n_answers[place]
        is_undo = n_undone > n_before
        if is_undo == (n_answers > 0):
            self._repeat(self.annotator.undo, abs(n_answers))
        elif is_undo:
            self._n_answers[place] = -self._store(edges)
        else:
            self._repeat(self.annotator.redo, n_answers)

    def _store(self, edges: set[Edge]) -> int:
        """Store what the tracks say now of some edges; return the number of answers."""
        try:
            answers = list_edge_answers(self.tracks, edges, self._find_label)
        except InputError as error:
            problem = error

            def report() -> None:
                raise problem

            self._do(report)
            return 0

        def work() -> None:
            for answer in answers:
                self.annotator.say(answer, None, True, AUTHOR)

        if answers:
            self._do(work)
        return len(answers)

    def _repeat(self, step: Callable[..., Any], n: int) -> None:
        if n:
            self._do(lambda: [step(AUTHOR) for _ in range(n)])

    def undo(self) -> None:
        """Undo the last action that has an answer, and those after it."""
        n_answers = 0
        while not n_answers and len(self._n_answers) > self._n_undone:
            n_answers = self._n_answers[-1 - self._n_undone]
            self.tracks.undo()

    def _find_label(self, node: int) -> int:
        """Return the label of the cell at a node."""
        place = np.array([self.tracks.get_position(node)], dtype=float)
        positions = self.annotator.session.positions
        return int(find_cells_at(positions, self.tracks.get_time(node), place)[0])

    # From answers to actions

    def list_changes(self, answer: Answer) -> tuple[list[Edge], list[Edge]]:
        """Return the edges to delete, and those to add, so that the tracks agree.

        There are none for a merge, which these tracks cannot have, and for cells that
        they do not have.
        """
        last = answer.frame + answer.event.span
        sources = self._find_nodes(answer.frame, answer.sources)
        targets = self._find_nodes(last, answer.targets)
        if sources is None or targets is None or len(sources) > 1:
            return [], []
        wanted = {(source, target) for source in sources for target in targets}
        after = {
            (node, child) for node in sources for child in self.tracks.successors(node)
        }
        before = {
            (parent, node)
            for node in targets
            for parent in self.tracks.predecessors(node)
        }
        present = after | before
        if not answer.happened:
            return sorted(wanted & present), []
        return sorted(present - wanted), sorted(wanted - present)

    def apply(self, changes: tuple[Sequence[Edge], Sequence[Edge]]) -> None:
        """Make an answer that was stored as actions; it goes with the last of them."""
        from funtracks.user_actions import UserAddEdge, UserDeleteEdge

        deleted, added = changes
        self._is_ours = True
        try:
            for edge in deleted:
                UserDeleteEdge(self.tracks, edge)
            for edge in added:
                UserAddEdge(self.tracks, edge)
        finally:
            self._is_ours = False
        if deleted or added:
            self._n_answers[-1] = 1

    def _find_nodes(self, frame: int, labels: Sequence[int]) -> list[int] | None:
        """Return the nodes at cells; None if one has none."""
        if not self._nodes:
            self._nodes = self._map_cells()
        of_cells = self._nodes.get(frame, {})
        if not of_cells.keys() >= set(labels):
            return None
        return [of_cells[label] for label in labels]

    def _map_cells(self) -> dict[int, dict[int, int]]:
        """Return the node of each cell, by frame and label."""
        nodes = np.asarray(self.tracks.nodes())
        table = self.tracks.get_positions(nodes.tolist(), incl_time=True).astype(float)
        positions = self.annotator.session.positions
        by_frame: dict[int, dict[int, int]] = {}
        for frame in np.unique(table[:, 0]).astype(int).tolist():
            rows = np.flatnonzero(table[:, 0] == frame)
            labels = match_cells(positions, frame, table[rows, 1:])
            by_frame[frame] = dict(
                zip(labels.tolist(), nodes[rows].tolist(), strict=True)
            )
        return by_frame
