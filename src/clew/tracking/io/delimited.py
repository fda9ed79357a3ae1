"""Tables as text: read as spreadsheets and scripts write them, written in one plain way.

A byte-order mark, any line ends, commas, semicolons or tabs, further columns, another order, capital letters, blank
lines and lines that begin with # make no difference.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.tracking.lineage.track_faults import Faults, quoted
from clew.utils.storage import atomic_write

DELIMITERS = ",;\t"
COMMENT = "#"
CHUNK = 10_000
"""Rows that are put into words at once."""
EXCEL_HINT = re.compile(r"sep=.$", re.IGNORECASE)
"""The line by which spreadsheets tell each other the delimiter."""
ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Aliases = Mapping[str, Sequence[str]]
"""Names of columns, and what else they may be called."""


@dataclass(frozen=True)
class Table:
    """Columns of a file by name; numbers are made of them on demand, and what is none becomes a fault of its row."""

    where: str
    row: NDArray[np.intp]
    """(n,) the line of each row in the file, from 1 on."""
    columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    """(n,) each, text or numbers."""

    def __len__(self) -> int:
        return len(self.row)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def parse_integers(
        self, name: str, faults: Faults, least: int
    ) -> NDArray[np.int64]:
        """(n,) a column of integers, none under `least`."""
        values = [as_integer(cell) for cell in self.columns[name]]
        self.add_faults(faults, [value is None for value in values], name, "an integer")
        numbers = np.array(
            [least if value is None else value for value in values], dtype=np.int64
        )
        self.add_faults(faults, numbers < least, name, f"{least} or more")
        return numbers

    def parse_numbers(
        self, name: str, faults: Faults, *, infinite: bool = False
    ) -> NDArray[np.float64]:
        """(n,) a column of numbers, finite unless told otherwise."""
        numbers = np.array(
            [_as_number(cell) for cell in self.columns[name]], dtype=np.float64
        )
        self.add_faults(faults, np.isnan(numbers), name, "a number")
        if not infinite:
            self.add_faults(faults, np.isinf(numbers), name, "finite")
        return numbers

    def add_faults(self, faults: Faults, bad: ArrayLike, name: str, right: str) -> None:
        """A fault for each row whose cell is bad (n,), with what would be right."""
        at, cells = np.flatnonzero(bad), self.columns[name]
        faults.add(
            self.row[at],
            lambda i: f"{name} is {quoted(cells[at[i]])}; it must be {right}",
        )


def as_integer(cell: Any) -> int | None:
    """The integer that a cell holds, also as 12.0, or None where it holds none that fits 64 bits."""
    if (
        isinstance(cell, str) and cell.isdecimal() and len(cell) < 19
    ):  # the usual case, and the fast one
        return int(cell)
    try:
        number = (
            int(cell) if isinstance(cell, str | int) and "_" not in str(cell) else None
        )
    except ValueError:
        number = None
    if number is None:
        whole = _as_number(cell)
        number = int(whole) if whole.is_integer() else None
    return number if number is not None and abs(number) < 2**63 else None


def _as_number(cell: Any) -> float:
    """The number that a cell holds, NaN where it holds none."""
    try:
        return float("nan") if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def read_delimited(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    meant: Callable[[list[str]], list[str]] = list,
) -> Table:
    """The columns of a text file that are keys of `aliases` or are called as one of them; others are not kept.

    `meant` is given the names of all columns, and says what they are called here.
    """
    records = _records(path)
    _, names = next(records, (0, []))
    if not names:
        raise InputError(
            f"{path}: the file is empty; its first line must name the columns {', '.join(required)}"
        )
    header = meant([normalize_name(cell) for cell in names])
    places = locate_columns(str(path), header, aliases, required)
    columns: dict[str, list[str]] = {name: [] for name in places}
    kept = [(place, columns[name].append) for name, place in places.items()]
    rows = []
    for row, record in records:
        if len(record) > len(header) and any(record[len(header) :]):
            raise InputError(
                f"{path}: row {row}: there are {len(record)} values for {len(header)} columns, the first too many is "
                f"{quoted(record[len(header)])}; several ids in one cell are separated by a space"
            )
        rows.append(row)
        for place, keep in kept:
            keep(record[place] if place < len(record) else "")
    return Table(str(path), np.array(rows, dtype=np.intp), columns)


def read_column_names(path: str | Path) -> list[str]:
    """The names of a text file's columns, without capitals, spaces and hyphens; none of an empty file."""
    return [normalize_name(cell) for cell in next(_records(path), (0, []))[1]]


def locate_columns(
    where: str, header: Sequence[str], aliases: Aliases, required: Sequence[str]
) -> dict[str, int]:
    """Where each column stands: by its own name, or by the first of its aliases that is there."""
    found = {}
    for name, also in aliases.items():
        called = next((other for other in (name, *also) if other in header), None)
        if called is None and name in required:
            given = ", ".join(quoted(other) for other in header[:10])
            is_row = "".join(header[:1]).isdigit()  # the names were left out
            hint = (
                f"; the first line must name them, as in {','.join(required)}"
                if is_row
                else ""
            )
            raise InputError(
                f"{where}: there is no column {' or '.join([name, *also])}; the columns are {given}{hint}"
            )
        if called is None:
            continue
        if header.count(called) > 1:
            raise InputError(
                f"{where}: there are two columns {quoted(called)}; leave the one that is meant"
            )
        found[name] = header.index(called)
    return found


def normalize_name(name: str) -> str:
    """A column's name without capitals, spaces and hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


Part = tuple[int, Callable[[slice], Sequence[Iterable[Any]]]]


def write_delimited(
    path: str | Path,
    header: Sequence[str],
    n: int,
    columns: Callable[[slice], Sequence[Iterable[Any]]],
) -> None:
    """Write `n` rows of numbers and plain words as CSV, all or nothing; `columns` gives those of some of the rows."""
    write_parts(path, header, [(n, columns)])


def write_parts(path: str | Path, header: Sequence[str], parts: Iterable[Part]) -> None:
    """The same for rows that come in parts, one of which is in memory at a time: (number of rows, their columns)."""
    with atomic_write(path) as file:
        file.write((",".join(header) + "\n").encode())
        for n, columns in parts:
            for start in range(
                0, n, CHUNK
            ):  # a row as Python objects takes ten times the memory of its text
                cells = [
                    map(str, column) for column in columns(slice(start, start + CHUNK))
                ]
                file.write(
                    ("\n".join(map(",".join, zip(*cells, strict=True))) + "\n").encode()
                )


def slice_columns(columns: Iterable[NDArray[Any]], rows: slice) -> list[list[Any]]:
    """Some rows of arrays (n,) as Python's numbers."""
    return [column[rows].tolist() for column in columns]


def _lines(path: str | Path) -> list[str]:
    """The lines of a file; those without content for a table are empty, so that line numbers stay."""
    try:
        if not Path(path).is_file():  # a pipe or a device would block or never end
            raise InputError(
                f"{path}: is a folder, not a table"
                if Path(path).is_dir()
                else f"{path}: no such file"
            )
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    encoding = next(
        (name for mark, name in ENCODINGS.items() if data.startswith(mark)), "utf-8"
    )
    try:
        text = data.decode(encoding)
    except (
        UnicodeDecodeError
    ):  # what a spreadsheet of the nineties writes; the columns that count are ASCII
        text = data.decode("latin-1")
    lines = io.StringIO(text, newline=None).readlines()
    empty = [
        line.lstrip(" \"'").startswith(COMMENT) or EXCEL_HINT.match(line.strip())
        for line in lines
    ]
    return ["\n" if skip else line for line, skip in zip(lines, empty, strict=True)]


def _delimiter(header: str) -> str:
    """The one that occurs most in the header, outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def _records(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that has any content."""
    lines = _lines(path)
    header = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=_delimiter(header), strict=True)
    while True:
        row = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{path}: row {row}: is no row of a table ({error}); check its quotes"
            ) from error
        if record is None:
            return
        record = [cell.strip() for cell in record]
        if any(record):
            yield row, record
