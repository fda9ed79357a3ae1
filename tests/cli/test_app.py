"""The command: its output, its exit codes, and its manners where the terminal is none."""

import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import clew
from clew.cli import app
from clew.cli.options import print_note
from clew.estimators import persistence
from clew.estimators.svm import StructuredSVM
from clew.models.chain import Chain

CLEW = [sys.executable, "-m", "clew"]


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 2)) for _ in range(5)]
    StructuredSVM(Chain(), lam=0.1).fit(X, [list("abab")] * 5).save(tmp_path / "a.clew")
    return tmp_path / "a.clew"


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def one_line(result, words):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    return True


def test_version_and_help():
    assert invoke("--version").stdout == f"clew {clew.__version__}\n"
    assert "info" in invoke("--help").stdout


def test_info(file):
    result = invoke("info", file)
    assert result.exit_code == 0
    for words in ("StructuredSVM", "Chain", "bridge", "0.1", "converged"):
        assert words in result.stdout


def test_info_of_what_is_none(tmp_path, file):
    assert one_line(invoke("info", tmp_path / "none"), "no such file")
    assert one_line(invoke("info", tmp_path), "is not a file")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert one_line(invoke("info", file), "damaged")


def test_debug_shows_the_traceback(tmp_path):
    result = invoke("--debug", "info", tmp_path / "none")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "Traceback" not in invoke("info", tmp_path / "none").stderr


def test_an_unexpected_error_is_one_line_too(monkeypatch, file):
    def fail(path):
        raise RuntimeError("a fault\nof clew's")

    monkeypatch.setattr(persistence, "describe_file", fail)
    result = invoke("info", file)
    assert result.exit_code == 1
    assert (
        result.stderr
        == "clew: unexpected RuntimeError: a fault of clew's (--debug shows where)\n"
    )


def test_warnings_are_one_line():
    """In a process of its own, for pytest has its own hook for warnings."""
    code = (
        "import sys, warnings; from clew import cli; from clew.estimators import persistence; "
        "persistence.describe_file = lambda path: warnings.warn('the fit ended early') or {}; "
        "sys.argv = ['clew', 'info', 'file']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b"clew: warning: the fit ended early\n"


def run(args, **options):
    return subprocess.run(
        [*CLEW, *args], capture_output=True, timeout=60, check=False, **options
    )


def test_a_real_process_exits_2_with_one_line(tmp_path):
    done = run(["info", tmp_path / "none"])
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


def test_a_path_that_is_not_utf8(tmp_path, file):
    odd = os.fsencode(tmp_path) + b"/caf\xe9 [red].clew"
    done = run([b"info", odd])
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    with open(odd, "wb") as copy:  # noqa: PTH123  # pathlib knows no bytes
        copy.write(file.read_bytes())
    done = run([b"info", odd])
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"[red].clew" in done.stdout


def test_a_terminal_without_greek(file):
    done = run(["info", file], env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("args", [["--help"], ["info"]])
def test_a_closed_pipe_is_a_clean_end(file, args):
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [*args, file] if args == ["info"] else args
    process = subprocess.Popen(
        [*CLEW, *arguments], stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode in (0, 1)


@pytest.mark.parametrize("args", [["--help"], ["info"]])
@pytest.mark.linux
def test_a_full_disk_behind_stdout(file, args):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [*CLEW, *args, *([file] if args == ["info"] else [])],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


@pytest.mark.parametrize(("value", "plain"), [("1", True), ("", False)])
def test_notes_are_plain_where_no_color_is_set(monkeypatch, capsys, value, plain):
    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setattr("typer.secho", lambda text, **style: print(style["dim"]))
    print_note("chosen")
    assert capsys.readouterr().out.strip() == ("None" if plain else "True")


def test_an_option_given_twice_is_refused_and_none_of_its_values_lost(tmp_path):
    given = ["simulate", tmp_path / "m", "--frames", 3, "--seed", 1, "--frames", 4]
    answer = invoke(*given)
    assert answer.exit_code == 2
    assert "--frames is given 2 times" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"),
    [("--faults", 1), ("--missing", 1), ("--jumps", 2), ("--drift", -1)],
)
def test_a_share_that_no_kind_of_cells_can_have_is_told_by_its_option(
    tmp_path, option, value
):
    answer = invoke("simulate", tmp_path / "m", "--kind", "rods", option, value)
    assert answer.exit_code == 2
    assert option in answer.stderr
    assert not list(tmp_path.iterdir())


def test_dimensions_that_a_kind_of_cells_does_not_have(tmp_path):
    answer = invoke("simulate", tmp_path / "m", "--kind", "rods", "--dims", 3)
    assert answer.exit_code == 2
    assert "dims: must be 2 for this kind of cells" in answer.stderr
