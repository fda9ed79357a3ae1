"""Features of candidate events: one table for each kind of event.

All features are dimensionless and of order 1, since one regularizer treats all weights
alike. A feature whose measurements a movie lacks is left out. Columns of a user, such as a
score of a network, have features of their cells and links.

A feature is computed before anything is predicted: it knows the candidates of its frame
pair, but not which of them happen. "Near a dividing cell" is no feature, "near another
mother of a candidate division" is one.

To add a feature, say to divisions:

1. Add a row to the table `DIVIDE` below, like this one: a name, a function that takes the view of all
   candidate divisions (a `FamilyView`, see `event_views.py`) and returns (n,) values,
   and the groups of measurements that it needs (`GROUPS` in `detections.py`)::

       Feature(
           "size of the mother",
           lambda family: np.log(family.whole.size),
           needs="size",
       ),

   A quantity that no view has yet becomes a property of the view.
2. Add ``"divide: size of the mother": 0.0`` to each set of weights in
   `training/generic_weights.json` whose movies have these measurements; a test names
   the sets that lack it. `Tracker.fit` learns the weight from annotations right away;
   `benchmarks/generic_weights.py` learns the generic weights again.
3. Add a small scene with a known value to `test_feature_values_of_small_scenes` in
   `tests/tracking/candidates/test_features.py`. The tests there check every feature:
   finite, of order 1, independent of units.

Weights are stored by feature name. Files of weights that lack a feature are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.event_views import (
    Cells,
    CellSelection,
    FamilyView,
    LoneView,
    MoveView,
    SharedVolumes,
)
from clew.tracking.detections import Detections, Overlap
from clew.tracking.events import CANDIDATE_KINDS, END_OF_FALSE, FALSE_DETECTIONS, Event
from clew.tracking.scales import Scales
from clew.tracking.user_columns import CELL_PREFIX, Links, is_user_group

MAX_VALUE = 5.0
"""Features are clipped to this. Distances only approach it, so that a farther cell
always has a larger value."""
FAR_STEP = 2.0
"""Typical steps up to which the cost of a move is convex in its distance, as if steps
had Student's distribution. Of two ways to pair near cells, the right one then costs
less; with a concave cost it was often the wrong one."""
MAX_BORDER_DISTANCE = 3.0
"""Diameters beyond which the border does not matter."""

View = MoveView | FamilyView | LoneView


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the features of an event."""

    name: str
    compute: Callable[[Any], Array]
    """Takes a view of n candidates, returns (n,) values."""
    needs: str = ""
    """Groups of measurements that it is computed from, separated by spaces."""


def saturate_distance(distance: Array) -> Array:
    """Compress a distance in diameters: 1 becomes 0.83, 5 becomes 2.5."""
    return distance / (1 + distance / MAX_VALUE)


def relative_difference(first: Array, second: Array) -> Array:
    """Return (n,) the share by which the smaller value falls short of the larger."""
    return 1 - np.minimum(first, second) / np.maximum(first, second)


def mean_difference(first: Array, second: Array) -> Array:
    """Return (n,) the mean absolute difference.

    Of sorted quantiles, this is the earth mover's distance.
    """
    difference = np.abs(first - second)
    return difference if difference.ndim == 1 else difference.mean(axis=1)


def one_minus_iou(shared: Array, first: Array, second: Array) -> Array:
    """Return (n,) 1 − IoU (intersection over union) of two masks."""
    return 1 - shared / np.maximum(first + second - shared, shared + 1e-12)


def _constant_bias(view: View) -> Array:
    return np.ones(len(view))


def _change_of(name: str) -> Callable[[MoveView], Array]:
    """Relative difference of a measurement between the two cells of a move."""
    return lambda move: relative_difference(
        getattr(move.source, name), getattr(move.target, name)
    )


def _imbalance_of(name: str) -> Callable[[FamilyView], Array]:
    """Relative difference of a measurement between the two parts."""
    return lambda family: relative_difference(
        getattr(family.first, name), getattr(family.second, name)
    )


def _change_of_sum(name: str) -> Callable[[FamilyView], Array]:
    """Relative difference between the sum of the parts and the whole."""
    return lambda family: relative_difference(
        getattr(family.first, name) + getattr(family.second, name),
        getattr(family.whole, name),
    )


def _uncovered_part(family: FamilyView) -> Array:
    """Share of the part covered least that the whole does not cover."""
    first, second = family.shared_volumes
    return 1 - np.minimum(first / family.first.size, second / family.second.size)


def _family_overlap_missing(family: FamilyView) -> Array:
    first, second = family.shared_volumes
    parts = family.first.size + family.second.size
    return one_minus_iou(first + second, family.whole.size, parts)


def _uncovered_share(lone: LoneView) -> Array:
    """Share of a cell's mask that no mask of the other frame covers."""
    return 1 - np.minimum(lone.covered / lone.cell.size, 1)


def _uncovered_on_border(lone: LoneView) -> Array:
    """Share of the outline on the border; 0 where other masks cover the cell."""
    return np.minimum(lone.cell.border_share, 1) * _uncovered_share(lone)


MOVE = (
    Feature("bias", _constant_bias),
    Feature("distance", lambda move: saturate_distance(move.distance)),
    Feature(
        "distance in usual steps",
        lambda move: np.log1p(move.distance / move.typical_step),
    ),
    Feature(
        "squared distance in usual steps",
        lambda move: np.log1p((move.distance / (FAR_STEP * move.typical_step)) ** 2),
    ),
    Feature(
        "overlap missing",
        lambda move: one_minus_iou(
            move.shared_volume, move.source.size, move.target.size
        ),
        needs="size overlap",
    ),
    Feature(
        "smaller mask uncovered",
        lambda move: (
            1 - move.shared_volume / np.minimum(move.source.size, move.target.size)
        ),
        needs="size overlap",
    ),
    Feature("change of volume", _change_of("size"), needs="size"),
    Feature("change of brightness", _change_of("brightness"), needs="intensity"),
    Feature("change of mass", _change_of("mass"), needs="size intensity"),
    Feature(
        "change of histogram",
        lambda move: mean_difference(move.source.quantiles, move.target.quantiles),
        needs="histogram intensity",
    ),
    Feature(
        "change of texture",
        lambda move: mean_difference(move.source.deviation, move.target.deviation),
        needs="histogram intensity",
    ),
    Feature(
        "change of shape",
        lambda move: 4 * mean_difference(move.source.axes, move.target.axes),
        needs="shape",
    ),
    Feature("change of direction", lambda move: move.turn, needs="direction"),
)

DIVIDE = (
    Feature("bias", _constant_bias),
    Feature(
        "distance of the nearer daughter",
        lambda family: saturate_distance(family.distances[0]),
    ),
    Feature(
        "distance of the farther daughter",
        lambda family: saturate_distance(family.distances[1]),
    ),
    Feature(
        "distance of the daughters' middle",
        lambda family: saturate_distance(family.center_distance),
    ),
    Feature("angle of the daughters", lambda family: 1 + family.cosine),
    Feature("unevenness of volume", _imbalance_of("size"), needs="size"),
    Feature("change of volume", _change_of_sum("size"), needs="size"),
    Feature(
        "size of the mother", lambda family: np.log(family.whole.size), needs="size"
    ),
    Feature(
        "size of the daughters",
        lambda family: np.log((family.first.size + family.second.size) / 2),
        needs="size",
    ),
    Feature(
        "brightness of the mother",
        lambda family: np.log(family.whole.brightness),
        needs="intensity",
    ),
    Feature(
        "brightness of the daughters",
        lambda family: np.log((family.first.brightness + family.second.brightness) / 2),
        needs="intensity",
    ),
    Feature("unevenness of brightness", _imbalance_of("brightness"), needs="intensity"),
    Feature("change of mass", _change_of_sum("mass"), needs="size intensity"),
    Feature(
        "eccentricity of the mother",
        lambda family: family.whole.eccentricity,
        needs="shape",
    ),
    Feature(
        "compactness of the daughters",
        lambda family: family.compactness,
        needs="size shape",
    ),
    Feature("overlap missing", _family_overlap_missing, needs="size overlap"),
    Feature("daughter uncovered", _uncovered_part, needs="size overlap"),
    Feature(
        "daughters off the mother's halves",
        lambda family: saturate_distance(family.off_halves),
        needs="direction",
    ),
    Feature(
        "daughters beside the mother's axis",
        lambda family: family.across,
        needs="direction",
    ),
    Feature("change of direction", lambda family: family.bend, needs="direction"),
    Feature("change of length", _change_of_sum("length"), needs="direction"),
)

PARTS = (  # a merge is a split backward in time
    Feature("bias", _constant_bias),
    Feature(
        "distance of the farther part",
        lambda family: saturate_distance(family.distances[1]),
    ),
    Feature(
        "distance of the parts' middle",
        lambda family: saturate_distance(family.center_distance),
    ),
    Feature("change of volume", _change_of_sum("size"), needs="size"),
    Feature("change of mass", _change_of_sum("mass"), needs="size intensity"),
    Feature(
        "compactness of the parts",
        lambda family: family.compactness,
        needs="size shape",
    ),
    Feature("part uncovered", _uncovered_part, needs="size overlap"),
    Feature("overlap missing", _family_overlap_missing, needs="size overlap"),
    Feature(
        "parts off the halves",
        lambda family: saturate_distance(family.off_halves),
        needs="direction",
    ),
    Feature("parts beside the axis", lambda family: family.across, needs="direction"),
    Feature("change of length", _change_of_sum("length"), needs="direction"),
)

LONE = (  # without size and brightness: they carry over badly to other movies
    Feature("bias", _constant_bias),
    Feature(
        "distance to the border",
        lambda lone: np.minimum(lone.cell.border_distance, MAX_BORDER_DISTANCE),
        needs="border",
    ),
    Feature(
        "uncovered on the border", _uncovered_on_border, needs="size shape overlap"
    ),
    Feature(
        "distance to the nearest cell",
        lambda lone: np.log1p(lone.isolation / lone.typical_step),
    ),
    Feature("mask uncovered", _uncovered_share, needs="size overlap"),
)

FALSE = (
    *LONE,
    Feature("size", lambda lone: np.log(lone.cell.size), needs="size"),
    Feature("brightness", lambda lone: np.log(lone.cell.brightness), needs="intensity"),
)

FEATURES: dict[Event, tuple[Feature, ...]] = {
    Event.MOVE: MOVE,
    Event.DIVIDE: DIVIDE,
    Event.APPEAR: LONE,
    Event.DISAPPEAR: LONE,
    Event.SPLIT: PARTS,
    Event.MERGE: PARTS,
    Event.GAP: (),  # scored by `lineage.gaps`
    Event.FALSE_END: FALSE,
    Event.FALSE_BEGIN: FALSE,
}


def features_of(event: Event, groups: Iterable[str]) -> list[Feature]:
    """List the features of an event that a movie allows.

    Parameters
    ----------
    event : Event
    groups : iterable of str
        Groups of measurements that the movie has; see `GROUPS` in `detections.py`.

    Returns
    -------
    list of Feature
        Those of the user's columns come last.
    """
    available = set(groups)
    if event in END_OF_FALSE and FALSE_DETECTIONS not in available:
        return []
    measured = [
        feature
        for feature in FEATURES[event]
        if available.issuperset(feature.needs.split())
    ]
    return [*measured, *column_features_of(event, available)]


def feature_names(groups: Iterable[str]) -> list[str]:
    """List the names of all features that a movie allows.

    Parameters
    ----------
    groups : iterable of str
        Groups of measurements that the movie has.

    Returns
    -------
    list of str
        Such as "divide: angle of the daughters", in the order of the weights.
    """
    available = set(groups)
    return [
        f"{event}: {feature.name}"
        for event in Event
        for feature in features_of(event, available)
    ]


def compute_features(view: View, features: Sequence[Feature]) -> Array:
    """Compute the features of the candidates of a view.

    Parameters
    ----------
    view : View
        Of n candidates of one kind.
    features : sequence of Feature
        As from `features_of`.

    Returns
    -------
    ndarray of shape (n, d)
    """
    block = np.empty((len(view), len(features)))
    for column, feature in enumerate(features):
        block[:, column] = feature.compute(view)
    return np.clip(block, -MAX_VALUE, MAX_VALUE, out=block)


def compute_feature_blocks(
    candidates: Candidates,
    source: Detections,
    target: Detections,
    overlap: Overlap,
    scales: Scales,
    groups: Iterable[str],
    links: Links | None = None,
) -> dict[Event, Array]:
    """Compute the features of the candidates between two frames.

    They take 2 kB for each cell of a frame, and 5.5 kB while they are computed: 270 MB
    for 50,000 cells.

    Parameters
    ----------
    candidates : Candidates
    source, target : Detections
        The two frames, the first moved by the flow.
    overlap : Overlap
        Of their masks.
    scales : Scales
        Of the movie.
    groups : iterable of str
        Groups of measurements that the movie has.
    links : Links, optional
        Numbers of pairs of cells, if groups name any.

    Returns
    -------
    dict of Event to ndarray of shape (n_event, d_event)
        In the order of the candidates. Gaps, which are not events of one frame pair,
        have no rows.
    """
    available = set(groups)
    frames = Cells(source, scales), Cells(target, scales)
    shared = SharedVolumes(overlap, len(source), len(target), scales, links)
    blocks = {Event.GAP: np.empty((0, 0))}
    for event in CANDIDATE_KINDS:
        view = _view_candidates(
            event, candidates, candidates.of_event(event), frames, shared
        )
        blocks[event] = compute_features(view, features_of(event, available))
    return blocks


def _view_candidates(
    event: Event,
    candidates: Candidates,
    rows: slice,
    frames: tuple[Cells, Cells],
    shared: SharedVolumes,
) -> View:
    """View the candidates in some rows, all of one event."""
    before, after = frames
    sources = candidates.sources[rows]
    targets = candidates.targets[rows]
    source = CellSelection(before, sources[:, 0])
    target = CellSelection(after, targets[:, 0])
    if event is Event.MOVE:
        return MoveView(source, target, shared)
    if event in (Event.APPEAR, Event.FALSE_BEGIN):
        return LoneView(target, before, shared.of_target)
    if event in (Event.DISAPPEAR, Event.FALSE_END):
        return LoneView(source, after, shared.of_source)
    if event is Event.MERGE:
        other = CellSelection(before, sources[:, 1])
        return FamilyView(target, source, other, shared, whole_is_source=False)
    other = CellSelection(after, targets[:, 1])
    return FamilyView(source, target, other, shared, whole_is_source=True)


def assemble_matrix(blocks: Mapping[Event, Array]) -> Any:
    """Assemble the blocks of all events to one matrix.

    Parameters
    ----------
    blocks : mapping of Event to ndarray of shape (n_event, d_event)
        As from `compute_feature_blocks`.

    Returns
    -------
    csr_array of shape (n, d)
        The features of an event are 0 in the rows of other events.
    """
    widths = [blocks[event].shape[1] for event in Event]
    first_column = np.cumsum([0, *widths])
    row_lengths = []
    columns = []
    for event in Event:
        n = len(blocks[event])
        block_columns = np.arange(first_column[event], first_column[event + 1])
        row_lengths.append(np.full(n, widths[event]))
        columns.append(np.tile(block_columns.astype(np.int32), n))
    data = np.concatenate([blocks[event].ravel() for event in Event])
    indptr = np.append(0, np.cumsum(np.concatenate(row_lengths))).astype(np.int32)
    shape = (len(indptr) - 1, int(first_column[-1]))
    return sp.csr_array((data, np.concatenate(columns), indptr), shape=shape)


Compute = Callable[[str, Any], Array]
"""Takes a group and a view of n candidates, returns (n,) values."""


def _lone_value(group: str, lone: LoneView) -> Array:
    return lone.cell.get_column(group)


def _move_mean(group: str, move: MoveView) -> Array:
    return (move.source.get_column(group) + move.target.get_column(group)) / 2


def _move_change(group: str, move: MoveView) -> Array:
    return np.abs(move.source.get_column(group) - move.target.get_column(group))


def _whole_value(group: str, family: FamilyView) -> Array:
    return family.whole.get_column(group)


def _parts_mean(group: str, family: FamilyView) -> Array:
    return (family.first.get_column(group) + family.second.get_column(group)) / 2


def _parts_difference(group: str, family: FamilyView) -> Array:
    return np.abs(family.first.get_column(group) - family.second.get_column(group))


def _family_change(group: str, family: FamilyView) -> Array:
    return np.abs(_whole_value(group, family) - _parts_mean(group, family))


def _move_link(group: str, move: MoveView) -> Array:
    return move.link_values(group)[0]


def _move_unlinked(group: str, move: MoveView) -> Array:
    return 1.0 - move.link_values(group)[1]


def _mean_link(group: str, family: FamilyView) -> Array:
    first, second = family.link_values(group)
    return (first[0] + second[0]) / 2


def _lower_link(group: str, family: FamilyView) -> Array:
    first, second = family.link_values(group)
    return np.minimum(first[0], second[0])


def _family_unlinked(group: str, family: FamilyView) -> Array:
    first, second = family.link_values(group)
    return 1.0 - (first[1] + second[1]) / 2


CELL_COLUMNS: dict[Event, tuple[tuple[str, Compute], ...]] = {
    Event.MOVE: (("{}", _move_mean), ("change of {}", _move_change)),
    Event.DIVIDE: (
        ("{} of the mother", _whole_value),
        ("{} of the daughters", _parts_mean),
        ("unevenness of {}", _parts_difference),
        ("change of {}", _family_change),
    ),
    Event.APPEAR: (("{}", _lone_value),),
    Event.DISAPPEAR: (("{}", _lone_value),),
    Event.FALSE_END: (("{}", _lone_value),),
    Event.FALSE_BEGIN: (("{}", _lone_value),),
    Event.SPLIT: (("change of {}", _family_change),),
    Event.MERGE: (("change of {}", _family_change),),
}
_FAMILY_LINKS = (
    ("{}", _mean_link),
    ("lower {}", _lower_link),
    ("{} missing", _family_unlinked),
)
LINK_COLUMNS: dict[Event, tuple[tuple[str, Compute], ...]] = {
    Event.MOVE: (("{}", _move_link), ("{} missing", _move_unlinked)),
    Event.DIVIDE: _FAMILY_LINKS,
    Event.SPLIT: _FAMILY_LINKS,
    Event.MERGE: _FAMILY_LINKS,
}


def column_features_of(event: Event, groups: Iterable[str]) -> list[Feature]:
    """List the features of an event that are made of the columns of a user.

    Parameters
    ----------
    event : Event
    groups : iterable of str
        Groups of measurements; others than columns are ignored.

    Returns
    -------
    list of Feature
        By the names of the columns.
    """
    features = []
    for group in sorted(filter(is_user_group, groups)):
        table = CELL_COLUMNS if group.startswith(CELL_PREFIX) else LINK_COLUMNS
        features += [
            Feature(name.format(group), partial(compute, group))
            for name, compute in table.get(event, ())
        ]
    return features
