"""Servers of the page that are forked from one process which has imported everything: a start costs a tenth.

For measurements of very many starts, as of kills: each server is a process of its own that opens the store, serves and
dies as `clew annotate` does, but has no worker. Run as a script, it forks a server for each line that it reads and
writes the server's process id; the server itself writes its address.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from page_server import PATIENCE, Served


class Forked(Served):
    """The same as `Served`, forked from one that waits."""

    def start(self) -> None:
        """Fork a server; returns when it can be asked."""
        if not hasattr(self, "parent"):
            command = [sys.executable, __file__, *self.command[4:]]
            self.parent = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self.parent.stdin is not None
        assert self.parent.stdout is not None
        self.parent.stdin.write("start\n")
        self.parent.stdin.flush()
        lines = [
            self.parent.stdout.readline().strip() for _ in range(2)
        ]  # in either order
        pid, address = sorted(
            lines, key=lambda line: line.startswith("clew annotate: ")
        )
        assert address, "the server did not start"
        self.process: Any = Child(int(pid))
        self.connect(address)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server and the process that it was forked from."""
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE)
        assert self.parent.stdin is not None
        self.parent.stdin.close()
        self.parent.wait(timeout=PATIENCE)


class Child:
    """A process that another one has begun, and waits for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def send_signal(self, how: signal.Signals) -> None:
        """As `subprocess.Popen` does."""
        os.kill(self.pid, how)

    def kill(self) -> None:
        """End it by force."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Until it is gone: its parent takes note of that at once."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.005)
        raise TimeoutError(f"process {self.pid} goes on")


class NoWorker:
    """Stands for the learning process: its calls never return."""

    is_given_up = False

    def __init__(self, _: Any, on_status: Any) -> None:
        on_status(True, "")

    async def fit(self, *_: Any) -> None:
        """Never return."""
        await asyncio.Event().wait()

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def main(arguments: list[str]) -> None:
    """Fork a server for each line that comes."""
    import clew.app.launch
    import clew.app.server
    import clew.app.session
    from clew.cli import app

    clew.app.server.Server.__init__.__kwdefaults__["make_worker"] = NoWorker
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone at once
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            app(["annotate", *arguments])
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main([str(Path(one)) if not one.startswith("-") else one for one in sys.argv[1:]])
