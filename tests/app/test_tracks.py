"""Whole tracks: how sure they are, what is said of them at once, and how two are linked."""

from dataclasses import replace

import pytest

from clew.annotation import tracks
from clew.tracking.events import Event
from clew.tracking.lineage.build import build_lineage
from tests.app.test_server import MOVIE, get, moves, send, travel


@pytest.fixture
def tracked(page):
    """A server that has tracked the movie to its end."""
    for t in range(13):
        get(page, f"/pair/{t}")
    return page


def of_track(page, frame, label):
    """The cells of the track that a cell is on."""
    tree = get(page, f"/tree?frame={frame}&label={label}")
    return next(
        track for track in tree["tracks"] if track["id"] == tree["selected"]["track"]
    )["cells"]


def judge(page, key, **said):
    return page.client.post(
        MOVIE + "/track", json={"key": key, "page": "p", "name": "Ada", **said}
    )


def long_track(page):
    """Frame and label of a cell in the middle of a track."""
    for event in moves(get(page, "/pair/6")):
        cells = of_track(page, 6, event["sources"][0])
        if cells[0][0] < 5 and cells[-1][0] > 7:
            return 6, event["sources"][0]
    raise AssertionError("no long track")


def test_the_family_of_a_cell_and_how_sure_each_step_is(page, source):
    assert get(page, "/tree?frame=0&label=1") == {
        "tracks": [],
        "selected": None,
        "ready": False,
    }
    for t in range(13):
        get(page, f"/pair/{t}")
    label = int(source.detections(13).label[0])
    tree = get(page, f"/tree?frame=13&label={label}")
    ids = {track["id"] for track in tree["tracks"]}
    assert sum(track["parent"] not in ids for track in tree["tracks"]) == 1
    cells = of_track(page, 13, label)
    assert [13, label, None] in cells
    sure = {
        cell["sources"][0]: cell["certainty"] for cell in moves(get(page, "/pair/12"))
    }
    assert [one[2] for one in cells if one[0] == 12] == [
        sure[one[1]] for one in cells if one[0] == 12
    ]


def test_tracks_are_joined_anew_when_the_worker_is_done_or_gone(tracked, monkeypatch):
    session, joined = tracked.session, []
    monkeypatch.setattr(
        tracks,
        "build_lineage",
        lambda *given: joined.append(given) or build_lineage(*given),
    )
    session.worker_status = {"alive": True, "problem": ""}
    assert session.is_learning
    for times in (
        1,
        1,
        2,
        3,
    ):  # the first; one that may be old; the worker is gone; the worker is done
        session.predictions.by_frame[3] = replace(session.predictions.by_frame[3])
        session.worker_status["alive"] = times != 2
        session.loop.is_busy = times != 3
        get(tracked, "/tree?frame=13&label=1")
        assert len(joined) == times


def test_no_family_where_there_is_no_cell(tracked):
    assert get(tracked, "/tree?frame=13&label=99999")["tracks"] == []
    assert tracked.client.get(MOVIE + "/tree?frame=1").status_code == 400


def test_a_track_is_right_at_once_and_undone_at_once(tracked):
    frame, label = long_track(tracked)
    kept = judge(tracked, "t", frame=frame, label=label).json()
    assert kept["new"] == kept["given"] >= len(of_track(tracked, frame, label)) - 1
    assert (
        judge(tracked, "t", frame=frame, label=label).json()["new"] == 0
    )  # the same request again
    entries = tracked.session.store.history()
    assert {entry.author.name for entry in entries} == {"Ada"}
    assert any(
        label in entry.answer.sources
        for entry in entries
        if entry.answer.frame == frame
    )
    back = travel(tracked, "undo", "u").json()
    assert (back["annotated"], back["can_undo"], back["can_redo"]) == (0, False, True)
    assert {pair["frame"] for pair in back["pairs"]} == {
        entry.answer.frame for entry in entries
    }
    assert travel(tracked, "redo", "v").json()["annotated"] == kept["new"]


def test_a_track_is_wrong_from_a_cell_on(tracked):
    frame, label = long_track(tracked)
    cells = of_track(tracked, frame, label)
    (predicted,) = (
        one
        for one in get(tracked, f"/pair/{frame}")["events"]
        if label in one["sources"]
    )
    assert judge(tracked, "w", frame=frame, label=label, right=False).status_code == 200
    held = tracked.session.state.annotations
    assert set(held.events.frame[held.happened].tolist()) <= set(range(frame))
    (no,) = held.events[~held.happened]
    assert no == (
        frame,
        Event[predicted["event"].upper()],
        tuple(predicted["sources"]),
        tuple(predicted["targets"]),
    )
    now = [
        one
        for one in get(tracked, f"/pair/{frame}")["events"]
        if label in one["sources"]
    ]
    assert now[0]["targets"] != predicted["targets"]
    pinned = {t for t, *_ in cells if t < frame}
    assert all(
        any(
            one["pinned"]
            for one in get(tracked, f"/pair/{t}")["events"]
            if cell in one["sources"]
        )
        for t, cell, _ in cells
        if t in pinned
    )
    last = int(tracked.session.get_cells(13).label[0])
    assert judge(tracked, "x", frame=13, label=last, right=False).status_code == 400
    assert judge(tracked, "y", frame=6, label=99999).status_code == 400
    assert judge(tracked, "z", frame=6, label=label, right="yes").status_code == 400


def test_questions_of_one_track(tracked):
    frame, label = long_track(tracked)
    cells = {(t, cell) for t, cell, _ in of_track(tracked, frame, label)}
    found = get(tracked, f"/questions?n=50&frame={frame}&label={label}")["questions"]
    assert found
    for one in found:
        mine = [(one["frame"], s) for s in one["sources"]] + [
            (one["frame"] + 1, t) for t in one["targets"]
        ]
        assert cells & set(mine)
    assert (
        tracked.client.get(f"{MOVIE}/questions?frame=6&label=99999").status_code == 400
    )


def test_a_cell_that_is_missing_in_a_frame_is_linked_over_it(tracked):
    step = moves(get(tracked, "/pair/6"))[0]
    ((_, then),) = [
        (one["sources"], one["targets"])
        for one in moves(get(tracked, "/pair/7"))
        if one["sources"] == step["targets"]
    ]
    gap = {"event": "gap", "sources": step["sources"], "targets": then}
    reply = send(tracked, gap, frame=6, key="g").json()
    assert [pair["frame"] for pair in reply["pairs"]] == [6, 7]
    for t, event, side in ((6, "disappear", "sources"), (7, "appear", "targets")):
        (one,) = (
            e for e in get(tracked, f"/pair/{t}")["events"] if e[side] == gap[side]
        )
        assert (one["event"], one["pinned"]) == (event, True)
    for t in range(13):  # gaps were off: all is tracked anew
        get(tracked, f"/pair/{t}")
    tree = get(tracked, f"/tree?frame=8&label={then[0]}")
    tracks = {track["id"]: track for track in tree["tracks"]}
    mother = tracks[
        tracks[tree["selected"]["track"]]["parent"]
    ]  # a track goes on over a gap as one of its own
    assert mother["cells"][-1] == [6, step["sources"][0], "sure"]
    assert "gap" in tracked.client.get(MOVIE + "/export/annotations.csv").text
    back = travel(tracked, "undo", "u").json()
    assert ([pair["frame"] for pair in back["pairs"]], back["annotated"]) == ([6, 7], 0)
    assert (
        send(tracked, gap, frame=12, key="h").status_code == 400
    )  # there is no frame 14
