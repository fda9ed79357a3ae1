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
from clew.tracking.events import BY_NAME, END_OF_FALSE, LINEAGE_KINDS, Event
from clew.tracking.profile import LEVELS, TrainingRange, parse_events
from clew.tracking.tracker import Origin, Tracker
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import weights_by_name
from clew.tracking.user_columns import Standard
from clew.utils import storage
from clew.utils.parameters import check_fitted
from clew.utils.validation import is_number

KIND = "tracker"
WEIGHTS = "tracker.weights"
PRIOR = "tracker.prior"
"""Names of arrays beside those of the learner: (d,) each."""
CALIBRATION_TERMS = ("growth", "share", "border", "torn", "swap", "clearness")
"""Fields of a calibration after slope, intercepts and spread."""
CALIBRATION_TERM_COUNTS = (0, 3, 4, 6)
"""Numbers of terms in files of this and of older versions."""
OF_MODEL = ("estimator", "model", "examples")
"""What the description of a learner has that says nothing about a tracker."""


def save_tracker(tracker: Tracker, path: str | Path) -> None:
    """Write a fitted tracker to a file.

    The file has the weights and their features, the settings, the prior, and the
    learner with its certificate.
    """
    check_fitted(tracker, "coef_")
    learner: Any = None
    arrays: dict[str, Any] = {}
    if hasattr(tracker, "svm_"):
        from clew.estimators import persistence

        learner, arrays = persistence.pack_estimator(tracker.svm_)
    arrays = arrays | {WEIGHTS: np.asarray(tracker.coef_, dtype=float)}
    prior: Any = tracker.prior
    prior_calibration = None
    if isinstance(prior, Tracker):
        prior_calibration = _pack_calibration(prior.calibration_)
        arrays[PRIOR] = weights_by_name(prior, tracker.feature_names_)
        prior = "tracker"
    algorithm = tracker.algorithm
    standards = tracker.standards_.items()
    quantiles = tracker.domain_.quantiles.items()
    settings = {
        "neighbours": tracker.neighbours,
        "reach": tracker.reach,
        "prior": prior,
        "groups": sorted(tracker.groups_),
        "standards": {name: list(standard) for name, standard in standards},
        "algorithm": algorithm if isinstance(algorithm, str) else asdict(algorithm),
        "features": tracker.feature_names_,
        "n_annotated": tracker.n_annotated_,
        "n_pairs": tracker.n_pairs_,
        "origin": str(tracker.origin_),
        "events": _name_events(tracker.events),
        "learned_events": _name_events(tracker.events_),
        "calibration": _pack_calibration(tracker.calibration_),
        "prior_calibration": prior_calibration,
        "domain": {name: list(values) for name, values in quantiles},
    }
    content = {"learner": learner, "tracker": settings}
    storage.write_document(path, KIND, content, arrays)


def load_tracker(path: str | Path) -> Tracker:
    """Read a tracker; a file of another kind is refused."""
    document = storage.read_document(path, KIND)
    arrays = document.arrays
    with storage.wrap_content_errors(path):
        settings = document.meta["tracker"]
        learner = document.meta["learner"]
        names = [str(name) for name in settings["features"]]
        weights = arrays[WEIGHTS]
        tracker = _restore_settings(settings, learner)
        if settings["prior"] not in ("generic", None):
            prior = Tracker()
            prior.groups_ = tracker.groups_
            prior.feature_names_ = names
            prior.coef_ = arrays[PRIOR]
            prior.calibration_ = _unpack_calibration(settings.get("prior_calibration"))
            prior.standards_ = tracker.standards_
            tracker.prior = prior
    known = feature_names(tracker.groups_)
    tracker.feature_names_, tracker.coef_ = _update_features(names, weights, known)
    _check_features(path, tracker.feature_names_, known)
    _check_values(path, tracker)
    if learner is not None:
        from clew.estimators import persistence

        svm = persistence.unpack_estimator(path, learner, arrays)
        tracker.set_params(loss=svm.loss, lam=svm.lam, regulariser=svm.regulariser)
        tracker.svm_ = svm
        tracker.result_ = svm.result_
        tracker.lam_ = svm.lam_
    return tracker


def _restore_settings(settings: dict[str, Any], learner: Any) -> Tracker:
    """Make a tracker without weights from the settings in a file."""
    from clew.learning.algorithm import Algorithm

    algorithm = settings["algorithm"]
    if not isinstance(algorithm, str):
        algorithm = Algorithm(**algorithm)
    tracker = Tracker(
        neighbours=settings["neighbours"],
        reach=settings["reach"],
        events=settings["events"],
        algorithm=algorithm,
        prior=settings["prior"],
    )
    parse_events(tracker.events)
    tracker.groups_ = frozenset(settings["groups"])
    tracker.n_annotated_ = int(settings["n_annotated"])
    tracker.n_pairs_ = int(settings["n_pairs"])
    tracker.origin_ = _find_origin(settings, learner)
    tracker.events_ = frozenset(BY_NAME[name] for name in settings["learned_events"])
    tracker.calibration_ = _unpack_calibration(settings.get("calibration"))
    domain = settings.get("domain", {})
    quantiles = {name: list(map(float, values)) for name, values in domain.items()}
    tracker.domain_ = TrainingRange(quantiles)
    tracker.standards_ = {
        name: Standard(*map(float, numbers))
        for name, numbers in settings.get("standards", {}).items()
    }
    return tracker


def _update_features(
    names: list[str], weights: Array, known: list[str]
) -> tuple[list[str], Array]:
    """Drop weights of gaps, and add features that the file does not know.

    Weights of older files score gaps, which now have weights of their movie. New
    features weigh nothing. Weights that do not fit are returned unchanged.
    """
    is_kept = [not name.startswith(f"{Event.GAP}:") for name in names]
    if weights.shape == (len(names),):
        weights = weights[is_kept]
    names = [name for name, kept in zip(names, is_kept, strict=True) if kept]
    is_subset = names == [name for name in known if name in set(names)]
    if len(weights) != len(names) or not is_subset:
        return names, weights
    by_name = dict(zip(names, weights.tolist(), strict=True))
    return known, np.array([by_name.get(name, 0.0) for name in known])


def _pack_calibration(calibration: Calibration) -> list[float]:
    """List slope, the intercept of each kind of event, spread and the other terms."""
    terms = [getattr(calibration, name) for name in CALIBRATION_TERMS]
    intercepts = calibration.intercept[: len(LINEAGE_KINDS)].tolist()
    return [calibration.slope, *intercepts, calibration.spread, *terms]


def _unpack_calibration(numbers: list[float] | None) -> Calibration:
    """Make a calibration of the numbers in a file.

    It is the generic one if the file has none, or one for fewer kinds of events.
    """
    first = len(LINEAGE_KINDS) + 2
    if numbers is None or len(numbers) - first not in CALIBRATION_TERM_COUNTS:
        return GENERIC_CALIBRATION
    slope, *intercepts, spread = map(float, numbers[:first])
    if not spread > 0:
        raise InputError(
            f"the spread of the calibration is {spread}; expected a positive number"
        )
    terms = map(float, numbers[first:])
    intercepts += [intercepts[event] for event in END_OF_FALSE.values()]
    return Calibration(slope, np.array(intercepts), spread, *terms)


def _name_events(events: str | Iterable[str | Event]) -> str | list[str]:
    """Return the names of kinds of events."""
    return events if isinstance(events, str) else sorted(str(event) for event in events)


def _check_values(path: str | Path, tracker: Tracker) -> None:
    """Refuse settings and weights that are no use, whatever their checksum says."""
    weights = tracker.coef_
    n = len(tracker.feature_names_)
    if weights.shape != (n,) or not np.isfinite(weights).all():
        raise InputError(
            f"{path}: has weights of shape {weights.shape}; expected {n} finite ones, "
            "one a feature"
        )
    for name, values in tracker.domain_.quantiles.items():
        is_ascending = np.isfinite(values).all() and np.all(np.diff(values) >= 0)
        if len(values) != len(LEVELS) or not is_ascending:
            raise InputError(
                f"{path}: has quantiles {values} of {name!r}; expected {len(LEVELS)} "
                "ascending numbers"
            )
    neighbours = tracker.neighbours
    if not isinstance(neighbours, int) or not 1 <= neighbours <= MAX_NEIGHBOURS:
        raise InputError(
            f"{path}: has neighbours {neighbours!r}; expected a whole number from 1 to "
            f"{MAX_NEIGHBOURS}"
        )
    reach = tracker.reach
    if reach is not None and not (is_number(reach) and 0 < reach < np.inf):
        raise InputError(
            f"{path}: has reach {reach!r}; expected a positive length, or none"
        )


def _find_origin(settings: dict[str, Any], learner: Any) -> Origin:
    """Return where weights come from; files of clew 0.1 do not name it."""
    if "origin" in settings:
        return Origin(settings["origin"])
    if learner is not None:
        return Origin.LEARNED
    return Origin.ADAPTED if settings["n_annotated"] else Origin.GENERIC


def describe(path: str | Path) -> dict[str, str]:
    """Describe the tracker in a file."""
    document = storage.read_document(path, KIND)
    with storage.wrap_content_errors(path):
        settings = document.meta["tracker"]
        learner = document.meta["learner"]
        origin = _find_origin(settings, learner)
        reach = settings["reach"]
        about = {
            "holds": "the weights of a tracker",
            "learned from": origin.describe(
                settings["n_annotated"], settings["n_pairs"]
            ),
            "measurements": ", ".join(settings["groups"]),
            "reach": "estimated from each movie" if reach is None else f"{reach:g}",
        }
        n_weights = str(len(settings["features"]))
        algorithm = str(settings["algorithm"])
    if learner:
        from clew.estimators import persistence

        fit = persistence.describe_estimator(path, learner, document.arrays)
        about |= {name: text for name, text in fit.items() if name not in OF_MODEL}
        about["algorithm"] = algorithm
    about["weights"] = n_weights
    return about | {"written by": f"clew {document.clew_version}"}


def _check_features(path: str | Path, stored: list[str], known: list[str]) -> None:
    """Refuse weights for other features than this clew computes, and name them."""
    if stored == known:
        return
    missing = [name for name in known if name not in stored]
    unknown = [name for name in stored if name not in known]
    parts = [
        f"{what} {', '.join(map(repr, names[:3]))}{' …' if len(names) > 3 else ''}"
        for what, names in (
            ("has weights for", unknown),
            ("lacks weights for", missing),
        )
        if names
    ]
    difference = " and ".join(parts) or "has them in another order"
    raise InputError(
        f"{path}: the weights are for other features than this clew computes: it "
        f"{difference}; train anew"
    )
