"""Replace several files of a folder at once, so that an interrupted run loses nothing.

No file system renames many files in one step, so there is a journal, as in a
database:

1. New files are written into a hidden folder within the destination,
   ``.NAME.RUN.tmp``, which is on the same file system by construction. ``RUN`` is
   a random id that the lock file ``.NAME.lock`` lists.
2. When all files are complete and synced, one rename makes it ``.NAME.RUN.ready``.
   From this moment on, the new files count.
3. They are moved to their places, old files are removed, and the hidden folder and
   the lock file go.

A run that is killed before step 2 leaves the old files untouched. After step 2,
the next *writer* finishes the move; a run that is interrupted by Ctrl-C does so itself. Readers change nothing: they refuse a folder
whose files are partly old and partly new. A writer finishes or removes only hidden
folders whose run id its lock file lists, and only names that it owns.

Several processes may write into one hidden folder; only the process that opened it
declares it complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from clew.errors import StoreError
from clew.utils.locks import try_lock
from clew.utils.storage import sync_folder, write_bytes

PLAN = ".plan.json"
"""File in a ready folder that lists what to move and what to remove."""
REPLACED = ".old"
"""Subfolder of a ready folder for folders that were replaced."""
MAX_LOCK_BYTES = 2**16
"""Largest lock file that is searched for run ids."""

Owns = Callable[[str], bool]
"""Whether a name in a folder is one that this kind of result may have."""


@contextmanager
def stage_files(folder: Path, name: str, owns: Owns, last: str = "") -> Iterator[Path]:
    """Collect new files in a hidden folder and put them in place together.

    If the block raises, the folder is left as it was; a folder that did not exist
    still does not.

    Parameters
    ----------
    folder : Path
        Destination; created if it does not exist.
    name : str
        Tells apart results that are written into one folder independently.
    owns : callable
        The new files replace all entries of `folder` for which ``owns(entry)``.
    last : str
        The file that is moved last.

    Yields
    ------
    stage : Path
        The hidden folder to write into.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock_name(folder, name) as lock:
            _finish_runs(lock, owns)
            run = secrets.token_hex(4)
            lock.add_run(run)
            stage = folder / f".{name}.{run}.tmp"
            ready = stage.with_suffix(".ready")
            try:
                stage.mkdir()
                yield stage
                _sync_tree(stage)
                _declare_complete(stage, ready, owns, last)
                _put_in_place(ready, owns)
            except BaseException as error:
                # Ctrl-C does not stop the last step: a few renames are left of it
                if isinstance(error, KeyboardInterrupt) and ready.exists():
                    _put_in_place(ready, owns)
                shutil.rmtree(stage, ignore_errors=True)
                raise
    except OSError as error:
        reason = error.strerror or error
        state = _describe_state(folder, name)
        raise StoreError(f"{folder} cannot be written ({reason}); {state}") from error
    finally:
        for path in created:
            with contextlib.suppress(OSError):
                path.rmdir()  # fails if something was written


def finish_interrupted_write(folder: Path, name: str, owns: Owns) -> None:
    """Put the files of a killed run in place, if they were complete; for writers.

    Parameters
    ----------
    folder, name, owns
        As in `stage_files`.
    """
    if not _list_hidden(folder, name, "ready"):
        return
    try:
        with _lock_name(folder, name) as lock:
            _finish_runs(lock, owns)
    except OSError as error:
        raise StoreError(
            f"{folder}: an interrupted write cannot be finished "
            f"({error.strerror or error}); {_describe_state(folder, name)}"
        ) from error


def refuse_interrupted_write(folder: str | Path, name: str | None = None) -> None:
    """Raise StoreError if a killed run left a folder partly updated; for readers.

    Parameters
    ----------
    folder : str or Path
        The folder to read.
    name : str or None
        As in `stage_files`; None checks all names.
    """
    folder = Path(folder)
    for ready in _list_hidden(folder, name, "ready"):
        plan = _read_plan(ready)
        if plan is not None and plan.is_pending(ready):
            raise StoreError(
                f"{folder}: a run was interrupted while it replaced these files, "
                f"so they may be of two results; run the same command again, or "
                f"delete {ready.name} in it and write the result anew"
            )


@dataclass(frozen=True)
class _Plan:
    """What to do with a ready folder."""

    move: list[str]
    """Names in the ready folder, in the order in which they are moved."""
    remove: list[str]
    """Names beside it that the new files replace."""

    def is_pending(self, ready: Path) -> bool:
        """Whether anything is left to move or remove."""
        waiting = [ready / name for name in self.move]
        waiting += [ready.parent / name for name in self.remove]
        return any(os.path.lexists(path) for path in waiting)


@dataclass(frozen=True)
class _NameLock:
    """The locked file ``.NAME.lock`` and the run ids in it."""

    folder: Path
    name: str
    file: IO[bytes]

    def list_runs(self) -> set[str]:
        """Ids of the runs that were started under this lock and not cleaned up."""
        self.file.seek(0)
        content = self.file.read(MAX_LOCK_BYTES).decode("ascii", "replace")
        return {line for line in content.split() if re.fullmatch("[0-9a-f]{8}", line)}

    def add_run(self, run: str) -> None:
        """Record a run before its hidden folder is made."""
        self.file.write(f"{run}\n".encode())
        self.file.flush()
        os.fsync(self.file.fileno())

    def list_folders(self, state: str) -> list[Path]:
        """Hidden folders of recorded runs in a state, "tmp" or "ready"."""
        runs = self.list_runs()
        folders = _list_hidden(self.folder, self.name, state)
        return [path for path in folders if path.name.rsplit(".", 2)[1] in runs]


@contextmanager
def _lock_name(folder: Path, name: str) -> Iterator[_NameLock]:
    """Hold the lock of a name; raise StoreError if another process holds it."""
    path = folder / f".{name}.lock"
    lock = _NameLock(folder, name, _open_locked(path, folder))
    try:
        yield lock
    finally:
        try:
            if not lock.list_folders("tmp") and not lock.list_folders("ready"):
                with contextlib.suppress(OSError):  # Windows cannot remove it
                    path.unlink()
        finally:
            lock.file.close()


def _open_locked(path: Path, folder: Path) -> IO[bytes]:
    """Open and lock a file; open it again if its last holder removed it meanwhile."""
    while True:
        file = path.open("a+b")
        if try_lock(file) is False:
            file.close()
            raise StoreError(
                f"{folder}: another clew is writing into it; wait until it is done, "
                "or choose another folder"
            )
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()


def _list_hidden(folder: Path, name: str | None, state: str) -> list[Path]:
    """Hidden folders of runs in a state, of one name or of all."""
    names = ".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{names}\.[0-9a-f]{{8}}\.{state}")
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in entries if pattern.fullmatch(path.name)]


def _describe_state(folder: Path, name: str) -> str:
    """Say which files are in place after an error."""
    ready = _list_hidden(folder, name, "ready")
    if not ready:
        return "what was there before is untouched"
    return (
        f"the new files are complete in {ready[0]}; the next command that writes "
        "there puts them in place"
    )


def _finish_runs(lock: _NameLock, owns: Owns) -> None:
    """Put complete files of killed runs in place, and remove incomplete ones."""
    for ready in lock.list_folders("ready"):
        _put_in_place(ready, owns)
    for stage in lock.list_folders("tmp"):
        shutil.rmtree(stage, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    """Write all files and folders below a folder through to the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            with (Path(parent) / name).open("r+b") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))


def _declare_complete(stage: Path, ready: Path, owns: Owns, last: str) -> None:
    """Write the plan and rename the hidden folder: the new files count from now on."""
    new = [path.name for path in stage.iterdir()]
    new.sort(key=lambda name: (name == last, name))
    entries = sorted(path.name for path in stage.parent.iterdir())
    visible = [name for name in entries if not name.startswith(".")]
    old = [name for name in visible if owns(name) and name not in new]
    plan = _Plan(move=new, remove=old)
    write_bytes(stage / PLAN, json.dumps(asdict(plan)).encode())
    stage.rename(ready)
    sync_folder(stage.parent)


def _put_in_place(ready: Path, owns: Owns) -> None:
    """Carry out the plan, or the rest of it; the caller holds the lock."""
    plan = _read_plan(ready)
    folder = ready.parent
    if plan is not None:
        foreign = [name for name in [*plan.move, *plan.remove] if not owns(name)]
        if foreign:
            raise StoreError(
                f"{ready / PLAN} names {foreign[0]}, which is no file of this "
                f"result; delete the folder {ready}"
            )
        for name in plan.move[:-1]:
            _move_entry(ready, folder, name)
        for name in plan.remove:
            _remove_entry(folder / name, ready)
        for name in plan.move[-1:]:
            _move_entry(ready, folder, name)
        sync_folder(folder)
    # Renamed first, so that a removal that is cut short leaves a folder to remove.
    done = ready.with_suffix(".tmp")
    ready.rename(done)
    shutil.rmtree(done, ignore_errors=True)


def _move_entry(ready: Path, folder: Path, name: str) -> None:
    """Move a file or folder to its place, unless that was done before."""
    source = ready / name
    target = folder / name
    if not os.path.lexists(source):
        return
    if target.is_dir() and not target.is_symlink():
        _remove_entry(target, ready)  # a folder cannot be replaced in one step
    source.replace(target)


def _remove_entry(path: Path, ready: Path) -> None:
    """Remove a file, or move a folder into the ready one, which is removed later."""
    if path.is_dir() and not path.is_symlink():
        replaced = ready / REPLACED
        replaced.mkdir(exist_ok=True)
        path.rename(replaced / f"{path.name}.{secrets.token_hex(4)}")
    else:
        path.unlink(missing_ok=True)


def _read_plan(ready: Path) -> _Plan | None:
    """Read the plan; None if all is done but the removal of the ready folder."""
    try:
        plan = _Plan(**json.loads((ready / PLAN).read_bytes()))
        for name in [*plan.move, *plan.remove]:
            if name in ("", ".", "..") or name != Path(name).name:
                raise ValueError(f"{name!r} is not a plain name")
        return plan
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{ready / PLAN} is damaged ({error}); delete the folder {ready}"
        ) from error
