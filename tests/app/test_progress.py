"""About how many events are wrong, as the page tells it."""

from dataclasses import replace

import numpy as np
import pytest

from clew.annotation import progress
from clew.annotation.answers import Answer
from clew.annotation.error_estimate import Correction
from clew.annotation.progress import CURVE, check_prediction, event_probabilities
from clew.tracking.events import Event, EventTable
from clew.tracking.solve import PairSolution
from tests.app.conftest import finish_learning, use_weights

MOVIE = "/api/movies/0"
NOBODY = Correction.of([])


def get(page, path):
    answer = page.client.get(MOVIE + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def predict_all(page):
    for t in range(13):
        get(page, f"/pair/{t}")


def answer(page, frame, event, key):
    named = {name: event[name] for name in ("event", "sources", "targets")}
    body = {
        "key": key,
        "revision": page.session.store.revision,
        "frame": frame,
        "happened": True,
        "asked": named,
    }
    body |= named
    reply = page.client.post(MOVIE + "/answers", json=body)
    assert reply.status_code == 200, reply.text


def expected(solved):
    kinds = np.concatenate([one.events.event for one in solved.values()])
    return NOBODY.chance_wrong(kinds, 1 - event_probabilities(solved.values())).sum()


def test_the_estimate_is_there_when_all_is_predicted_and_falls_with_answers(
    serve, monkeypatch
):
    monkeypatch.setattr(progress, "ENOUGH_CHECKS", 6)
    with serve() as page:
        assert get(page, "/status")["wrong"] is None
        predict_all(page)
        first = get(page, "/status?target=1")["wrong"]
        assert 0 <= first["low"] <= first["number"] <= first["high"] <= first["events"]
        solved = page.session.predictions.by_frame
        assert first["number"] == pytest.approx(expected(solved), abs=0.06)
        assert not first["checked"]  # a guess from other movies
        assert first["events"] == sum(len(one.events) for one in solved.values())
        finish_learning(page)
        for n, frame in enumerate(range(0, 12, 2)):  # all of them as predicted
            least = min(
                get(page, f"/pair/{frame}")["events"],
                key=lambda event: event["confidence"] or np.inf,
            )
            answer(page, frame, least, f"k{n}")
        status = get(page, "/status?target=1")
        assert status["wrong"]["number"] < first["number"]
        assert status["wrong"]["until"] <= first["until"]
        assert status["wrong"]["checked"]
        finish_learning(page)
        assert [point[0] for point in get(page, "/status")["curve"]] == [0, 6]
        checks = [entry.check for entry in page.session.store.active_entries()]
        assert all(check.wrong == 0 and 0 < check.expected < 2 for check in checks)
    with serve() as page:  # all of it is kept
        assert [entry.check for entry in page.session.store.active_entries()] == checks
        assert [point[0] for point in page.session.store.get_setting(CURVE)] == [0, 6]
        assert get(page, "/status")["curve"] == page.session.progress.curve


def test_an_answer_checks_the_prediction_that_was_asked_about(page):
    get(page, "/pair/3")
    solved = page.session.predictions.by_frame[3]
    doubt = 1 - event_probabilities([solved])
    one, two, three = np.flatnonzero(solved.events.event == Event.MOVE)[:3].tolist()
    source, other = (
        int(solved.events.sources[one][0]),
        int(solved.events.targets[two][0]),
    )
    asked, elsewhere = (
        Answer.of(*fact) for fact in solved.events[np.array([one, three])]
    )
    right = check_prediction({solved.frame: solved}, asked, asked)
    assert (right.expected, right.wrong) == (pytest.approx(doubt[one], abs=1e-5), 0)
    swapped = Answer.of(3, Event.MOVE, [source], [other])
    found = check_prediction(
        {solved.frame: solved}, swapped, asked
    )  # two are wrong, but one was asked about
    assert (found.expected, found.wrong) == (pytest.approx(doubt[one], abs=1e-5), 2)
    denied = check_prediction(
        {solved.frame: solved}, replace(asked, happened=False), asked
    )
    assert (denied.expected, denied.wrong) == (pytest.approx(doubt[one], abs=1e-5), 1)
    assert (
        check_prediction({solved.frame: solved}, asked, None) is None
    )  # the person chose what to answer
    assert check_prediction({solved.frame: solved}, asked, elsewhere) is None
    assert (
        check_prediction({solved.frame: solved}, asked, swapped) is None
    )  # nobody had predicted it
    assert check_prediction({}, asked, asked) is None


def test_what_was_answered_is_right(page):
    pair = get(page, "/pair/3")
    event = min(pair["events"], key=lambda one: one["confidence"] or np.inf)
    answer(page, 3, event, "k")
    solved = page.session.predictions.by_frame[3]
    pinned = [
        sources == tuple(event["sources"]) and targets == tuple(event["targets"])
        for _, _, sources, targets in solved.events
    ]
    assert event_probabilities([solved])[pinned].tolist() == [1.0]
    again = Answer.of(
        3, Event[event["event"].upper()], event["sources"], event["targets"]
    )
    assert (
        check_prediction({solved.frame: solved}, again, again) is None
    )  # an answer that is given again checks nothing


def test_the_pair_after_tells_of_a_torn_mask():
    facts = [(0, Event.DIVIDE, [1], [2, 3]), (1, Event.MERGE, [2, 3], [4])]
    one, two = (
        PairSolution(fact[0], EventTable.of([fact]), np.array([0.1])) for fact in facts
    )
    together, asked = event_probabilities([one, two]), Answer.of(*facts[0])
    assert together[0] < event_probabilities([one])[0]
    assert check_prediction({0: one, 1: two}, asked, asked).expected == pytest.approx(
        1 - together[0], abs=1e-5
    )


def test_longer_weights_alone_change_no_estimate(serve):
    """Predictions of earlier weights were read in the scale of the new ones: the page said 74 wrong instead of 2."""
    with serve() as page:
        predict_all(page)
        before = get(page, "/status")["wrong"]
        use_weights(page, 5 * page.session.predictions.weights.values)
        assert get(page, "/status")["wrong"] == before
        get(page, "/pair/3")  # solved anew, while others are still as they were
        assert get(page, "/status")["wrong"]["number"] == pytest.approx(
            before["number"], abs=0.11
        )
