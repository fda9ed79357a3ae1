"""The `clew` command, its errors, and the options that several commands share."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from clew._version import __version__
from clew.errors import ClewError, ClusterError, InputError, StoreError
from clew.utils.validation import replace_control_characters

COMMANDS = (
    "annotate",
    "simulate",
    "sample",
    "detect",
    "train",
    "track",
    "evaluate",
    "explain",
    "info",
    "demo",
)
MANY_OPTIONS = 15
"""From this number on, the help of a command has sections."""
SECTIONS = {
    "Movie": (
        "labels",
        "images",
        "radius",
        "spacing",
        "channel",
        "sparse",
        "frames",
        "links",
        "columns",
    ),
    "Tracking": ("events", "neighbours", "reach", "max_gap", "fill"),
    "Computing": (
        "jobs",
        "workers",
        "cluster",
        "memory_per_worker",
        "profile",
        "no_cache",
    ),
}
"""Sections of the help, with the parameters in them; others are under "Options"."""
DEBUG = "--debug"
PRINTING = (errno.ENOSPC, errno.EIO)
"""Errors of writing to stdout or stderr; errors of files name the file."""
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
    """Print errors as one line on stderr.

    The exit code is 2 for errors that the user can fix, and 1 for bugs of clew.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of their use."""
        return sorted(super().list_commands(ctx), key=COMMANDS.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise  # typer handles these
        except (ClewError, MemoryError, ImportError, *UNEXPECTED) as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            message = _describe_error(error)
            print_message(
                message
                or f"unexpected {type(error).__name__}: {error} ({DEBUG} shows where)"
            )
            raise typer.Exit(2 if message else 1) from error


class _Command(TyperCommand):
    """A command whose options are given once each, with sections in a long help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the options by section."""
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]
        if len(options) < MANY_OPTIONS:
            super().format_options(ctx, formatter)
            return
        rows: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        rows |= {title: [] for title in SECTIONS}
        for param in self.get_params(ctx):
            titles = [title for title, names in SECTIONS.items() if param.name in names]
            title = titles[0] if titles else "Options"
            if param not in options:
                title = "Arguments"
            rows[title].append(param.get_help_record(ctx))
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([row for row in records if row is not None])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option that is given twice; typer takes the last value."""
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


def _describe_error(error: BaseException) -> str:
    """Describe an error that the user can fix; return "" for a bug of clew."""
    if isinstance(error, ClewError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); close other programs, or use fewer --jobs, frames or cells"
    if isinstance(error, ImportError):
        return f"cannot load a library ({error}); the installation is damaged, or there is too little memory"
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
"""Decorator that makes a function a command of `clew`."""


def main() -> None:
    """Run the `clew` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal without λ shows its code
    try:
        app(prog_name="clew")
    except OSError as error:  # stdout fails, for instance on a full disk
        print_message(f"cannot print ({error.strerror})")
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
        bool, typer.Option(DEBUG, help="Show a traceback if something fails.")
    ] = False,
) -> None:
    del show_version, debug  # used by the callback and the group
    warnings.showwarning = _print_warning  # one line, as for errors


def print_message(text: str) -> None:
    """Print one line on stderr."""
    joined = text.replace(":\n  ", ": ").replace(
        "\n  ", "; "
    )  # errors with several rows
    typer.echo(_make_printable(f"clew: {' '.join(joined.split())}"), err=True)


def print_note(text: str) -> None:
    """Print a remark on stderr, so that stdout has results only."""
    plain = bool(os.environ.get("NO_COLOR"))  # see no-color.org
    typer.secho(
        _make_printable(text),
        err=True,
        dim=None if plain else True,
    )


def print_result(text: str) -> None:
    """Print on stdout as it is: long lines are not broken, nothing is colored."""
    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def _make_printable(text: str) -> str:
    """Return a text that a terminal shows; names of files may hold its commands."""
    encodable = text.encode("utf-8", "backslashreplace").decode()
    return replace_control_characters(encodable)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_message(f"warning: {message}")


def path_text(path: Path) -> str:
    """Return a path as text that every terminal can print."""
    return replace_control_characters(os.fsencode(path).decode("utf-8", "replace"))


def make_cell(text: str) -> Text:
    """Return the cell of a table with a text that may come from a file."""
    return Text(replace_control_characters(text))


def check_folder(folder: Path) -> None:
    """Raise StoreError if a folder could not be written to; create nothing."""
    existing = next(
        path
        for path in (folder.absolute(), *folder.absolute().parents)
        if path.exists()
    )
    if not existing.is_dir():
        raise StoreError(f"{existing}: is a file; expected a folder to write to")
    if not os.access(existing, os.W_OK):
        raise StoreError(f"{existing}: the folder is not writable; choose another one")


def check_file(path: Path, read: Callable[[Path], object], what: str) -> None:
    """Raise StoreError if writing would replace a folder or an unrelated file.

    `read` must accept an existing file.
    """
    if path.is_dir():
        raise StoreError(
            f"{path_text(path)}: is a folder; expected a file name for the {what}"
        )
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        read(path)
    except ClewError as error:
        raise StoreError(
            f"{path_text(path)}: exists and does not contain {what}; choose another name"
        ) from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot create the folder ({error.strerror})"
        ) from error


Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        max=1024,
        show_default=False,
        help="Compute in N processes on this machine instead of threads.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        show_default=False,
        help="Compute on a Dask cluster: tcp://HOST:PORT of its scheduler, or a scheduler file (.json).",
    ),
]
MemoryPerWorker = Annotated[
    str | None,
    typer.Option(
        "--memory-per-worker",
        metavar="SIZE",
        show_default=False,
        help="Memory of a worker, as in 4GB. Blocks of frames are made small enough for it.",
    ),
]
Profile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        show_default=False,
        help="Write Dask's performance report (.html); needs --workers or --cluster.",
    ),
]


@dataclass(frozen=True)
class ComputeOptions:
    """Where to compute, and with how much memory."""

    workers: int | None
    cluster: str | None
    memory: int | None
    profile: Path | None

    @classmethod
    def of(
        cls,
        workers: int | None,
        cluster: str | None,
        memory: str | None = None,
        profile: Path | None = None,
    ) -> ComputeOptions:
        """Check that the options fit together."""
        from clew.tracking.blocks import BYTES_OF_PROCESS, parse_memory

        if workers is not None and cluster is not None:
            raise InputError(
                "--workers and --cluster cannot be combined; expected one of them"
            )
        if profile is not None and workers is None and cluster is None:
            raise InputError("--profile needs --workers or --cluster")
        n_bytes = None if memory is None else parse_memory(memory)
        if n_bytes is not None and n_bytes < BYTES_OF_PROCESS:
            # Dask would kill such workers and start others for ten minutes
            raise InputError(
                f"--memory-per-worker is {memory}; expected more than the "
                f"{BYTES_OF_PROCESS / 2**20:,.0f} MiB that a worker takes at its start"
            )
        return cls(workers, cluster, n_bytes, profile)


@contextmanager
def open_client(where: ComputeOptions) -> Iterator[Any]:
    """Open a Dask client for a with block; None means threads of this process."""
    if where.workers is None and where.cluster is None:
        yield None
        return
    from clew.utils.extras import require_extra

    require_extra("dask", "--workers and --cluster")
    import distributed

    from clew.parallel import report_lost_scheduler

    # its tracebacks would hide the one line that clew prints
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with report_lost_scheduler(), ExitStack() as stack:
        client = stack.enter_context(
            _start_workers(where, stack)
            if where.cluster is None
            else _connect_client(where.cluster)
        )
        n = len(client.scheduler_info(n_workers=-1)["workers"])
        print_note(
            f"computing on {n} workers of {client.scheduler.address}"
            if where.cluster
            else f"{n} workers"
        )
        if where.profile is not None:
            stack.enter_context(
                distributed.performance_report(filename=str(where.profile))
            )
        yield client
    if where.profile is not None:
        print_note(f"Written {path_text(where.profile)}")


def _start_workers(where: ComputeOptions, stack: ExitStack) -> Any:
    """Start workers on this machine."""
    import distributed

    from clew.parallel import start_local_cluster

    cluster = start_local_cluster(
        where.workers or 1, where.memory, where.profile is not None
    )
    return distributed.Client(stack.enter_context(cluster))


def _connect_client(address: str) -> Any:
    """Connect to a Dask scheduler; errors name the option."""
    from clew.parallel import connect_to_cluster

    try:
        return connect_to_cluster(address)
    except ClusterError as error:
        raise ClusterError(f"--cluster {error}") from error
