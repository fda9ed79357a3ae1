"""Kill −9 at any moment leaves a legal state with all that was acknowledged."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from clew.annotation.store.store import Store

from .stores import MOVIE, SETUP, answer_next, run

pytestmark = pytest.mark.posix  # kill −9, forks, limits and permissions

# One process imports, and forks a writer for each line that it reads. A writer says what it is about to do, does it,
# and says that it has the store's word for it.
WRITERS = """
for line in sys.stdin:
    if not (writer := os.fork()):
        say("pid", os.getpid())
        store = Store.open(line.strip(), movie=movie)
        say("open", store.revision)
        while True:
            step = store.revision % 7
            if step == 4:
                say("done", store.undo_or_redo(Act.UNDO, key=f"k{store.revision}"))
            elif step == 5:
                store.set_setting("place", store.revision)
                say("noted", store.revision)
                say("done", answer(store))
            else:
                say("done", answer(store))
    os.waitpid(writer, 0)
    say("end")
"""


@contextmanager
def writers():
    """A function that lets a writer work on a store, kills it after some seconds, and gives all that it said."""
    command = [sys.executable, "-c", SETUP + WRITERS, "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def killed_after(path, seconds: float) -> list[tuple[str, int]]:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            pid = int(process.stdout.readline().removeprefix("pid "))
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
            said = iter(process.stdout.readline, "end\n")
            return [(word, int(number)) for word, number in map(str.split, said)]

        yield killed_after


def test_kill_at_random_moments_loses_no_acknowledged_answer(tmp_path):
    rng, path = random.Random(5), tmp_path / "store"
    known, noted = 0, 0
    with writers() as killed_after:
        for kill in range(30):
            # some of them while they open
            for word, number in killed_after(
                path, rng.uniform(0, 0.03 if kill % 3 == 0 else 0.2)
            ):
                if word == "noted":
                    noted = number
                else:
                    # on opening there is all that was acknowledged, and perhaps the one that was in flight
                    assert number - known in ((0, 1) if word == "open" else (1,))
                    known = number
            if kill % 3 == 2:
                with Store.open(path, movie=MOVIE) as store:
                    assert store.revision - known in (0, 1)
                    assert [entry.key for entry in store.history()] == [
                        f"k{i}" for i in range(store.revision)
                    ]
                    assert store.get_setting("place", 0) >= noted
                    known = store.revision
    assert known > 20


def test_kill_while_a_store_is_begun(tmp_path):
    rng = random.Random(7)
    with writers() as killed_after:
        for kill in range(20):
            said = killed_after(tmp_path / str(kill), 10 ** rng.uniform(-4, -1.5))
            acknowledged = max((number for _, number in said), default=0)
            with Store.open(tmp_path / str(kill), movie=MOVIE) as store:
                assert store.revision - acknowledged in (0, 1)


def test_a_write_torn_at_any_byte_leaves_the_state_before_or_after(tmp_path):
    script = """
store = Store.open(path, movie=movie)
for _ in range(3): answer(store)
folder = os.path.dirname(path)
shutil.copytree(folder, folder + "-before")
answer(store)
shutil.copy(path + "-wal", folder + "-after")
die()
"""
    (tmp_path / "a").mkdir()
    run(script, tmp_path / "a" / "store")
    before, log = tmp_path / "a-before", (tmp_path / "a-after").read_bytes()
    old = len((before / "store-wal").read_bytes())
    assert old < len(log)
    seen = set()
    for length in [*range(old, len(log), 211), len(log) - 1, len(log)]:
        folder = tmp_path / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before, folder)
        (folder / "store-wal").write_bytes(log[:length])
        with Store.open(folder / "store", movie=MOVIE) as store:
            seen.add((store.revision, length == len(log)))
            assert answer_next(store) == store.revision
    assert seen == {(3, False), (4, True)}
