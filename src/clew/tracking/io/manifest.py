"""The manifest of a folder of results: its files with their sizes and digests.

It is written last, and also says which clew made the folder, from what, and its
``run``, a digest of all of that. Files that do not fit it are of another run, were
changed by hand, or are damaged. Folders without a manifest, made by other programs,
are accepted.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from clew._version import __version__
from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.io.names import MANIFEST
from clew.tracking.io.staging import Owns, refuse_interrupted_write, stage_files
from clew.utils.storage import write_json

KIND = "clew manifest"
VERSION = 1
SHOWN = 3
"""Number of files that a message lists."""


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
