"""SIGKILL at random moments of a run of answers: whether all acknowledged ones are there afterwards."""

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
from page_server import PATIENCE, Served, console, load, simulated

KILL_FRAMES, KILL_CELLS = 60, 80
"""Of a movie that opens quickly, and has more events than are answered before the last kill."""


def kills(options: argparse.Namespace) -> None:
    """SIGKILL at random moments; what was acknowledged must be there."""
    rng = np.random.default_rng(options.seed)
    acknowledged = set[str]()
    in_flight = busy = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        movie = simulated(Path(folder) / "small", KILL_FRAMES, KILL_CELLS)
        served = Served(movie, Path(folder) / "store.clewdb")
        for n in range(options.kills):
            console.print(f"kill {n + 1}: {len(acknowledged)} answers so far", end="\r")
            sent = answer_until_killed(served, rng, acknowledged, float(rng.uniform(0.0, options.seconds)))
            served.process.wait(timeout=PATIENCE)
            served.start()  # fails if the store does not open
            kept = history(served)
            busy += sent != ""
            assert acknowledged <= kept, f"lost: {acknowledged - kept}"
            extra = kept - acknowledged
            assert extra <= {sent}, f"never sent: {extra}"
            in_flight += len(extra)
            acknowledged |= extra
        served.stop()
    seconds = time.monotonic() - started
    console.print(
        f"{options.kills} kills in {seconds:.0f} s, {busy} of them while answers were given: {len(acknowledged)} "
        f"answers kept, none of the acknowledged lost; {in_flight} were kept whose acknowledgement was cut off; "
        f"load {load()}"
    )


def history(served: Served) -> set[str]:
    """The annotations that the server has, by name."""
    lines = served.ask("export/annotations.csv")[1].decode().splitlines()
    return {name_of(*line.split(",")[:4]) for line in lines[1:]}


def name_of(frame: Any, event: str, sources: str, targets: str) -> str:
    return f"{frame}:{event}:{sources.strip()}:{targets.strip()}"


def answer_until_killed(served: Served, rng: np.random.Generator, acknowledged: set[str], seconds: float) -> str:
    """Confirm predicted events at random as fast as it goes, until the kill so many seconds after the first pair came.

    Returns the answer that was under way in the end.
    """
    revision, name = served.status()["revision"], ""
    served.ask("pair/0")  # the first takes a moment, for which there would be nothing to lose
    threading.Timer(seconds, served.process.kill).start()
    try:
        while True:
            frame = int(rng.integers(0, KILL_FRAMES - 1))
            events = [one for one in served.ask(f"pair/{frame}")[1]["events"] if not one["pinned"]]
            if not events:
                continue
            one = events[rng.integers(len(events))]
            body = {"frame": frame, "event": one["event"], "sources": one["sources"], "targets": one["targets"]}
            name = name_of(frame, one["event"], *(" ".join(map(str, one[side])) for side in ("sources", "targets")))
            common = {"key": secrets.token_hex(8), "revision": revision, "happened": True, "replace": False}
            code, reply = served.ask("answers", {**body, **common})
            assert code == 200, reply
            revision = reply["revision"]
            acknowledged.add(name)
    except (OSError, http.client.HTTPException):
        return name
