"""The command: its output, its exit codes, and its manners where the terminal is none."""

import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
from typer.testing import CliRunner

from clew import archive, demo
from clew.cli import app
from clew.estimator import StructuredSVM
from clew.models.chain import Chain

CLEW = [sys.executable, "-m", "clew.cli"]


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 2)) for _ in range(5)]
    StructuredSVM(Chain(), lam=0.1).fit(X, [list("abab")] * 5).save(tmp_path / "a.clew")
    return tmp_path / "a.clew"


@pytest.fixture
def quick(monkeypatch):
    """A demonstration on little data."""
    monkeypatch.setattr(demo, "TEST_WORDS", 20)
    monkeypatch.setattr(demo, "LAMS", (3.0,))


def invoke(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def one_line(result, words):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    return True


def test_version_and_help():
    assert invoke("--version").stdout == f"clew {version('clew')}\n"
    assert "demo" in invoke("--help").stdout


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

    monkeypatch.setattr(archive, "describe", fail)
    result = invoke("info", file)
    assert result.exit_code == 1
    assert result.stderr == "clew: unexpected RuntimeError: a fault of clew's (--debug shows where)\n"


def test_demo(tmp_path, quick):
    folder = tmp_path / "new" / "folder"
    result = invoke("demo", "-o", folder, "--words", 40, "--fraction", 0.5, "--seed", 1)
    assert result.exit_code == 0, result.output
    for words in (
        "each letter alone",
        "50% of the letters",
        "all letters",
        "converged",
        "demo.png",
        "letters.clew",
        "Next",
    ):
        assert words in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["demo.png", "letters.clew"]
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    back = archive.load(folder / "letters.clew", model=Chain(classes=list(demo.LETTERS)))
    X, words = demo.simulate(5, np.random.default_rng(0))
    assert back.score(X, words) > 0.3


def test_the_structure_and_the_rest_of_the_annotation_help(monkeypatch):
    """What the demonstration is there to show, on fewer words and at one λ to be quick."""
    monkeypatch.setattr(demo, "LAMS", (1.0,))
    found = demo.run(120)
    alone, _, partial, full = (contestant.accuracy for contestant in found.contestants)
    assert alone < partial < full
    assert found.svm.result_.converged


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--words", "0"], "words must be at least 1"),
        (["--seed", "-1"], "seed at least 0"),
        (["--fraction", "nan"], "fraction above 0"),
        (["--fraction", "1.5"], "at most 1"),
        (["--words", "1", "--fraction", "1e-9"], "no letter was annotated"),
    ],
)
def test_demo_refuses_what_it_cannot_do(tmp_path, args, words):
    assert one_line(invoke("demo", "-o", tmp_path / "out", *args), words)
    assert not (tmp_path / "out").exists()


def test_demo_into_a_file_is_refused_before_it_learns(file):
    before = file.read_bytes()
    assert one_line(invoke("demo", "-o", file), "is a file")
    assert one_line(invoke("demo", "-o", file / "below"), "is a file")
    assert file.read_bytes() == before


def test_warnings_are_one_line():
    """In a process of its own, for pytest has its own hook for warnings."""
    code = (
        "import sys, warnings; from clew import archive, cli; "
        "archive.describe = lambda path: warnings.warn('the fit ended early') or {}; "
        "sys.argv = ['clew', 'info', 'file']; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr == b"clew: warning: the fit ended early\n"


def run(args, **options):
    return subprocess.run([*CLEW, *args], capture_output=True, timeout=60, check=False, **options)


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
    process = subprocess.Popen([*CLEW, *arguments], stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode in (0, 1)


@pytest.mark.parametrize("args", [["--help"], ["info"]])
def test_a_full_disk_behind_stdout(file, args):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [*CLEW, *args, *([file] if args == ["info"] else [])], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr
