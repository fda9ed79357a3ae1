"""The server is gone, slow, or has heard something else meanwhile: no answer is lost."""

import signal

import pytest

from tests.app.browser.conftest import ServedHere, open_tab


@pytest.mark.posix
def test_answers_given_while_the_server_is_gone_come_later(annotator, served, tmp_path):
    page = annotator.page
    annotator.until("isPrepared()")
    served.stop(signal.SIGKILL)
    said = set()
    for _ in range(3):
        annotator.settle()
        said.add(annotator.asked())
        annotator.press("y")
    page.wait_for_selector("#banner", state="visible")
    assert "3 waiting" in page.inner_text("#banner")
    served.start()  # on the same port, with the same token: the tab connects again
    annotator.saved()
    page.wait_for_selector("#banner", state="hidden")
    assert annotator.exported(tmp_path) == said


@pytest.mark.posix
def test_answers_wait_for_the_address_with_a_new_token(annotator, served, tmp_path):
    page = annotator.page
    served.stop(signal.SIGKILL)
    annotator.settle()
    said = annotator.asked()
    annotator.press("y")
    page.wait_for_selector("#banner", state="visible")
    served.forget_token()
    served.start()
    page.wait_for_selector("#banner >> text=another token")
    annotator.open(served.address)
    annotator.saved()
    assert annotator.exported(tmp_path) == {said}


def test_an_answer_to_an_old_state_is_sent_again(annotator, another, tmp_path):
    stale = []
    annotator.page.on(
        "response", lambda reply: stale.append(reply) if reply.status == 409 else None
    )
    for person in (annotator, another):
        person.until("state.wrong && !state.learning")  # all frames are asked about
    mine = annotator.asked()
    while (theirs := another.asked())[0] == mine[0]:  # both could be impossible
        another.press("Space")
        another.settle()  # keys mean nothing before the pictures are there
    # the first page's answer is held back until the other one's is through: it then builds on an old revision
    held = []
    annotator.page.route(
        "**/answers", lambda route: route.continue_() if held else held.append(route)
    )
    annotator.press("y")
    annotator.wait_until(lambda: held)
    another.press("y")
    another.saved()
    # the page knows the newer revision before it is refused the older
    annotator.page.evaluate(
        """async () => {
            const { getJson } = await import("/static/api.js");
            const { setRevision } = await import("/static/outbox.js");
            const { revision } = await getJson("/api/movies/0/status");
            setRevision(0, revision);
        }"""
    )
    held[0].continue_()
    annotator.saved()
    assert stale
    # the next question may have been theirs, which a notice in this place then says
    assert "was not taken" not in annotator.page.inner_text("#refused")
    assert annotator.exported(tmp_path) == {mine, theirs}


def test_a_contradiction_is_shown_and_can_replace(annotator, another, tmp_path):
    page = annotator.page
    frame, _, source, target, _ = annotator.skip_to("move")
    page.route(
        "**/pair/*", lambda route: None
    )  # this page learns nothing of what the other one says
    another.look_at(frame, source[0])
    another.press("d")
    another.saved()
    annotator.press("y")
    page.wait_for_selector("#refused", state="visible")
    assert "was not taken" in page.inner_text("#refused")
    page.unroute("**/pair/*")
    page.click("#refused button")
    annotator.page.wait_for_selector("#refused", state="hidden")
    annotator.saved()
    assert annotator.exported(tmp_path) == {(frame, "move", source, target, True)}


def test_the_page_shows_how_far_the_opening_is(annotator, served):
    page = annotator.page
    how_far = {
        "doing": "Measuring the cells of 01: frame 5 of 20",
        "done": 5,
        "total": 20,
    }
    replies = [{"error": "", "kind": "opening", **how_far}] * 3

    def reply(route):
        route.fulfill(status=503, json=replies.pop()) if replies else route.continue_()

    page.route("**/api/movies", reply)
    page.goto(served.address)
    page.wait_for_selector("#question >> text=frame 5 of 20")
    assert page.get_attribute("#opening", "value") == "0.25"
    assert page.is_hidden("#movie")
    usable = "[...document.querySelectorAll('[data-action]:not(:disabled)')].map((one) => one.dataset.action)"
    assert set(page.evaluate(usable)) == {
        "theme",
        "help",
    }  # the others looked as if they could be used
    page.wait_for_selector('#question:not([data-key=""])[data-key]')
    assert page.is_hidden("#opening")


def test_what_the_page_says_while_the_server_is_gone(annotator):
    """It said that nothing was tracked, that there was nothing else to ask, and that it was saving and learning."""
    page = annotator.page
    annotator.until("state.wrong")  # the movie is tracked
    page.wait_for_selector("#tree .hit", state="attached")
    page.wait_for_function("() => document.getElementById('doubts').width > 1")
    page.route("**/api/**", lambda route: route.abort())
    annotator.press("y")
    page.wait_for_selector("#banner", state="visible")
    page.wait_for_selector("#tree >> text=as soon as clew answers again")
    for _ in range(60):  # until all that lay ready is skipped
        annotator.press("Space")
    page.wait_for_selector("#question >> text=Waiting for clew")
    assert page.inner_text("#saved") == "kept in this browser"
    assert page.inner_text("#learning") == ""
    assert page.evaluate("document.getElementById('doubts').width") > 1
    assert page.locator("#question p.action").count() == 0
    page.unroute("**/api/**")
    annotator.saved()
    annotator.press("b", "]")
    page.wait_for_selector("#tree .hit", state="attached")


def test_learning_ends_although_the_reply_comes_after_the_news(annotator, served):
    annotator.until("state.wrong && !state.learning")
    page, late = annotator.page, []
    page.route("**/answers", lambda route: late.append((route, route.fetch())))
    annotator.press("y")
    annotator.wait_until(
        lambda: late and not served.ask("/api/movies/0/status")["learning"]
    )
    page.wait_for_timeout(500)  # the page has heard of it
    (route, reply) = late[0]
    route.fulfill(response=reply)
    annotator.until_annotated(1)
    annotator.until("!state.learning")  # it was waited for without end


def test_what_is_told_before_the_page_listens_is_not_missed(annotator, served):
    """A page that was opened while clew was learning may have said so for ever."""
    page, asked = annotator.page, []
    annotator.until("state.wrong && !state.learning")

    def say_learning(route):
        asked.append(route)
        reply = route.fetch()
        more = {"learning": True} if len(asked) == 1 else {}
        route.fulfill(response=reply, json=reply.json() | more)

    page.route("**/status?*", say_learning)
    page.reload()
    annotator.wait_until(lambda: asked)
    annotator.until("state.movie && !state.learning")


def test_news_that_come_while_questions_are_fetched_are_not_forgotten(annotator):
    annotator.until("state.wrong && !state.learning")
    page, held = annotator.page, []
    page.route(
        "**/questions?*",
        lambda route: route.continue_() if held else held.append(route),
    )
    fetch = "import('/static/asking.js').then((asking) => void asking.fetchQuestions())"
    page.evaluate(fetch)
    annotator.wait_until(lambda: held)
    page.evaluate(fetch)
    with page.expect_request("**/questions?*"):
        held[0].continue_()


def test_status_from_before_an_answer_does_not_take_it_back(browser, solid, tmp_path):
    served = ServedHere([solid], "--store", str(tmp_path / "answers.clewdb"))
    try:
        person, held = open_tab(browser), []
        person.open(served.address)
        page = person.page
        page.route(
            "**/status?*",
            lambda route: held.append(None if held else (route, route.fetch())),
        )
        page.evaluate(
            "import('/static/movie.js').then((movie) => { window.status = movie.fetchStatus(); })"
        )
        person.wait_until(lambda: held)
        person.press("y")
        person.until_annotated(1)
        route, before = held[0]
        assert before.json()["annotated"] == 0
        route.fulfill(response=before)
        page.evaluate("() => window.status")
        person.until_annotated(1)
        person.saved()
    finally:
        served.stop()


FAST_FINGER = """() => {
    const box = document.getElementById("question");
    window.replaced = [box.dataset.key];
    new MutationObserver(() => {
        if (box.dataset.key === window.replaced.at(-1)) return;
        window.replaced.push(box.dataset.key);
        for (const key of ["y", "n", "Enter"])
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }).observe(box, { attributeFilter: ["data-key"] });
}"""
"""Answers in the moment in which the question becomes another one."""


def test_question_answered_elsewhere_is_replaced_and_no_key_answers_the_next(
    annotator, another, served, tmp_path
):
    """An answer to what was on display would have replaced that of the other window."""
    page = annotator.page
    frame, _, source, _, _ = annotator.skip_to("move")
    page.evaluate(FAST_FINGER)
    another.look_at(frame, source[0])
    another.press("d")
    another.saved()
    page.wait_for_selector("#refused >> text=was answered meanwhile")
    page.wait_for_function("() => window.replaced.length === 2")
    replaced = annotator.asked()
    assert replaced[:3] != (frame, "move", source)
    page.wait_for_selector("[data-action=yes]:enabled")
    assert annotator.asked() == replaced
    assert served.ask("/api/movies/0/status")["annotated"] == 1
    annotator.exported(tmp_path)  # closes no notice
    annotator.press("Enter")
    annotator.saved()
    page.wait_for_selector("#refused", state="hidden")


def test_prediction_that_changes_while_it_is_looked_at_is_not_confirmed(
    annotator, served
):
    """While browsing, what is said of a cell follows the predictions."""
    page = annotator.page
    frame, _, source, target, _ = annotator.skip_to("move")
    other = annotator.nearest(source[0], 2)[1]

    def predict_otherwise(route):
        reply = route.fetch()
        pair = reply.json()
        for event in pair["events"]:
            if event["event"] == "move" and event["sources"] == list(source):
                event["targets"] = [other]
        route.fulfill(response=reply, json=pair)

    annotator.look_at(frame, source[0])
    assert annotator.asked()[3] == target
    page.evaluate(FAST_FINGER)
    page.route("**/pair/*", predict_otherwise)
    page.evaluate(
        "(t) => import('/static/pairs.js').then((pairs) => pairs.forget(0, [t]))", frame
    )
    page.wait_for_function("() => window.replaced.length === 2")
    assert annotator.asked()[3] == (other,)
    page.wait_for_selector("[data-action=yes]:enabled")
    assert served.ask("/api/movies/0/status")["annotated"] == 0
    page.unroute("**/pair/*")
