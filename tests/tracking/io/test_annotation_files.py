"""Annotation and event tables: as people write them, and as clew does."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError, StoreError
from clew.tracking.events import ARITY, Annotations, Event, EventTable
from clew.tracking.io.annotations import (
    read_annotation_table,
    read_annotations,
    write_annotations,
)
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.result_tables import write_events
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie

from ...helpers.effort import examples

TABLE = EventTable.of(
    [
        (0, Event.MOVE, [1], [2]),
        (12, Event.DIVIDE, [5], [17, 18]),
        (12, Event.APPEAR, [], [3]),
        (3, Event.DISAPPEAR, [9], []),
        (4, Event.SPLIT, [7], [7, 8]),
        (5, Event.MERGE, [3, 4], [6]),
    ]
)
HAPPENED = [True, True, False, True, True, False]
PLAIN = """frame,event,sources,targets,happened
0,move,1,2,yes
12,divide,5,17 18,yes
12,appear,,3,no
3,disappear,9,,yes
4,split,7,7 8,yes
5,merge,3 4,6,no
"""

labels = st.integers(1, 2**62)
events = st.sampled_from(list(Event)).flatmap(
    lambda event: st.tuples(
        st.integers(0, 2**40),
        st.just(event),
        *(st.lists(labels, min_size=n, max_size=n, unique=True) for n in ARITY[event]),
    )
)


def same(table: EventTable, other: EventTable) -> bool:
    return list(table) == list(other)


def written(folder: Path, content: str | bytes, name: str = "some.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def semicolons(text: str) -> str:
    return text.replace(",", ";")


def shuffled(text: str) -> str:
    rows = [line.split(",") for line in text.splitlines()]
    return "\n".join(
        ",".join(
            ["=1+1", row[3], row[0].upper(), row[4], row[2], row[1].upper(), "x" * 5000]
        )
        for row in rows
    )


VARIANTS = {
    "plain": PLAIN,
    "BOM": "\ufeff" + PLAIN,
    "UTF-16": PLAIN.replace(",", "\t").encode("utf-16"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "CR": PLAIN.replace("\n", "\r"),
    "tabs": PLAIN.replace(",", "\t"),
    "semicolons": semicolons(PLAIN),
    "no newline at the end": PLAIN.rstrip("\n"),
    "other order, extra columns, capitals": shuffled(PLAIN),
    "BOM, CRLF, tabs, extra columns": ("\ufeff" + shuffled(PLAIN))
    .replace(",", "\t")
    .replace("\n", "\r\n"),
    "spaces": PLAIN.replace(",", " , "),
    "quotes": PLAIN.replace("17 18", '"17 18"').replace("frame,", '"frame",'),
    "ids by ;": PLAIN.replace("17 18", "17;18"),
    "ids by +": PLAIN.replace("17 18", "17 + 18"),
    "ids by /": PLAIN.replace("17 18", "17/18"),
    "ids by comma": PLAIN.replace("17 18", '"[17, 18]"'),
    "ids in any order": PLAIN.replace("17 18", "18 17"),
    "whole floats": PLAIN.replace("12,", "12.0,"),
    "other words": PLAIN.replace("yes", "TRUE").replace("no", "0"),
    "aliases": PLAIN.replace("sources", "Source ids")
    .replace("targets", "target")
    .replace("frame", "t"),
    "no cell as -": PLAIN.replace("appear,,", "appear,-,"),
    "latin-1 extra": PLAIN.replace("happened", "happened,µ").encode("latin-1"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_table_however_it_is_written(tmp_path, name):
    annotations = read_annotation_table(written(tmp_path, VARIANTS[name]))
    assert same(annotations.events, TABLE)
    assert annotations.happened.tolist() == HAPPENED
    assert annotations.row.tolist() == [2, 3, 4, 5, 6, 7]


def test_rows_are_lines_of_the_file(tmp_path):
    text = 'sep=,\n# who wrote this, "and when\n\nframe,event,sources,targets\n,,,\n0,move,1,2\n\n  # no\n3,disappear,9\n'
    annotations = read_annotation_table(written(tmp_path, text))
    assert annotations.row.tolist() == [6, 9]
    assert annotations.happened.all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0,divid,5,17 18,yes", "event is 'divid'; it must be one of move, divide"),
        ("0,divide,5,17,yes", "divide has 2 targets, but the row names 1"),
        ("0,divide,5,17 18 19,yes", "divide has 2 targets, but the row names 3"),
        ("0,appear,5,17,yes", "appear has 0 sources, but the row names 1"),
        ("0,merge,5,17,yes", "merge has 2 sources, but the row names 1"),
        (
            "0,divide,5,17 17,yes",
            "targets is '17 17'; it must be positive integers, each once",
        ),
        ("0,move,x,2,yes", "sources is 'x'"),
        ("0,move,17_18,2,yes", "sources is '17_18'"),
        ("0,move,1.5,2,yes", "sources is '1.5'"),
        ("0,move,0,2,yes", "sources is '0'"),
        ("0,move,-3,2,yes", "sources is '-3'"),
        ("0,move,=1+1,2,yes", "sources is '=1+1'"),
        ("0,move,99999999999999999999,2,yes", "sources is '99999999999999999999'"),
        ("0.5,move,1,2,yes", "frame is '0.5'; it must be an integer"),
        (",move,1,2,yes", "frame is ''; it must be an integer"),
        ("nan,move,1,2,yes", "frame is 'nan'"),
        ("-1,move,1,2,yes", "frame is '-1'; it must be 0 or more"),
        ("0,move,1,2,maybe", "happened is 'maybe'; it must be yes or no"),
        ("0,divide,5,17,18,yes", "6 values for 5 columns"),
        ('0,move,1,2,"yes', "check its quotes"),
        (f"0,move,{'9' * 200_000},2,yes", "field larger"),
        (
            f"0,move,{'9' * 100_000},2,yes",
            "sources is '9999999999999999999999999999999999999999…'",
        ),
    ],
)
def test_a_fault_is_named_with_file_and_row(tmp_path, line, words):
    path = written(
        tmp_path, f"frame,event,sources,targets,happened\n7,move,1,2,yes\n\n{line}\n"
    )
    with pytest.raises(InputError) as caught:
        read_annotation_table(path)
    assert f"{path}: row 4: " in str(caught.value)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_several_faults_are_told_at_once(tmp_path):
    bad = "".join(f"{t},divid,1,2\n" for t in range(9))
    with pytest.raises(InputError) as caught:
        read_annotation_table(
            written(tmp_path, "frame,event,sources,targets\n-1,move,1,2\n" + bad)
        )
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [
        f"row {row}" for row in range(2, 7)
    ]
    assert "10 faults" in lines[0]
    assert lines[-1].strip() == "and 5 more"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\ufeff\n\n# only a comment\n", "is empty"),
        ("frame,event,targets\n", "there is no column sources"),
        (
            "12,move,1,2,yes\n",
            "there is no column frame .* must name them, as in frame,event,sources,targets",
        ),
        ("frame,event,sources,targets,frame\n", "two columns 'frame'"),
        (bytes(range(256)), "there is no column frame"),
    ],
)
def test_a_file_that_is_no_table(tmp_path, text, words):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=words) as caught:
        read_annotation_table(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_annotation_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_annotation_table(tmp_path)


@examples(60)
@given(st.lists(st.tuples(events, st.booleans()), max_size=20))
def test_annotations_come_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("annotations") / "some.csv"
    table = EventTable.of([event for event, _ in rows])
    write_annotations(path, Annotations.of(table, [happened for _, happened in rows]))
    back = read_annotation_table(path)
    assert same(back.events, table)
    assert back.happened.tolist() == [happened for _, happened in rows]
    assert back.row.tolist() == list(range(2, len(rows) + 2))


def test_what_is_written_is_plain(tmp_path):
    write_annotations(tmp_path / "some.csv", Annotations.of(TABLE, HAPPENED))
    assert (tmp_path / "some.csv").read_text() == PLAIN
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(StoreError):
        write_annotations(tmp_path / "none/some.csv", Annotations.of(TABLE))


def small_lineage() -> Lineage:
    table = EventTable.of(
        [
            (1, Event.DISAPPEAR, [2], []),
            (0, Event.DIVIDE, [1], [1, 2]),
            (1, Event.MOVE, [1], [1]),
            (1, Event.APPEAR, [], [3]),
        ]
    )
    return Lineage(
        3,
        np.array([0, 1, 1, 2, 2]),
        np.array([1, 1, 2, 1, 3]),
        np.zeros((5, 2)),
        table,
        np.array([0.5, np.inf, 1e-300, -2]),
    )


def test_events_are_written_by_frame_with_their_confidence(tmp_path):
    write_events(tmp_path / "events.csv", small_lineage())
    assert (tmp_path / "events.csv").read_text() == (
        "frame,event,sources,targets,confidence\n"
        "0,divide,1,1 2,inf\n1,disappear,2,,0.5\n1,move,1,1,1e-300\n1,appear,,3,-2.0\n"
    )
    table, confidence, _ = read_events(tmp_path / "events.csv")
    assert same(table, small_lineage().events[np.array([1, 0, 2, 3])])
    assert confidence.tolist() == [np.inf, 0.5, 1e-300, -2]


def test_confidence_may_lack_but_not_be_wrong(tmp_path):
    _, confidence, _ = read_events(written(tmp_path, PLAIN))
    assert np.isnan(confidence).all()
    with pytest.raises(
        InputError, match=r"row 2: confidence is 'sure'; it must be a number"
    ):
        read_events(
            written(
                tmp_path, "frame,event,sources,targets,confidence\n0,move,1,2,sure\n"
            )
        )


def movie() -> Movie:
    """Two cells that stay, and one that divides from frame 0 to 1."""
    masks = np.zeros((3, 8, 12), dtype=np.uint16)
    masks[:, 1:3, 1:3] = 4
    masks[0, 5:7, 2:8], masks[1:, 5:7, 2:4], masks[1:, 5:7, 6:8] = 7, 8, 9
    return Movie.from_arrays(masks)


def test_a_table_of_any_suffix(tmp_path):
    for name in ("a.csv", "a.TSV", "a.txt"):
        assert same(
            read_annotations(written(tmp_path, PLAIN, name), movie()).events, TABLE
        )


def test_a_ctc_folder_or_its_file(tmp_path):
    masks = movie()
    for t in range(3):
        truth = np.array([0, 0, 0, 0, 1, 0, 0, 2, 3, 4], dtype=np.uint16)[
            masks.label(t)
        ]
        tifffile.imwrite(tmp_path / f"man_track{t:03}.tif", truth)
    table = written(tmp_path, "1 0 2 0\n2 0 0 0\n3 1 2 2\n4 1 2 2\n", "man_track.txt")
    expected = {
        (0, Event.MOVE, (4,), (4,)),
        (1, Event.MOVE, (4,), (4,)),
        (0, Event.DIVIDE, (7,), (8, 9)),
        (1, Event.MOVE, (8,), (8,)),
        (1, Event.MOVE, (9,), (9,)),
    }
    for path in (tmp_path, table):
        annotations = read_annotations(path, masks)
        assert set(annotations.events) == expected
        assert annotations.happened.all()


@pytest.mark.parametrize(
    ("name", "words"),
    [("none.csv", "does not exist"), ("a.xlsx", "are a table")],
)
def test_what_holds_no_annotations(tmp_path, name, words):
    written(tmp_path, PLAIN, "a.xlsx")
    with pytest.raises(InputError, match=words):
        read_annotations(tmp_path / name, movie())


def test_a_folder_without_annotations(tmp_path):
    with pytest.raises(InputError, match=r"man_track\.txt"):
        read_annotations(tmp_path, movie())
    assert list(tmp_path.iterdir()) == []
