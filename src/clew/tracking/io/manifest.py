"""A folder of results is one thing: a manifest, written last, names its files with their sizes and digests.

The manifest tells which clew made the folder, out of what, and its `run`, a digest of all of that. Where the files do
not fit it, the folder holds parts of different runs or was damaged. Folders without one, of others, are read.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew._version import __version__
from clew.errors import DataWarning, InputError, StoreError
from clew.tracking.io.names import MANIFEST
from clew.tracking.io.staging import finish_interrupted_write, stage_files
from clew.utils.storage import write_json

KIND = "clew manifest"
VERSION = 1
SHOWN = 3
"""How many files that do not fit a message names."""

Owns = Callable[[str], bool]
"""Whether a name in a folder is one of those that its kind of result may have."""


@dataclass(frozen=True)
class Manifest:
    """What a folder of results says of itself."""

    what: str
    """The kind of result: track, detect or simulate."""
    run: str
    """The same for the same files made from the same."""
    clew: str
    """The version that wrote it."""
    made_from: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]
    """Size and SHA-256 of each file, by its path within the folder."""


@contextmanager
def write_atomically(
    folder: Path,
    what: str,
    owns: Owns,
    made_from: Mapping[str, Any],
    name: str = MANIFEST,
) -> Iterator[Path]:
    """A hidden folder to write a result into; when the block ends well, it replaces the result in `folder` as one.

    `made_from` is read when the block has ended.
    """
    with stage_files(
        folder, name, lambda entry: entry == name or owns(entry), last=name
    ) as stage:
        yield stage
        files = {
            path.relative_to(stage).as_posix(): _entry(path)
            for path in sorted(stage.rglob("*"))
            if path.is_file()
        }
        content = {
            "what": what,
            "clew": __version__,
            "made_from": dict(made_from),
            "files": files,
        }
        header = {"kind": KIND, "version": VERSION, "run": _digest(content)}
        write_json(stage / name, header | content)


def read_manifest(folder: str | Path, name: str = MANIFEST) -> Manifest | None:
    """The manifest of a folder; None if it has none of clew's."""
    path = Path(folder) / name
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: is damaged ({error}); write the result again"
        ) from error
    if not isinstance(content, dict) or content.pop("kind", None) != KIND:
        return None
    if (given := content.pop("version", None)) != VERSION:
        raise StoreError(
            f"{path}: has version {given}, this clew reads version {VERSION}; a newer clew wrote it"
        )
    run = content.pop("run", None)
    if run != _digest(content):
        raise InputError(
            f"{path}: is damaged: its digest does not fit its content; write the result again"
        )
    try:
        files = {
            str(file): (int(size), str(digest))
            for file, (size, digest) in content["files"].items()
        }
        return Manifest(
            str(content["what"]),
            str(run),
            str(content["clew"]),
            content["made_from"],
            files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: is no manifest of clew ({error!r})") from error


def require_intact(folder: str | Path, owns: Owns) -> Manifest | None:
    """Finish what was cut short, and refuse a folder whose files do not fit its manifest; one without is accepted."""
    finish_interrupted_write(folder)
    manifest = read_manifest(folder)
    if manifest is not None and (faults := _faults(Path(folder), manifest, owns)):
        raise InputError(
            f"{folder}: the files do not fit its {MANIFEST}: {_shown(faults)}. It was changed, or holds parts of "
            f"different runs: write the result again, or remove {MANIFEST} if it was changed on purpose"
        )
    return manifest


def warn_if_folder_changed(folder: str | Path) -> None:
    """Finish what was cut short, and warn of files that were changed since; sizes are compared, contents are not.

    For label images, which people do correct by hand.
    """
    finish_interrupted_write(folder)
    manifest = read_manifest(folder)
    if manifest is not None and (faults := _faults(Path(folder), manifest, None)):
        warnings.warn(
            f"{folder}: was changed since clew {manifest.clew} wrote it: {_shown(faults)}",
            DataWarning,
            stacklevel=3,
        )


def list_foreign_files(
    folder: Path, manifest: Manifest | None, owns: Owns
) -> list[str]:
    """Files of a result that are not as clew wrote them, in words: a person's, or another program's."""
    if manifest is None:
        return [
            f"{path.name} has no {MANIFEST} beside it"
            for path in sorted(folder.iterdir())
            if owns(path.name)
        ]
    return _faults(folder, manifest, owns, missing=False)


def warn_if_file_changed(path: str | Path) -> None:
    """Warn if one file, or folder, of a result is not as its manifest says."""
    path = Path(path)
    finish_interrupted_write(path.parent)
    manifest = read_manifest(path.parent)
    if manifest is None:
        return
    mine = {
        file: entry
        for file, entry in manifest.files.items()
        if file.split("/")[0] == path.name
    }
    faults = [
        fault
        for file, entry in mine.items()
        if (fault := _fault(path.parent, file, entry, True))
    ]
    if faults or not mine:
        told = _shown(faults or [f"{path.name} is no part of it"])
        warnings.warn(
            f"{path}: does not fit the {MANIFEST} beside it: {told}",
            DataWarning,
            stacklevel=3,
        )


def _faults(
    folder: Path, manifest: Manifest, owns: Owns | None, missing: bool = True
) -> list[str]:
    """What does not fit; with `owns`, contents are compared and strange files count too. `missing` files, or not."""
    asked = [
        (file, entry)
        for file, entry in manifest.files.items()
        if missing or (folder / file).is_file()
    ]
    found = [_fault(folder, file, entry, owns is not None) for file, entry in asked]
    known = {file.split("/")[0] for file in manifest.files} | {MANIFEST}
    strange = sorted(
        path.name
        for path in folder.iterdir()
        if owns is not None and owns(path.name) and path.name not in known
    )
    return [fault for fault in found if fault] + [
        f"{name} is no part of it" for name in strange
    ]


def _fault(folder: Path, file: str, entry: tuple[int, str], content: bool) -> str:
    """What is wrong with a file, or nothing."""
    path = folder / file
    if not path.is_file():
        return f"{file} is missing"
    try:
        if (size := path.stat().st_size) != entry[0]:
            return f"{file} has {size} bytes, expected {entry[0]}"
        return (
            f"the content of {file} is another"
            if content and _entry(path)[1] != entry[1]
            else ""
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _shown(faults: list[str]) -> str:
    more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def _entry(path: Path) -> tuple[int, str]:
    """Size and digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _digest(content: Mapping[str, Any]) -> str:
    """Of JSON content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
