"""A folder of results: all files are replaced at once, and a manifest lists them.

No file system renames many files in one step, so there is a journal, as in a
database:

1. New files are written into a hidden folder within the destination,
   ``.NAME.RUN.tmp``, which is on the same file system by construction. ``RUN`` is
   a random id that the lock file ``.NAME.lock`` lists.
2. When all files are complete and synced, one rename makes it ``.NAME.RUN.ready``.
   From this moment on, the new files count.
3. They are moved to their places, old files are removed, and the hidden folder and
   the lock file go.

A run that is killed before step 2 leaves the old files untouched. After step 2, the next
*writer* finishes the move; a run that is interrupted by Ctrl-C does so itself. Readers
change nothing: they refuse a folder whose files are partly old and partly new. A writer
finishes or removes only hidden folders whose run id its lock file lists, and only names
that it owns. Several processes may write into one hidden folder; only the process that
opened it declares it complete.

The manifest has the sizes and digests of the files. It is written last, and also says
which clew made the folder, from what, and its ``run``, a digest of all of that. Files
that do not fit it are of another run, were changed by hand, or are damaged. Folders
without a manifest, made by other programs, are accepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from clew._version import __version__
from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.io.names import MANIFEST
from clew.utils.storage import sync_folder, try_lock, write_bytes, write_json

PLAN = ".plan.json"
"""File in a ready folder that lists what to move and what to remove."""
REPLACED = ".old"
"""Subfolder of a ready folder for folders that were replaced."""
MAX_LOCK_BYTES = 2**16
"""Largest lock file that is searched for run ids."""
KIND = "clew manifest"
VERSION = 1
SHOWN = 3
"""Number of files that a message lists."""


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


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest.

    Attributes
    ----------
    what : str
        Kind of result: track, detect or simulate.
    run : str
        Digest of everything below; equal for equal results.
    clew : str
        Version that wrote the result.
    made_from : mapping
        Provenance: the movie, the settings and so on.
    files : mapping from path within the folder to (size, SHA-256)
    """

    what: str
    run: str
    clew: str
    made_from: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]


@contextmanager
def write_atomically(
    folder: Path,
    what: str,
    owns: Owns,
    made_from: Mapping[str, Any],
    name: str = MANIFEST,
) -> Iterator[Path]:
    """Replace the result in a folder, with its manifest, as a whole.

    Parameters
    ----------
    folder : Path
        Destination.
    what : str
        Kind of result, see `Manifest`.
    owns : callable
        Whether a name in the folder belongs to this kind of result.
    made_from : mapping
        Provenance; read when the block has ended.
    name : str
        File name of the manifest.

    Yields
    ------
    stage : Path
        Hidden folder to write the new files into.
    """

    def is_part(entry: str) -> bool:
        return entry == name or owns(entry)

    with stage_files(folder, name, is_part, last=name) as stage:
        yield stage
        paths = sorted(path for path in stage.rglob("*") if path.is_file())
        content = {
            "what": what,
            "clew": __version__,
            "made_from": dict(made_from),
            "files": {
                path.relative_to(stage).as_posix(): _hash_file(path) for path in paths
            },
        }
        header = {"kind": KIND, "version": VERSION, "run": _hash_json(content)}
        write_json(stage / name, header | content)


def read_manifest(folder: str | Path, name: str = MANIFEST) -> Manifest | None:
    """Read the manifest of a folder; None if it has none that clew wrote."""
    path = Path(folder) / name
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is damaged ({error}); write the result again"
        ) from error
    if not isinstance(content, dict) or content.pop("kind", None) != KIND:
        return None
    file_version = content.pop("version", None)
    if file_version != VERSION:
        raise StoreError(
            f"{path} has version {file_version}, this clew reads version {VERSION}; "
            "update clew"
        )
    run = content.pop("run", None)
    if run != _hash_json(content):
        raise InputError(
            f"{path} is damaged: its digest does not fit its content; write the "
            "result again"
        )
    try:
        files = {
            _check_name(file): (int(size), str(digest))
            for file, (size, digest) in content["files"].items()
        }
        return Manifest(
            what=str(content["what"]),
            run=str(run),
            clew=str(content["clew"]),
            made_from=content["made_from"],
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is no manifest of clew ({error!r})") from error


def _check_name(file: str) -> str:
    """Refuse paths that lead out of the folder."""
    if "\0" in file or PurePosixPath(file).is_absolute() or ".." in file.split("/"):
        raise ValueError(f"{file[:80]!r} is not a path within the folder")
    return file


def require_intact(folder: str | Path, owns: Owns) -> Manifest | None:
    """Refuse a folder whose files do not fit its manifest.

    Parameters
    ----------
    folder : str or Path
        Folder of results.
    owns : callable
        Whether a name in the folder belongs to this kind of result.

    Returns
    -------
    manifest : Manifest or None
        None if there is no manifest; such a folder is accepted.
    """
    refuse_interrupted_write(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    faults = _compare_files(Path(folder), manifest.files, compare_content=True)
    faults += _list_unknown(Path(folder), manifest, owns)
    if faults:
        raise InputError(
            f"{folder}: the files do not fit its {MANIFEST}: {_join_faults(faults)}; "
            f"write the result again, or delete {MANIFEST} if you changed the files "
            "on purpose"
        )
    return manifest


def warn_if_folder_changed(folder: str | Path) -> None:
    """Warn if label images were changed since clew wrote them; compares sizes only."""
    refuse_interrupted_write(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        return
    faults = _compare_files(Path(folder), manifest.files, compare_content=False)
    if faults:
        warnings.warn(
            f"{folder} was changed since clew {manifest.clew} wrote it: "
            f"{_join_faults(faults)}",
            DataWarning,
            stacklevel=3,
        )


def warn_if_file_changed(path: str | Path) -> None:
    """Warn if one file or folder of a result does not fit the manifest beside it."""
    path = Path(path)
    refuse_interrupted_write(path.parent)
    manifest = read_manifest(path.parent)
    if manifest is None:
        return
    files = {
        file: entry
        for file, entry in manifest.files.items()
        if file.split("/")[0] == path.name
    }
    faults = _compare_files(path.parent, files, compare_content=True)
    if not files:
        faults = [f"{path.name} is not listed"]
    if faults:
        warnings.warn(
            f"{path} does not fit the {MANIFEST} beside it: {_join_faults(faults)}",
            DataWarning,
            stacklevel=3,
        )


def list_foreign_files(
    folder: Path, manifest: Manifest | None, owns: Owns
) -> list[str]:
    """List files of a result that clew did not write, or that were changed since.

    Parameters
    ----------
    folder : Path
        Folder of results.
    manifest : Manifest or None
        Its manifest.
    owns : callable
        Whether a name in the folder belongs to this kind of result.

    Returns
    -------
    faults : list of str
        One clause for each file.
    """
    if manifest is None:
        names = sorted(path.name for path in folder.iterdir() if owns(path.name))
        return [f"{name} has no {MANIFEST} beside it" for name in names]
    present = {
        file: entry for file, entry in manifest.files.items() if _is_file(folder / file)
    }
    faults = _compare_files(folder, present, compare_content=True)
    return faults + _list_unknown(folder, manifest, owns)


def _compare_files(
    folder: Path, files: Mapping[str, tuple[int, str]], *, compare_content: bool
) -> list[str]:
    """Describe each file that is missing or differs from its entry."""
    faults = []
    for file, (size, digest) in files.items():
        path = folder / file
        if not _is_file(path):
            faults.append(f"{file[:80]} is missing")
            continue
        try:
            found = path.stat().st_size
            if found != size:
                faults.append(f"{file} has {found} bytes, expected {size}")
            elif compare_content and _hash_file(path)[1] != digest:
                faults.append(f"the content of {file} differs")
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
    return faults


def _is_file(path: Path) -> bool:
    """Whether a path is a file; False for names that no file system takes."""
    try:
        return path.is_file()
    except OSError:
        return False


def _list_unknown(folder: Path, manifest: Manifest, owns: Owns) -> list[str]:
    """Describe files that belong to this kind of result, but not to this one."""
    known = {file.split("/")[0] for file in manifest.files} | {MANIFEST}
    names = sorted(path.name for path in folder.iterdir())
    unknown = [name for name in names if owns(name) and name not in known]
    return [f"{name} is not listed" for name in unknown]


def _join_faults(faults: list[str]) -> str:
    more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def _hash_file(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _hash_json(content: Mapping[str, Any]) -> str:
    """Digest of JSON content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
