"""Tables of detections with more columns, and tables of links."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.io.tables import read_detections
from clew.tracking.io.user_columns import read_links, select_columns

CELLS = """frame,y,x,index,track_id,Seconds,Score,name,constant,partly
0,1,2,1,7,0.5,0.25,a,3,1
0,5,6,2,8,0.5,0.75,b,3,
1,1,3,3,7,1.0,0.5,a,3,2
1,5,7,4,8,1.0,0.25,b,3,3
"""


def write(path, text):
    path.write_text(text)
    return path


def test_columns_of_numbers_that_tell_cells_apart_are_features(tmp_path):
    table = read_detections(write(tmp_path / "cells.csv", CELLS))
    columns = table.user_columns.cells
    assert set(columns.columns) == {"score"}
    assert columns.columns["score"].tolist() == [0.25, 0.75, 0.5, 0.25]
    assert columns.cells[:, 0].tolist() == [1, 2, 1, 2]


def test_a_table_without_other_columns_has_none(tmp_path):
    text = "frame,label,y,x,area\n0,1,2,3,4\n0,2,5,6,7\n"
    assert read_detections(write(tmp_path / "a.csv", text)).user_columns is None


def test_columns_are_selected_by_name(tmp_path):
    text = CELLS.replace("index", "other").replace("1,7,0.5", "1.5,7,0.5")
    columns = read_detections(write(tmp_path / "a.csv", text)).user_columns.cells
    assert set(columns.columns) == {"score", "other"}
    assert set(select_columns(columns, ["other"]).columns) == {"other"}
    assert select_columns(columns, []) is None
    with pytest.raises(InputError, match=r"no column of numbers 'size'.*score"):
        select_columns(columns, ["size"])


@pytest.mark.parametrize(
    "header",
    ["frame,source,target,weight", "source_frame,source_label,target_label,weight"],
)
def test_links_are_read_in_the_order_of_frames(tmp_path, header):
    links = read_links(write(tmp_path / "l.csv", f"{header}\n1,3,4,.5\n0,1,2,1e-3\n"))
    assert links.frame.tolist() == [0, 1]
    assert links.cells.tolist() == [[1, 2], [3, 4]]
    assert links.columns["weight"] == pytest.approx([1e-3, 0.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frame,source,target\n0,1,2\n", "no column of numbers"),
        ("frame,source,target,s\n0,1,2,1\n0,1,2,3\n", "label 1 of frame 0 to label 2"),
        ("frame,source,target,s\n0,1,2,x\n", "s is 'x'; it must be a number"),
        ("frame,source,s\n0,1,1\n", "no column target"),
        (
            "frame,source,target_frame,target,s\n0,1,2,1,1\n",
            r"target_frame is '2'; it must be frame \+ 1",
        ),
    ],
)
def test_faulty_links_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_links(write(tmp_path / "links.csv", text))


def test_commands_learn_from_columns_and_need_them_again(tmp_path, capsys):
    from typer.testing import CliRunner

    from clew.cli import app

    rng = np.random.default_rng(0)
    place = rng.uniform(0, 90, (12, 2)) + rng.normal(0, 2, (5, 12, 2)).cumsum(axis=0)
    rows = [
        f"{t},{k + 1},{place[t, k, 0]:.3f},{place[t, k, 1]:.3f},{rng.normal():.3f}"
        for t in range(5)
        for k in range(12)
    ]
    cells = write(
        tmp_path / "cells.csv", "frame,label,y,x,score\n" + "\n".join(rows) + "\n"
    )
    links = [
        f"{t},{i + 1},{j + 1},{rng.normal(3.0 * (i == j)):.3f}"
        for t in range(4)
        for i in range(12)
        for j in range(12)
    ]
    links = write(tmp_path / "l.csv", "frame,source,target,w\n" + "\n".join(links))
    moves = [f"{t},move,{k},{k}" for t in range(4) for k in (1, 2, 3)]
    marks = write(
        tmp_path / "a.csv", "frame,event,sources,targets\n" + "\n".join(moves)
    )

    def run(*command):
        return CliRunner().invoke(app, [str(part) for part in command])

    weights = tmp_path / "w.clew"
    result = run(
        "train",
        cells,
        "-a",
        marks,
        "--links",
        links,
        "-o",
        weights,
        "--lam",
        1,
        "-j",
        1,
    )
    assert result.exit_code == 0, result.output
    assert "learned weights use column score, link w" in result.output
    track = (
        "track",
        cells,
        "-w",
        weights,
        "-o",
        tmp_path / "r",
        "--no-report",
        "-j",
        1,
    )
    result = run(*track, "--links", links)
    assert result.exit_code == 0, result.output
    assert "measurements: points, column score, link w" in result.output
    result = run(*track)
    assert result.exit_code == 2
    assert "no measurements of link w" in result.output
