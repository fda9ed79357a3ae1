"""The page says what is so: whose answers they are, what was asked, and what went wrong."""

import json

BOXES = """() => {
    const above = ["#question", ".tabs", "#sureness", ".chip.left", ".chip.right"];
    const names = [...above, ".answers", "#time", "#when", "#goto", ".zoom"];
    const shown = names.map((name) => [name, document.querySelector(name)]).filter(([, box]) => box?.offsetParent);
    const box = ({ left, top, right, bottom }) => [left, top, right, bottom];
    return Object.fromEntries(shown.map(([name, element]) => [name, box(element.getBoundingClientRect())]));
}"""


def test_an_answer_for_a_store_that_is_not_open_goes_to_no_other_movie(
    annotator, served, tmp_path
):
    """It was known by name, number of frames and shape before, which another movie can share."""
    page = annotator.page
    (movie, _) = served.ask("/api/movies")
    frame, event, sources, targets, _ = annotator.asked()
    body = {
        "key": "left-behind",
        "frame": frame,
        "event": event,
        "sources": sources,
        "targets": targets,
        "happened": True,
    }
    item = {
        "kind": "answers",
        "movie": 0,
        "name": movie["name"],
        "time": 1,
        "store": "another store",
        "identity": json.dumps(
            [movie["name"], movie["n_frames"], movie["shape"]], separators=(",", ":")
        ),
        "body": body,
    }
    page.evaluate(
        "(item) => localStorage.setItem('clew-outbox/left-behind', JSON.stringify(item))",
        item,
    )
    annotator.open(served.address)
    page.wait_for_selector("#banner", state="visible")
    assert "is not open here, and never sent" in page.inner_text("#banner")
    assert served.ask("/api/movies/0/status")["annotated"] == 0
    with page.expect_download() as download:
        page.click("#banner >> text=Save to a file")
    download.value.save_as(tmp_path / "unsent.csv")
    assert (
        (tmp_path / "unsent.csv")
        .read_text()
        .splitlines()[1]
        .startswith(f"{frame},{event},")
    )
    page.click("#banner >> text=Drop")
    page.wait_for_selector("#banner", state="hidden")
    assert page.evaluate("localStorage.getItem('clew-outbox/left-behind')") is None


def test_in_a_merge_one_of_the_two_can_have_moved_there(annotator, served, tmp_path):
    served.ask("/api/movies/0/events", {"events": ["divide", "split", "merge"]})
    annotator.open(served.address)
    pairs = (served.ask(f"/api/movies/0/pair/{t}") for t in range(13))
    frame, merge = next(
        (pair["frame"], e)
        for pair in pairs
        for e in pair["events"]
        if e["event"] == "merge"
    )
    (one, _), (target,) = merge["sources"], merge["targets"]
    annotator.look_at(frame, one)
    annotator.page.evaluate(
        "import('/static/state.js').then(({ state }) => { state.cell = null; state.mode = 'questions'; })"
    )
    annotator.click_cell("b", target)
    assert "Which of" in annotator.page.inner_text(
        "#hint"
    )  # it was stored as "yes, they merge" before
    annotator.click_cell("a", one)
    annotator.saved()
    assert annotator.exported(tmp_path) == {(frame, "move", (one,), (target,), True)}


def test_a_dead_worker_is_told_after_a_reload(annotator, served):
    page = annotator.page

    def dead(route):
        reply = route.fetch()
        route.fulfill(
            response=reply,
            json=reply.json()
            | {"worker": {"alive": False, "problem": "it ended with code 3"}},
        )

    page.route("**/status?*", dead)
    page.reload()
    page.wait_for_selector("#banner", state="visible")
    assert "ended with code 3" in page.inner_text("#banner")


def test_an_export_that_fails_or_takes_long_says_so(annotator):
    page, held = annotator.page, []
    page.route("**/export/ctc", lambda route: held.append(route))
    annotator.click("export")
    page.click('[data-export="ctc"]')
    page.wait_for_selector("#refused >> text=writing the file")
    held[0].fulfill(status=422, json={"error": "the drive is full"})
    page.wait_for_selector("#refused >> text=could not be exported: the drive is full")
    page.click("#refused >> text=Close")
    page.wait_for_selector("#refused", state="hidden")


def test_nothing_is_answered_before_its_picture_is_there(annotator, served):
    page, held, open_again = annotator.page, [], []
    page.route(
        "**/image/*",
        lambda route: route.continue_() if open_again else held.append(route),
    )
    page.goto(served.address)
    page.wait_for_selector('#question:not([data-key=""])[data-key]')
    question = annotator.asked()
    assert page.is_disabled("[data-action=yes]")
    annotator.press("y", "n", "d")
    assert annotator.asked() == question
    open_again.append(True)
    for route in held:
        route.continue_()
    annotator.settle()
    annotator.press("y")
    annotator.until_annotated(1)


def test_a_refused_denial_is_quoted_as_one_and_can_be_looked_at(annotator, another):
    page = annotator.page
    frame, _, source, target, _ = annotator.skip_to("move")
    page.route(
        "**/pair/*", lambda route: None
    )  # this page learns nothing of what the other one says
    another.look_at(frame, source[0])
    another.press("y")
    another.saved()
    annotator.press("n")
    page.wait_for_selector("#refused", state="visible")
    words = page.inner_text("#refused")
    assert (
        f"It is not so that cell {source[0]} is cell {target[0]} of the next frame"
        in words
    )
    page.unroute("**/pair/*")
    page.click("#refused >> text=Show me")
    page.wait_for_selector("[data-action=browse][aria-pressed=true]")
    page.wait_for_selector(
        '#question:not([data-key=""])[data-key]'
    )  # the pair is fetched first
    assert annotator.asked()[:3] == (frame, "move", source)
    page.click("#refused >> text=Leave it")
    page.wait_for_selector("#refused", state="hidden")


def test_undo_in_one_tab_leaves_the_answer_of_another_alone(
    annotator, another, tmp_path
):
    mine = annotator.asked()
    annotator.press("y")
    annotator.saved()
    another.open(another.page.url)
    theirs = another.asked()
    another.press("y")
    another.saved()
    annotator.until_annotated(2)
    annotator.press("Control+z")
    annotator.until_annotated(1)
    assert annotator.exported(tmp_path) == {theirs} != {mine}
    annotator.page.wait_for_selector("[data-action=undo]:disabled")


def test_nothing_lies_over_anything_else(annotator):
    for width, height in [
        (1024, 600),
        (1280, 800),
        (820, 1180),
        (640, 400),
    ]:  # the last: 200 % zoom
        annotator.page.set_viewport_size({"width": width, "height": height})
        annotator.skip_to("move")
        boxes = annotator.page.evaluate(BOXES)
        names = list(boxes)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                p, q = boxes[one], boxes[other]
                apart = (
                    p[2] <= q[0] + 1
                    or q[2] <= p[0] + 1
                    or p[3] <= q[1] + 1
                    or q[3] <= p[1] + 1
                )
                assert apart, (one, p, other, q)
        assert annotator.page.evaluate("document.documentElement.scrollWidth") <= width


def test_numbered_tags_cover_neither_each_other_nor_the_cells_in_question(annotator):
    annotator.skip_to("move")
    places = annotator.page.evaluate(
        """async () => {
            const { tagBoxes } = await import("/static/tags.js");
            return tagBoxes();
        }"""
    )
    assert len(places["keys"]) > 3
    boxes = [*places["keys"], *places["cells"]]
    for i, p in enumerate(places["keys"]):
        for q in boxes[i + 1 :]:
            assert p[2] <= q[0] or q[2] <= p[0] or p[3] <= q[1] or q[3] <= p[1]


def test_words_and_lines_agree_about_how_sure_clew_is(annotator):
    for _ in range(12):
        annotator.settle()
        reason, line = (
            annotator.page.inner_text("#question p"),
            annotator.page.inner_text("#sureness"),
        )
        assert not (
            line == "sure" and ("almost tie" in reason or "not much worse" in reason)
        ), (reason, line)
        annotator.press("Space")
    assert "estimated error" not in annotator.page.inner_text("aside")


CELLS_LOW = """async () => {
    const { camera, panes } = await import("/static/camera.js"), { pairAt } = await import("/static/pairs.js");
    const { changed, state } = await import("/static/state.js");
    const cell = pairAt(state.frame).a.find(({ id }) => id === state.question.sources[0]);
    camera.y = cell.y - (panes[0].height / 2 - 30) / camera.scale;
    changed();
}"""
"""Moves the picture until the cells in question are at its lower edge."""
BOXES_OF_CELLS = """async () => {
    const { tagBoxes } = await import("/static/tags.js");
    const { left, top } = document.getElementById("stage").getBoundingClientRect();
    return tagBoxes().cells.map((box) => [box[0] + left, box[1] + top, box[2] + left, box[3] + top]);
}"""


def test_hints_and_notices_keep_off_the_cells_in_question(annotator):
    for width, height in [(1024, 600), (1280, 800)]:
        annotator.page.set_viewport_size({"width": width, "height": height})
        page = annotator.page
        annotator.skip_to("move")
        annotator.press("m")  # the other cell is to be clicked
        page.evaluate(CELLS_LOW)
        page.evaluate(
            "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
        )
        hint, cells = (
            page.locator("#hint").bounding_box(),
            page.evaluate(BOXES_OF_CELLS),
        )
        assert cells
        for left, top, right, bottom in cells:
            beside = hint["x"] + hint["width"] <= left or right <= hint["x"]
            assert beside or hint["y"] + hint["height"] <= top or bottom <= hint["y"]
        annotator.press("Escape")
        page.evaluate(
            "import('/static/state.js').then(({ tell }) => tell('Something was not done.'))"
        )
        page.wait_for_selector("#refused >> text=Something was not done")
        stage, notice = (
            page.locator(name).bounding_box() for name in ("#stage", "#refused")
        )
        assert stage["y"] + stage["height"] <= notice["y"] + 1
        page.evaluate("import('/static/state.js').then(({ tell }) => tell(''))")


def test_statements_read_well_where_a_label_stays_the_same(annotator):
    """It read "Cell 821 is the same cell as 821", and that a cell comes out of nothing."""
    said = annotator.page.evaluate(
        """async () => {
            const { ARITY, asStatement } = await import("/static/events.js");
            const cells = (n) => [821, 822].slice(0, n);
            const said = (event, [from, to]) => asStatement({ event, sources: cells(from), targets: cells(to) });
            return Object.fromEntries(Object.entries(ARITY).map(([event, arity]) => [event, said(event, arity)]));
        }"""
    )
    assert said["move"] == "Cell 821 is cell 821 of the next frame"
    assert said["appear"] == "Cell 821 is new: it was not there before"


def test_the_headline_says_how_many_events_are_wrong(annotator, served):
    """It said "estimated error 8.3 %" where 0.6 % of the events were wrong."""
    page = annotator.page
    annotator.until("state.wrong && !state.learning && state.target")
    page.fill("#target", "1")
    page.press("#target", "Tab")
    wrong = served.ask("/api/movies/0/status?target=1")["wrong"]
    assert wrong["until"] > 0
    assert wrong["low"] <= wrong["number"] <= wrong["high"]
    page.wait_for_selector(f"#until >> text=after about {wrong['until']} more answer")
    assert page.inner_text("#wrong") == f"≈ {wrong['number']:.0f}"
    assert page.inner_text("#wrong-of").startswith(
        f"wrong ({wrong['low']}–{wrong['high']}) of {wrong['events']:,}"
    )


def test_as_long_as_more_questions_are_on_their_way_there_is_something_to_ask(
    annotator,
):
    """A fast hand that skipped all that lay ready was told that nothing else was left."""
    page, held, open_again = annotator.page, [], []
    page.route(
        "**/questions?*",
        lambda route: route.continue_() if open_again else held.append(route),
    )
    for _ in range(60):
        annotator.press("Space")
    page.wait_for_selector("#question >> text=Choosing a question")
    open_again.append(True)
    held[0].continue_()
    annotator.until("state.question")
