"""The server is gone, slow, or has heard something else meanwhile: no answer is lost."""

import signal

import pytest


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
    assert annotator.page.is_hidden("#refused"), annotator.page.inner_text("#refused")
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
