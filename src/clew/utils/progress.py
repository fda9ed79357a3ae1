"""Progress of fits and counts on the terminal, drawn by rich on stderr."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.status import Status

if TYPE_CHECKING:  # commands show progress before the learner is imported
    from clew.learning.result import Record


SECONDS_BETWEEN_LINES = 5.0
"""Away from a terminal."""


def is_verbose(verbose: object) -> bool:
    """Return whether `verbose`, a boolean or a number, asks for progress."""
    return verbose is True or (isinstance(verbose, int | float) and verbose > 0)


class ProgressLine(ExitStack):
    """Shows one line of text while a ``with`` block runs; a callback for `learn`.

    Away from a terminal, as in a notebook or a log file, the newest text is a line of
    its own every few seconds, and the last one at the end.

    Parameters
    ----------
    verbose : bool
    title : str
    """

    def __init__(self, verbose: bool, title: str = "learning") -> None:
        super().__init__()
        self.title = title
        self.text = ""
        self.is_shown = is_verbose(verbose)
        self.printed = time.monotonic()
        self.status: Status | None = None
        console = Console(stderr=True)
        if self.is_shown and console.is_terminal and not console.is_jupyter:
            self.status = Status(title, console=console)

    def __call__(self, record: Record) -> None:
        """Show the newest record of a fit."""
        self.show_text(
            f"CCCP {record.iteration}, pass {record.passes:g}, "
            f"objective {record.objective:.5g}, "
            f"gap {record.gap:.2g} → {record.precision:.2g}, {record.bounds} bounds"
        )

    def show_text(self, text: str) -> None:
        """Show a text after the title."""
        self.text = f"{self.title}: {text}"
        if self.status is not None:
            self.status.update(self.text)
        elif self.is_shown and time.monotonic() - self.printed > SECONDS_BETWEEN_LINES:
            self._print_line()

    def _print_line(self) -> None:
        """Print the newest text, unless it was printed or is on the terminal."""
        if self.text and self.status is None:
            print(self.text, file=sys.stderr, flush=True)
        self.text = ""
        self.printed = time.monotonic()

    def __enter__(self) -> Self:
        if self.is_shown:
            self.callback(self._print_line)
            self.enter_context(_listen_to_compiler(self))
        if self.status is not None:
            self.enter_context(self.status)
        return self


def _listen_to_compiler(line: ProgressLine) -> AbstractContextManager[None]:
    """Say on the line when a kernel is compiled; a cached kernel is only loaded."""
    # imported here: commands show progress before they need Numba
    from numba.core.event import Event, Listener, install_listener

    class CompilerListener(Listener):  # type: ignore[misc]
        def on_start(self, event: Event) -> None:  # noqa: ARG002
            line.show_text("compiling (once)")

        def on_end(self, event: Event) -> None:
            pass

    listener: AbstractContextManager[None] = install_listener(
        "numba:compile", CompilerListener()
    )
    return listener


class ProgressBar(Progress):
    """Shows a bar with the time left while a ``with`` block runs.

    Call it with the numbers of finished and of all items. Nothing is drawn away from a
    terminal.

    Parameters
    ----------
    title : str
    verbose : bool
    unit : str
        What is counted.
    """

    def __init__(self, title: str, verbose: bool = True, unit: str = "frames") -> None:
        console = Console(stderr=True)
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (is_verbose(verbose) and console.is_terminal),
        )
        self.bar = self.add_task(title, total=None)

    def __call__(self, n_done: int, n_total: int) -> None:
        """Show how much is done."""
        self.update(self.bar, completed=n_done, total=n_total)

    def stop(self) -> None:
        """End the bar; rich 13 would print an empty line away from a terminal."""
        if not self.disable:
            super().stop()
