"""A part that is not installed is named, with the extra that brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clew
from clew.errors import ClewError, MissingExtra
from clew.utils.extras import EXTRAS, is_installed, require_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# a package is not always imported by the name under which it is installed
MODULES = {"scikit-image": "skimage", "py-ctcmetrics": "ctc_metrics"}
# what a core installation lacks: all that any extra brings
CORE = {"joblib", "pydantic"}  # they come with scikit-learn and typer, too
OPTIONAL = sorted({module for modules in EXTRAS.values() for module in modules} - CORE)
BLOCK = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
"""


def in_core(code, *args):
    """Run code in a process where nothing of any extra can be imported."""
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plain(requirement):
    return re.match(r"[A-Za-z0-9_-]+", requirement).group()


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_asks_for_what_it_installs(extra):
    installed = [
        plain(line)
        for line in PROJECT["optional-dependencies"][extra]
        if not line.startswith("clew-learn[")
    ]
    modules = {MODULES.get(name, name) for name in installed}
    modules |= set(EXTRAS["plot"]) if extra == "tracking" else set()
    assert modules == set(EXTRAS[extra])


def test_all_brings_every_extra():
    (line,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.search(r"\[(.*)]", line).group(1).split(",")) | {"plot"} == set(
        EXTRAS
    )


def test_the_message_names_what_is_missing_and_the_extra(monkeypatch):
    monkeypatch.setattr(
        "clew.utils.extras.find_spec", lambda name: None if name == "zarr" else object()
    )
    with pytest.raises(
        MissingExtra, match=r"a thing needs zarr: pip install 'clew-learn\[tracking\]'"
    ) as told:
        require_extra("tracking", "a thing")
    assert told.value.extra == "tracking"
    assert isinstance(told.value, ClewError)
    assert isinstance(told.value, ImportError)
    assert not is_installed("tracking")
    require_extra("page", "another")


def test_what_is_installed_is_not_complained_of():
    assert all(map(is_installed, EXTRAS))


def test_learning_needs_no_extra(tmp_path):
    done = in_core(
        "import numpy as np, clew\n"
        "svm = clew.StructuredSVM(clew.models.Multiclass(), lam=1.0, verbose=True).fit(np.eye(4), [0, 1, 0, 1])\n"
        "svm.save(sys.argv[1]); print((clew.load(sys.argv[1]).coef_ == svm.coef_).all())\n"
        f"print(*{{*{OPTIONAL}}} & {{*sys.modules}})",
        tmp_path / "a.clew",
    )
    assert done.stdout.split() == ["True"], done.stderr


ASKED = {
    "clew.Tracker": "tracking",
    "clew.open_movie('x')": "tracking",
    "from clew.tracking.movie import Movie": "tracking",
    "from clew.annotation.learner import Learner": "tracking",
    "import clew.app": "page",
    "clew.learning.plotting.plot_result(None)": "plot",
    "clew.shards.distribute_task(None, None, [], [])": "dask",
}


@pytest.fixture(scope="module")
def complaints():
    """What each of ASKED says, in one process, for most of the time goes into its start."""
    done = in_core(f"""
import clew, clew.shards, clew.learning.plotting
for code in {list(ASKED)}:
    try:
        exec(code)
        print("nothing")
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}")
""")
    assert done.returncode == 0, done.stderr
    return dict(zip(ASKED, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize(("code", "extra"), ASKED.items())
def test_a_missing_part_is_named_wherever_it_is_asked_for(code, extra, complaints):
    assert complaints[code].startswith("MissingExtra: ")
    assert f"pip install 'clew-learn[{extra}]'" in complaints[code]


@pytest.mark.parametrize(
    ("args", "extra"), [(["demo"], "tracking"), (["annotate"], "page")]
)
def test_the_command_says_so_in_one_line(args, extra, tmp_path):
    done = in_core(
        "import os; os.chdir(sys.argv.pop()); from clew.cli import main; main()",
        *args,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        rf"clew: .* needs .*: pip install 'clew-learn\[{extra}\]' .*\n", done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_the_command_helps_and_tells_its_version_without_extras():
    done = in_core("from clew.cli import main; main()", "--help")
    assert done.returncode == 0
    assert "track" in done.stdout


def test_a_tracker_in_a_file_asks_for_the_extra(learned, tmp_path):
    learned.save(tmp_path / "a.clew")
    done = in_core("import clew; clew.load(sys.argv[1])", tmp_path / "a.clew")
    assert "pip install 'clew-learn[tracking]'" in done.stderr.splitlines()[-1]
    assert clew.load(tmp_path / "a.clew").n_annotated_ == learned.n_annotated_
