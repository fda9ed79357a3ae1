"""Masks mended with the mouse: merged, cut, deleted and added, undone, exported and reopened, in 2D and in 3D."""

import base64
import io
import zipfile

import numpy as np
import pytest
import tifffile

from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation
from clew.tracking.movie import open_movie
from tests.app.browser.conftest import ServedHere, open_tab

LABELS = """async ([side]) => {
    const { frameAt } = await import("/static/frames.js"), { state } = await import("/static/state.js");
    const frame = frameAt(state.frame + (side === "b" ? 1 : 0));
    const bytes = new Uint8Array(frame.labels.buffer);
    let text = "";  // a list of numbers would take Playwright seconds
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return [frame.height, frame.width, btoa(text)];
}"""
SCREEN = """async ([side, points]) => {
    const { panes, toScreen } = await import("/static/camera.js");
    const box = document.getElementById("stage").getBoundingClientRect();
    const pane = panes[side === "a" ? 0 : 1];
    return points.map(([x, y]) => { const [sx, sy] = toScreen(pane, x, y); return [box.left + sx, box.top + sy]; });
}"""


@pytest.fixture
def own(browser, tmp_path):
    """A server of its own on a small movie in 2D and one in 3D, and a person at it."""
    for name, dims in (("flat", 2), ("deep", 3)):
        write_simulation(
            tmp_path / name, NucleiSettings(frames=4, cells=10, dims=dims, seed=2)
        )
    server = ServedHere([tmp_path / "flat/01", tmp_path / "deep/01"])
    person = open_tab(browser)
    person.open(server.address)
    yield person, server, tmp_path
    person.page.context.close()
    server.stop()
    assert person.complaints == []


def seen(person, side="a"):
    """The label image of a pane, as the page has it."""
    height, width, labels = person.page.evaluate(LABELS, [side])
    return (
        np.frombuffer(base64.b64decode(labels), "<u4")
        .astype(int)
        .reshape(height, width)
    )


def draw(person, side, points):
    """Press the button at the first point of the picture, move to the others, and let go."""
    (x, y), *others = person.page.evaluate(
        SCREEN, [side, [list(map(float, point)) for point in points]]
    )
    mouse = person.page.mouse
    mouse.move(x, y)
    mouse.down()
    for sx, sy in others:
        mouse.move(sx, sy, steps=5)
    mouse.up()


def edited(person, n):
    """Wait until the page shows the masks after so many changes of them."""
    last = "Math.max(0, ...Object.values(state.maskRevisions))"
    person.until(f"state.waiting === 0 && !state.stroke && {last} >= {n}")
    for t in ("state.frame", "state.frame + 1"):
        person.until(f"frameAt({t})?.version === (state.maskRevisions[{t}] ?? 0)")


def mend(person, frame=1):
    """Go to a frame, seen as a whole, with the tools at hand."""
    person.press("b")
    person.page.evaluate(
        "(t) => import('/static/asking.js').then((asking) => asking.browseTo(t, null))",
        frame,
    )
    person.until(f"frameAt({frame}) && frameAt({frame} + 1) && pairAt({frame})")
    person.press("0")
    person.click("mend")
    assert person.page.is_visible("#tools")
    assert person.page.is_hidden("#answers")


def across(labels, label):
    """A stroke down through the middle of a cell and beyond."""
    ys, xs = np.nonzero(labels == label)
    middle = xs.mean() + 0.5
    return [(middle, ys.min() - 2), (middle, ys.mean()), (middle, ys.max() + 3)]


def masks_in(path):
    """The label images in an exported zip."""
    with zipfile.ZipFile(path) as files:
        return [
            tifffile.imread(io.BytesIO(files.read(name)))
            for name in sorted(files.namelist())
            if "mask" in name
        ]


def test_merge_cut_delete_and_add_by_mouse_undo_export_and_reopen(own):
    person, server, folder = own
    movie = open_movie(folder / "flat/01")
    mend(person)
    before = seen(person)
    assert np.array_equal(before, movie.label(1))
    first, second, third = np.unique(before[before > 0])[:3].tolist()

    person.click("mask-cut")
    draw(person, "a", across(before, first))
    edited(person, 1)
    cut = seen(person)
    (new,) = set(np.unique(cut).tolist()) - set(np.unique(before).tolist())
    assert 0.5 < (cut == new).sum() / (cut == first).sum() <= 1
    assert np.array_equal(np.isin(cut, [first, new]), before == first)

    person.press("m")
    person.click_cell("a", first)
    assert "the other part" in person.page.inner_text("#tool-hint")
    person.click_cell("a", new)
    edited(person, 2)
    assert np.array_equal(seen(person) > 0, before > 0)
    assert len(np.unique(seen(person))) == len(np.unique(before))

    person.press("d")
    person.click_cell("a", second)
    edited(person, 3)
    gone = seen(person)
    assert not np.isin(gone, second).any()

    person.press(
        "a"
    )  # a click grows the cell that was deleted anew, from the raw image
    ys, xs = np.nonzero(before == second)
    draw(person, "a", [(xs.mean() + 0.5, ys.mean() + 0.5)])
    edited(person, 4)
    grown = seen(person)
    region = (grown > 0) & (gone == 0)
    assert (region & (before == second)).sum() / (
        region | (before == second)
    ).sum() > 0.7

    person.press("d")
    person.click_cell("b", int(seen(person, "b").max()))
    edited(person, 5)
    person.press("a")  # and an outline is drawn in the right frame, where there is room
    right = seen(person, "b")
    far = np.argwhere(right == 0)[len(np.argwhere(right == 0)) // 2][::-1]
    draw(person, "b", [far + offset for offset in ((-6, -6), (6, -6), (6, 6), (-6, 6))])
    edited(person, 6)
    assert (seen(person, "b") > 0).sum() > (right > 0).sum()

    for _ in range(2):
        person.press("Control+z")
    person.until("state.waiting === 0 && state.canRedo")
    edited(person, 8)
    assert np.array_equal(seen(person, "b"), movie.label(2))
    person.press("Control+Shift+z")
    edited(person, 9)
    assert len(np.unique(seen(person, "b"))) == len(np.unique(movie.label(2))) - 1

    now = seen(person), seen(person, "b")
    exported = masks_in(person.export(folder, "masks"))
    assert [len(exported), *map(np.ndim, exported[:1])] == [4, 2]
    assert np.array_equal(exported[0], movie.label(0))
    assert np.array_equal(exported[1], now[0])
    assert np.array_equal(exported[2], now[1])
    tracked = masks_in(person.export(folder, "ctc"))
    assert all(
        np.array_equal(one > 0, other > 0)
        for one, other in zip(tracked, exported, strict=True)
    )
    assert third in now[0]

    server.stop()
    server.start()
    person.page.goto(server.address)
    person.page.wait_for_selector('#question:not([data-key=""])[data-key]')
    mend(person)
    edited(person, 9)
    assert np.array_equal(seen(person), now[0])
    assert np.array_equal(seen(person, "b"), now[1])
    assert np.array_equal(open_movie(folder / "flat/01").label(1), movie.label(1))


def open_deep(person):
    """The movie in three dimensions."""
    person.page.select_option("#movie", "1")
    person.page.wait_for_function("() => document.getElementById('time').max === '2'")
    person.page.wait_for_selector('#question:not([data-key=""])')
    person.settle()


def test_masks_in_depth_are_mended_in_a_slice_and_in_the_projection_and_reopened(own):
    person, server, folder = own
    movie = open_movie(folder / "deep/01")
    page = person.page
    open_deep(person)
    before = movie.label(1)
    sizes = np.bincount(before.reshape(-1))[1:]
    cell = int(np.argmax(sizes)) + 1
    z = int(np.argmax((before == cell).sum(axis=(1, 2))))
    page.locator("#slice").fill(str(z))
    mend(person)
    person.until(f"frameAt(1).labels.includes({cell})")
    assert np.array_equal(seen(person), before[z])
    draw(person, "a", across(before[z], cell))
    edited(person, 1)

    page.locator("#slice").fill("-1")
    person.until("frameAt(1) && frameAt(2)")
    other = next(
        label
        for label in np.unique(seen(person)).tolist()
        if label not in (0, cell) and label <= sizes.size
    )
    person.press("d")
    person.click_cell("a", other)
    edited(person, 2)

    after = masks_in(person.export(folder, "masks"))[1]
    (new,) = set(np.unique(after)) - set(np.unique(before))
    assert np.array_equal(
        np.isin(after, [cell, new]), before == cell
    )  # through all slices
    assert (
        min((after == cell).sum(), (after == new).sum()) > 0.2 * (before == cell).sum()
    )
    assert len(np.flatnonzero((after == new).any(axis=(1, 2)))) > 1
    assert not (after == other).any()
    untouched = ~np.isin(before, [0, cell, other])
    assert np.array_equal(after[untouched], before[untouched])

    server.stop()
    server.start()
    page.goto(server.address)
    open_deep(person)
    mend(person)
    edited(person, 2)
    flat = seen(person)
    assert {cell, int(new)} <= set(np.unique(flat).tolist())
    assert other not in flat
    assert np.array_equal(masks_in(person.export(folder, "masks"))[1], after)
    assert np.array_equal(open_movie(folder / "deep/01").label(1), before)


def test_what_cannot_be_edited_is_told_and_the_keys_fit_the_mode(annotator):
    page = annotator.page
    mend(annotator, 2)
    labels = seen(annotator)
    free = np.argwhere(labels == 0)[50][::-1]
    draw(
        annotator, "a", [free, free + 0.01]
    )  # a click where a stroke is expected does nothing
    assert page.is_hidden("#refused")
    corner = np.argwhere(labels == 0)[len(np.argwhere(labels == 0)) // 3][::-1]
    blank = [(corner[0], corner[1]), (corner[0] + 1, corner[1] + 1)]
    if not labels[corner[1] : corner[1] + 2, corner[0] : corner[0] + 2].any():
        zoom = page.evaluate(
            "import('/static/camera.js').then(({ camera }) => camera.scale)"
        )
        draw(annotator, "a", [blank[0], (blank[0][0] + 5 / zoom, blank[0][1])])
        page.wait_for_selector("#refused >> text=The masks were not changed")
        page.click("#refused >> text=Leave it")
    annotator.press("m")
    assert page.get_attribute("[data-action=mask-merge]", "aria-pressed") == "true"
    annotator.press("Escape")
    page.wait_for_selector("[data-action=browse][aria-pressed=true]")
    assert page.is_visible("#answers")
    annotator.press("x")
    page.wait_for_selector("[data-action=mend][aria-pressed=true]")
    annotator.press("q")
    page.wait_for_selector("[data-action=questions][aria-pressed=true]")
    assert page.is_hidden("#tools")


def test_outline_in_question_that_is_no_cell_is_answered_by_key_or_mouse(
    annotator, served
):
    page = annotator.page
    frame, label = next(
        (frame, event["sources"][0])
        for frame in range(13)
        for event in served.ask(f"/api/movies/0/pair/{frame}")["events"]
        if event["event"] == "disappear"
    )

    def list_false(first_frame):
        events = served.ask(f"/api/movies/0/pair/{first_frame}")["events"]
        return [
            cell
            for event in events
            if event["pinned"] and event["event"] in ("false_end", "false_begin")
            for cell in (*event["sources"], *event["targets"])
        ]

    annotator.look_at(frame, label)
    annotator.press("c")
    annotator.wait_until(lambda: list_false(frame) == [label])
    annotator.until("!state.waiting")
    words = page.locator("#question h1").inner_text()
    assert words == f"Outline {label} is not a cell."
    annotator.press("Control+z")
    annotator.wait_until(lambda: list_false(frame) == [])
    annotator.until("!state.waiting")
    # Of several outlines, a click says which one.
    annotator.press("q")
    frame, _, _, (target,) = annotator.skip_to("move")[:4]
    annotator.click("not-a-cell")
    hint = page.locator("#hint span").inner_text()
    assert hint == "Click the outline that is not a cell."
    annotator.click_cell("b", target)
    annotator.wait_until(lambda: list_false(frame) == [target])
