"""Learned trackers in files, and `load` for whatever clew wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from clew import archive, persist
from clew.errors import InputError
from clew.tracking.features import feature_names
from clew.tracking.tracker import Tracker

KIND = "tracker"
OWN_PARAMS = ("neighbours", "reach", "lam", "regulariser", "random_state")
"""Parameters that are kept; loss and algorithm are those of the learner inside."""


def save(tracker: Tracker, path: str | Path) -> None:
    """Write a fitted tracker to one file: weights, features, settings and the learner's certificate."""
    check_is_fitted(tracker, "coef_")
    meta, arrays = archive.pack(tracker.svm_)
    own = {
        "neighbours": tracker.neighbours, "reach": tracker.reach, "groups": sorted(tracker.groups_),
        "features": tracker.feature_names_, "n_annotated": tracker.n_annotated_, "n_pairs": tracker.n_pairs_,
    }  # fmt: skip
    persist.write(path, KIND, {"learner": meta, "tracker": own}, arrays)


def load(path: str | Path, model: Any = None) -> Any:
    """Read what clew's `save` wrote: a `Tracker`, `StructuredSVM` or `StructuredPerceptron`.

    `model` is needed where the file was made with a model of your own.
    """
    document = persist.read(path)
    if document.kind != KIND:
        return archive.load(path, model)
    svm = archive.unpack(path, document.meta["learner"], document.arrays)
    with archive.reading(path):
        own = document.meta["tracker"]
        groups, names = frozenset(own["groups"]), list(own["features"])
        tracker = Tracker(
            neighbours=own["neighbours"], reach=own["reach"], loss=svm.loss, lam=svm.lam,
            regulariser=svm.regulariser, algorithm=svm.algorithm,
        )  # fmt: skip
        tracker.n_annotated_, tracker.n_pairs_ = int(own["n_annotated"]), int(own["n_pairs"])
    _check_features(path, names, feature_names(groups))
    tracker.svm_, tracker.groups_, tracker.feature_names_ = svm, groups, names
    tracker.coef_, tracker.result_, tracker.lam_ = svm.coef_, svm.result_, svm.lam_
    if len(tracker.coef_) != len(names):
        raise InputError(f"{path}: it has {len(tracker.coef_)} weights for {len(names)} features")
    return tracker


def load_tracker(path: str | Path) -> Tracker:
    """Read a tracker; a file of another kind is refused."""
    persist.read(path, KIND)
    tracker: Tracker = load(path)
    return tracker


def describe(path: str | Path) -> dict[str, str]:
    """What a file of any kind holds, in words."""
    document = persist.read(path)
    if document.kind != KIND:
        return archive.describe(path)
    about = archive.describe_packed(path, document.meta["learner"], document.arrays)
    with archive.reading(path):
        own = document.meta["tracker"]
        learned = f"{own['n_annotated']} annotated events in {own['n_pairs']} frame pairs"
        measured = ", ".join(own["groups"])
        reach = "estimated from each movie" if own["reach"] is None else f"{own['reach']:g}"
    about.pop("model", None)
    return (
        {"holds": "the weights of a tracker", "learned from": learned, "measurements": measured, "reach": reach}
        | {key: value for key, value in about.items() if key not in ("estimator", "examples")}
        | {"written by": f"clew {document.clew_version}"}
    )


def _check_features(path: str | Path, stored: list[str], known: list[str]) -> None:
    """Refuse weights for features that this clew does not compute, naming the difference."""
    if stored == known:
        return
    gone = [name for name in stored if name not in known]
    new = [name for name in known if name not in stored]
    parts = [f"{what} {', '.join(map(repr, names[:3]))}{' …' if len(names) > 3 else ''}"
             for what, names in (("has weights for", gone), ("lacks weights for", new)) if names]  # fmt: skip
    difference = " and ".join(parts) or "has them in another order"
    raise InputError(f"{path}: the weights are for other features than this clew computes: it {difference}; train anew")
