"""Atomic writes, locks, and checked files of JSON and arrays without pickle.

A clew file is a zip with two stored members: ``clew.json``, which carries checksums,
and ``arrays.npz``, written by :func:`numpy.savez`. The same content always gives the
same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clew._version import __version__
from clew.errors import InputError, StoreError
from clew.utils.validation import short_repr

FORMAT = "clew"
FORMAT_VERSION = 1
MAX_BYTES = 2**31
"""Largest file that is written or read, since it is held in memory."""
JSON = "clew.json"
ARRAYS = "arrays.npz"
CHECKSUM = "sha256"
TEMPORARY_NAME = re.compile(r"\..+\.clew-[0-9a-f]{8}\.tmp")
"""Names that no other program gives to its files."""
USER_FOLDERS = {
    "cache": ("XDG_CACHE_HOME", ".cache", "Library/Caches"),
    "state": ("XDG_STATE_HOME", ".local/state", "Library/Application Support"),
}
"""The variable that names it, and where it is in the home folder on Linux and macOS."""
MAX_STEM = 40
"""Characters of a file's name in that of its temporary file."""
Json: TypeAlias = dict[str, Any]
"""A JSON object. Readers check its content with `wrap_content_errors`."""
Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by name."""


@dataclass(frozen=True)
class Document:
    """Content of a clew file, and the version of clew that wrote it."""

    kind: str
    meta: Json
    arrays: Arrays
    clew_version: str


def write_document(
    path: str | Path,
    kind: str,
    meta: Mapping[str, object],
    arrays: Mapping[str, NDArray[np.generic]],
    *,
    durable: bool = True,
) -> None:
    """Write JSON content and arrays of numbers to one file.

    Parameters
    ----------
    path : str or Path
    kind : str
        What the file holds, such as "tracker"; readers ask for it.
    meta : mapping
        Content that JSON can hold.
    arrays : mapping from str to ndarray
        Arrays of booleans, integers or floats.
    durable : bool
        Whether it survives a power cut; see `atomic_write`.
    """
    packed = _pack_arrays(arrays)
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "clew": __version__,
        "meta": dict(meta),
        "arrays": hashlib.sha256(packed).hexdigest(),
    }
    header[CHECKSUM] = _hash_header(header)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in ((JSON, _encode_json(header)), (ARRAYS, packed)):
            archive.writestr(zipfile.ZipInfo(name), data)
    write_bytes(path, buffer.getvalue(), durable=durable)


def read_document(path: str | Path, *kinds: str) -> Document:
    """Read what `write_document` wrote.

    Parameters
    ----------
    path : str or Path
    *kinds : str
        Accepted kinds of content; all if none is given.

    Raises
    ------
    StoreError
        If the file is damaged, foreign, newer or of another kind.
    """
    data = read_bytes(path)
    try:
        header, packed = _read_members(data)
        arrays = _unpack_arrays(packed)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except Exception as error:  # zipfile and json raise many types for damaged data
        raise StoreError(
            f"{path}: the file is damaged or not a clew file "
            f"({type(error).__name__}: {error}); use a copy that clew's save wrote"
        ) from error
    kind = header["kind"]
    if kinds and kind not in kinds:
        raise StoreError(
            f"{path}: the file holds a clew {kind}; expected a clew "
            + " or ".join(kinds)
        )
    return Document(kind, header["meta"], arrays, header["clew"])


def write_bytes(path: str | Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file atomically: there is the old one or the whole new one."""
    if len(data) > MAX_BYTES:
        raise StoreError(_describe_excess(path, len(data)))
    with atomic_write(path, durable=durable) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_write(path: str | Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` when the block ends without an error.

    Parameters
    ----------
    path : str or Path
    durable : bool
        Whether to wait for the disk, so that the file survives a power cut. What can
        be made again, and shows by a checksum that it is whole, need not wait.

    Yields
    ------
    file : binary file
        A temporary file in the same folder.
    """
    _check_is_path(path)
    try:
        target = Path(os.path.realpath(path))  # a link stays a link
        _remove_leftovers(str(target.parent))
        file, temporary = _open_temporary(target)
        try:
            with file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise StoreError(
            f"{path}: cannot be written ({_describe_error(error)}); "
            "what was there before is untouched"
        ) from error
    if durable:
        sync_folder(target.parent)


def _open_temporary(target: Path) -> tuple[IO[bytes], Path]:
    """Create a temporary file beside the target, locked so that it is no leftover."""
    while True:
        token = secrets.token_hex(4)
        stem = target.name[:MAX_STEM]
        temporary = target.with_name(f".{stem}.clew-{token}.tmp")
        file = temporary.open("xb")
        try_lock(file)
        if os.fstat(file.fileno()).st_nlink:
            return file, temporary
        file.close()  # another process removed it before it was locked


@lru_cache(maxsize=1024)
def _remove_leftovers(folder: str) -> None:
    """Remove temporary files of processes that were killed; once for each folder."""
    # the folder may not exist, or another process may remove the same files
    with contextlib.suppress(OSError):
        for entry in Path(folder).iterdir():
            if TEMPORARY_NAME.fullmatch(entry.name) and entry.is_file():
                with entry.open("r+b") as file:
                    is_abandoned = try_lock(file)
                if is_abandoned:
                    entry.unlink()


def write_json(path: str | Path, content: object) -> None:
    """Write indented JSON atomically."""
    text = json.dumps(json.loads(_encode_json(content)), indent=1, ensure_ascii=False)
    # names of files may hold half a surrogate pair, which becomes an escape
    write_bytes(path, f"{text}\n".encode("utf-8", "backslashreplace"))


def read_json(path: str | Path) -> Any:
    """Read what `write_json` wrote."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: is no JSON ({error})") from error


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk, so that a new name survives a power cut."""
    # Windows and some network drives cannot do this
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_bytes(path: str | Path) -> bytes:
    """Read a regular file of at most `MAX_BYTES`; a pipe would block."""
    _check_is_path(path)
    file = Path(path)
    try:
        if not file.is_file():
            reason = "is not a file" if file.exists() else "there is no such file"
            raise StoreError(f"{path}: {reason}")
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise StoreError(_describe_excess(path, size))
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path}: cannot be read ({_describe_error(error)})"
        ) from error


@contextlib.contextmanager
def wrap_content_errors(path: str | Path) -> Iterator[None]:
    """Turn errors from unexpected content of a file into a `StoreError`."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise StoreError(
            f"{path}: the content is not that of a clew estimator "
            f"({type(error).__name__}: {error})"
        ) from error


def _check_is_path(path: object) -> None:
    if not isinstance(path, str | Path):
        raise InputError(f"path is {short_repr(path)}; expected a path")


def _describe_excess(path: str | Path, size: int) -> str:
    return f"{path}: {size} bytes are more than the {MAX_BYTES} of a clew file"


def _describe_error(error: Exception) -> str:
    """Return the system's message without the path."""
    return getattr(error, "strerror", None) or str(error)


def _encode_json(content: object) -> bytes:
    """Encode JSON so that the same content gives the same bytes."""
    try:
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"JSON cannot hold this content: {error}") from error
    return text.encode()


def _hash_header(header: Mapping[str, object]) -> str:
    """Hash everything in the header but the hash itself."""
    content = {key: value for key, value in header.items() if key != CHECKSUM}
    return hashlib.sha256(_encode_json(content)).hexdigest()


def _read_members(data: bytes) -> tuple[Json, bytes]:
    """Return the header and the packed arrays of a file, after all checks."""
    if not data.startswith(b"PK\x03\x04"):
        raise StoreError("is not a clew file: it does not begin like a zip archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_sizes(archive, len(data))
        names = archive.namelist()
        if JSON not in names:
            raise StoreError(f"there is no {JSON} in it, so it is not a clew file")
        header = json.loads(archive.read(JSON))
        _check_header(header)
        if sorted(names) != [ARRAYS, JSON]:
            raise StoreError(
                f"it has the members {', '.join(names)}; "
                f"a clew file has one {JSON} and one {ARRAYS}"
            )
        packed = archive.read(ARRAYS)
    if header["arrays"] != hashlib.sha256(packed).hexdigest():
        raise StoreError(f"{ARRAYS} is damaged: its checksum is not the one in {JSON}")
    return header, packed


def _check_header(header: object) -> None:
    """Refuse a header of another program or a newer clew, or a damaged one."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StoreError(f"{JSON} does not say that this is a clew file")
    version = header.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise StoreError(
            f"it has format version {version}, this clew {__version__} reads up to "
            f"{FORMAT_VERSION}; read it with the newer clew that wrote it"
        )
    if header.get(CHECKSUM) != _hash_header(header):
        raise StoreError(f"{JSON} is damaged: its checksum does not fit its content")


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse members that would unpack to more bytes than the archive has."""
    infos = archive.infolist()
    total = sum(max(info.file_size, info.compress_size) for info in infos)
    is_stored = all(info.compress_type == zipfile.ZIP_STORED for info in infos)
    if not is_stored or total > size:
        raise StoreError(
            f"its members declare {total} bytes in a file of {size}; clew stores "
            "members uncompressed and side by side"
        )


def _pack_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Return arrays of numbers as an uncompressed npz."""
    content: Arrays = {}
    for name, values in arrays.items():
        array = np.asarray(values, order="C")
        if not _is_numeric(array.dtype):
            raise InputError(
                f"array {name!r} has dtype {array.dtype}; "
                "only booleans, integers and floats are saved"
            )
        content[name] = array.astype(array.dtype.newbyteorder("<"))
    buffer = io.BytesIO()
    np.savez(buffer, **content)  # type: ignore[arg-type]  # stubs: allow_pickle
    return buffer.getvalue()


def _unpack_arrays(data: bytes) -> Arrays:
    """Return the arrays of an npz."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _check_sizes(archive, len(data))
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    for name, array in arrays.items():
        if not _is_numeric(array.dtype):
            raise StoreError(
                f"{name} in {ARRAYS} has dtype {array.dtype}; clew reads numbers only"
            )
    return {
        name: array.astype(array.dtype.newbyteorder("="), copy=False)
        for name, array in arrays.items()
    }


def _is_numeric(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is a boolean, integer or float that every machine has."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def user_folder(kind: str) -> Path:
    """Return the user's folder of clew for a "cache", or a "state" between runs."""
    variable, on_linux, on_mac = USER_FOLDERS[kind]
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local"
    else:
        default = on_mac if sys.platform == "darwin" else on_linux
        base = os.environ.get(variable) or Path.home() / default
    return Path(base) / "clew"


def try_lock(file: IO[bytes]) -> bool | None:
    """Lock an open file until it is closed.

    Returns
    -------
    is_locked : bool or None
        False if another process holds the lock, None if the file system has no locks,
        as some network drives.
    """
    try:
        _lock_file(file)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: IO[bytes]) -> None:
        """Lock the first byte, which need not exist."""
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock_file(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
