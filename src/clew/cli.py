"""The `clew` command: arguments in, calls out, printing."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from clew.errors import ClewError, StoreError

DEBUG = "--debug"
UNEXPECTED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class _Group(TyperGroup):
    """Turns errors into one line on stderr and an exit code: 2 for what the user can mend, 1 for a fault of clew's."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise  # typer ends these quietly
        except (ClewError, *UNEXPECTED) as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            known = isinstance(error, ClewError)
            text = str(error) if known else f"unexpected {type(error).__name__}: {error} ({DEBUG} shows where)"
            _say(text)
            raise typer.Exit(2 if known else 1) from error


app = typer.Typer(
    cls=_Group,
    name="clew",
    help="Learn to predict whole structures from partial annotations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """The entry point of the `clew` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no λ gets its number
    try:
        app(prog_name="clew")
    except OSError as error:  # stdout itself fails: help or version into a full disk
        _say(f"cannot print: {error.strerror}")
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clew {version('clew')}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show a traceback where something fails.")] = False,
) -> None:
    del show_version, debug  # the callback and the group have used them
    warnings.showwarning = _say_warning  # one line, as for errors


def _say(text: str) -> None:
    """One line on stderr, whatever the text holds."""
    line = f"clew: {' '.join(text.split())}"
    typer.echo(line.encode("utf-8", "backslashreplace").decode(), err=True)


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {message}")


def _shown(path: Path) -> str:
    """A path as text that every terminal can print."""
    return os.fsencode(path).decode("utf-8", "replace")


def _check_folder(folder: Path) -> None:
    """Refuse early what could not be written to in the end; nothing is made yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise StoreError(f"{existing}: is a file; give a folder to write to")
    if not os.access(existing, os.W_OK):
        raise StoreError(f"{existing}: this folder cannot be written to; give another one")


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where demo.png and letters.clew are written.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the simulated words and of their annotation.")] = 0,
    words: Annotated[int, typer.Option(metavar="N", help="How many words to learn from.")] = 300,
    fraction: Annotated[
        float, typer.Option(metavar="SHARE", help="The share of their letters that is annotated.")
    ] = 0.25,
) -> None:
    """Learn to read simulated words of which only some letters are annotated, and compare four learners."""
    from clew import demo as simulation
    from clew import persist

    out, notes = Console(), Console(stderr=True, highlight=False)
    _check_folder(folder)
    found = simulation.run(
        words, fraction, seed, verbose=True, tell=lambda text: notes.print(f"learning: {text} …", style="dim")
    )
    image = io.BytesIO()
    simulation.picture(found).savefig(image, format="png", dpi=150)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: the folder cannot be made ({error.strerror})") from error
    persist.write_bytes(folder / "demo.png", image.getvalue())
    found.svm.save(folder / "letters.clew")

    table = Table(title=f"Letters read right in {len(found.words)} new words", title_justify="left")
    table.add_column("learner")
    table.add_column("learned from")
    table.add_column("accuracy", justify="right")
    for contestant in found.contestants:
        table.add_row(contestant.name, contestant.annotation, f"{contestant.accuracy:.1%}")
    out.print(table)
    out.print(
        f"{found.n_words} words, {found.n_annotated} of their {found.n_letters} letters annotated. The certificate of "
        f"clew's fit:\n  {found.svm.result_}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    where = _shown(folder)
    out.print(
        f"\nWritten\n"
        f"  {where}/demo.png: the comparison as a picture\n"
        f"  {where}/letters.clew: the estimator that was learned from {100 * fraction:g}% of the letters\n"
        f"\nNext\n"
        f"  see what the file holds:  clew info {where}/letters.clew\n"
        f"  annotate fewer letters:   clew demo --fraction 0.1\n"
        f'  read new words, in Python: clew.load("{where}/letters.clew").predict(X)',
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


@app.command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .clew file, as an estimator's save writes it.")],
) -> None:
    """Show what a .clew file holds: model, loss, λ and certificate."""
    from clew import archive

    about = archive.describe(file)
    table = Table(show_header=False, title=Text(_shown(file)), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in about.items():
        table.add_row(name, Text(text))
    Console().print(table)


if __name__ == "__main__":
    main()
