"""What all tests share: where data is, and how hypothesis searches."""

import gc
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from .helpers.effort import examples

# a first call compiles, so a deadline in milliseconds would say nothing
settings.register_profile(
    "dev", examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# Nearly all that is made before the first test lives until the last one. Without collections over and over of that,
# each process starts in half the time.
gc.disable()

ROOT = Path(__file__).parents[1]
BROWSER = "tests/app/browser/"
ELSEWHERE = {"linux": sys.platform != "linux", "posix": os.name != "posix"}
"""Marks of tests that need a certain system, and whether this is another one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this system does not have; begin with the tests that take longest.

    Those in a browser are one after the other in one process, and wait much of the time.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(BROWSER))
    for item in items:
        for mark in (
            mark
            for mark, elsewhere in ELSEWHERE.items()
            if elsewhere and item.get_closest_marker(mark)
        ):
            item.add_marker(
                pytest.mark.skip(reason=f"needs what only {mark} systems have")
            )


def pytest_collection_finish() -> None:
    """From here on garbage is collected, of what the tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file of tests goes to one process, and all tests of the page in a browser to the same one.

    What a file shares, such as a fit, is made once then, and so are the browser, its server and the processes behind
    that, which wait for each other more than they compute: the other processes have the cores meanwhile.
    """
    from xdist.scheduler import LoadFileScheduling

    compiling = start_compiling()

    class Scheduling(LoadFileScheduling):
        def schedule(self) -> None:
            if compiling is not None:
                compiling.wait()
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return (
                BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)
            )

    return Scheduling(config, log)


def start_compiling() -> subprocess.Popen[bytes] | None:
    """In a fresh clone, compile for all processes while these collect their tests.

    Otherwise each compiles the same kernels, for 30 seconds.
    """
    if "NUMBA_CACHE_DIR" in os.environ or any(ROOT.glob("src/**/*.nbi")):
        return None
    return subprocess.Popen([sys.executable, ROOT / "scripts/compile_kernels.py"])


@pytest.fixture
def bound_by_permissions() -> Iterator[None]:
    """Read-only folders are read-only for root too, while the test runs."""
    module = runpy.run_path(str(ROOT / "benchmarks/privileges.py"))
    with module["bound_by_permissions"]():
        yield


@pytest.fixture(scope="session")
def clew_data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("CLEW_DATA")
    if not folder:
        pytest.skip("CLEW_DATA does not name a folder of data sets")
    return Path(folder)


def simulate(folder: Path, **settings_of_movie: int) -> SimpleNamespace:
    """A simulated movie: its folder, the movie, all true events, and a quarter of them."""
    from clew.annotation.sampling import sample
    from clew.simulation.simulate import NucleiSettings
    from clew.simulation.write import write_simulation
    from clew.tracking.evaluation.truth import derive_annotations
    from clew.tracking.io.ctc import open_ctc_lineage
    from clew.tracking.movie import open_movie

    write_simulation(folder, NucleiSettings(**settings_of_movie))
    movie = open_movie(folder / "01")
    known = derive_annotations(open_ctc_lineage(folder / "01_GT/TRA"), movie)
    return SimpleNamespace(
        folder=folder,
        path=folder / "01",
        truth=folder / "01_GT/TRA",
        movie=movie,
        known=known,
        some=sample(known, 0.25, 0),
    )


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A small movie in 2D with all six events. It is shared, so that nobody may write to it."""
    return simulate(
        tmp_path_factory.mktemp("plane"), frames=14, cells=24, cycle=40, seed=6
    )


@pytest.fixture(scope="session")
def simulated_3d(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A smaller movie in 3D, with a spacing that is not the same along all axes."""
    return simulate(
        tmp_path_factory.mktemp("space"), frames=6, cells=8, dims=3, cycle=20, seed=0
    )


@pytest.fixture(scope="session")
def source(simulated: SimpleNamespace) -> object:
    """The measured cells of `simulated`; not to be changed."""
    from clew.tracking.measurement.measure import measure_movie

    return measure_movie(simulated.movie, cache=None, n_jobs=1)


@pytest.fixture(scope="session")
def learned(simulated: SimpleNamespace) -> object:
    """A tracker that learned from a quarter of the events of `simulated`."""
    from clew.tracking.tracker import Tracker

    return Tracker(lam=100.0, cache=None, n_jobs=1).fit(simulated.movie, simulated.some)


@pytest.fixture(scope="session")
def lineage(simulated: SimpleNamespace, learned: object) -> object:
    """The lineage of `simulated` by `learned`."""
    return learned.track(simulated.movie)
