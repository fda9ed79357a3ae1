"""What lies on the pictures can be read, is at the right cell, and hides nothing that is looked at or clicked."""

import io

from PIL import Image

LOOK = """async ([t, label]) => {
    const { state } = await import("/static/state.js"), { browseTo } = await import("/static/asking.js");
    browseTo(t, { side: "a", label });
    state.framed = false;
}"""
"""Looks at a cell as a question does."""
PLACES = """async () => {
    const { tagBoxes } = await import("/static/tags.js"), { candidates } = await import("/static/picking.js");
    const { frameAt } = await import("/static/frames.js"), { state } = await import("/static/state.js");
    const { panes, toScreen } = await import("/static/camera.js");
    const stage = document.getElementById("stage").getBoundingClientRect();
    const on = ({ left, top, right, bottom }) => [left, top, right, bottom];
    const moved = ([left, top, right, bottom, ...rest]) =>
        [left + stage.left, top + stage.top, right + stage.left, bottom + stage.top, ...rest];
    const all = panes.map((pane, i) => [...frameAt(state.frame + i).cells].map(([label, { box }]) =>
        moved([...toScreen(pane, box[0], box[1]), ...toScreen(pane, box[2], box[3]), label])));
    const tags = Object.fromEntries(Object.entries(tagBoxes()).map(([name, boxes]) => [name, boxes.map(moved)]));
    const over = [...document.querySelectorAll(".chip, .zoom")].map((one) => on(one.getBoundingClientRect()));
    return { ...tags, all, over, stage: on(stage), candidates: candidates().map(({ id, number }) => [number, id]) };
}"""
"""Boxes on the screen: tags, cells in question, cells with a number, all cells of both panes, what lies over them."""
DRAWN = """async () => {
    const drawn = [], curved = new WeakSet(), canvas = CanvasRenderingContext2D.prototype, path = Path2D.prototype;
    const { fillText, stroke } = canvas, { quadraticCurveTo } = path;
    const push = (context, what) => context.canvas.matches("#stage .overlay") && drawn.push(what);
    canvas.fillText = function (text, ...rest) { push(this, text); return fillText.call(this, text, ...rest); };
    canvas.stroke = function (...all) { if (curved.has(all[0])) push(this, "arrow"); return stroke.apply(this, all); };
    path.quadraticCurveTo = function (...all) { curved.add(this); return quadraticCurveTo.apply(this, all); };
    (await import("/static/stage.js")).redraw();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    Object.assign(canvas, { fillText, stroke });
    Object.assign(path, { quadraticCurveTo });
    return drawn;
}"""
"""Draws the panes once more: the words on them, and "arrow" for each arrow, in the order in which they are drawn. What
the legend draws meanwhile, where there is news, does not count."""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def overlap(p, q):
    """Whether two boxes share a pixel."""
    return p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]


def inside(p, q):
    """Whether a box lies in another."""
    return (
        p[0] >= q[0] - 1 and p[1] >= q[1] - 1 and p[2] <= q[2] + 1 and p[3] <= q[3] + 1
    )


def far(p, q):
    """Pixels between two boxes."""
    return max(p[0] - q[2], q[0] - p[2], 0) + max(p[1] - q[3], q[1] - p[3], 0)


def look(annotator, frame, label):
    """Centre on a cell, and wait until it is drawn."""
    annotator.page.evaluate(LOOK, [frame, label])
    annotator.settle()
    annotator.page.evaluate(PAINTED)
    return annotator.page.evaluate(PLACES)


def outermost(cells):
    """The cells that are nearest to the corners and to the edges."""
    ways = [(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)]
    return sorted(
        {
            max(cells, key=lambda cell, x=x, y=y: x * cell["x"] + y * cell["y"])["id"]
            for x, y in ways
        }
    )


def test_nothing_hides_the_cells_in_question_or_a_tag(annotator, served):
    for width, height in [(1024, 600), (1280, 800), (820, 1180)]:
        annotator.page.set_viewport_size({"width": width, "height": height})
        for frame in (0, 6):
            for label in outermost(served.ask(f"/api/movies/0/pair/{frame}")["a"]):
                places = look(annotator, frame, label)
                assert places["names"]
                for box in [*places["cells"], *places["names"], *places["keys"]]:
                    assert inside(box, places["stage"]), (frame, label)
                    assert not any(overlap(box, other) for other in places["over"]), (
                        frame,
                        label,
                        box,
                        places["over"],
                    )


def test_a_number_is_at_its_own_cell_which_is_seen(annotator, served):
    page = annotator.page
    page.set_viewport_size({"width": 1024, "height": 600})
    for frame in (0, 4, 8):
        for label in outermost(served.ask(f"/api/movies/0/pair/{frame}")["a"])[:4]:
            look(annotator, frame, label)
            page.mouse.move(300, 300)
            page.mouse.wheel(
                0, -400
            )  # nearer: some of the nearest cells are not seen any more
            page.evaluate(PAINTED)
            places = page.evaluate(PLACES)
            for key in places["keys"]:
                *_, pane, _, own = key
                away = {cell[4]: far(key, cell) for cell in places["all"][pane]}
                assert away[own] == min(away.values()), (frame, label, key)
            for _, own in places["candidates"]:
                (cell,) = (cell for cell in places["all"][1] if cell[4] == own)
                assert overlap(cell, places["stage"])


def test_a_cell_that_was_chosen_has_no_number_and_the_others_keep_theirs(annotator):
    annotator.skip_to("move")
    before = dict(annotator.page.evaluate(PLACES)["candidates"])
    annotator.press("2")
    after = dict(annotator.page.evaluate(PLACES)["candidates"])
    assert after == {number: label for number, label in before.items() if number != 2}
    annotator.press("Escape")


def test_numbers_lie_above_the_arrows(annotator):
    annotator.skip_to("move")
    order = annotator.page.evaluate(DRAWN)
    last = len(order) - 1 - order[::-1].index("arrow")
    assert {"1", "2", "3"} < set(order[last:])


def test_the_cell_of_an_answer_is_not_ticked_below_its_arrow(annotator):
    frame, _, (source,), _, _ = annotator.skip_to("move")
    annotator.press("y")
    annotator.saved()
    annotator.page.evaluate(LOOK, [frame, source])
    annotator.settle()
    annotator.until("state.question?.pinned && !state.question.pending")
    assert "✓" not in annotator.page.evaluate(DRAWN)


def test_the_focus_of_the_pictures_is_seen(annotator):
    page = annotator.page
    page.focus("#stage")
    annotator.press("Shift")  # the keyboard is used
    assert page.evaluate("document.getElementById('stage').matches(':focus-visible')")
    x, y, width, height = page.locator("#stage").bounding_box().values()
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    edges = [
        (x + 1, y + height / 2),
        (x + width - 2, y + height / 3),
        (x + width / 3, y + 1),
        (x + width / 4, y + height - 2),
    ]
    assert {picture.getpixel((round(left), round(top))) for left, top in edges} == {
        (0x6C, 0xB4, 0xF2)
    }


def test_a_hint_has_one_line_and_hides_as_few_cells_as_it_can(annotator, served):
    for width, height in [(1024, 600), (1280, 800)]:
        annotator.page.set_viewport_size({"width": width, "height": height})
        page = annotator.page
        frame = 6
        for label in outermost(served.ask(f"/api/movies/0/pair/{frame}")["a"]):
            look(annotator, frame, label)
            annotator.press("m")
            page.wait_for_selector("#hint", state="visible")
            page.evaluate(PAINTED)
            x, y, wide, high = page.locator("#hint").bounding_box().values()
            assert high < 50
            places = page.evaluate(PLACES)
            _, top, _, bottom = places["stage"]
            ends = [
                (x, at, x + wide, at + high)
                for at in (y, top + 40 if y > top + 41 else bottom - 14 - high)
            ]
            here, there = (
                [overlap(end, box) for box in places["open"]] for end in ends
            )
            in_question = (
                [overlap(end, box) for box in places["cells"]] for end in ends
            )
            assert sum(next(in_question)) == 0
            assert sum(here) <= sum(there) or any(next(in_question))
            annotator.press("Escape")


def test_all_keys_are_seen_at_once(annotator):
    for width, height in [(1024, 600), (1280, 800)]:
        annotator.page.set_viewport_size({"width": width, "height": height})
        annotator.press("?")
        assert (
            annotator.page.evaluate(
                "(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(help)"
            )
            == 0
        )
        annotator.press("Escape")


def test_on_a_tablet_the_pictures_have_half_of_the_screen(annotator):
    page = annotator.page
    page.set_viewport_size({"width": 820, "height": 1180})
    annotator.skip_to("move")
    annotator.until("state.wrong")
    assert page.locator("#stage").bounding_box()["height"] > 1180 * 0.45
    page.wait_for_function(
        "() => document.querySelector('#tree svg')?.clientWidth > 340"
    )  # as wide as its panel
    progress, lineage = (
        page.locator(f"aside section >> nth={n}").bounding_box() for n in (0, 1)
    )
    assert progress["y"] == lineage["y"]
