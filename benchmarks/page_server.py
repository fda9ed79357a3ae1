"""A page that is being served, and movies for it: what the measurements of `page.py` share."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console

CHROMIUM = (
    os.environ.get("CLEW_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("google-chrome")
)
PATIENCE = 60.0
"""Seconds that a busy machine has for anything."""
IDLE = 30.0
"""Seconds without a request after which a connection is not relied on."""
console = Console(width=130)


class Served:
    """`clew annotate` in a process of its own, and one connection to it."""

    def __init__(self, movie: Path, store: Path, *options: str) -> None:
        self.command = [
            sys.executable,
            "-m",
            "clew.cli",
            "annotate",
            str(movie),
            "--no-browser",
        ]
        self.command += ["--store", str(store), *options]
        self.start()

    def start(self) -> None:
        """Start; returns when the server can be asked."""
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        said: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        reader = threading.Thread(
            target=said.extend, args=(self.process.stderr,), daemon=True
        )
        reader.start()  # a pipe that nobody reads would stop the server when it is full
        line = next(
            (
                line
                for line in self.process.stdout
                if line.startswith("clew annotate: ")
            ),
            None,
        )
        if line is None:
            reader.join()
            raise RuntimeError(f"the server did not start: {''.join(said)}")
        self.connect(line)

    def connect(self, line: str) -> None:
        """Connect to the address that the command printed."""
        self.address = line.removeprefix("clew annotate: ").strip()
        base, self.token = self.address.split("/?token=")
        self.asked_at = time.monotonic()
        self.connection = http.client.HTTPConnection(
            base.removeprefix("http://"), timeout=PATIENCE
        )

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """A request as the page sends it: status and reply."""
        if time.monotonic() - self.asked_at > IDLE:
            self.connection.close()  # the server has, or soon will: the next request opens it again
        self.asked_at = time.monotonic()
        headers = {"X-Clew-Token": self.token, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        self.connection.request(
            "GET" if body is None else "POST", f"/api/movies/0/{path}", data, headers
        )
        reply = self.connection.getresponse()
        content = reply.read()
        return reply.status, json.loads(content) if reply.headers[
            "Content-Type"
        ].startswith("application/json") else content

    def status(self) -> dict[str, Any]:
        """How far things are."""
        found: dict[str, Any] = self.ask("status")[1]
        return found

    def rest(self, seconds: float = PATIENCE) -> None:
        """Wait until the worker has new questions that follow from every answer, but not for longer."""
        end = time.monotonic() + seconds
        while self.status()["learning"] and time.monotonic() < end:
            time.sleep(0.02)

    def learned(self) -> None:
        """Wait until the weights follow from every answer."""
        while (status := self.status())["learned"] < status["revision"]:
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process."""
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE)


def linked(folder: Path, movie: str = "Fluo-N2DL-HeLa") -> Path:
    """Sequence 01 of a real movie, seen from a temporary folder."""
    real = Path(os.environ["CLEW_DATA"]) / movie
    for name in ("01", "01_ST", "01_GT"):
        if (real / name).is_dir():
            (folder / name).symlink_to(real / name)
    return folder / "01"


def simulated(folder: Path, frames: int, cells: int) -> Path:
    """A simulated movie, made if it is not there."""
    from clew.simulation.simulate import NucleiSettings
    from clew.simulation.write import write_simulation
    from clew.utils.progress import ProgressBar

    if not (folder / "01").is_dir():
        with ProgressBar(f"simulating {frames} frames of {cells} cells") as progress:
            write_simulation(
                folder, NucleiSettings(frames=frames, cells=cells), progress=progress
            )
    return folder / "01"


def load() -> str:
    """How busy the machine is."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
