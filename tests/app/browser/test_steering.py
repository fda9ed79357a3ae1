"""Which questions are asked, where to look, who answers, and what comes from files."""


def test_questions_of_one_kind_and_time_alone(annotator, served):
    page = annotator.page
    annotator.press("f")
    page.select_option("#only-event", "move")
    page.fill("#only-last", "3")
    page.press("#only-last", "Tab")
    annotator.press("Escape")
    page.wait_for_function(
        "() => document.getElementById('question').dataset.key.includes(':move:')"
    )
    for _ in range(3):
        annotator.settle()
        frame, event, *_ = annotator.asked()
        assert (event, frame <= 3) == ("move", True)
        annotator.press("y")
    annotator.saved()
    annotator.until("state.question && !state.learning")
    assert annotator.asked()[1] == "move"  # replies bring no others in
    assert page.get_attribute("[data-action=steer]", "aria-pressed") == "true"
    annotator.press("f")
    page.click("#only-none")
    annotator.press("Escape")
    page.wait_for_selector("[data-action=steer][aria-pressed=false]")
    page.wait_for_selector('#question:not([data-key=""])[data-key]')


def test_questions_of_the_part_that_is_shown(annotator):
    page = annotator.page
    annotator.settle()
    page.mouse.move(250, 400)
    page.mouse.wheel(0, -300)
    annotator.press("f")
    page.check("#only-box")
    left, top, right, bottom = page.evaluate(
        "import('/static/state.js').then(({ state }) => state.filter.box)"
    )
    annotator.press("Escape")
    annotator.until("state.mode === 'questions' && state.question")
    x, y = page.evaluate(
        "import('/static/state.js').then(({ state }) => state.question.centre)"
    )
    assert left <= x <= right
    assert top <= y <= bottom


def test_the_strip_of_doubts_leads_to_its_frames(annotator):
    page = annotator.page
    strip = page.locator("#doubts")
    width = strip.bounding_box()["width"]
    strip.click(position={"x": width * 9.5 / 13, "y": 3})
    page.wait_for_function("() => document.getElementById('time').value === '9'")
    page.wait_for_selector("[data-action=browse][aria-pressed=true]")


def test_one_key_shows_the_whole_frame_and_back(annotator):
    shown = """async () => {
        const { camera, panes } = await import("/static/camera.js"), { state } = await import("/static/state.js");
        const [height, width] = state.movie.shape.slice(-2);
        return [camera.scale, Math.min(panes[0].width / width, panes[0].height / height)];
    }"""
    annotator.skip_to("move")
    near, whole = annotator.page.evaluate(shown)
    assert near > 1.2 * whole  # a question is zoomed by the size of its cells
    annotator.press("0")
    assert annotator.page.evaluate(shown)[0] == whole
    annotator.press("0")
    assert annotator.page.evaluate(shown)[0] == near


def test_going_to_a_frame_and_to_a_cell(annotator):
    page = annotator.page
    annotator.press("g")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.getElementById('time').value === '7'")
    annotator.settle()
    label = annotator.pair()["a"][2]["id"]
    annotator.press("g")
    page.keyboard.type(f"/{label}")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => document.getElementById('question').dataset.key.startsWith('7:')"
    )
    assert label in annotator.asked()[2]
    annotator.press("g")
    page.keyboard.type("99")
    page.keyboard.press("Enter")
    page.wait_for_selector("#refused >> text=There is no frame 99")


def test_the_loop_shows_the_frames_around_and_ends_with_the_question(annotator):
    page = annotator.page
    annotator.skip_to("move")
    annotator.press("l")
    page.wait_for_selector(
        ".chip.left >> text=Loop"
    )  # what the panes are called is drawn with the next picture
    seen = set()
    annotator.wait_until(
        lambda: seen.add(page.inner_text(".chip.left")) or len(seen) > 2
    )
    assert all(words.startswith("Loop · frame") for words in seen)
    annotator.settle()
    annotator.press("y")
    page.wait_for_function(
        "() => !document.querySelector('.chip.left').textContent.includes('Loop')"
    )


def test_a_whole_track_is_right_and_who_said_so(annotator, served, tmp_path):
    page = annotator.page
    page.fill("#name", "Ada")
    page.press("#name", "Tab")
    page.wait_for_selector("#tree .hit", state="attached")
    annotator.look_at(3, annotator_cell(served, 3))
    page.wait_for_selector("#tree .mine", state="attached")
    page.focus("#stage")
    annotator.press("r")
    page.wait_for_selector("#refused >> text=new answers were kept")
    kept = int(page.inner_text("#refused span").split()[0])
    assert kept > 2
    annotator.until_annotated(kept)
    assert len(annotator.exported(tmp_path)) == kept


def annotator_cell(served, frame):
    """A cell that goes on for a while."""
    pair = served.ask(f"/api/movies/0/pair/{frame}")
    return next(
        event["sources"][0] for event in pair["events"] if event["event"] == "move"
    )


def test_earlier_annotations_are_imported_once_and_contradict_nobody(
    annotator, served, tmp_path
):
    page = annotator.page
    moves = [
        event
        for event in served.ask("/api/movies/0/pair/2")["events"]
        if event["event"] == "move"
    ][:3]
    rows = [
        f"2,move,{event['sources'][0]},{event['targets'][0]},yes" for event in moves
    ]
    (tmp_path / "early.csv").write_text(
        "\n".join(["frame,event,sources,targets,happened", *rows]) + "\n"
    )
    for expected in ("3 new answers", "0 new answers"):
        annotator.click("export")
        page.set_input_files("#import", tmp_path / "early.csv")
        page.wait_for_selector(f"#refused >> text={expected} were kept")
        annotator.click("export")
    annotator.until_annotated(3)
    (tmp_path / "bad.csv").write_text(
        "frame,event,sources,targets,happened\n2,move,99999,1,yes\n"
    )
    annotator.click("export")
    page.set_input_files("#import", tmp_path / "bad.csv")
    page.wait_for_selector("#refused >> text=there is no label 99999 in frame 2")
    assert len(annotator.exported(tmp_path)) == 3


def test_wrong_from_here_and_then_re_linked_by_two_clicks(annotator, served, tmp_path):
    page, cell = annotator.page, annotator_cell(served, 3)
    annotator.look_at(3, cell)
    page.wait_for_selector(f'#tree[data-of="3/{cell}"] .mine', state="attached")
    _, _, _, (target,), _ = annotator.asked()
    page.focus("#stage")
    annotator.press("w")
    page.wait_for_selector("#refused >> text=new answers were kept")
    annotator.until(
        f"state.question && !(state.question.event === 'move' && state.question.targets[0] === {target})"
    )
    said = annotator.exported(tmp_path)
    assert (3, "move", (cell,), (target,), False) in said
    assert all(happened for frame, *_, happened in said if frame < 3)
    annotator.press("k")
    assert "click a cell" in page.inner_text("#hint")
    annotator.click_cell("a", cell)
    assert f"Cell {cell} of frame 3 goes on" in page.inner_text("#hint")
    annotator.click_cell("b", target)
    annotator.saved()
    now = annotator.exported(tmp_path)
    assert now - said == {
        (3, "move", (cell,), (target,), True)
    }  # it corrects what was said before
    assert said - now == {(3, "move", (cell,), (target,), False)}
    annotator.press("Control+z")
    annotator.until_annotated(len(said))
    annotator.press("Control+z")  # what was said at once is taken back at once
    annotator.until_annotated(0)


def test_questions_of_the_track_that_is_looked_at(annotator, served):
    page, cell = annotator.page, annotator_cell(served, 4)
    annotator.look_at(4, cell)
    page.wait_for_selector(f'#tree[data-of="4/{cell}"] .mine', state="attached")
    page.focus("#stage")
    annotator.press("f")
    assert f"cell {cell} in frame 4" in page.inner_text("#steering")
    page.check("#only-track")
    annotator.press("Escape")
    annotator.until("state.mode === 'questions' && state.question")
    tree = served.ask(f"/api/movies/0/tree?frame=4&label={cell}")
    track = next(
        one["cells"] for one in tree["tracks"] if one["id"] == tree["selected"]["track"]
    )
    frame, _, sources, targets, _ = annotator.asked()
    mine = {(frame, s) for s in sources} | {(frame + 1, t) for t in targets}
    assert mine & {(t, c) for t, c, _ in track}


def test_what_was_learned_is_applied_to_the_other_movies(annotator, served):
    page = annotator.page
    annotator.press("y")
    annotator.saved()
    annotator.press("o")
    rows = page.locator("#overview tbody tr")
    rows.nth(1).locator("td").nth(2).filter(has_text="of").wait_for()
    assert rows.count() == 2
    assert rows.nth(0).locator("td").first.inner_text() == "1"
    before = page.locator("#overview thead th", has_text="Before these weights")
    assert not before.is_visible()  # nothing to tell yet
    page.click("#apply")
    rows.nth(1).locator(
        "td", has_text="<script>alert(1)"
    ).wait_for()  # begins with what was learned here
    before.wait_for(state="visible")
    assert rows.nth(0).locator("td").nth(1).inner_text() == "generic"
    rows.nth(1).locator("th button").click()
    page.wait_for_function("() => document.getElementById('time').max === '2'")
    annotator.settle()
    page.select_option("#movie", "0")


def test_kinds_of_events_that_cannot_happen_are_switched_off(annotator, served):
    page = annotator.page
    annotator.press("f")
    box = page.locator("[data-event=divide]")
    assert box.is_checked()
    held = []  # the server answers when it is told to
    page.route(
        "**/events",
        lambda route: (
            held.append(route) if route.request.method == "POST" else route.continue_()
        ),
    )
    box.uncheck()
    page.evaluate(
        "import('/static/movie.js').then(({ fetchStatus }) => fetchStatus())"
    )  # of the kinds as they were
    annotator.wait_until(lambda: held)
    assert not box.is_checked()  # it does not change back before the server answers
    held[0].continue_()
    page.unroute("**/events")
    annotator.until("state.events.includes('move') && !state.events.includes('divide')")
    page.reload()
    annotator.until("state.movie && state.events.length")
    annotator.press("f")
    assert not box.is_checked()
    box.check()
    annotator.until("state.events.includes('divide') && state.events.includes('move')")
