"""All of the page with the keyboard alone, and all of it with the mouse alone."""

import pytest


def test_keyboard_alone(annotator, tmp_path):
    page = annotator.page
    said = {annotator.asked()}
    annotator.press("Enter")
    while True:
        frame, _, source, _, _ = annotator.skip_to("move")
        _, second = annotator.nearest(source[0], 2)
        if all((frame, second) != (t, cell) for t, _, _, to, _ in said for cell in to):
            break  # where another cell went: that answer would be replaced
        annotator.press("Space")
    annotator.press("2", "Enter")  # the numbered cell next to it, and that is all
    annotator.saved()
    said.add((frame, "move", source, (second,), True))
    assert annotator.exported(tmp_path) == said

    annotator.press("b")
    assert page.get_attribute("[data-action=browse]", "aria-pressed") == "true"
    annotator.press("Home", "ArrowRight")
    page.wait_for_function("() => document.getElementById('time').value === '1'")
    annotator.settle()
    annotator.press("]")
    browsed = annotator.asked()
    assert browsed[0] == 1
    annotator.settle()  # nothing is answered before it can be seen
    annotator.press("y")
    annotator.until_annotated(len(said) + 1)
    assert annotator.asked() == browsed  # it stays in view, now as an answer
    # the pair is fetched again after the answer was saved
    page.wait_for_function(
        "() => document.getElementById('sureness').innerText === 'your answer'"
    )

    annotator.press("?")
    assert page.is_visible("#help")
    annotator.press("Escape")
    assert not page.is_visible("#help")
    theme = page.get_attribute("html", "data-theme")
    annotator.press("t")
    assert page.get_attribute("html", "data-theme") != theme
    annotator.press("q")
    page.wait_for_selector("[data-action=questions][aria-pressed=true]")

    annotator.press("e")
    with page.expect_download() as download:
        annotator.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Enter")
    assert download.value.suggested_filename.endswith(".csv")


def test_every_button_can_be_reached_by_tab_and_shows_its_focus(annotator):
    page = annotator.page
    reached = set()
    for _ in range(80):
        annotator.press("Tab")
        name = page.evaluate("document.activeElement.dataset.action ?? ''")
        if name:
            assert (
                page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                == "solid"
            ), name
            reached.add(name)
    enabled = "[...document.querySelectorAll('[data-action]:not(:disabled)')].filter((b) => b.offsetParent)"
    assert reached == set(page.evaluate(f"{enabled}.map((b) => b.dataset.action)"))


def test_mouse_alone(annotator, tmp_path):
    page = annotator.page
    said = {annotator.asked()}
    annotator.click("yes")
    annotator.click("skip")
    annotator.settle()
    frame, event, sources, targets, _ = annotator.asked()
    annotator.click("no")
    annotator.settle()
    said.add((frame, event, sources, targets, False))
    undone = annotator.asked()
    annotator.click("yes")
    annotator.saved()
    annotator.click("undo")
    annotator.until_annotated(2)
    assert annotator.asked() == undone

    page.locator("#time").click(position={"x": 300, "y": 8})
    annotator.settle()
    annotator.click("fit")
    cell = annotator.pair()["a"][3]["id"]
    annotator.click_cell("a", cell)
    frame, event, sources, targets, _ = annotator.asked()
    assert cell in sources
    annotator.click("disappear" if event != "disappear" else "yes")
    said.add((frame, "disappear", (cell,) if len(sources) == 1 else sources, (), True))
    annotator.saved()
    annotator.click("questions")
    assert annotator.exported(tmp_path) == said


@pytest.mark.parametrize(
    ("action", "menu"), [("export", "#exports"), ("steer", "#steering")]
)
def test_menu_opened_by_mouse_has_the_keys(annotator, action, menu):
    page = annotator.page
    asked = annotator.asked()
    annotator.click(action)
    page.wait_for_selector(menu, state="visible")
    page.keyboard.press("y")  # no answer to the question beneath
    page.keyboard.press("n")
    page.keyboard.press("Escape")
    page.wait_for_selector(menu, state="hidden")
    assert annotator.asked() == asked
    assert page.inner_text("#annotated") == "0"
    page.mouse.click(5, 5)
    annotator.press(" ")  # keys work again
    assert annotator.asked() != asked


def test_answers_are_in_one_row(annotator):
    for width, height in [(1024, 600), (1280, 800), (1440, 900)]:
        annotator.page.set_viewport_size({"width": width, "height": height})
        rows = annotator.page.locator("#answers button").evaluate_all(
            "buttons => buttons.map((button) => button.getBoundingClientRect().top)"
        )
        assert len(rows) == 9
        assert len(set(rows)) == 1


def test_notice_goes_with_undo(annotator):
    page = annotator.page
    annotator.click("yes")
    annotator.saved()
    page.evaluate("import('/static/state.js').then(({ tell }) => tell('about it'))")
    page.wait_for_selector("#refused >> text=about it")
    annotator.click("undo")
    page.wait_for_selector("#refused", state="hidden")


def test_small_picture_fills_its_pane(annotator):
    look = """import('/static/camera.js').then(({ camera, panes, zoomBy }) => {
        for (let i = 0; i < 40; i++) zoomBy(0.8);
        return [camera.scale, panes[0].width, panes[0].height];
    })"""
    scale, width, height = annotator.page.evaluate(look)
    y, x = annotator.page.evaluate(
        "import('/static/state.js').then(({ state }) => state.movie.shape.slice(-2))"
    )
    assert scale == pytest.approx(min(width / x, height / y))


def test_zoom_pan_and_levels(annotator):
    page = annotator.page
    scale = "import('/static/camera.js').then(({ camera }) => [camera.scale, camera.x])"
    before, _ = page.evaluate(scale)
    page.mouse.move(300, 400)
    page.mouse.wheel(0, -400)
    near, x = page.evaluate(scale)
    assert near > 1.2 * before
    asked = annotator.asked()
    page.mouse.down()
    page.mouse.move(200, 380, steps=4)
    page.mouse.up()
    assert page.evaluate(scale)[1] > x
    assert annotator.asked() == asked  # a drag is no click
    page.locator("#white").fill("0.5")
    page.wait_for_function(
        "() => document.querySelector('canvas.image').style.filter.includes('brightness')"
    )


def test_names_are_text_and_the_tree_leads_to_its_frames(annotator):
    page = annotator.page
    assert "<script>alert(1)" in page.inner_text("#movie")
    assert page.evaluate("document.scripts.length") == 1
    page.wait_for_selector("#tree .hit", state="attached")
    frame, _, (label,), *_ = annotator.skip_to("move")
    page.wait_for_selector(f'#tree[data-of="{frame}/{label}"] .mine', state="attached")
    page.focus("#tree .hit")
    label = page.get_attribute("#tree .hit", "aria-label")
    annotator.press("Enter")
    begin = int(label.split("frames ")[1].split(" ")[0])
    assert annotator.asked()[0] == min(begin, 12)
    assert page.get_attribute("[data-action=browse]", "aria-pressed") == "true"


def test_another_movie_in_three_dimensions(annotator, tmp_path):
    page = annotator.page
    assert page.is_hidden("#slice")
    page.select_option("#movie", "1")
    page.wait_for_function("() => document.getElementById('time').max === '2'")
    page.wait_for_selector('#question:not([data-key=""])')
    annotator.settle()
    page.wait_for_selector("#stage .sections:not([hidden]) img", state="visible")
    for figure in page.query_selector_all("#stage .sections:not([hidden])"):
        assert figure.eval_on_selector("img", "image => image.naturalWidth") == 336
        assert "slice" in figure.inner_text()
    annotator.press("z")
    chosen = page.inner_text("#slice-name")
    assert chosen in page.inner_text("#stage .sections:not([hidden]) figcaption")
    annotator.press("z")
    assert page.inner_text("#slice-name") == "all"
    pictures = []
    page.on("request", lambda request: pictures.append(request.url))
    page.locator("#slice").fill("3")
    annotator.settle()
    assert page.inner_text("#slice-name") == "3"
    assert any(url.endswith("z=3") for url in pictures)
    said = annotator.asked()
    annotator.press("y")
    annotator.saved()
    assert annotator.exported(tmp_path) == {said}
    annotator.press("Control+z")
    annotator.until_annotated(0)
