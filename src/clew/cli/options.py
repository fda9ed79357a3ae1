"""The `clew` command itself, and the behaviour that its commands share."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from clew._version import __version__
from clew.errors import ClewError, StoreError

DEBUG = "--debug"
PRINTING = (errno.ENOSPC, errno.EIO)
"""Why a stream cannot be written to: files are written elsewhere, and told with their names."""
UNEXPECTED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class _Group(TyperGroup):
    """Turns errors into one line on stderr and an exit code: 2 for what the user can mend, 1 for a fault of clew's."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise  # typer ends these quietly
        except (ClewError, MemoryError, ImportError, *UNEXPECTED) as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            told = _in_words(error)
            say(
                told
                or f"unexpected {type(error).__name__}: {error} ({DEBUG} shows where)"
            )
            raise typer.Exit(2 if told else 1) from error


class _Command(TyperCommand):
    """Refuses an option that is given twice: the last value would win, and the others be lost without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        once = [
            one
            for one in given
            if one.param_type_name == "option"
            and not (one.multiple or getattr(one, "is_flag", False))
        ]
        for option, times in Counter(one.opts[0] for one in once).items():
            if times > 1:
                ctx.fail(f"{option} is given {times} times; expected once")
        return super().parse_args(ctx, args)


def _in_words(error: BaseException) -> str:
    """What the user can mend, in one line; nothing for a fault of clew's."""
    if isinstance(error, ClewError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}); close other programs, or use fewer --jobs, frames or cells"
    if isinstance(error, ImportError):
        return f"a library cannot be loaded ({error}); there is too little memory, or the installation is damaged"
    if (
        isinstance(error, OSError)
        and error.errno in PRINTING
        and error.filename is None
    ):
        return f"cannot print ({error.strerror})"
    return ""


app = typer.Typer(
    cls=_Group,
    name="clew",
    help="Learn to predict whole structures from partial annotations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

command = partial(app.command, cls=_Command)
"""Makes a function a command of `clew`."""


def main() -> None:
    """The entry point of the `clew` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that has no λ gets its number
    try:
        app(prog_name="clew")
    except OSError as error:  # stdout itself fails: help or version into a full disk
        say(f"cannot print ({error.strerror})")
        sys.exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clew {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show a traceback where something fails.")
    ] = False,
) -> None:
    del show_version, debug  # the callback and the group have used them
    warnings.showwarning = _say_warning  # one line, as for errors


def say(text: str) -> None:
    """One line on stderr, whatever the text holds."""
    listed = text.replace(":\n  ", ": ").replace(
        "\n  ", "; "
    )  # several faults, one a line
    line = f"clew: {' '.join(listed.split())}"
    typer.echo(line.encode("utf-8", "backslashreplace").decode(), err=True)


def note(text: str) -> None:
    """What was chosen or done, in passing: on stderr, so that stdout holds results only."""
    plain = bool(os.environ.get("NO_COLOR"))  # as no-color.org has it
    typer.secho(
        text.encode("utf-8", "backslashreplace").decode(),
        err=True,
        dim=None if plain else True,
    )


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    say(f"warning: {message}")


def shown(path: Path) -> str:
    """A path as text that every terminal can print."""
    return os.fsencode(path).decode("utf-8", "replace")


def check_folder(folder: Path) -> None:
    """Refuse early what could not be written to in the end; nothing is made yet."""
    existing = next(
        path
        for path in (folder.absolute(), *folder.absolute().parents)
        if path.exists()
    )
    if not existing.is_dir():
        raise StoreError(f"{existing}: is a file; give a folder to write to")
    if not os.access(existing, os.W_OK):
        raise StoreError(
            f"{existing}: this folder cannot be written to; give another one"
        )


def check_file(path: Path, read: Callable[[Path], object], what: str) -> None:
    """Refuse early a folder, and a file that `read` refuses: it holds something else, which would be replaced."""
    if path.is_dir():
        raise StoreError(f"{shown(path)}: is a folder; give a file to write {what} to")
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        read(path)
    except ClewError as error:
        raise StoreError(
            f"{shown(path)}: holds no {what}, and would be replaced; give another name"
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder for results, with those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: the folder cannot be made ({error.strerror})"
        ) from error
