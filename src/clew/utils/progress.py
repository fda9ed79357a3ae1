"""What the terminal shows while something takes long: how a fit is doing, and how far a count has come."""

from __future__ import annotations

from types import TracebackType
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
from rich.status import Status as Spinner

if TYPE_CHECKING:  # the command line shows progress before anything is learned, and must not wait for the learner
    from clew.learning.result import Record


def is_verbose(shown: object) -> bool:
    """Whether a switch or a number of scikit-learn's `verbose` asks for progress; anything else does not."""
    return shown is True or (isinstance(shown, int | float) and shown > 0)


class ProgressLine:
    """A callback for `learn` that keeps one line on stderr up to date; silent where `shown` is false.

    Away from a terminal (a log file, a pipe) rich draws nothing, and logging at level DEBUG tells the same.
    """

    def __init__(self, shown: bool, title: str = "learning") -> None:
        self.title = title
        self.spinner = (
            Spinner(title, console=Console(stderr=True)) if is_verbose(shown) else None
        )

    def __call__(self, record: Record) -> None:
        """Show the newest record of a fit."""
        if self.spinner is not None:
            self.spinner.update(
                f"{self.title}: CCCP {record.iteration}, pass {record.passes:g}, objective {record.objective:.5g}, "
                f"gap {record.gap:.2g} → {record.precision:.2g}, {record.bounds} bounds"
            )

    def show_text(self, text: str) -> None:
        """Show any other text on the line."""
        if self.spinner is not None:
            self.spinner.update(f"{self.title}: {text}")

    def __enter__(self) -> Self:
        if self.spinner is not None:
            self.spinner.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.spinner is not None:
            self.spinner.stop()


class ProgressBar:
    """A callback (done, total) that draws a bar on stderr with the time left; silent where `shown` is false.

    Away from a terminal rich draws nothing. The bar goes when the work is done.
    """

    def __init__(self, title: str, shown: bool = True, unit: str = "frames") -> None:
        self.title = title
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        self.progress = (
            Progress(*columns, console=console, transient=True)
            if is_verbose(shown) and console.is_terminal
            else None
        )
        self.task = (
            None if self.progress is None else self.progress.add_task(title, total=None)
        )

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, completed=done, total=total)

    def __enter__(self) -> Self:
        if self.progress is not None:
            self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.progress is not None:
            self.progress.stop()
