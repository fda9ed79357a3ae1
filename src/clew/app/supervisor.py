"""Keeps the worker process going: starts it, hands messages to and fro, and starts another should it die."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

from clew.app.messages import Learn, Reply, WorkerMovie
from clew.app.worker import work

SHORT_LIFE = 20.0
"""Seconds: a worker that dies sooner than that will hardly live longer next time."""
MAX_SHORT_LIVES = 3
PATIENCE = 0.5
"""Seconds that a worker has to end by itself."""


class Supervisor:
    """Has one worker at a time. Its callbacks are called in threads of its own."""

    def __init__(
        self,
        movies: Sequence[WorkerMovie],
        on_reply: Callable[[Reply], None],
        on_life: Callable[[bool, str], None],
        main: Callable[[Connection, Sequence[WorkerMovie]], None] = work,
    ) -> None:
        """`on_life` is told that a worker began (it then knows nothing yet) or ended, and in words why."""
        self.movies, self.on_reply, self.on_life, self.main = (
            movies,
            on_reply,
            on_life,
            main,
        )
        self.process: BaseProcess | None = None
        self._outbox: queue.SimpleQueue[tuple[Connection, Learn] | None] = (
            queue.SimpleQueue()
        )
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=call, daemon=True)
            for call in (self._supervise, self._write)
        ]

    def start(self) -> None:
        """Start the first worker; returns at once."""
        for thread in self._threads:
            thread.start()

    def send(self, command: Learn) -> None:
        """Tell the worker. A command to one that has just died is lost: its successor is told all anew."""
        if self._connection is not None:
            self._outbox.put((self._connection, command))

    def close(self) -> None:
        """End the worker, by force if it does not hear."""
        self._closing.set()
        self._outbox.put(None)
        process = self.process
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()  # the worker ends when it sees that
        if process is None:
            return
        for force in ("", "terminate", "kill"):
            with contextlib.suppress(OSError, ValueError, AssertionError):
                if force:
                    getattr(process, force)()
                process.join(PATIENCE)
                if not process.is_alive():
                    return

    def _supervise(self) -> None:
        """One worker after the other."""
        short_lives = 0
        while not self._closing.is_set():
            began = monotonic()
            try:
                connection, process = self._begin()
            except Exception as error:
                self.on_life(False, f"the worker cannot be started ({error})")
                return
            self._listen(connection)
            if self._closing.is_set():
                return
            self._connection = None
            process.join(PATIENCE)
            short_lives = short_lives + 1 if monotonic() - began < SHORT_LIFE else 0
            reason = f"the worker that learns ended with code {process.exitcode}"
            if short_lives >= MAX_SHORT_LIVES:
                self.on_life(
                    False,
                    f"{reason}, {short_lives} times in a row; answers are kept, but nothing is learned",
                )
                return
            self.on_life(False, f"{reason}; another one is started")
            self._closing.wait(0.5 * short_lives)

    def _begin(self) -> tuple[Connection, BaseProcess]:
        context: Any = multiprocessing.get_context(
            "spawn"
        )  # a forked one would share the server's sockets
        here, there = context.Pipe()
        process = context.Process(
            target=self.main, args=(there, self.movies), daemon=True, name="clew-worker"
        )
        process.start()
        there.close()
        self.process, self._connection = process, here
        self.on_life(True, "")
        return here, process

    def _listen(self, connection: Connection) -> None:
        while True:
            try:
                reply = connection.recv()
            except (EOFError, OSError):
                return
            if self._closing.is_set():
                return
            self.on_reply(reply)

    def _write(self) -> None:
        while (item := self._outbox.get()) is not None:
            connection, command = item
            with contextlib.suppress(
                OSError, ValueError
            ):  # its reader notices the end, too
                connection.send(command)
