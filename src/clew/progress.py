"""One line on the terminal that says how a fit is doing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status as Spinner

from clew.learning.result import Record


class ProgressLine:
    """A callback for `learn` that keeps one line on stderr up to date; silent where `shown` is false.

    Away from a terminal (a log file, a pipe) rich draws nothing, and logging at level DEBUG tells the same.
    """

    def __init__(self, shown: bool, title: str = "learning") -> None:
        self.title = title
        self.spinner = Spinner(title, console=Console(stderr=True)) if shown else None

    def __call__(self, record: Record) -> None:
        """Show the newest record of a fit."""
        if self.spinner is not None:
            self.spinner.update(
                f"{self.title}: CCCP {record.iteration}, pass {record.passes:g}, objective {record.objective:.5g}, "
                f"gap {record.gap:.2g} → {record.precision:.2g}, {record.bounds} bounds"
            )

    def say(self, text: str) -> None:
        """Show any other text on the line."""
        if self.spinner is not None:
            self.spinner.update(f"{self.title}: {text}")

    def __enter__(self) -> Self:
        if self.spinner is not None:
            self.spinner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.spinner is not None:
            self.spinner.stop()
