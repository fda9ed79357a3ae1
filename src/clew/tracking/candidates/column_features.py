"""Features of the columns of a user: standardized numbers of cells and of links."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clew.learning.task import Array
from clew.tracking.candidates.event_views import FamilyView, LoneView, MoveView
from clew.tracking.events import Event
from clew.tracking.user_columns import CELL_PREFIX, is_user_group

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


OF_CELLS: dict[Event, tuple[tuple[str, Compute], ...]] = {
    Event.MOVE: (("{}", _move_mean), ("change of {}", _move_change)),
    Event.DIVIDE: (
        ("{} of the mother", _whole_value),
        ("{} of the daughters", _parts_mean),
        ("unevenness of {}", _parts_difference),
        ("change of {}", _family_change),
    ),
    Event.APPEAR: (("{}", _lone_value),),
    Event.DISAPPEAR: (("{}", _lone_value),),
    Event.SPLIT: (("change of {}", _family_change),),
    Event.MERGE: (("change of {}", _family_change),),
}
_OF_FAMILY = (
    ("{}", _mean_link),
    ("lower {}", _lower_link),
    ("{} missing", _family_unlinked),
)
OF_LINKS: dict[Event, tuple[tuple[str, Compute], ...]] = {
    Event.MOVE: (("{}", _move_link), ("{} missing", _move_unlinked)),
    Event.DIVIDE: _OF_FAMILY,
    Event.SPLIT: _OF_FAMILY,
    Event.MERGE: _OF_FAMILY,
}


class ColumnFeature(NamedTuple):
    """A feature of a column, as `features.Feature` is one of a measurement."""

    name: str
    compute: Callable[[Any], Array]
    needs: str


def column_features_of(event: Event, groups: Iterable[str]) -> list[ColumnFeature]:
    """List the features of an event that are made of the columns of a user.

    Parameters
    ----------
    event : Event
    groups : iterable of str
        Groups of measurements; others than columns are ignored.

    Returns
    -------
    list of ColumnFeature
        By the names of the columns.
    """
    features = []
    for group in sorted(filter(is_user_group, groups)):
        table = OF_CELLS if group.startswith(CELL_PREFIX) else OF_LINKS
        features += [
            ColumnFeature(name.format(group), partial(compute, group), group)
            for name, compute in table.get(event, ())
        ]
    return features
