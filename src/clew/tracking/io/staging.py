"""Several files put into a folder as one: whoever opens it finds all the old ones, or all the new ones, or none.

No file system renames many files at once, so there is a journal, as in a database. New files are written into a hidden
folder within the destination, `.NAME.….tmp`: the same file system by construction, whatever is mounted or linked there.
When all are complete, one rename makes it `.NAME.….ready`, and that is the moment at which the new files count: they
are then moved to their places, and what belonged to the old ones is removed. Whoever comes next, a reader too, finishes
what was cut short. What is left of a run that ended before that moment is removed by the next one.

Several processes may write into one such folder, for only the one that opened it says when it is complete.
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
from pathlib import Path
from typing import IO, NamedTuple

from clew.errors import StoreError
from clew.utils.locks import try_lock
from clew.utils.storage import sync_folder, write_bytes

PLAN = ".plan.json"
"""In a folder that is ready: what is to be done with it."""
OLD = ".old"
"""In it too: folders that were replaced, on their way out."""


@contextmanager
def stage_files(
    folder: Path, name: str, owns: Callable[[str], bool], last: str = ""
) -> Iterator[Path]:
    """A hidden folder whose content takes the place of all that `owns` names in `folder`, when the block ends well.

    `name` tells apart what is written into one folder independently; `last` is the file that is moved last. If the
    block ends in any other way, everything stays as it was, and a folder that was not there is not there.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, name):
            _finish(folder, name)
            _remove_leftovers(folder, name)
            stage = folder / f".{name}.{secrets.token_hex(4)}.tmp"
            try:
                stage.mkdir()
                yield stage
                ready = _make_ready(stage, owns, last)
            except BaseException:
                shutil.rmtree(stage, ignore_errors=True)
                raise
            _put_in_place(ready)
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be written ({error.strerror or error}){_kept(folder, name)}"
        ) from error
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()  # nothing came of it, so that it is empty


def finish_interrupted_write(folder: str | Path, name: str | None = None) -> None:
    """Finish what a run that was cut short had ready for a folder; nothing is done where there is no such thing."""
    folder = Path(folder)
    for each in {_name_of(ready) for ready in _hidden(folder, name, "ready")}:
        try:
            with _locked(folder, each):
                _finish(folder, each)
        except OSError as error:
            raise StoreError(
                f"{folder}: a run ended while its files were put in place, and they cannot be now "
                f"({error.strerror or error}){_kept(folder, each)}"
            ) from error


def _kept(folder: Path, name: str) -> str:
    """Where new files are, if they are complete but not all in place."""
    ready = next(iter(_hidden(folder, name, "ready")), None)
    kept = f"; the new files are complete in {ready}, and go to their places when the folder is next opened"
    return kept if ready is not None else "; what was there before is untouched"


def _hidden(folder: Path, name: str | None, state: str) -> list[Path]:
    """The hidden folders of runs."""
    which = re.compile(
        rf"\.{'.+' if name is None else re.escape(name)}\.[0-9a-f]{{8}}\.{state}"
    )
    try:
        return sorted(path for path in folder.iterdir() if which.fullmatch(path.name))
    except OSError:
        return []


def _name_of(hidden: Path) -> str:
    return hidden.name[1:].rsplit(".", 2)[0]


def _finish(folder: Path, name: str) -> None:
    for ready in _hidden(folder, name, "ready"):
        _put_in_place(ready)


def _remove_leftovers(folder: Path, name: str) -> None:
    """Of runs that were killed: no other has the lock, so that nobody writes there."""
    for stage in _hidden(folder, name, "tmp"):
        shutil.rmtree(stage, ignore_errors=True)


class _Plan(NamedTuple):
    move: list[str]
    """Names in the ready folder, in this order."""
    remove: list[str]
    """Names beside it that belonged to what was there before."""


def _make_ready(stage: Path, owns: Callable[[str], bool], last: str) -> Path:
    """Say what is to be done, and that everything is complete."""
    new = sorted(
        (path.name for path in stage.iterdir()), key=lambda name: (name == last, name)
    )
    old = sorted(
        path.name
        for path in stage.parent.iterdir()
        if owns(path.name) and path.name not in new
    )
    write_bytes(stage / PLAN, json.dumps(_Plan(new, old)._asdict()).encode())
    ready = stage.with_suffix(".ready")
    stage.rename(ready)
    sync_folder(stage.parent)
    return ready


def _put_in_place(ready: Path) -> None:
    """Move and remove what the plan says; again, if it was begun before. The lock must be held."""
    plan, folder = _read_plan(ready), ready.parent
    if plan is not None:
        for name in plan.move[:-1]:
            _move(ready, folder, name)
        for name in plan.remove:
            _take_away(folder / name, ready)
        for name in plan.move[-1:]:
            _move(ready, folder, name)
        sync_folder(folder)
    done = ready.with_suffix(
        ".tmp"
    )  # from now on it is rubbish, even if its removal is cut short
    ready.rename(done)
    shutil.rmtree(done, ignore_errors=True)


def _move(ready: Path, folder: Path, name: str) -> None:
    source, target = ready / name, folder / name
    if not os.path.lexists(source):
        return  # it was moved before the run ended
    if (
        target.is_dir() and not target.is_symlink()
    ):  # a folder is not replaced by another in one step
        _take_away(target, ready)
    source.replace(target)


def _take_away(path: Path, ready: Path) -> None:
    """Remove a file, or move a folder into the ready one, which goes as a whole later."""
    if path.is_dir() and not path.is_symlink():
        (ready / OLD).mkdir(exist_ok=True)
        path.rename(ready / OLD / f"{path.name}.{secrets.token_hex(4)}")
    else:
        path.unlink(missing_ok=True)


def _read_plan(ready: Path) -> _Plan | None:
    """The plan; names in it cannot lead out of the folder. None where all is done but its removal."""
    try:
        plan = _Plan(**json.loads((ready / PLAN).read_bytes()))
        names = [*plan.move, *plan.remove]
        if not all(
            isinstance(name, str)
            and name not in ("", ".", "..")
            and name == Path(name).name
            for name in names
        ):
            raise ValueError("a name in it is none")
        return plan
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{ready / PLAN}: is damaged ({error}); remove the folder {ready}"
        ) from error


@contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Be the only one who writes under this name into the folder, or refuse."""
    path = folder / f".{name}.lock"
    file = _open_locked(path, folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is locked; Windows cannot, and keeps an empty file
        file.close()


def _open_locked(path: Path, folder: Path) -> IO[bytes]:
    while True:
        file = path.open("ab")
        if try_lock(file) is False:
            file.close()
            raise StoreError(
                f"{folder}: another clew is writing into it; wait for it, or choose another folder"
            )
        with contextlib.suppress(
            FileNotFoundError
        ):  # the one before removed it after we opened it: once more
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()
