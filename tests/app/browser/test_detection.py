"""A movie without masks: its cells are found on the page."""

import shutil

from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation
from clew.tracking.movie import open_movie
from tests.app.browser.conftest import ServedHere, open_tab


def test_cells_are_found_looked_at_and_found_otherwise(browser, tmp_path):
    write_simulation(tmp_path, NucleiSettings(frames=4, cells=10, seed=2))
    shutil.rmtree(tmp_path / "01_SEG")
    shutil.rmtree(tmp_path / "01_GT")
    server = ServedHere([tmp_path / "01"])
    person = open_tab(browser)
    page = person.page
    page.goto(server.address)
    page.wait_for_selector("#question >> text=Are these the cells?")
    page.wait_for_selector("#detection output >> text=in frame 0")
    assert page.is_hidden("#answers")
    first = page.get_attribute("#preview img", "src")
    page.fill("#detection [name=diameter]", "60")
    page.wait_for_function(
        "before => document.querySelector('#preview img').src !== before", arg=first
    )
    page.fill("#detection [name=frame]", "3")
    page.wait_for_selector("#detection output >> text=in frame 3")
    page.fill("#detection [name=diameter]", "30")
    page.click("#detection >> text=Use these masks")
    page.wait_for_selector('#question:not([data-key=""])[data-key]')
    assert page.is_hidden("#detection")
    assert page.is_hidden("#preview")
    assert page.is_visible("#answers")
    page.context.close()
    server.stop()
    assert person.complaints == []
    assert open_movie(tmp_path / "01").label(0).max() > 3
