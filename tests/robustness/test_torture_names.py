"""Names in files and of files are text: for terminals, tables, plots and pages.

The report and the page have their own tests, in tests/tracking/report and
tests/app/test_security.py.
"""

import io

import numpy as np
import pytest

import clew
from clew.cli.options import print_note
from clew.models import Chain
from clew.tracking import Tracker
from clew.tracking.io.tables import read_detections

from ..helpers.commands import invoke

TITLE_OF_TERMINAL = "\x1b]0;title\x07"
RED = "\x1b[31m"
MARKUP = "[/nothing]"
FORMULAS = ["PRP$", "$\\frac$", "$^$"]


def run(*arguments):
    result = invoke(*arguments)
    assert not set("\x1b\x07\x9b") & set(result.output)
    return result


def test_name_of_a_file_does_not_command_the_terminal(tmp_path):
    result = run("info", tmp_path / f"a{TITLE_OF_TERMINAL}{RED}.clew")
    assert result.exit_code == 2
    assert "\ufffd]0;title\ufffd" in result.stderr


def test_note_does_not_command_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    print_note(f"a{RED}\u009b31m\nb")
    assert capsys.readouterr().err == "a\ufffd[31m\ufffd31m\nb\n"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of a movie with columns of the user."""
    folder = tmp_path_factory.mktemp("weights")
    path = folder / "a.clew"
    scores = np.random.default_rng(0).normal(size=(6, 2))
    rows = [
        f"{row // 2},{row % 2 + 1},{row % 2 * 10},{row // 2},{first:.3f},{second:.3f}\n"
        for row, (first, second) in enumerate(scores)
    ]
    table = folder / "cells.csv"
    table.write_text(f"frame,label,y,x,{MARKUP},a{RED}\n" + "".join(rows))
    cells = read_detections(table)
    tracker = Tracker(cache=None, lam=1.0, random_state=0)
    lineage = Tracker.generic(cache=None).track(cells)
    tracker.fit(cells, clew.tracking.Annotations.of(lineage.events, True)).save(path)
    return path


def test_name_of_a_column_is_no_markup(weights):
    result = run("explain", weights)
    assert result.exit_code == 0
    assert MARKUP in result.stdout
    assert "a\ufffd[31m" in result.stdout


def test_label_is_no_markup_and_no_formula(tmp_path):
    svm = clew.StructuredSVM(Chain(classes=FORMULAS), lam=1.0, random_state=0)
    svm.fit([np.eye(3)] * 2, [FORMULAS] * 2)
    svm.plot_weights().savefig(io.BytesIO())
    svm.save(tmp_path / "a.clew")
    result = run("info", tmp_path / "a.clew")
    assert FORMULAS[0] in result.stdout
