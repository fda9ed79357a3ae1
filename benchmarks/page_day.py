"""A day at the page in minutes: two tabs answer, edit and undo, and the worker is killed now and then."""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from page_kills import EDITED, KILL_CELLS, KILL_FRAMES, labels_of
from page_server import Served, console, load, simulated

TABS = ("tab-a", "tab-b")
ACTIONS = ("answer", "edit", "undo", "redo", "look")
SHARES = (0.55, 0.05, 0.15, 0.1, 0.15)
ROUNDS = 24


def day(options: argparse.Namespace) -> None:
    """Act as two people for 24 rounds; print memory, threads and files after each."""
    rng = np.random.default_rng(options.seed)
    acknowledged: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        movie = simulated(Path(folder) / "small", KILL_FRAMES, KILL_CELLS)
        store = Path(folder) / "store.clewdb"
        served = Served(movie, store)
        streams = [Stream(served) for _ in TABS]
        started = time.monotonic()
        killed = 0
        usage = []
        for hour in range(1, ROUNDS + 1):
            for n in range(options.actions):
                key = act(served, rng, TABS[n % 2])
                acknowledged |= {key} - {""}
            if hour % options.every == 0:
                killed += kill_worker(served.process.pid)
            usage.append(measure_process(served.process.pid))
            console.print(
                f"hour {hour:2}: {len(acknowledged)} changes, {killed} workers killed, "
                f"{usage[-1][0]:.0f} MB, {usage[-1][1]} threads, {usage[-1][2]} files"
            )
        workers = list_children(served.process.pid)
        events = [stream.n_events for stream in streams]
        served.stop()
        code = served.process.returncode
        left = [pid for pid in workers if is_alive(pid)]
        lost = acknowledged - read_keys(movie, store)
    early, late = usage[ROUNDS // 4], usage[-1]
    console.print(
        f"{ROUNDS} hours of {options.actions} actions in "
        f"{time.monotonic() - started:.0f} s: {len(acknowledged)} acknowledged changes, "
        f"{len(lost)} lost; memory from hour {ROUNDS // 4 + 1} to {ROUNDS} "
        f"{early[0]:.0f} to {late[0]:.0f} MB, threads {early[1]} to {late[1]}, files "
        f"{early[2]} to {late[2]}; {killed} workers killed; events to the tabs {events}; "
        f"ended with {code}, processes left {len(left)}; load {load()}"
    )


class Stream(threading.Thread):
    """A tab that listens to the events of the server."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        base, token = served.address.split("/?token=")
        self.connection = http.client.HTTPConnection(base.removeprefix("http://"))
        self.connection.request("GET", f"/api/events?token={token}")
        self.n_events = 0
        self.start()

    def run(self) -> None:
        """Count events until the server ends."""
        for line in self.connection.getresponse():
            self.n_events += line.startswith(b"event:")


def act(served: Served, rng: np.random.Generator, tab: str) -> str:
    """Do something at random; return the key if it was acknowledged as a change."""
    action = ACTIONS[rng.choice(len(ACTIONS), p=SHARES)]
    frame = int(rng.integers(0, EDITED[0] - 2))
    status = served.ask(f"status?page={tab}")[1]
    common = {"key": secrets.token_hex(8), "revision": status["revision"], "page": tab}
    if action == "look":
        for path in (f"image/{frame}.png", f"labels/{frame}.png", "questions?n=20"):
            assert served.ask(path)[0] == 200, path
        return ""
    body = choose_body(served, rng, action, frame, status)
    if body is None:
        return ""
    path = {"answer": "answers", "edit": "edits"}.get(action, action)
    code, reply = served.ask(path, {**body, **common})
    assert code in (200, 400, 409), reply  # nothing to undo, or a contradiction
    # what was answered before is acknowledged, and is no new change
    is_change = code == 200 and reply["revision"] > status["revision"]
    return common["key"] if is_change else ""


def choose_body(
    served: Served,
    rng: np.random.Generator,
    action: str,
    frame: int,
    status: dict[str, Any],
) -> dict[str, Any] | None:
    """What an answer or an edit says; None if nothing is left to say."""
    if action == "edit":
        frame = int(rng.choice(EDITED))
        labels = sorted(labels_of(served, frame))
        masks = status["masks"].get(str(frame), 0)
        cells = [int(rng.choice(labels))] if len(labels) > 10 else []
        body = {"frame": frame, "kind": "delete", "cells": cells, "masks": masks}
        return body if cells else None
    if action == "answer":
        events = served.ask(f"pair/{frame}")[1]["events"]
        event = events[rng.integers(len(events))]
        body = {name: event[name] for name in ("event", "sources", "targets")}
        return {**body, "frame": frame, "happened": True, "replace": False}
    return {}


def measure_process(pid: int) -> tuple[float, int, int]:
    """Megabytes, threads and open files of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    n_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), n_files


def list_children(pid: int) -> list[int]:
    """Processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for task in Path(f"/proc/{pid}/task").iterdir():
        text += " " + (task / "children").read_text()
    return sorted({int(word) for word in text.split()})


def kill_worker(pid: int) -> int:
    """Kill the process that learns; return 1 if there was one."""
    for child in list_children(pid):
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"spawn_main" in command:
            os.kill(child, signal.SIGKILL)
            return 1
    return 0


def is_alive(pid: int) -> bool:
    """Whether a process exists a few seconds later."""
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists():
            return False
        time.sleep(0.1)
    return True


def read_keys(movie: Path, store: Path) -> set[str]:
    """Keys of all changes in a store."""
    from clew.annotation.store.movie_identity import MovieIdentity
    from clew.annotation.store.store import Store
    from clew.tracking.movie import open_movie

    with Store.open(store, movie=MovieIdentity.of(open_movie(movie))) as opened:
        return {entry.key for entry in opened.history() if entry.key is not None}
