"""A napari viewer with the annotation dock; needs napari and a display."""

import os
import sys
import time

import pytest

PATIENCE = 240
"""Seconds that a busy machine has for anything."""


def find_reason():
    """Why tests with a viewer cannot run; empty if they can."""
    try:
        import qtpy.QtWidgets  # noqa: F401

        import napari  # noqa: F401
    except Exception as error:
        return f"needs napari, as make test-napari installs it ({error})"
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        return "needs a display, such as that of xvfb-run"
    return ""


@pytest.fixture
def viewer():
    reason = find_reason()
    if reason:
        pytest.skip(reason)
    import napari

    viewer = napari.Viewer(show=True)
    viewer.window._qt_window.resize(1300, 850)
    yield viewer
    viewer.close()


@pytest.fixture
def wait_until(viewer):
    """Let Qt work until something holds."""
    from qtpy.QtWidgets import QApplication

    def wait(holds, describe=str):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"waited too long {describe()}"
            QApplication.processEvents()
            time.sleep(0.005)

    return wait


@pytest.fixture
def dock(viewer, wait_until, tmp_path):
    """The dock over a simulated movie that is tracked; the first question is shown."""
    from clew.napari.dock import AnnotationDock
    from clew.napari.sample import make_sample
    from clew.simulation.simulate import NucleiSettings

    for data, arguments, kind in make_sample(
        NucleiSettings(frames=8, cells=14, seed=1)
    ):
        getattr(viewer, f"add_{kind}")(data, **arguments)
    dock = AnnotationDock(viewer, store_folder=tmp_path)
    viewer.window.add_dock_widget(dock.widget, name="clew")
    dock.panel.buttons["start"].click()
    wait_until(lambda: dock.asked is not None and dock.lineage is not None)
    yield dock
    dock.close()
