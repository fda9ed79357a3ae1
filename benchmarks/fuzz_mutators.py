"""Mutators for fuzz.py: each changes a file in place, and knows the structure of what it changes."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from clew.errors import ClewError
from clew.utils import storage

NASTY: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**30,
    1e300,
    -1e300,
    0.5,
    "",
    "x",
    "nan",
    "inf",
    "../x",
    "\0",
    "é" * 300,
    [],
    [[]],
    {},
    {"a": 1},
    [1] * 1000,
]
API_NASTY: list[Any] = [
    *NASTY,
    float("nan"),
    float("inf"),
    [float("nan")] * 3,
    [None],
    [[1, 2], [3]],
    ["a", 1],
    5,
    1e-300,
    10**9,
    False,
    *({"@": kind} for kind in ("object", "class")),
    *(
        {"@": kind, "of": of}
        for kind in (
            "array",
            "sparse",
            "set",
            "tuple",
            "iterator",
            "objects",
            "read-only",
        )
        for of in ([], [1, 2], [[1.0, 2.0]], [[]], ["a"], 3, [None, 1])
    ),
    {"@": "array", "of": [[1, 2]], "dtype": "complex64"},
    {"@": "array", "of": [1, 2], "dtype": "datetime64[s]"},
    {"@": "array", "of": [1, 2], "dtype": "float16"},
    {"@": "array", "of": [[1, 0]], "dtype": "bool"},
    {"@": "scalar", "of": 1, "dtype": "uint8"},
    {"@": "scalar", "of": 1, "dtype": "float32"},
    {"@": "complex", "of": "1+2j"},
    {"@": "bytes", "of": "a"},
    {"@": "mapping", "of": [[0, 1], [7, 2]]},
    {"@": "algorithm", "of": {"tol": 1e-300, "memory": 1}},
]
"""Arguments of calls; "@" is for what JSON does not have, see fuzz_api.py."""
HDF5_NASTY: list[Any] = [-1, 0, 2**62, np.nan, "", "x", "../x", b"\xff", [1, 2], 0.5]
CHOICES = [
    "auto",
    "bridge",
    "hinge",
    "ramp",
    "max",
    "ramp-delta",
    "max-delta",
    "pair",
    "clpl",
    "l1",
    "l2",
    "zero",
    "balanced",
    "examples",
    "parts",
    "paper",
    "yu-joachims",
    "ascent",
    "interior-point",
    "platt",
    "isotonic",
    "array",
    "tuple",
    "objects",
    "sparse",
    "read-only",
    "float32",
    "int8",
    "move divide",
    "move merge split gap",
    "volume",
    "intensity",
    "a",
]
"""What settings and mappings of fuzz_api.py may say."""
WORDS = [
    b"nan",
    b"inf",
    b"-1",
    b"1e300",
    b"99999999999999999999",
    b"9007199254740993",
    b"",
    b'"',
    b"\xff",
    b"0x1",
    b" ",
    b"a,b",
]


def mutate_bytes(path: Path, rng: random.Random) -> None:
    """Flip, cut, repeat or blank a piece of any file."""
    data = bytearray(path.read_bytes())
    if not data:
        path.write_bytes(rng.randbytes(rng.randint(0, 40)))
        return
    at, n = rng.randrange(len(data)), rng.choice([1, 1, 2, 4, 8, 64])
    kind = rng.randrange(5)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at : at + n] = rng.randbytes(n)
    elif kind == 3:
        data[at:at] = data[at : at + n]
    else:
        data[at : at + n] = bytes([rng.choice([0, 255])]) * n
    path.write_bytes(data)


def mutate_json(path: Path, rng: random.Random) -> None:
    """Put something nasty at a leaf, take a key away, or wrap a value."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return mutate_bytes(path, rng)
    path.write_text(json.dumps(changed(content, rng)))
    return None


def changed(content: Any, rng: random.Random, nasty: Sequence[Any] = NASTY) -> Any:
    """JSON content with one change somewhere in it."""
    if isinstance(content, dict) and content and rng.random() < 0.85:
        key = rng.choice(list(content))
        if rng.random() < 0.12:
            return {name: value for name, value in content.items() if name != key}
        return content | {key: changed(content[key], rng, nasty)}
    if isinstance(content, list) and content and rng.random() < 0.8:
        at = rng.randrange(len(content))
        if rng.random() < 0.2:
            return (
                content[:at] + content[at + 1 :]
                if rng.random() < 0.5
                else [*content, content[at]]
            )
        return [*content[:at], changed(content[at], rng, nasty), *content[at + 1 :]]
    return [content] if rng.random() < 0.1 else rng.choice(nasty)


def mutate_table(path: Path, rng: random.Random) -> None:
    """Change a cell, a row or the separators of a text."""
    rows = [re.split(rb"([,\t ])", line) for line in path.read_bytes().split(b"\n")]
    row = rng.choice(rows)
    kind = rng.randrange(6)
    if kind < 3:
        row[rng.randrange(len(row))] = rng.choice(WORDS)
    elif kind == 3:
        rows.insert(rng.randrange(len(rows)), list(row))
    elif kind == 4 and len(rows) > 1:
        rows.remove(row)
    else:
        return mutate_bytes(path, rng)
    path.write_bytes(b"\n".join(b"".join(cells) for cells in rows))
    return None


def mutate_xml(path: Path, rng: random.Random) -> None:
    """Change the value of an attribute, or leave an element out or double it."""
    data = path.read_bytes()
    kind = rng.randrange(4)
    pattern = rb'"[^"]*"' if kind < 2 else rb"<[^>]*>"
    found = list(re.finditer(pattern, data))
    if not found:
        return mutate_bytes(path, rng)
    match = rng.choice(found)
    word = rng.choice([*WORDS, rng.choice(found)[0].strip(b'"')])
    new = {0: b'"' + word + b'"', 1: b'"%d"' % rng.randint(-3, 30), 2: b""}
    path.write_bytes(
        data[: match.start()] + new.get(kind, 2 * match[0]) + data[match.end() :]
    )
    return None


def mutate_tiff(path: Path, rng: random.Random) -> None:
    """Change the tag, type, count or value of one entry of a directory, or where the next directory is."""
    data = bytearray(path.read_bytes())
    if len(data) < 16 or rng.random() < 0.3:
        return mutate_bytes(path, rng)
    order = ">" if data[:2] == b"MM" else "<"
    at = struct.unpack_from(f"{order}I", data, 4)[0]
    for _ in range(rng.randrange(4)):  # to a later directory
        if at + 2 > len(data):
            break
        end = at + 2 + 12 * struct.unpack_from(f"{order}H", data, at)[0]
        following = (
            struct.unpack_from(f"{order}I", data, end)[0] if end + 4 <= len(data) else 0
        )
        at = following or at
    if at + 2 > len(data):
        return mutate_bytes(path, rng)
    n = max(struct.unpack_from(f"{order}H", data, at)[0], 1)
    entry = at + 2 + 12 * rng.randrange(n)
    place, size = rng.choice(
        [(0, "H"), (2, "H"), (4, "I"), (8, "I"), (8, "I"), (8, "H")]
    )
    value = rng.choice(
        [
            0,
            1,
            2,
            3,
            8,
            16,
            32,
            255,
            256,
            257,
            65535,
            2**31,
            2**32 - 1,
            rng.randrange(2**16),
        ]
    )
    if entry + 12 > len(data):
        return mutate_bytes(path, rng)
    struct.pack_into(
        f"{order}{size}", data, entry + place, value % 256 ** struct.calcsize(size)
    )
    path.write_bytes(data)
    return None


def mutate_model(path: Path, rng: random.Random) -> None:
    """Change the content of a model file and sign it anew."""
    try:
        document = storage.read_document(path)
    except ClewError:
        return mutate_bytes(path, rng)
    meta, arrays = document.meta, dict(document.arrays)
    if rng.random() < 0.7 or not arrays:
        meta = changed(meta, rng)
    else:
        name = rng.choice(list(arrays))
        value = rng.choice([np.nan, np.inf, -1, 0, 1e300])
        arrays[name] = rng.choice(
            [np.zeros(0), arrays[name].astype(float).ravel()[:-1], arrays[name][None]]
        )
        if rng.random() < 0.5:
            arrays[name] = np.full_like(np.asarray(arrays[name], dtype=float), value)
    if isinstance(meta, dict):
        try:
            storage.write_document(path, document.kind, meta, arrays)
        except ClewError:
            mutate_bytes(path, rng)
    return None


def mutate_hdf5(path: Path, rng: random.Random) -> None:
    """Change, retype or remove an array, a number in it, or an attribute."""
    import h5py

    try:
        with h5py.File(path, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            name = rng.choice(names)
            entry = file[name]
            kind = rng.randrange(5)
            if kind == 0:
                del file[name]
            elif kind == 1 and entry.attrs:
                entry.attrs[rng.choice(list(entry.attrs))] = rng.choice(HDF5_NASTY)
            elif isinstance(entry, h5py.Dataset):
                _mutate_dataset(file, name, rng)
            else:
                file.copy(entry, f"{name} copy")
    except (OSError, RuntimeError, KeyError, IndexError, TypeError, ValueError):
        return mutate_bytes(path, rng)
    return None


def _mutate_dataset(file: Any, name: str, rng: random.Random) -> None:
    """Put a number where another was, or another array."""
    values = np.array(file[name][()])
    kind = rng.randrange(3)
    if kind == 0 and values.size and values.dtype.kind in "iuf":
        flat = values.reshape(-1)
        flat[rng.randrange(len(flat))] = rng.choice([0, 1, 2, 3, 5, 100])
    elif kind == 1:
        values = values[:-1] if values.ndim and len(values) else values[None]
    else:
        values = values.astype(rng.choice(["f4", "i8", "u1", "S3"]))
    del file[name]
    file[name] = values


def mutate_zip(path: Path, rng: random.Random) -> None:
    """Change the bytes of one member of a zip, or leave it out."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = rng.choice(list(members))
    except Exception:  # zipfile raises many types for damaged data
        return mutate_bytes(path, rng)
    part = path.with_name("part")
    part.write_bytes(members[name])
    mutate_bytes(part, rng)
    members[name] = part.read_bytes()
    part.unlink()
    if rng.random() < 0.1:
        del members[name]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return None


def mutate_store(path: Path, rng: random.Random) -> None:
    """Change a value of a database, or its bytes."""
    if rng.random() < 0.4:
        return mutate_bytes(path, rng)
    try:
        with closing(sqlite3.connect(path)) as base, base:
            tables = [
                name
                for (name,) in base.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            table = rng.choice(tables)
            columns = [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]
            value = rng.choice(
                [
                    v
                    for v in NASTY
                    if isinstance(v, str | int | float | None)
                    and not (isinstance(v, int) and abs(v) >= 2**63)
                ]
            )
            if rng.random() < 0.1:
                base.execute(f'DROP TABLE "{table}"')
            else:
                base.execute(
                    f'UPDATE OR IGNORE "{table}" SET "{rng.choice(columns)}" = ?',
                    (value,),
                )
    except (sqlite3.Error, IndexError, UnicodeError, OverflowError):
        return mutate_bytes(path, rng)
    return None


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the leaves of JSON content are."""
    inner = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    return [place for key, value in inner for place in places(value, (*at, key))] or [
        at
    ]


def altered(leaf: Any, rng: random.Random) -> Any:
    """Another value of much the same kind, which may well be right: so that cases reach what lies behind the checks."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return rng.choice(
            [
                leaf + 1,
                leaf - 1,
                0,
                1,
                2,
                3,
                2 * leaf,
                -leaf,
                leaf + rng.randint(-9, 9),
                float(leaf),
            ]
        )
    if isinstance(leaf, float):
        return rng.choice(
            [
                leaf / 2,
                3 * leaf,
                -leaf,
                leaf + rng.gauss(0, 1),
                0.0,
                1.0,
                1e-9 * leaf,
                1e9 * leaf,
            ]
        )
    if isinstance(leaf, str):
        return rng.choice(CHOICES)
    return rng.choice([None, 0, 1, 2, 0.5, True, [0, 1], [1.0] * 4, *CHOICES])


def mutate_call(path: Path, rng: random.Random) -> None:
    """Alter one leaf of a call's arguments, put something nasty somewhere, or an array where a list was."""
    document = json.loads(path.read_text())
    name = rng.choice(list(document))
    place = rng.choice(places(document[name]))
    if rng.random() < 0.5 and place:
        inner = document[name]
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = altered(inner[place[-1]], rng)
    elif rng.random() < 0.4 and not place:
        document[name] = altered(document[name], rng)
    elif rng.random() < 0.15 and isinstance(document[name], list):
        document[name] = {
            "@": rng.choice(["array", "tuple", "iterator", "objects", "sparse"]),
            "of": document[name],
        }
    else:
        document[name] = changed(document[name], rng, API_NASTY)
    path.write_text(json.dumps(document))


MUTATORS: list[tuple[str, Callable[[Path, random.Random], None]]] = [
    (r"\.api$", mutate_call),
    (r"\.tif$", mutate_tiff),
    (r"\.json$|^\.z(array|attrs|group)$", mutate_json),
    (r"\.(csv|txt|conll|iob)$", mutate_table),
    (r"\.xml$", mutate_xml),
    (r"\.clew$", mutate_model),
    (r"\.clewdb$", mutate_store),
    (r"\.(h5|ilp)$", mutate_hdf5),
    (r"\.mastodon$", mutate_zip),
    ("", mutate_bytes),
]


def mutate(folder: Path, rng: random.Random) -> None:
    """One to three changes of the files in a folder."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if not files:
            return
        path = rng.choice(files)
        if rng.random() < 0.04:
            path.unlink()
            continue
        next(change for pattern, change in MUTATORS if re.search(pattern, path.name))(
            path, rng
        )
