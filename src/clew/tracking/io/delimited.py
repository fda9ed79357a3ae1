"""Text tables, read as spreadsheets and scripts write them.

A byte-order mark, any line ends, commas, semicolons or tabs, additional columns,
another order, capital letters, blank lines and lines that begin with # are accepted.
Line numbers are kept for messages, which is why `csv` reads the rows and not pandas.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError
from clew.utils.storage import atomic_write
from clew.utils.validation import Faults, quoted

DELIMITERS = ",;\t"
COMMENT = "#"
CHUNK = 10_000
"""Rows that are formatted at a time: as Python objects they take ten times the
memory of their text."""
EXCEL_HINT = re.compile(r"sep=.$", re.IGNORECASE)
"""Line by which spreadsheets name the delimiter."""
ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

MASTODON_COLUMNS = {"spot_frame", "link_target_ids"}
"""Columns by which tables of Mastodon are recognized."""

Record = tuple[int, list[str]]
"""Line in the file, and cells."""
Aliases = Mapping[str, Sequence[str]]
"""Names of columns, and other names that are accepted for them."""
Column = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True)
class Table:
    """Columns of a file by name, parsed on demand.

    Attributes
    ----------
    where : str
        The file, for messages.
    row : ndarray of shape (n,)
        Line of each row in the file, from 1.
    columns : mapping of sequences of length n
        Text or numbers.
    """

    where: str
    row: NDArray[np.intp]
    columns: Mapping[str, Sequence[Any] | NDArray[Any]]

    def __len__(self) -> int:
        return len(self.row)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def parse_integers(
        self, name: str, faults: Faults, least: int
    ) -> NDArray[np.int64]:
        """Parse a column of integers.

        Parameters
        ----------
        name : str
            Name of the column.
        faults : Faults
            Collects a message for each cell that is no integer, or too small.
        least : int
            Smallest value; also stands in for cells that cannot be parsed.

        Returns
        -------
        values : ndarray of shape (n,)
        """
        parsed = [parse_integer(cell) for cell in self.columns[name]]
        is_missing = [value is None for value in parsed]
        self.add_faults(faults, is_missing, name, "an integer")
        filled = [least if value is None else value for value in parsed]
        values = np.array(filled, dtype=np.int64)
        self.add_faults(faults, values < least, name, f"{least} or more")
        return values

    def parse_numbers(
        self, name: str, faults: Faults, *, infinite: bool = False
    ) -> NDArray[np.float64]:
        """Parse a column of numbers; `infinite` tells whether ∞ is accepted.

        Returns
        -------
        values : ndarray of shape (n,)
            NaN for cells that cannot be parsed.
        """
        values = np.array([_parse_number(cell) for cell in self.columns[name]])
        values = values.astype(np.float64)
        self.add_faults(faults, np.isnan(values), name, "a number")
        if not infinite:
            self.add_faults(faults, np.isinf(values), name, "finite")
        return values

    def add_faults(
        self, faults: Faults, is_faulty: ArrayLike, name: str, expected: str
    ) -> None:
        """Add a message for each row whose cell in a column is faulty."""
        rows = np.flatnonzero(is_faulty)
        cells = self.columns[name]
        faults.add(
            self.row[rows],
            lambda i: f"{name} is {quoted(cells[rows[i]])}; it must be {expected}",
        )


def parse_integer(cell: Any) -> int | None:
    """Parse an integer, also from "12.0"; None if there is none of 64 bits."""
    if isinstance(cell, str) and cell.isdecimal() and len(cell) < 19:
        return int(cell)  # nearly every cell
    value = None
    if isinstance(cell, str | int) and "_" not in str(cell):
        try:
            value = int(cell)
        except ValueError:
            value = None
    if value is None:
        number = _parse_number(cell)
        value = int(number) if number.is_integer() else None
    return value if value is not None and abs(value) < 2**63 else None


def _parse_number(cell: Any) -> float:
    """Parse a number; NaN if there is none."""
    if isinstance(cell, str) and "_" in cell:
        return float("nan")  # 1_000 is a number in Python only
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def read_delimited(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    rename: Callable[[list[str]], list[str]] = list,
    *,
    others: bool = False,
) -> Table:
    """Read the known columns of a text table.

    Parameters
    ----------
    path : str or Path
    aliases : mapping
        Names of the columns to read, with other names that are accepted.
    required : sequence of str
        Columns that must exist.
    rename : callable
        Applied to the normalized names of all columns.
    others : bool
        Whether to read the other columns too.

    Returns
    -------
    table : Table
    """
    names, records = _split_header(_read_records(path))
    if not names:
        raise InputError(
            f"{path} is empty; its first line must name the columns "
            f"{', '.join(required)}"
        )
    header = rename(names)
    places = locate_columns(str(path), header, aliases, required, others=others)
    columns: dict[str, list[str]] = {name: [] for name in places}
    rows = []
    for row, record in records:
        if any(record[len(header) :]):
            raise InputError(
                f"{path}: row {row}: there are {len(record)} values for {len(header)} "
                f"columns, the first too many is {quoted(record[len(header)])}; "
                "separate several ids in one cell by a space"
            )
        rows.append(row)
        for name, place in places.items():
            columns[name].append(record[place] if place < len(record) else "")
    return Table(str(path), np.array(rows, dtype=np.intp), columns)


def read_column_names(path: str | Path) -> list[str]:
    """Read the normalized names of the columns of a text table."""
    return _split_header(_read_records(path))[0]


def _split_header(records: Iterator[Record]) -> tuple[list[str], Iterator[Record]]:
    """Normalized names of the columns, and the rows below them.

    Mastodon names the parts of a feature, as X of a position, in a second line, and
    units in a third.
    """
    _, titles = next(records, (0, []))
    names = [normalize_name(title) for title in titles]
    if "id" not in names or not MASTODON_COLUMNS & {*names}:
        return names, records
    _, parts = next(records, (0, []))
    repeated = {name for name in names if names.count(name) > 1}
    names = [
        f"{name}_{normalize_name(part)}" if name in repeated else name
        for name, part in zip_longest(names, parts[: len(names)], fillvalue="")
    ]
    third = list(islice(records, 1))
    has_units = any(not cells[names.index("id")] for _, cells in third)
    return names, records if has_units else chain(third, records)


def locate_columns(
    where: str,
    header: Sequence[str],
    aliases: Aliases,
    required: Sequence[str],
    *,
    others: bool = False,
) -> dict[str, int]:
    """Find columns by their names or by the first alias that exists.

    With `others`, columns that are not asked for follow by their own names.

    Returns
    -------
    places : dict
        Index of each column that exists, by its name.
    """
    places = {}
    for name, more in aliases.items():
        title = next((title for title in (name, *more) if title in header), None)
        if title is None:
            if name in required:
                raise InputError(
                    f"{where}: there is no column {' or '.join([name, *more])}; "
                    f"{_describe_header(header, required)}"
                )
            continue
        if header.count(title) > 1:
            raise InputError(
                f"{where}: there are two columns {quoted(title)}; remove one"
            )
        places[name] = header.index(title)
    if others:
        taken = {*places.values()}
        places |= {
            title: k
            for k, title in enumerate(header)
            if k not in taken and title and title not in places
        }
    return places


def _describe_header(header: Sequence[str], required: Sequence[str]) -> str:
    """List the columns, with a hint if the first line holds values instead."""
    titles = ", ".join(quoted(title) for title in header[:10])
    hint = ""
    if header and header[0].isdigit():
        hint = f"; the first line must name them, as in {','.join(required)}"
    return f"the columns are {titles}{hint}"


def normalize_name(name: str) -> str:
    """Name of a column without capitals, spaces and hyphens."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def write_delimited(
    path: str | Path, header: Sequence[str], parts: Iterable[Sequence[Column]]
) -> None:
    """Write numbers and plain words as CSV, as a whole.

    Parameters
    ----------
    path : str or Path
    header : sequence of str
    parts : iterable of sequences of columns
        Rows come in parts, of which one is in memory at a time.
    """
    with atomic_write(path) as file:
        file.write((",".join(header) + "\n").encode())
        for columns in parts:
            for start in range(0, len(columns[0]), CHUNK):
                rows = slice(start, start + CHUNK)
                text = [map(str, _list_values(column[rows])) for column in columns]
                lines = map(",".join, zip(*text, strict=True))
                file.write(("\n".join(lines) + "\n").encode())


def _list_values(column: Column) -> Sequence[Any]:
    """Values of a column as objects of Python."""
    return column.tolist() if isinstance(column, np.ndarray) else column


def _read_lines(path: str | Path) -> list[str]:
    """Read the lines of a file; comments become empty, so that line numbers stay."""
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder, not a table")
        if not path.is_file():  # a pipe or a device would block or never end
            raise InputError(f"{path}: no such file")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read ({error})") from error
    marks = [name for mark, name in ENCODINGS.items() if data.startswith(mark)]
    try:
        text = data.decode(marks[0] if marks else "utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # old spreadsheets; the columns are ASCII
    lines = io.StringIO(text, newline=None).readlines()
    return ["\n" if _is_comment(line) else line for line in lines]


def _is_comment(line: str) -> bool:
    """Whether a line holds no row of a table."""
    is_comment = line.lstrip(" \"'").startswith(COMMENT)
    return is_comment or EXCEL_HINT.match(line.strip()) is not None


def _find_delimiter(header: str) -> str:
    """The delimiter that occurs most in the header, outside of quotes."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    delimiter = max(DELIMITERS, key=unquoted.count)
    # btrack separates by single spaces
    return delimiter if delimiter in unquoted or " " not in header.strip() else " "


def _read_records(path: str | Path) -> Iterator[Record]:
    """Yield (line, cells) of each row that is not empty."""
    lines = _read_lines(path)
    header = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=_find_delimiter(header), strict=True)
    while True:
        row = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{path}: row {row}: cannot be parsed ({error}); check its quotes"
            ) from error
        if record is None:
            return
        record = [cell.strip() for cell in record]
        if any(record):
            yield row, record
