"""Kill clew at any moment, interrupt it, fill its disk: what is left is the old result, the new one, or nothing.

    python benchmarks/faults.py --kills 1000

Each case makes an old result (or none), starts a command that replaces it, and ends that at a random moment: kill −9
after a random time or at a random change of the file system, Ctrl-C at such a change, or files that may grow no
further, as on a full disk. One checker then opens the result as any reader would and compares every file with those of
an undisturbed run; the command is then run again, and must leave the new result and nothing else. The commands run in
forks of one process that has everything loaded (so on Linux and macOS only), hundreds of times faster than anew.
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
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clew import persist
from clew.cli.base import app
from clew.tracking.formats.ctc import check_all, open_truth
from clew.tracking.formats.tiff import write_frame
from clew.tracking.movie import open_frames, open_movie

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate"}
"""Audit events that change the file system, besides opening a file to write."""
OLD, NEW, NOTHING = "old result whole", "new result whole", "nothing"
FAULTS = ("kill by time", "kill by change", "Ctrl-C", "disk full")


class Command(NamedTuple):
    """A command that replaces a result: how to run it for the old and the new one, and how its result is opened."""

    name: str
    place: str
    """Of the result, in the working folder."""
    old: list[str]
    new: list[str]
    read: Callable[[Path], object]


def read_result(folder: Path) -> None:
    """Open a lineage as evaluation does, and look at every mask."""
    check_all(open_truth(folder))


COMMANDS = [
    Command("track", "r", ["track", "m/01", "-o", "r", "-f", "ctc,csv,geff", "--no-report"],
            ["track", "m/01", "-o", "r", "-f", "ctc,napari", "--no-report", "-w", "w0.clew"], read_result),
    Command("detect", "d", ["detect", "m/01", "-o", "d", "--diameter", "7"],
            ["detect", "m/01", "-o", "d", "--diameter", "5"], open_frames),
    Command("simulate", "s", ["simulate", "s", "--frames", "3", "--cells", "3"],
            ["simulate", "s", "--frames", "2", "--cells", "4", "--seed", "1"], lambda place: open_movie(place / "01")),
    Command("train", "w.clew", ["train", "m/01", "-a", "a.csv", "-o", "w.clew", "--lam", "1"],
            ["train", "m/01", "-a", "a.csv", "-o", "w.clew", "--lam", "0.1"], persist.read),
]  # fmt: skip


def make_inputs(folder: Path) -> None:
    """A movie of four frames, some annotations, and weights."""
    for name in ("01", "01_SEG"):
        (folder / "m" / name).mkdir(parents=True)
    for t in range(4):
        mask = np.zeros((40, 60), np.uint16)
        for cell in range(4):
            mask[4 + t : 10 + t, 4 + 13 * cell : 10 + 13 * cell] = cell + 1
        write_frame(folder / f"m/01_SEG/mask{t:03}.tif", mask)
        write_frame(folder / f"m/01/t{t:03}.tif", ((mask > 0) * 900 + 100 + np.arange(60) % 7).astype(np.uint16))
    rows = [f"{t},move,{cell},{cell}\n" for t in range(3) for cell in (1, 2, 3)]
    (folder / "a.csv").write_text("frame,event,sources,targets\n" + "".join(rows))


def run(arguments: list[str], fault: str = "", moment: float = 0.0) -> tuple[int, int, float]:
    """Run a command in a fork: how it ended (minus the signal, or its exit code), its changes, and its seconds."""
    reader, writer = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if not child:
        os.close(reader)
        os._exit(_in_fork(arguments, fault, moment, writer))
    os.close(writer)
    if fault == "kill by time":
        time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    seconds = time.perf_counter() - started
    with os.fdopen(reader, "rb") as pipe:
        changes = len(pipe.read())
    return os.waitstatus_to_exitcode(status), changes, seconds


def _in_fork(arguments: list[str], fault: str, moment: float, pipe: int) -> int:
    """The command, with the fault prepared; every change of the file system is told through the pipe."""
    count = 0

    def watch(event: str, given: tuple[object, ...]) -> None:
        nonlocal count
        writing = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if event not in CHANGES and not writing:
            return
        count += 1
        os.write(pipe, b".")
        if count == int(moment) and fault == "kill by change":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == int(moment) and fault == "Ctrl-C":
            raise KeyboardInterrupt

    if fault == "disk full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(moment), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    sys.addaudithook(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app(arguments, prog_name="clew", standalone_mode=True)
    except SystemExit as ended:
        return int(ended.code or 0)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        return 99
    return 0


def snapshot(place: Path) -> dict[str, bytes]:
    """What anyone sees of a result: its files but the hidden ones."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    files = (path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files
            if not any(part.startswith(".") and part.endswith((".tmp", ".ready", ".lock"))
                       for part in path.relative_to(place).parts)}  # fmt: skip


def hidden(place: Path) -> list[str]:
    """What runs left behind, in a result or beside it."""
    found = list(place.rglob(".*")) if place.is_dir() else list(place.parent.glob(f".{place.name}.*"))
    return [path.name for path in found if path.name.endswith((".tmp", ".ready", ".lock"))]


def judge(command: Command, place: Path, old: dict[str, bytes], new: dict[str, bytes]) -> str:
    """The state of a result after a fault, as a reader finds it."""
    try:
        command.read(place)
    except Exception as error:
        found = snapshot(place)
        return NOTHING if not found else f"BAD: {type(error).__name__}: {error}"
    found = snapshot(place)
    same_kind = command.name == "train" and found != old  # times of the fit are in it
    return OLD if found == old else NEW if found == new or same_kind else f"BAD: a mixture, {sorted(found)}"


def main() -> None:
    """Run the cases and print how many ended in which state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="cases in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        counts = _cases(Path(folder), options.kills, rng)
    if options.json:
        print(json.dumps({" | ".join(key): n for key, n in counts.items()}))
    else:
        for (name, fault, state), n in sorted(counts.items()):
            print(f"{name:9} {fault:15} {state:60} {n:5}")
    bad = sum(n for (_, _, state), n in counts.items() if state.startswith("BAD"))
    print(f"{sum(counts.values())} cases, {bad} in a bad state", file=sys.stderr)
    sys.exit(bad > 0)


def _cases(folder: Path, n: int, rng: random.Random) -> Counter[tuple[str, str, str]]:
    make_inputs(folder)
    if code := run(["train", "m/01", "-a", "a.csv", "-o", "w0.clew", "--lam", "1"])[0]:
        raise SystemExit(f"the weights to begin with cannot be learned: exit code {code}")
    expected = {command.name: _expected(command, folder) for command in COMMANDS}
    counts: Counter[tuple[str, str, str]] = Counter()
    for case in range(n):
        command, fault = COMMANDS[case % len(COMMANDS)], FAULTS[case // len(COMMANDS) % len(FAULTS)]
        old, new, changes, seconds = expected[command.name]
        place, older = folder / command.place, rng.random() < 0.7
        _clear(place)
        for left in hidden(place):
            _clear(place.parent / left)
        if older:
            _copy(folder / f"{command.place}.old", place)
        moment = {"kill by time": rng.uniform(0, 1.1 * seconds), "disk full": rng.uniform(0, 3000)}.get(
            fault, rng.randint(1, changes + 1)
        )
        code, _, _ = run(command.new, fault, moment)
        state = judge(command, place, old if older else {}, new)
        if fault in ("Ctrl-C", "disk full") and code in (1, 99):
            state = f"BAD: exit code {code}"
        if case % 5 == 0 and not state.startswith("BAD"):  # and the next run is right, and clears up
            again = run(command.new)[0]
            after = judge(command, place, {}, new)
            if again or after != NEW or hidden(place):
                state = f"BAD: the next run ended with {again}, {after}, {hidden(place)}"
        counts[command.name, fault, state] += 1
    return counts


def _expected(command: Command, folder: Path) -> tuple[dict[str, bytes], dict[str, bytes], int, float]:
    """The old and the new result of undisturbed runs, how many changes they take, and how long."""
    place = folder / command.place
    for arguments in (command.old, command.new):
        code, changes, seconds = run(arguments)
        if code:
            raise SystemExit(f"{' '.join(arguments)} ended with exit code {code}, undisturbed")
        if arguments is command.old:
            old = snapshot(place)
            _copy(place, folder / f"{command.place}.old")
    return old, snapshot(place), changes, seconds


def _clear(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


if __name__ == "__main__":
    main()
