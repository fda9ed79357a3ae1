"""What the tests of the annotation store share: filled stores, what they hold, and processes that write to them."""

import signal
import subprocess
import sys
from pathlib import Path

from clew.annotation.store.history import Act
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.tracking.events import Event

MOVIE = MovieIdentity("cells", 10**6, 2, (64, 64), "0" * 40)
SETUP = f"""
import os, resource, shutil, signal, sys, time
from clew.annotation.store.history import Act
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.errors import StoreError
from clew.tracking.events import Event
movie = {MOVIE!r}
path = sys.argv[1]
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def answer(store): return store.answer(store.revision, Event.MOVE, [1], [2], key=f"k{{store.revision}}")
def die(): os.kill(os.getpid(), signal.SIGKILL)
"""


def run(script: str, *arguments: object) -> str:
    """What a script says that is run in a process of its own; it may kill itself."""
    command = [sys.executable, "-c", SETUP + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout


def fill(path: Path, n: int = 30) -> None:
    """A closed store with answers, corrections, undone steps and notes."""
    with Store.open(path, movie=MOVIE) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        for i in range(n):
            store.answer(
                i // 2, Event.MOVE, [1], [2 + i % 2], key=f"k{i}", replace=True
            )
        for _ in range(5):
            store.undo_or_redo(Act.UNDO)
        store.undo_or_redo(Act.REDO)
        store.set_setting("place", {"frame": 3})
        store.set_setting("curve", [[i, 1 / (i + 1)] for i in range(20)])


def content(store: Store) -> tuple:
    """All that a store tells."""
    annotations = store.annotations()
    held = (
        list(annotations.events),
        annotations.happened.tolist(),
        annotations.row.tolist(),
    )
    return (
        held,
        store.history(),
        store.get_setting("place"),
        store.get_setting("curve"),
        store.can(Act.UNDO),
        store.can(Act.REDO),
    )


def files(folder: Path) -> dict[str, bytes]:
    """All files of a folder; SQLite's own map of its log holds nothing of ours."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.endswith("-shm")
    }


def answer_next(store: Store) -> int:
    """Answer about the next frame."""
    return store.answer(
        store.revision, Event.MOVE, [1], [2], key=f"next-{store.revision}"
    )
