"""What candidate events look like: a block of features for each kind of event, each with a bias.

All are dimensionless and of order 1, since one regulariser treats all weights alike. A feature whose measurements a
movie does not have drops out of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from clew.learning.task import Array
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.event_views import (
    Cells,
    Family,
    Gap,
    Lone,
    Pair,
    Shared,
    total,
)
from clew.tracking.detections import Detections, Overlap
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.profiling.scales import Scales

LARGEST = 5.0
"""Values beyond are cut off; distances approach it and never get there, so that a farther cell always looks farther."""
NEAR_BORDER = 3.0
"""In diameters: beyond, the border does not matter."""

View = TypeVar("View", Pair, Family, Lone, Gap)


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of an event's block."""

    name: str
    needs: frozenset[str]
    """The groups of measurements that it is computed from."""
    of: Callable[[Any], Array]
    """(n,) its values for a view of n candidates."""


def _feature(name: str, needs: str, of: Callable[[Any], Array]) -> Feature:
    return Feature(name, frozenset(needs.split()), of)


def unlike(pair: tuple[Array, Array]) -> Array:
    """(n,) by which share the smaller of two positive columns falls short of the larger: 0 if they are alike."""
    return 1 - np.minimum(*pair) / np.maximum(*pair)


def far(distance: Array) -> Array:
    """(n,) a distance in diameters, shortened: 1 becomes 0.83, 5 becomes 2.5."""
    return distance / (1 + distance / LARGEST)


def not_adding_up(view: Family, name: str) -> Array:
    """(n,) how unlike the whole is to what the parts have together."""
    return unlike((total(view.of_parts(name)), view.of_whole(name)))


def difference(pair: tuple[Array, Array]) -> Array:
    """(n,) mean absolute difference of two columns; of sorted quantiles it is the earth mover's distance."""
    gap = np.abs(pair[0] - pair[1])
    return gap if gap.ndim == 1 else gap.mean(axis=1)


def one_minus_iou(common: Array, volume: Array, other: Array) -> Array:
    """(n,) how little of two masks' union they share."""
    return 1 - common / np.maximum(volume + other - common, common + 1e-12)


def _bias(view: View) -> Array:
    return np.ones(len(view))


def _uncovered_part(view: Family) -> Array:
    """(n,) of the part that the whole covers least, the share that it does not."""
    shares = [
        common / size
        for common, size in zip(view.common, view.of_parts("size"), strict=True)
    ]
    return 1 - np.minimum(*shares)


def _uncovered(view: Lone) -> Array:
    """(n,) the share of a cell's mask that no mask of the other frame covers."""
    return 1 - np.minimum(view.covered / view.its("size"), 1)


def _leaving(view: Lone) -> Array:
    """(n,) how much a cell is on the border; where its place is taken in the other frame, it hardly left or entered."""
    return np.minimum(view.its("border_share"), 1) * _uncovered(view)


def _together(view: Family) -> Array:
    return one_minus_iou(
        total(view.common), view.of_whole("size"), total(view.of_parts("size"))
    )


MOVE = (
    _feature("bias", "", _bias),
    _feature("distance", "", lambda v: far(v.distance)),
    _feature("distance in usual steps", "", lambda v: np.log1p(v.distance / v.step)),
    _feature(
        "overlap missing",
        "size overlap",
        lambda v: one_minus_iou(v.common, *v.both("size")),
    ),
    _feature(
        "smaller mask uncovered",
        "size overlap",
        lambda v: 1 - v.common / np.minimum(*v.both("size")),
    ),
    _feature("change of volume", "size", lambda v: unlike(v.both("size"))),
    _feature(
        "change of brightness", "intensity", lambda v: unlike(v.both("brightness"))
    ),
    _feature("change of mass", "size intensity", lambda v: unlike(v.both("mass"))),
    _feature(
        "change of histogram",
        "histogram intensity",
        lambda v: difference(v.both("quantiles")),
    ),
    _feature(
        "change of texture",
        "histogram intensity",
        lambda v: difference(v.both("deviation")),
    ),
    _feature("change of shape", "shape", lambda v: 4 * difference(v.both("axes"))),
    _feature("change of direction", "direction", lambda v: v.turn),
)

DIVIDE = (
    _feature("bias", "", _bias),
    _feature("distance of the nearer daughter", "", lambda v: far(v.distances[0])),
    _feature("distance of the farther daughter", "", lambda v: far(v.distances[1])),
    _feature("distance of the daughters' middle", "", lambda v: far(v.centre_distance)),
    _feature("angle of the daughters", "", lambda v: 1 + v.cosine),
    _feature("unevenness of volume", "size", lambda v: unlike(v.of_parts("size"))),
    _feature("change of volume", "size", lambda v: not_adding_up(v, "size")),
    _feature("size of the mother", "size", lambda v: np.log(v.of_whole("size"))),
    _feature(
        "size of the daughters", "size", lambda v: np.log(total(v.of_parts("size")) / 2)
    ),
    _feature(
        "brightness of the mother",
        "intensity",
        lambda v: np.log(v.of_whole("brightness")),
    ),
    _feature(
        "brightness of the daughters",
        "intensity",
        lambda v: np.log(total(v.of_parts("brightness")) / 2),
    ),
    _feature(
        "unevenness of brightness",
        "intensity",
        lambda v: unlike(v.of_parts("brightness")),
    ),
    _feature("change of mass", "size intensity", lambda v: not_adding_up(v, "mass")),
    _feature(
        "eccentricity of the mother", "shape", lambda v: v.of_whole("eccentricity")
    ),
    _feature("compactness of the daughters", "size shape", lambda v: v.compactness),
    _feature("overlap missing", "size overlap", _together),
    _feature("daughter uncovered", "size overlap", _uncovered_part),
    _feature(
        "daughters off the mother's halves", "direction", lambda v: far(v.off_halves)
    ),
    _feature("daughters beside the mother's axis", "direction", lambda v: v.across),
    _feature("change of direction", "direction", lambda v: v.bend),
    _feature("change of length", "direction", lambda v: not_adding_up(v, "length")),
)


PARTS = (  # splits and merges are each other's mirror image
    _feature("bias", "", _bias),
    _feature("distance of the farther part", "", lambda v: far(v.distances[1])),
    _feature("distance of the parts' middle", "", lambda v: far(v.centre_distance)),
    _feature("change of volume", "size", lambda v: not_adding_up(v, "size")),
    _feature("change of mass", "size intensity", lambda v: not_adding_up(v, "mass")),
    _feature("compactness of the parts", "size shape", lambda v: v.compactness),
    _feature("part uncovered", "size overlap", _uncovered_part),
    _feature("overlap missing", "size overlap", _together),
    _feature("parts off the halves", "direction", lambda v: far(v.off_halves)),
    _feature("parts beside the axis", "direction", lambda v: v.across),
    _feature("change of length", "direction", lambda v: not_adding_up(v, "length")),
)

LONE = (
    _feature("bias", "", _bias),
    _feature(
        "distance to the border",
        "border",
        lambda v: np.minimum(v.its("border_distance"), NEAR_BORDER),
    ),
    _feature("uncovered on the border", "size shape overlap", _leaving),
    _feature(
        "distance to the nearest cell", "", lambda v: np.log1p(v.isolation / v.step)
    ),
    _feature("mask uncovered", "size overlap", _uncovered),
)  # size and brightness are left out: tried, and they carried over badly, for daughters look like what appears


def _at_both_ends(feature: Feature) -> Feature:
    """A feature of a cell alone as the mean of both ends of a gap: how likely cells there are to be missed."""
    return Feature(feature.name, feature.needs, lambda v: v.alone(feature.name))


GAP = (  # a move without the masks' overlap, of cells that are alone in the frame between them
    *(feature for feature in MOVE if "overlap" not in feature.needs),
    *map(_at_both_ends, LONE[1:]),
)

LONELY = (Event.APPEAR, Event.DISAPPEAR)

FEATURES: dict[Event, tuple[Feature, ...]] = {
    Event.MOVE: MOVE,
    Event.DIVIDE: DIVIDE,
    Event.APPEAR: LONE,
    Event.DISAPPEAR: LONE,
    Event.SPLIT: PARTS,
    Event.MERGE: PARTS,
    Event.GAP: GAP,
}


def features_of(event: Event, groups: Iterable[str]) -> list[Feature]:
    """The features of an event that these groups of measurements allow."""
    return [feature for feature in FEATURES[event] if feature.needs <= set(groups)]


def feature_names(groups: Iterable[str]) -> list[str]:
    """All features that these groups allow, block after block, like "divide: angle of the daughters"."""
    there = set(groups)
    return [
        f"{event}: {feature.name}"
        for event in Event
        for feature in features_of(event, there)
    ]


def feature_blocks(
    candidates: Candidates,
    a: Detections,
    b: Detections,
    overlap: Overlap,
    scales: Scales,
    groups: Iterable[str],
) -> dict[Event, Array]:
    """For each event the features (n_e, d_e) of its candidates, in the candidates' order; gaps have none here.

    They take 2 kB for each cell of a frame and 5.5 kB while they are made: 270 MB for 50,000 cells.
    """
    before, after = Cells(a, scales), Cells(b, scales)
    shared = Shared(overlap, len(a), len(b), scales)
    there = set(groups)
    blocks = {Event.GAP: np.empty((0, len(features_of(Event.GAP, there))))}
    for event in PAIRWISE:
        rows = candidates.of_event(event)
        view = _view(
            event,
            before,
            after,
            shared,
            candidates.sources[rows],
            candidates.targets[rows],
        )
        blocks[event] = feature_block(view, features_of(event, there))
    return blocks


CHUNK = 2**18
"""Candidates of one kind whose features are in memory at a time when only scores are asked for: some 60 MB."""


def event_scores(
    candidates: Candidates,
    a: Detections,
    b: Detections,
    overlap: Overlap,
    scales: Scales,
    groups: Iterable[str],
    w: Array,
) -> Array:
    """(n,) ⟨w, features⟩ of each candidate, without having the features of all of them in memory.

    A candidate's features are of its own cells and their surroundings, so that some candidates at a time are exact, to
    the last bit: a product of matrices would round differently for other sizes.
    """
    before, after = Cells(a, scales), Cells(b, scales)
    shared = Shared(overlap, len(a), len(b), scales)
    there, begin = set(groups), 0
    scores = []
    for event in PAIRWISE:
        features, rows = features_of(event, there), candidates.of_event(event)
        weights, begin = w[begin : begin + len(features)], begin + len(features)
        for first in range(rows.start, rows.stop, CHUNK):
            some = slice(first, min(first + CHUNK, rows.stop))
            view = _view(
                event,
                before,
                after,
                shared,
                candidates.sources[some],
                candidates.targets[some],
            )
            scores.append(_weighted(view, features, weights))
    return np.concatenate([np.zeros(0), *scores])


def lone_blocks(
    candidates: Candidates,
    a: Detections,
    b: Detections,
    overlap: Overlap,
    scales: Scales,
    groups: Iterable[str],
) -> dict[Event, Array]:
    """Appearances and disappearances alone: for each the features (n, d) of all cells of its frame."""
    before, after = Cells(a, scales), Cells(b, scales)
    shared = Shared(overlap, len(a), len(b), scales)
    blocks = {}
    for event in LONELY:
        rows = candidates.of_event(event)
        view = _view(
            event,
            before,
            after,
            shared,
            candidates.sources[rows],
            candidates.targets[rows],
        )
        blocks[event] = feature_block(view, features_of(event, groups))
    return blocks


def _weighted(
    view: Pair | Family | Lone, features: list[Feature], weights: Array
) -> Array:
    """(n,) ⟨weights, features⟩, one feature after the other."""
    scores = np.zeros(len(view))
    for feature, weight in zip(features, weights, strict=True):
        scores += weight * np.clip(feature.of(view), -LARGEST, LARGEST)
    return scores


def feature_block(view: Pair | Family | Lone | Gap, features: list[Feature]) -> Array:
    """(n, d) the features of some candidates of one kind."""
    block = np.empty((len(view), len(features)))
    for place, feature in enumerate(features):
        block[:, place] = feature.of(view)
    return np.clip(block, -LARGEST, LARGEST, out=block)


def _view(
    event: Event, a: Cells, b: Cells, shared: Shared, sources: Any, targets: Any
) -> Pair | Family | Lone:
    """The candidates of one event with what its features ask for."""
    match event:
        case Event.MOVE:
            return Pair(a, b, shared, sources[:, 0], targets[:, 0])
        case Event.DIVIDE | Event.SPLIT:
            return Family(a, b, shared, sources[:, 0], targets, whole_is_source=True)
        case Event.MERGE:
            return Family(b, a, shared, targets[:, 0], sources, whole_is_source=False)
        case Event.APPEAR:
            return Lone(b, a, shared.of_target, targets[:, 0])
        case Event.DISAPPEAR:
            return Lone(a, b, shared.of_source, sources[:, 0])
        case Event.GAP:
            raise ValueError("a gap is no event of one frame pair, see model/gaps.py")


def assemble(blocks: Mapping[Event, Array]) -> Any:
    """(n, d) the blocks as one CSR matrix: each event has columns of its own."""
    widths = [blocks[event].shape[1] for event in Event]
    begins = np.cumsum([0, *widths])
    rows = np.concatenate(
        [np.full(len(blocks[event]), widths[event]) for event in Event]
    )
    indices = np.concatenate(
        [
            np.tile(
                np.arange(begins[event], begins[event + 1], dtype=np.int32),
                len(blocks[event]),
            )
            for event in Event
        ]
    )
    data = np.concatenate([blocks[event].ravel() for event in Event])
    return sp.csr_array(
        (data, indices, np.append(0, np.cumsum(rows)).astype(np.int32)),
        shape=(len(rows), int(begins[-1])),
    )


def event_features(
    candidates: Candidates,
    a: Detections,
    b: Detections,
    overlap: Overlap,
    scales: Scales,
    groups: Iterable[str],
) -> Any:
    """(n, d) the features of all candidates between two frames, a CSR matrix with the columns of `feature_names`."""
    return assemble(feature_blocks(candidates, a, b, overlap, scales, groups))
