"""Fingers on a tablet: tap, long press and pinch; and what a screen reader is told."""

import pytest

from tests.app.browser.conftest import leave, open_tab, undo_all

SCALE = "import('/static/camera.js').then(({ camera }) => camera.scale)"


@pytest.fixture
def tablet(browser, served):
    """A person with a tablet."""
    undo_all(served)
    person = open_tab(browser, viewport={"width": 820, "height": 1180}, has_touch=True)
    person.open(served.address)
    yield person
    leave(person)


def fingers(page):
    """Touches a page as a device reports it."""
    session = page.context.new_cdp_session(page)

    def touch(kind, *points):
        at = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    return touch


def test_tap_long_press_and_pinch(tablet):
    page, touch = tablet.page, fingers(tablet.page)
    page.tap("[data-action=yes]")
    tablet.until_annotated(1)
    _, _, (source,), _, _ = tablet.skip_to("move")
    far = tablet.nearest(source, 2)[1]
    x, y = tablet._place("b", far)
    touch("touchStart", (x, y))
    page.wait_for_selector("[data-action=browse][aria-pressed=true]")
    touch("touchEnd")
    assert far in tablet.asked()[3]  # it is looked at, and nothing was said
    tablet.until_annotated(1)

    before = page.evaluate(SCALE)
    touch("touchStart", (300, 500), (340, 500))
    touch("touchMove", (240, 500), (400, 500))
    touch("touchEnd")
    assert page.evaluate(SCALE) > 2 * before

    # the browser makes a click of a tap some time after the fingers were lifted
    page.tap("[data-action=questions]")
    page.wait_for_selector("[data-action=browse][aria-pressed=false]")
    _, _, (source,), _, _ = tablet.skip_to("move")
    far = tablet.nearest(source, 2)[1]
    page.touchscreen.tap(*tablet._place("b", far))  # where it went instead
    tablet.until_annotated(2)


def test_what_is_asked_has_a_name_and_nothing_is_without_one(tablet):
    page = tablet.page
    frame, _, sources, targets, _ = tablet.skip_to("move")
    spoken = page.text_content("#question")
    assert f"Cell {sources[0]} in frame {frame}" in spoken
    assert f"cell {targets[0]} in frame {frame + 1}" in spoken
    assert page.get_attribute("#question", "aria-live") == "polite"
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex], canvas, svg, dialog, section")]
            .filter((one) => one.ariaHidden !== "true" && !one.closest("[hidden]"))
            .filter((one) => !(one.ariaLabel || one.getAttribute("aria-labelledby") || one.textContent.trim()
                || one.labels?.[0]?.textContent.trim())).map((one) => one.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
