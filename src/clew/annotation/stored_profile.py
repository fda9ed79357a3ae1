"""The profile of a movie, kept in its store: finding it again would take seconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from clew._version import __version__
from clew.annotation.store.store import Store
from clew.tracking.detections import Source, WindowedSource
from clew.tracking.flow.motion import Motion
from clew.tracking.measurement.store import hash_parts
from clew.tracking.profile import REQUIRED_KINDS, MovieProfile, parse_events
from clew.tracking.scales import Scales
from clew.tracking.tracker import Tracker

PROFILE = "profile"
"""Setting in a store."""


def read_profile(store: Store, source: Source, tracker: Tracker) -> MovieProfile | None:
    """Return the profile that was found earlier for the same cells and weights."""
    setting = store.get_setting(PROFILE)
    fingerprint = _fingerprint(source, tracker)
    if setting is None or not fingerprint or setting["of"] != fingerprint:
        return None
    content = setting["profile"]
    return MovieProfile(
        **{
            **content,
            "groups": frozenset(content["groups"]),
            "motion": Motion(**content["motion"]),
            "scales": Scales(**content["scales"]),
            "events": parse_events(content["events"]) or REQUIRED_KINDS,
        }
    )


def store_profile(
    store: Store, source: Source, tracker: Tracker, profile: MovieProfile
) -> None:
    """Store a profile for `read_profile`."""
    setting = {"of": _fingerprint(source, tracker), "profile": _to_json(profile)}
    if store.get_setting(PROFILE) != setting:
        store.set_setting(PROFILE, setting)


def _to_json(profile: MovieProfile) -> dict[str, Any]:
    return {
        **asdict(profile),
        "groups": sorted(profile.groups),
        "events": sorted(str(event) for event in profile.events),
    }


def _fingerprint(source: Source, tracker: Tracker) -> str:
    """Return a digest of the cells and of what their profile depends on; "" if unknown."""
    if not isinstance(source, WindowedSource):
        return ""
    cells = [source.content(t) for t in range(source.n_frames)]
    weights = np.ascontiguousarray(tracker.coef_).tobytes()
    settings = (
        __version__,
        tracker.events,
        sorted(tracker.events_),
        tracker.neighbours,
        tracker.reach,
    )
    return hash_parts([*cells, weights, repr(settings).encode()])
