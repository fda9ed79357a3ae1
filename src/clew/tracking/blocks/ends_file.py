"""The loose ends of a block's frame pairs as plain arrays and back, so that gaps can be closed later, out of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.tracking.detections import Detections
from clew.tracking.events import Event, EventTable
from clew.tracking.linking.gaps import Change
from clew.tracking.measurement.scales import Scales
from clew.tracking.model.features import features_of
from clew.tracking.model.loose_ends import Ends, LooseEnds, Surroundings

Pairs = Sequence[tuple[int, LooseEnds]]
Arrays = dict[str, NDArray[Any]]
SIDES = {"gone": Event.DISAPPEAR, "back": Event.APPEAR}
TABLE = ("frame", "event", "sources", "targets")


def packed(pairs: Pairs) -> tuple[dict[str, Any], Arrays]:
    """What is plain of (frame, ends) of pairs, and arrays; both empty where there are none."""
    if not pairs:
        return {}, {}
    some = pairs[0][1]
    arrays: Arrays = {"ends.frame": np.array([frame for frame, _ in pairs]), "ends.weights": some.weights}
    for side in SIDES:
        every: list[Ends] = [getattr(ends, side) for _, ends in pairs]
        arrays |= {f"ends.{side}.{name}": array for name, array in _side(every).items()}
    around = some.around
    about = {"scales": around.scales.as_dict(), "reach": around.reach, "groups": sorted(around.groups)}
    return about, arrays


def unpacked(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[tuple[int, LooseEnds]]:
    """What `packed` was given."""
    if not about:
        return []
    groups = frozenset(about["groups"])
    around = Surroundings(None, Scales.from_dict(about["scales"]), float(about["reach"]), groups, {})
    sides = [
        _ends({n.removeprefix(f"ends.{side}."): a for n, a in arrays.items() if n.startswith(f"ends.{side}.")},
              [feature.name for feature in features_of(event, groups)])
        for side, event in SIDES.items()
    ]  # fmt: skip
    frames = arrays["ends.frame"].tolist()
    weights = arrays["ends.weights"]
    return [(frame, LooseEnds(gone, back, weights, around)) for frame, gone, back in zip(frames, *sides, strict=True)]


def _side(every: Sequence[Ends]) -> Arrays:
    """One side of all pairs, one after the other."""
    changes = [(k, label, change) for k, ends in enumerate(every) for label, change in ends.changes.items()]
    arrays: Arrays = {
        "count": np.array([len(ends) for ends in every]),
        "at": np.array([ends.cells.frame for ends in every]),
        "label": np.concatenate([ends.cells.label for ends in every]),
        "position": np.concatenate([ends.cells.position for ends in every]),
        "cost": np.concatenate([ends.cost for ends in every]),
        "alone": np.concatenate([np.column_stack([np.zeros((len(e), 0)), *e.alone.values()]) for e in every]),
        "changed": np.array([(k, label) for k, label, _ in changes], dtype=np.int64).reshape(-1, 2),
    }
    for name in every[0].cells.columns:
        arrays[f"column.{name}"] = np.concatenate([ends.cells.columns[name] for ends in every])
    for name in ("went", "came"):
        tables: list[EventTable] = [getattr(change, name) for *_, change in changes]
        arrays[f"{name}.count"] = np.array([len(table) for table in tables], dtype=np.int64)
        whole = EventTable.join(tables)
        arrays |= {f"{name}.{column}": getattr(whole, column) for column in TABLE}
    return arrays


def _ends(arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> list[Ends]:
    """The ends of each pair; `names` are those of their features."""
    limits = np.append(0, np.cumsum(arrays["count"]))
    changes: list[dict[int, Change]] = [{} for _ in arrays["count"]]
    tables = {}
    for name in ("went", "came"):
        whole = EventTable(*(arrays[f"{name}.{column}"] for column in TABLE))
        at = np.append(0, np.cumsum(arrays[f"{name}.count"])).astype(int)
        tables[name] = [whole[a:b] for a, b in pairwise(at)]
    for (k, label), went, came in zip(arrays["changed"].tolist(), tables["went"], tables["came"], strict=True):
        changes[k][label] = Change(went, came)
    found = []
    for k, (begin, end) in enumerate(pairwise(limits)):
        rows = slice(begin, end)
        columns = {n.removeprefix("column."): a[rows] for n, a in arrays.items() if n.startswith("column.")}
        cells = Detections(int(arrays["at"][k]), arrays["label"][rows], arrays["position"][rows], columns)
        alone = dict(zip(names, arrays["alone"][rows].T, strict=True))
        found.append(Ends(cells, alone, arrays["cost"][rows], changes[k]))
    return found
