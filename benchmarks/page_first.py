"""How long after the command the page is there, asks its first question, and has tracked the movie."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page_server import PATIENCE, console, linked, load, simulated
from rich.table import Table

TOKEN = "t" * 40
EVERY = 0.02
"""Seconds between two requests."""
EVENTS = ("served", "shown", "asked", "tracked")


def first(options: argparse.Namespace) -> None:
    """Start the page on new and on known movies."""
    table = Table(
        "movie",
        "page served s",
        "frames shown s",
        "first question s",
        "all tracked s",
        title=f"load {load()}",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        movies = {}
        if "CLEW_DATA" in os.environ:
            movies["HeLa 01"] = linked(folder)
        movies["200 × 500"] = simulated(
            options.simulated or folder / "simulated", 200, 500
        )
        for title, movie in movies.items():
            if not title.startswith(options.only):
                continue
            for repetition in range(options.repeat):
                for known in ("new", "measured", "opened before"):
                    store = folder / f"{title} {repetition}.clewdb"
                    if known == "new":
                        shutil.rmtree(movie.parent / ".clew", ignore_errors=True)
                    if known == "measured":
                        store.unlink()
                    found = start(movie, store, folder)
                    cells = [f"{found[event]:.2f}" for event in EVENTS]
                    table.add_row(f"{title}, {known}", *cells)
    console.print(table)


def start(movie: Path, store: Path, folder: Path) -> dict[str, float]:
    """Return the seconds from the command to each of `EVENTS`."""
    token = folder / "state/clew/token"
    token.parent.mkdir(parents=True, exist_ok=True)
    token.write_text(TOKEN)
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "clew.cli", "annotate", movie, "--no-browser"]
    begin = time.monotonic()
    with subprocess.Popen(
        [*map(str, command), "--port", str(port), "--store", str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
    ) as process:
        found: dict[str, float] = {}
        try:
            while "tracked" not in found:
                now = time.monotonic() - begin
                if now > 4 * PATIENCE or process.poll() is not None:
                    raise RuntimeError(f"the page did not come further than {found}")
                for event in look(port):
                    found.setdefault(event, now)
                time.sleep(EVERY)
        finally:
            process.send_signal(signal.SIGTERM)
    return found


def look(port: int) -> list[str]:
    """Return which of `EVENTS` have happened."""
    try:
        status, movies = ask(port, "movies")
        if status == 503:
            return ["served", "shown"] if movies["frames"] else ["served"]
        _, reply = ask(port, "movies/0/questions?n=20")
        happened = ["served", "shown"]
        if reply["questions"]:
            frame = reply["questions"][0]["frame"]
            ask(port, f"movies/0/pair/{frame}")
            happened.append("asked")
        if not ask(port, "movies/0/status")[1]["learning"]:
            happened.append("tracked")
        return happened
    except OSError:
        return []


def ask(port: int, path: str) -> tuple[int, Any]:
    """Return the status and reply of a request, as the page sends it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", f"/api/{path}", headers={"X-Clew-Token": TOKEN})
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())
