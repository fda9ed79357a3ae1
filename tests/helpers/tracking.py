"""Shortcuts of tests for tracking."""

import numpy as np

from clew.parallel import ThreadExecutor
from clew.tracking.blocks import PAIRS_PER_BLOCK, MovieProblem, solve_movie
from clew.tracking.events import NONE, Event
from clew.tracking.lineage.links import MovieLinks, NodeEvents
from clew.tracking.solve import solve_pairs


def track(builder, w, annotations=None, n_jobs=1, pairs_per_block=PAIRS_PER_BLOCK):
    """Track a movie in memory."""
    problem = MovieProblem(builder, w, annotations, pairs_per_block)
    return solve_movie(problem, ThreadExecutor(n_jobs))


def solve_one(builder, w, frame, annotations=None):
    """Solve one frame pair."""
    return solve_pairs(builder, w, [frame], annotations)[0]


def links_of(
    events, confidence, split_margin, context=None, volume=None, weight_norm=1.0
):
    """Links of all detections that take part in events; `volume` is by label."""
    cells = np.hstack([events.sources, events.targets])
    frames = np.stack(
        [events.frame, events.frame, events.end_frames(), events.end_frames()], axis=1
    )
    exists = cells != NONE
    nodes = np.unique(np.stack([frames[exists], cells[exists]], axis=1), axis=0)
    nodes = nodes.reshape(-1, 2)
    n_frames = int(nodes[:, 0].max(initial=0)) + 1
    first_node = np.searchsorted(nodes[:, 0], np.arange(n_frames + 1))
    columns = {}
    if volume is not None:
        values = [volume.get(label, np.nan) for label in nodes[:, 1].tolist()]
        columns["volume"] = np.array(values, dtype=np.float32)
    n = len(nodes)
    none = NodeEvents.join([])
    links = MovieLinks(
        first_node,
        nodes[:, 1],
        np.zeros((n, 2)),
        columns,
        np.full(n, -1, np.int32),
        np.zeros(n, np.float32),
        np.zeros(n, np.float32),
        none,
        weight_norm,
        1.0,
        np.array([[0.0, 0.0], [1.0, 1.0]]),
    )
    sources, targets = links.event_nodes(events)
    table = NodeEvents(
        events.frame.astype(np.int32),
        events.event,
        sources,
        targets,
        np.asarray(confidence, dtype=float),
        np.asarray(split_margin, dtype=float),
        np.zeros(len(events)) if context is None else context,
    )
    is_move = events.event == Event.MOVE
    links.successor[sources[is_move, 0]] = targets[is_move, 0]
    links.move_confidence[sources[is_move, 0]] = table.confidence[is_move]
    links.move_context[sources[is_move, 0]] = table.context[is_move]
    return links.with_others(NodeEvents.join([table[~is_move]]))


def events_of_links(links):
    """All events of links as sorted tuples of frame, kind, sources and targets."""
    events = NodeEvents.join([links.list_moves(), links.others]).table(links.label)
    return sorted((t, event, list(a), list(b)) for t, event, a, b in events)
