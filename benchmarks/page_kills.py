"""SIGKILL at random moments of a run of answers and edits of masks: whether what was acknowledged is there then."""

from __future__ import annotations

import argparse
import http.client
import secrets
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from page_forked import Forked
from page_server import PATIENCE, Served, console, load, simulated

KILL_FRAMES, KILL_CELLS = 60, 80
"""Of a movie that opens quickly, and has more events than are answered before the last kill."""
EDITED = range(50, 60)
"""Frames whose masks are edited; others are answered about, so that no answer is set aside."""
EDITS = 0.2
"""The share of edits among what is sent."""


def kills(options: argparse.Namespace) -> None:
    """SIGKILL at random moments; what was acknowledged must be there."""
    rng = np.random.default_rng(options.seed)
    acknowledged = set[str]()
    in_flight = busy = edits = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        movie = simulated(Path(folder) / "small", KILL_FRAMES, KILL_CELLS)
        served = (Forked if options.forked else Served)(
            movie, Path(folder) / "store.clewdb"
        )
        cells = {t: labels_of(served, t) for t in EDITED}
        for n in range(options.kills):
            console.print(
                f"kill {n + 1}: {len(acknowledged)} answers and edits so far", end="\r"
            )
            sent = answer_until_killed(
                served, rng, acknowledged, float(rng.uniform(0.0, options.seconds))
            )
            served.process.wait(timeout=PATIENCE)
            served.start()  # fails if the store does not open
            kept = history(served, cells)
            busy += sent != ""
            assert acknowledged <= kept, f"lost: {acknowledged - kept}"
            extra = kept - acknowledged
            assert extra <= {sent}, f"never sent: {extra}"
            in_flight += len(extra)
            acknowledged |= extra
        served.stop()
    seconds = time.monotonic() - started
    edits = sum(name.startswith("edit") for name in acknowledged)
    console.print(
        f"{options.kills} kills in {seconds:.0f} s, {busy} of them while answers were given: "
        f"{len(acknowledged) - edits} answers and {edits} edits of masks kept, none of the acknowledged lost; "
        f"{in_flight} were kept whose acknowledgement was cut off; load {load()}"
    )


def history(served: Served, cells: dict[int, set[int]]) -> set[str]:
    """The annotations and edits that the server has, by name; `cells` are those before all edits."""
    lines = served.ask("export/annotations.csv")[1].decode().splitlines()
    deleted = {
        edit_name(t, label)
        for t, known in cells.items()
        for label in known - labels_of(served, t)
    }
    return {name_of(*line.split(",")[:4]) for line in lines[1:]} | deleted


def labels_of(served: Served, frame: int) -> set[int]:
    """The cells of a frame."""
    return {cell["id"] for cell in served.ask(f"frames/{frame}/cells")[1]}


def edit_name(frame: int, label: int) -> str:
    return f"edit:{frame}:{label}"


def name_of(frame: Any, event: str, sources: str, targets: str) -> str:
    return f"{frame}:{event}:{sources.strip()}:{targets.strip()}"


def answer_until_killed(
    served: Served, rng: np.random.Generator, acknowledged: set[str], seconds: float
) -> str:
    """Confirm predicted events at random as fast as it goes, until the kill so many seconds after the first pair came.

    Returns the answer that was under way in the end.
    """
    revision, name = served.status()["revision"], ""
    served.ask(
        "pair/0"
    )  # the first takes a moment, for which there would be nothing to lose
    threading.Timer(seconds, served.process.kill).start()
    try:
        while True:
            common = {"key": secrets.token_hex(8), "revision": revision}
            if rng.random() < EDITS:
                frame = int(rng.choice(EDITED))
                label = int(rng.choice(sorted(labels_of(served, frame))))
                name = edit_name(frame, label)
                masks = served.status()["masks"].get(str(frame), 0)
                asked = {
                    "frame": frame,
                    "kind": "delete",
                    "cells": [label],
                    "masks": masks,
                }
                code, reply = served.ask("edits", {**asked, **common})
            else:
                frame = int(rng.integers(0, EDITED[0] - 2))
                events = [
                    one
                    for one in served.ask(f"pair/{frame}")[1]["events"]
                    if not one["pinned"]
                ]
                if not events:
                    continue
                one = events[rng.integers(len(events))]
                body = {
                    "frame": frame,
                    "event": one["event"],
                    "sources": one["sources"],
                    "targets": one["targets"],
                }
                name = name_of(
                    frame,
                    one["event"],
                    *(" ".join(map(str, one[side])) for side in ("sources", "targets")),
                )
                code, reply = served.ask(
                    "answers", {**body, **common, "happened": True, "replace": False}
                )
            assert code == 200, reply
            revision = reply["revision"]
            acknowledged.add(name)
            name = ""
    except (OSError, http.client.HTTPException):
        return name
