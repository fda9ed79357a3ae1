"""Learned trackers in files. `clew.load` reads them too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.candidates.candidates import MAX_NEIGHBOURS
from clew.tracking.candidates.features import feature_names
from clew.tracking.events import BY_NAME, Event
from clew.tracking.profile import LEVELS, TrainingRange, parse_events
from clew.tracking.tracker import Origin, Tracker
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import weights_by_name
from clew.tracking.user_columns import Standard
from clew.utils import storage
from clew.utils.parameters import check_fitted

KIND = "tracker"
WEIGHTS, PRIOR = "tracker.weights", "tracker.prior"
"""Arrays beside those of the learner: (d,) each."""


def save_tracker(tracker: Tracker, path: str | Path) -> None:
    """Write a fitted tracker to one file: weights, features, settings, its prior and the learner's certificate."""
    check_fitted(tracker, "coef_")
    meta: Any = None
    arrays: dict[str, Any] = {}
    if hasattr(tracker, "svm_"):
        from clew.estimators import persistence

        meta, arrays = persistence.pack_estimator(tracker.svm_)
    arrays = arrays | {WEIGHTS: np.asarray(tracker.coef_, dtype=float)}
    prior: Any = tracker.prior
    prior_numbers = None
    if isinstance(prior, Tracker):
        prior_numbers = _numbers(prior.calibration_)
        arrays[PRIOR], prior = weights_by_name(prior, tracker.feature_names_), "tracker"
    algorithm = tracker.algorithm
    own = {
        "neighbours": tracker.neighbours,
        "reach": tracker.reach,
        "prior": prior,
        "groups": sorted(tracker.groups_),
        "standards": {
            name: list(tracker.standards_[name]) for name in tracker.standards_
        },
        "algorithm": algorithm if isinstance(algorithm, str) else asdict(algorithm),
        "features": tracker.feature_names_,
        "n_annotated": tracker.n_annotated_,
        "n_pairs": tracker.n_pairs_,
        "origin": str(tracker.origin_),
        "events": _named(tracker.events),
        "learned_events": _named(tracker.events_),
        "calibration": _numbers(tracker.calibration_),
        "prior_calibration": prior_numbers,
        "domain": {
            name: list(values) for name, values in tracker.domain_.quantiles.items()
        },
    }
    storage.write_document(path, KIND, {"learner": meta, "tracker": own}, arrays)


def load_tracker(path: str | Path) -> Tracker:
    """Read a tracker; a file of another kind is refused."""
    return _unpack(path, storage.read_document(path, KIND))


def _unpack(path: str | Path, document: storage.Document) -> Tracker:
    """The inverse of what `save` does; `path` is for messages."""
    from clew.learning.algorithm import Algorithm

    with storage.wrap_content_errors(path):
        own, arrays = document.meta["tracker"], document.arrays
        learner, weights = document.meta["learner"], arrays[WEIGHTS]
        groups, names, prior = (
            frozenset(own["groups"]),
            [str(name) for name in own["features"]],
            own["prior"],
        )
        algorithm = own["algorithm"]  # the learner's own has several starts
        tracker = Tracker(
            neighbours=own["neighbours"],
            reach=own["reach"],
            events=own["events"],
            algorithm=algorithm
            if isinstance(algorithm, str)
            else Algorithm(**algorithm),
        )
        tracker.n_annotated_, tracker.n_pairs_ = (
            int(own["n_annotated"]),
            int(own["n_pairs"]),
        )
        tracker.origin_ = _origin(own, learner)
        tracker.events_ = frozenset(BY_NAME[name] for name in own["learned_events"])
        tracker.calibration_ = _calibration(own.get("calibration"))
        tracker.domain_ = TrainingRange(
            {name: [*map(float, own["domain"][name])] for name in own.get("domain", {})}
        )
        tracker.standards_ = {
            name: Standard(*map(float, numbers))
            for name, numbers in own.get("standards", {}).items()
        }
        parse_events(tracker.events)
        tracker.prior = prior
        if prior not in ("generic", None):
            tracker.prior = _with_weights(Tracker(), groups, names, arrays[PRIOR])
            tracker.prior.calibration_ = _calibration(own.get("prior_calibration"))
            tracker.prior.standards_ = tracker.standards_
    known = feature_names(groups)
    # Older files have weights of gaps, which are not scored by these weights any more.
    is_kept = [not name.startswith(f"{Event.GAP}:") for name in names]
    names = [name for name, kept in zip(names, is_kept, strict=True) if kept]
    if weights.shape == (len(is_kept),):
        weights = weights[is_kept]
    if len(weights) == len(names) and names == [n for n in known if n in set(names)]:
        # of a clew that knew fewer features: new ones weigh nothing
        by_name = dict(zip(names, weights.tolist(), strict=True))
        names, weights = known, np.array([by_name.get(name, 0.0) for name in known])
    _check_features(path, names, known)
    _check_values(path, tracker, weights, len(names))
    if learner is not None:
        from clew.estimators import persistence

        svm = persistence.unpack_estimator(path, learner, arrays)
        tracker.set_params(loss=svm.loss, lam=svm.lam, regulariser=svm.regulariser)
        tracker.svm_, tracker.result_, tracker.lam_ = svm, svm.result_, svm.lam_
    return _with_weights(tracker, groups, names, weights)


def _calibration(numbers: list[float] | None) -> Calibration:
    """From what `_numbers` gave; the generic one for files that lack it, or know fewer kinds of events.

    Older files end with the spread: their probabilities follow from kinds and margins alone. Some know no torn masks, or no swaps.
    """
    if numbers is None or len(numbers) not in (
        len(Event) + 2,
        len(Event) + 5,
        len(Event) + 6,
        len(Event) + 8,
    ):
        return GENERIC_CALIBRATION
    slope, *intercept = map(float, numbers[: len(Event) + 1])
    spread, *further = map(float, numbers[len(Event) + 1 :])
    if not spread > 0:
        raise InputError(
            f"the spread of the calibration is {spread}; expected a positive number"
        )
    return Calibration(slope, np.array(intercept), spread, *further)


def _numbers(calibration: Calibration) -> list[float]:
    """Slope, the intercept of each kind of event, spread, and what counts besides the margin."""
    further = [
        calibration.growth,
        calibration.share,
        calibration.border,
        calibration.torn,
        calibration.swap,
        calibration.clearness,
    ]
    return [
        calibration.slope,
        *calibration.intercept.tolist(),
        calibration.spread,
        *further,
    ]


def _named(events: str | Iterable[str | Event]) -> str | list[str]:
    """Kinds of events by their names."""
    return events if isinstance(events, str) else sorted(str(event) for event in events)


def _check_values(path: str | Path, tracker: Tracker, weights: Array, n: int) -> None:
    """Refuse settings and weights with which nothing could be tracked: a checksum says nothing about sense."""
    if weights.shape != (n,) or not np.isfinite(weights).all():
        raise InputError(
            f"{path}: has weights of shape {weights.shape}; expected {n} finite ones, one a feature"
        )
    for name, known in tracker.domain_.quantiles.items():
        if (
            len(known) != len(LEVELS)
            or not np.isfinite(known).all()
            or np.any(np.diff(known) < 0)
        ):
            raise InputError(
                f"{path}: has quantiles {known} of {name!r}; expected {len(LEVELS)} ascending numbers"
            )
    neighbours, reach = tracker.neighbours, tracker.reach
    if not isinstance(neighbours, int) or not 1 <= neighbours <= MAX_NEIGHBOURS:
        raise InputError(
            f"{path}: has neighbours {neighbours!r}; expected a whole number from 1 to {MAX_NEIGHBOURS}"
        )
    if reach is not None and not (
        isinstance(reach, int | float) and 0 < reach < np.inf
    ):
        raise InputError(
            f"{path}: has reach {reach!r}; expected a positive length, or none"
        )


def _origin(own: dict[str, Any], learner: Any) -> Origin:
    """Where the weights come from; in files of clew 0.1 it follows from the other fields."""
    if "origin" in own:
        return Origin(own["origin"])
    if learner is not None:
        return Origin.LEARNED
    return Origin.ADAPTED if own["n_annotated"] else Origin.GENERIC


def _with_weights(
    tracker: Tracker, groups: frozenset[str], names: list[str], weights: Array
) -> Tracker:
    tracker.groups_, tracker.feature_names_, tracker.coef_ = groups, names, weights
    return tracker


def describe(path: str | Path) -> dict[str, str]:
    """What a file with a tracker holds, in words."""
    document = storage.read_document(path, KIND)
    with storage.wrap_content_errors(path):
        own, learner = document.meta["tracker"], document.meta["learner"]
        learned = _origin(own, learner).describe(own["n_annotated"], own["n_pairs"])
        measured = ", ".join(own["groups"])
        reach = (
            "estimated from each movie" if own["reach"] is None else f"{own['reach']:g}"
        )
        settings = {
            "weights": str(len(own["features"])),
            "algorithm": str(own["algorithm"]),
        }
    about = {}
    if learner:
        from clew.estimators import persistence

        about = persistence.describe_estimator(path, learner, document.arrays)
    return (
        {
            "holds": "the weights of a tracker",
            "learned from": learned,
            "measurements": measured,
            "reach": reach,
        }
        | {
            key: value
            for key, value in about.items()
            if key not in ("estimator", "model", "examples")
        }
        | (settings if learner else {"weights": settings["weights"]})
        | {"written by": f"clew {document.clew_version}"}
    )


def _check_features(path: str | Path, stored: list[str], known: list[str]) -> None:
    """Refuse weights for features that this clew does not compute, naming the difference."""
    if stored == known:
        return
    gone = [name for name in stored if name not in known]
    new = [name for name in known if name not in stored]
    parts = [
        f"{what} {', '.join(map(repr, names[:3]))}{' …' if len(names) > 3 else ''}"
        for what, names in (("has weights for", gone), ("lacks weights for", new))
        if names
    ]
    difference = " and ".join(parts) or "has them in another order"
    raise InputError(
        f"{path}: the weights are for other features than this clew computes: it {difference}; train anew"
    )
