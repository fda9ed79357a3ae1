"""Kill clew at any moment, interrupt it, fill its disk: what is left is the old result, the new one, or nothing.

    python benchmarks/faults.py --kills 1000

Each case makes an old result (or none), starts a command that replaces it, and ends that at a random moment: kill −9
after a random time or at a random change of the file system, Ctrl-C at such a change, files that may grow no further,
as on a full disk, or folders that may not be written to. One checker then opens the result as any reader would and
compares every file with those of an undisturbed run; after some cases the command is run again, and must leave the new
result and nothing else. A reader may refuse a complete result that a killed run did not put in place; then the next run
must do so. Answers on the page are results one by one: all that were acknowledged are there, and at most one more,
that was under way. The commands run in forks of one process that has everything loaded (so on Linux and macOS only),
hundreds of times faster than anew.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from faults_commands import ANSWERS, COMMANDS, OLD_ANSWERS, Command, make_inputs
from privileges import bound_by_permissions

from clew.annotation.worker import LearningWorker
from clew.cli.options import app
from clew.errors import StoreError

CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "shutil.rmtree",
    "os.truncate",
    "sqlite3.connect",
}
"""Audit events that change the file system, besides opening a file to write."""
OLD, NEW, NOTHING, SO_FAR, COMPLETE = (
    "old result whole",
    "new result whole",
    "nothing",
    "all acknowledged answers",
    "new result complete, refused until the next run moves it",
)
FAULTS = ("kill by time", "kill by change", "Ctrl-C", "disk full", "read-only")
SERVED = "clew annotate: "
AGAIN = 5
"""After one case in so many the command is run again."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Minus the signal, or its exit code."""
    changes: int
    """Of the file system."""
    seconds: float
    acknowledged: int = 0
    """Answers."""


class Expected(NamedTuple):
    """What undisturbed runs leave, and how long the second takes."""

    old: dict[str, bytes]
    new: dict[str, bytes]
    old_value: Any
    new_value: Any
    changes: int
    seconds: float


def run(command: Command, new: bool, fault: str = "", moment: float = 0.0) -> Ended:
    """Run a command in a fork; all that it prints is read here."""
    reader, writer = os.pipe()
    screen, printed = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if not child:
        os.close(reader)
        os.close(screen)
        os._exit(
            _in_fork(
                command.new if new else command.old, fault, moment, writer, printed
            )
        )
    os.close(writer)
    os.close(printed)
    kill = threading.Timer(
        moment if fault == "kill by time" else 1e6, os.kill, (child, signal.SIGKILL)
    )
    kill.start()
    acknowledged = 0
    with os.fdopen(screen, "r") as lines:
        for line in lines:
            if command.talk and line.startswith(SERVED):
                n = len(ANSWERS) if new else OLD_ANSWERS
                acknowledged = command.talk(line.removeprefix(SERVED).strip(), n)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGINT)
    os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOWAIT
    )  # its number stays taken until the timer is gone
    kill.cancel()
    kill.join()
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reader, "rb") as pipe:
        changes = len(pipe.read())
    return Ended(
        os.waitstatus_to_exitcode(status),
        changes,
        time.perf_counter() - started,
        acknowledged,
    )


def _in_fork(
    arguments: list[str], fault: str, moment: float, pipe: int, printed: int
) -> int:
    """The command, with the fault prepared; every change of the file system is told through the pipe."""
    count = 0

    def watch(event: str, given: tuple[object, ...]) -> None:
        nonlocal count
        writing = (
            event == "open"
            and isinstance(given[2], int)
            and given[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if event not in CHANGES and not writing:
            return
        count += 1
        os.write(pipe, b".")
        if count == int(moment) and fault == "kill by change":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == int(moment) and fault == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)

    # the worker of the page learns and writes nothing; starting one takes longer than everything else here
    LearningWorker.start = _no_worker  # type: ignore[method-assign]
    if fault == "disk full":
        resource.setrlimit(
            resource.RLIMIT_FSIZE,
            (int(moment), resource.getrlimit(resource.RLIMIT_FSIZE)[1]),
        )
    sys.addaudithook(watch)
    try:
        with (
            bound_by_permissions()
            if fault == "read-only"
            else contextlib.nullcontext(),
            os.fdopen(printed, "w") as screen,
            contextlib.redirect_stdout(screen),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            app(arguments, prog_name="clew", standalone_mode=True)
    except SystemExit as ended:
        return int(ended.code or 0)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        return 99
    return 0


async def _no_worker(_: LearningWorker) -> None:
    raise OSError("no worker")


def snapshot(place: Path) -> dict[str, bytes]:
    """What anyone sees of a result: its files but the hidden ones, and what later runs work with."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    found = {}
    for path in place.rglob("*"):
        parts = path.relative_to(place).parts
        hidden = any(
            part.startswith(".") and part.endswith((".tmp", ".ready", ".lock"))
            for part in parts
        )
        if (
            path.is_file()
            and not hidden
            and parts[0] not in ("jobs", "measurements", ".blocks")
        ):
            found["/".join(parts)] = path.read_bytes()
    return found


def left_behind(place: Path) -> list[Path]:
    """What runs left, in a result or beside it."""
    inside = [
        path
        for path in place.rglob(".*")
        if path.name.endswith((".tmp", ".ready", ".lock"))
    ]
    beside = [
        path
        for path in place.parent.iterdir()
        if path.name.removeprefix(".").startswith(place.name)
    ]
    return inside + [path for path in beside if path != place and len(place.name) > 1]


def judge(
    command: Command, place: Path, older: bool, expected: Expected, acknowledged: int
) -> str:
    """The state of a result after a fault, as a reader finds it."""
    try:
        value = command.read(place)
    except Exception as error:
        if isinstance(error, StoreError) and "was interrupted" in str(error):
            return COMPLETE
        if snapshot(place):
            return f"BAD: {type(error).__name__}: {error}"
        return "BAD: the old result is lost" if older else NOTHING
    if command.talk:
        return _judge_answers(value, expected.old_value if older else 0, acknowledged)
    found = snapshot(place)
    if older and found == expected.old:
        return OLD
    same = found == expected.new if command.exact else value == expected.new_value
    return NEW if same else f"BAD: a mixture, {sorted(found)}"


def _judge_answers(kept: int, old: int, acknowledged: int) -> str:
    """Acknowledged answers are kept, and at most the one that was under way."""
    if not max(acknowledged, old) <= kept <= max(acknowledged + 1, old):
        return f"BAD: {acknowledged} answers were acknowledged, {kept} are kept, {old} were there before"
    return (
        NEW
        if kept == len(ANSWERS)
        else (OLD if old else NOTHING)
        if kept == old
        else SO_FAR
    )


def main() -> None:
    """Run the cases and print how many ended in which state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="cases in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="*", help="all, if none is named")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs, and forks, would ignore it
    rng, began = random.Random(options.seed), time.process_time()
    commands = [
        command
        for command in COMMANDS
        if command.name in (options.commands or [c.name for c in COMMANDS])
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        counts = _cases(Path(folder), commands, options.kills, rng)
        os.chdir("/")
    if options.json:
        print(json.dumps({" | ".join(key): n for key, n in counts.items()}))
    else:
        for (name, fault, state), n in sorted(counts.items()):
            print(f"{name:9} {fault:15} {state:60} {n:5}")
    bad = sum(n for (_, _, state), n in counts.items() if state.startswith("BAD"))
    used = (
        time.process_time()
        - began
        + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    )
    print(
        f"{sum(counts.values())} cases, {bad} in a bad state; {used:.0f} CPU s",
        file=sys.stderr,
    )
    sys.exit(bad > 0)


def _cases(
    folder: Path, commands: list[Command], n: int, rng: random.Random
) -> Counter[tuple[str, str, str]]:
    make_inputs(folder)
    needed = {
        "track": ["train", "m/01", "-a", "a.csv", "-o", "w0.clew", "--lam", "1"],
    }
    for arguments in (
        needed[command.name] for command in commands if command.name in needed
    ):
        if code := run(Command("", "", [], arguments, open), new=True).code:
            raise SystemExit(f"clew {' '.join(arguments)} ended with exit code {code}")
    expected = {command.name: _expected(command, folder) for command in commands}
    counts: Counter[tuple[str, str, str]] = Counter()
    rounds = range(max(command.share for command in commands))
    turns = [command for k in rounds for command in commands if k < command.share]
    for case in range(
        n
    ):  # in turns, so that few cases have every command, and many have each with each fault
        command, fault = (
            turns[case % len(turns)],
            FAULTS[(case + case // len(commands)) % len(FAULTS)],
        )
        try:
            state = _case(
                folder, command, fault, expected[command.name], case % AGAIN == 0, rng
            )
        except KeyboardInterrupt:
            break  # and tell what was found so far
        counts[command.name, fault, state] += 1
        if state.startswith("BAD") or (case + 1) % 100 == 0:
            print(
                f"case {case + 1}: {command.name}, {fault}: {state}",
                file=sys.stderr,
                flush=True,
            )
    return counts


def _case(
    folder: Path,
    command: Command,
    fault: str,
    expected: Expected,
    again: bool,
    rng: random.Random,
) -> str:
    """One fault: the state that it left, and that the next run left."""
    place, older = folder / command.place, rng.random() < 0.7
    for path in (*left_behind(place), place):
        _clear(path)
    if older:
        _copy(folder / "old" / command.place, place)
    moment = {
        "kill by time": rng.uniform(0, 1.1 * expected.seconds),
        "disk full": rng.uniform(0, 1.1 * max(map(len, expected.new.values()))),
    }.get(fault, rng.randint(1, expected.changes + 1))
    with _read_only(folder) if fault == "read-only" else contextlib.nullcontext():
        code, _, _, acknowledged = run(command, True, fault, moment)
    state = judge(command, place, older, expected, acknowledged)
    if code in (1, 99) or (fault == "read-only" and code != 2):
        return f"BAD: exit code {code}"
    if fault == "Ctrl-C" and state == COMPLETE:
        return "BAD: an interrupted run left its result to the next"
    if state == COMPLETE or (
        again and not state.startswith("BAD")
    ):  # the next run is right, and clears up
        code, _, _, acknowledged = run(command, True)
        after = judge(command, place, False, expected, acknowledged)
        if code or after != NEW or left_behind(place):
            return f"BAD: the next run ended with {code}, {after}, {left_behind(place)}"
    return state


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Nobody may write into a folder or those in it, for a while."""
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    modes = [path.stat().st_mode for path in places]
    for path in places:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path, mode in zip(places, modes, strict=True):
            path.chmod(mode)


def _expected(command: Command, folder: Path) -> Expected:
    """The old and the new result of undisturbed runs, how many changes they take, and how long."""
    place, found, values = folder / command.place, [], []
    for name in ("old", "new"):
        ended = run(command, name == "new")
        if ended.code:
            raise SystemExit(
                f"{command.name} ended with exit code {ended.code}, undisturbed ({name})"
            )
        (folder / name).mkdir(exist_ok=True)
        _copy(place, folder / name / command.place)
        found.append(snapshot(place))
        values.append(command.read(place))
    return Expected(*found, *values, ended.changes, ended.seconds)


def _clear(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


if __name__ == "__main__":
    main()
