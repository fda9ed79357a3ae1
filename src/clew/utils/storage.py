"""A checked archive of JSON and arrays in one file, written all or not at all; never pickle.

The file is a zip with two stored members: `clew.json`, which carries a checksum of itself and of the other, and
`arrays.npz`, which `numpy.load` opens too. The same content always gives the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
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
from clew.utils.locks import try_lock
from clew.utils.validation import short_repr

FORMAT = "clew"
FORMAT_VERSION = 1
MAX_BYTES = 2**31
"""The largest file that is written or read: it is held in memory as a whole."""
JSON, ARRAYS = "clew.json", "arrays.npz"
CHECKSUM = "sha256"
LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""Names of temporary files."""
MAX_STEM = 40
"""Characters of a name that its temporary file repeats, for names have a limit."""
Json: TypeAlias = dict[str, Any]
"""An object of JSON. Any, and not the union of what JSON can hold: what is read is looked into by its keys, and who
reads catches what is not as expected (`reading`); what is written may be of any type that `json` knows."""
Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by name, each of the dtype that it was written with: who reads one knows which."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Document:
    """What a file holds."""

    kind: str
    meta: Json
    arrays: Arrays
    clew_version: str
    """Of the clew that wrote it."""


def write_document(
    path: str | Path,
    kind: str,
    meta: Mapping[str, object],
    arrays: Mapping[str, NDArray[np.generic]],
) -> None:
    """Write JSON content and plain arrays to one file."""
    packed = _pack_arrays(arrays)
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "clew": __version__,
        "meta": dict(meta),
        "arrays": hashlib.sha256(packed).hexdigest(),
    }
    header[CHECKSUM] = _checksum(header)
    write_bytes(path, _zip({JSON: _json(header), ARRAYS: packed}))


def read_document(path: str | Path, *kinds: str) -> Document:
    """Read what `write` wrote; anything damaged, foreign, newer or of none of the `kinds`, if given, is refused."""
    data = read_bytes(path)
    try:
        members = _unzip(data)
        header = _header(members)
        arrays = _unpack_arrays(members[ARRAYS])
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except (
        Exception
    ) as error:  # a damaged zip makes zipfile and json raise nearly anything
        raise StoreError(
            f"{path}: the file is damaged or not a clew file ({type(error).__name__}: {error}); "
            "take a copy that was made with clew's save"
        ) from error
    if kinds and header["kind"] not in kinds:
        raise StoreError(
            f"{path}: the file holds a clew {header['kind']}; expected a clew {' or '.join(kinds)}"
        )
    return Document(header["kind"], header["meta"], arrays, header["clew"])


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file so that, whatever happens, there is either the old one or the whole new one."""
    if len(data) > MAX_BYTES:
        raise StoreError(
            f"{path}: {len(data)} bytes are more than the {MAX_BYTES} that a clew file may have"
        )
    with atomic_write(path) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write to piece by piece, which takes its place when the block ends well; else the old one stays."""
    _check_path(path)
    try:
        target = Path(os.path.realpath(path))  # through a link, not in its place
        _remove_leftovers(str(target.parent))
        file, temporary = _open_temporary(target)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise StoreError(
            f"{path}: cannot be written ({_reason(error)}); what was there before is untouched"
        ) from error
    sync_folder(target.parent)


def _open_temporary(target: Path) -> tuple[IO[bytes], Path]:
    """A new file beside the target, locked while it is written, so that it is not taken for a leftover."""
    while True:
        temporary = target.with_name(
            f".{target.name[:MAX_STEM]}.{secrets.token_hex(4)}.tmp"
        )
        file = temporary.open("xb")
        try_lock(file)
        if os.fstat(file.fileno()).st_nlink:  # or else it was removed between the two
            return file, temporary
        file.close()


@lru_cache(maxsize=1024)
def _remove_leftovers(folder: str) -> None:
    """Temporary files of processes that were killed while they wrote; looked for once in each folder."""
    with contextlib.suppress(
        OSError
    ):  # there is no such folder, or another process removes the same
        for entry in Path(folder).iterdir():
            if LEFTOVER.fullmatch(entry.name) and entry.is_file():
                with entry.open("r+b") as file:
                    abandoned = try_lock(file)
                if abandoned:
                    entry.unlink()


def write_json(path: str | Path, content: object) -> None:
    """Write JSON for people to read, whole or not at all."""
    write_bytes(
        path,
        (
            json.dumps(json.loads(_json(content)), indent=1, ensure_ascii=False) + "\n"
        ).encode(
            "utf-8",
            "backslashreplace",  # half a surrogate pair, of a file's name, becomes an escape of JSON
        ),
    )


def read_json(path: str | Path) -> Any:
    """Read what `write_json` wrote."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: is no JSON ({error})") from error


def sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut."""
    with contextlib.suppress(
        OSError
    ):  # Windows and some network drives cannot; the replacement was atomic anyway
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_bytes(path: str | Path) -> bytes:
    """The whole file, if it is one (a pipe would block) and not too large."""
    _check_path(path)
    try:
        if not Path(path).is_file():
            raise StoreError(
                f"{path}: there is no such file"
                if not Path(path).exists()
                else f"{path}: is not a file"
            )
        size = Path(path).stat().st_size
        if size > MAX_BYTES:
            raise StoreError(
                f"{path}: {size} bytes are more than the {MAX_BYTES} that a clew file may have"
            )
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({_reason(error)})") from error


def _check_path(path: object) -> None:
    if not isinstance(path, str | Path):
        raise InputError(f"path is {short_repr(path)}; expected a path")


def _reason(error: Exception) -> str:
    """The system's own words, without the path that the message has already."""
    return getattr(error, "strerror", None) or str(error)


def _json(content: object) -> bytes:
    """Canonical JSON: the same content gives the same bytes."""
    try:
        text = json.dumps(
            content, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"JSON cannot hold this content: {error}") from error
    return text.encode()


def _checksum(header: Mapping[str, object]) -> str:
    """Of everything in the header but the checksum itself."""
    return hashlib.sha256(
        _json({key: value for key, value in header.items() if key != CHECKSUM})
    ).hexdigest()


def _header(members: Mapping[str, bytes]) -> Json:
    """The checked content of clew.json."""
    if JSON not in members:
        raise StoreError(f"there is no {JSON} in it, so it is not a clew file")
    header = json.loads(members[JSON])
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StoreError(f"{JSON} does not say that this is a clew file")
    if not isinstance(header.get("version"), int) or header["version"] > FORMAT_VERSION:
        raise StoreError(
            f"it has format version {header.get('version')}, this clew {__version__} reads up to {FORMAT_VERSION}; "
            "a newer clew wrote it, so read it with a newer clew"
        )
    if set(members) != {JSON, ARRAYS}:
        raise StoreError(
            f"it has the members {', '.join(members)}; a clew file has {JSON} and {ARRAYS} only"
        )
    if header.get(CHECKSUM) != _checksum(header):
        raise StoreError(f"{JSON} is damaged: its checksum does not fit its content")
    if header["arrays"] != hashlib.sha256(members[ARRAYS]).hexdigest():
        raise StoreError(f"{ARRAYS} is damaged: its checksum is not the one in {JSON}")
    return header


def _zip(members: Mapping[str, bytes]) -> bytes:
    """A zip of stored members; nothing in it depends on time or machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            file.writestr(info, data)
    return buffer.getvalue()


def _unzip(data: bytes) -> dict[str, bytes]:
    """The members of a zip; what it declares is checked before anything is unpacked."""
    if not data.startswith(b"PK\x03\x04"):
        raise StoreError("is not a clew file: it does not begin like a zip archive")
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = file.infolist()
        for info in infos:
            if not PLAIN_NAME.fullmatch(info.filename):
                raise StoreError(
                    f"the member {info.filename!r} is no plain name; it could lead to another folder"
                )
            # stored members cannot be larger than the file: no bomb can be hidden in one
            if (
                info.compress_type != zipfile.ZIP_STORED
                or not info.file_size == info.compress_size <= len(data)
            ):
                raise StoreError(
                    f"the member {info.filename} declares {info.file_size} bytes in a file of {len(data)}; clew's "
                    "members are stored uncompressed, so none can be larger than the file"
                )
        if len({info.filename for info in infos}) != len(infos):
            raise StoreError("two members have the same name")
        return {info.filename: file.read(info) for info in infos}


def _pack_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """An uncompressed npz."""
    members = {}
    for name, given in arrays.items():
        if not PLAIN_NAME.fullmatch(name):
            raise InputError(
                f"the array name {name!r} must be of letters, digits and any of _ . -, a letter first"
            )
        array = np.asarray(given, order="C")
        if not _is_plain(array.dtype):
            raise InputError(
                f"array {name!r} has dtype {array.dtype}; only booleans, integers and floats are saved"
            )
        buffer = io.BytesIO()
        np.lib.format.write_array(
            buffer,
            array.astype(array.dtype.newbyteorder("<")),
            (1, 0),
            allow_pickle=False,
        )
        members[f"{name}.npy"] = buffer.getvalue()
    return _zip(members)


def _unpack_arrays(data: bytes) -> Arrays:
    """The arrays of an npz, each of a plain dtype and exactly as large as it declares."""
    if data == _zip({}):
        return {}
    return {
        name.removesuffix(".npy"): _unpack_array(name, member)
        for name, member in _unzip(data).items()
    }


def _unpack_array(name: str, data: bytes) -> NDArray[np.generic]:
    """One npy. Read here, for numpy asks for the memory of any shape that a header declares."""
    buffer = io.BytesIO(data)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise StoreError(
            f"{name} in {ARRAYS} is not an npy of version 1.0, which clew writes"
        )
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    if fortran or not _is_plain(dtype):
        raise StoreError(
            f"{name} in {ARRAYS} has dtype {dtype}; clew reads plain numbers only, never pickled objects"
        )
    body = data[buffer.tell() :]
    count = 1
    for length in shape:  # Python's integers, that cannot overflow
        count *= int(length)
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(body):
        raise StoreError(
            f"{name} in {ARRAYS} declares shape {shape} of {dtype}, but has {len(body)} bytes"
        )
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _is_plain(dtype: np.dtype[np.generic]) -> bool:
    """Booleans, integers and floats that every machine has."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


@contextlib.contextmanager
def wrap_content_errors(path: str | Path) -> Iterator[None]:
    """Content that this clew cannot make sense of is the file's fault, not the caller's."""
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
            f"{path}: the content is not that of a clew estimator ({type(error).__name__}: {error})"
        ) from error
