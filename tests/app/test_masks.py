"""Masks mended on the page: what an edit changes at once, and what it leaves."""

import io
import zipfile
from dataclasses import replace
from itertools import count

import imagecodecs
import numpy as np
import pytest
import tifffile

from clew.annotation.mask_edits import apply_edits
from clew.annotation.worker import _MovieLearner

MOVIE = "/api/movies/0"
KEYS = (f"edit-{n}" for n in count())


def edit(page, kind, frame=4, **body):
    session = page.session
    masks = session.store.mask_revisions().get(frame, 0)
    common = {
        "key": next(KEYS),
        "revision": session.store.revision,
        "frame": frame,
        "kind": kind,
        "masks": masks,
    }
    return page.client.post(MOVIE + "/edits", json={**common, **body})


def get(page, path):
    answer = page.client.get(MOVIE + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def answer(page, event, frame):
    named = {name: event[name] for name in ("event", "sources", "targets")}
    body = {
        "key": next(KEYS),
        "revision": page.session.store.revision,
        "frame": frame,
        "happened": True,
        **named,
    }
    reply = page.client.post(MOVIE + "/answers", json=body)
    assert reply.status_code == 200, reply.text


def travel(page, way):
    return page.client.post(
        f"{MOVIE}/{way}",
        json={"key": next(KEYS), "revision": page.session.store.revision},
    ).json()


def labels_of(page, frame):
    rgb = imagecodecs.png_decode(
        page.client.get(f"{MOVIE}/labels/{frame}.png").content
    ).astype(int)
    return rgb @ [1, 256, 65536]


def test_an_edit_changes_two_pairs_and_nothing_else(page, simulated):
    before = {t: get(page, f"/pair/{t}") for t in range(13)}
    kept = [
        page.session.predictions.cache.get_pair(
            t, page.session.state.annotations.select_frame(t)
        )
        for t in range(13)
    ]
    gone = before[4]["a"][2]["id"]
    reply = edit(page, "delete", cells=[gone]).json()
    assert [pair["frame"] for pair in reply["pairs"]] == [3, 4]
    assert reply["changed"] == {
        "edit": "delete",
        "cells": [],
        "frame": 4,
        "act": "edit",
    }
    assert reply["masks"] == {"4": 1}
    assert gone not in [cell["id"] for cell in reply["pairs"][1]["a"]]
    assert gone not in [cell["id"] for cell in reply["pairs"][0]["b"]]
    assert not (labels_of(page, 4) == gone).any()
    assert (
        simulated.movie.label(4) == gone
    ).any()  # the movie's own masks are as they were
    now = [
        page.session.predictions.cache.get_pair(
            t, page.session.state.annotations.select_frame(t)
        )
        for t in range(13)
    ]
    assert [t for t in range(13) if now[t] is not kept[t]] == [
        3,
        4,
    ]  # made anew, the others are the same objects
    names = ("event", "sources", "targets", "confidence")
    for t in set(range(13)) - {3, 4}:
        events = get(page, f"/pair/{t}")["events"]
        assert [[event[name] for name in names] for event in events] == [
            [event[name] for name in names] for event in before[t]["events"]
        ]
    status = get(page, "/status")
    assert (status["edits"], status["set_aside"], status["can_undo"]) == (1, 0, True)

    undone = travel(page, "undo")
    assert undone["changed"]["act"] == "undo"
    assert np.array_equal(labels_of(page, 4), simulated.movie.label(4))
    assert get(page, "/pair/4")["a"] == before[4]["a"]
    assert travel(page, "redo")["changed"]["act"] == "redo"
    assert not (labels_of(page, 4) == gone).any()


def test_answers_about_cells_that_stayed_stay_and_others_are_asked_again(page):
    pair = get(page, "/pair/4")
    moves = [event for event in pair["events"] if event["event"] == "move"][:3]
    for event in moves:
        answer(page, event, 4)
    cut = moves[0]["sources"][0]
    place = next(cell for cell in pair["a"] if cell["id"] == cut)
    stroke = [[place["x"] + 0.5, place["y"] - 30], [place["x"] + 0.5, place["y"] + 30]]
    reply = edit(page, "cut", points=stroke).json()
    assert cut in reply["changed"]["cells"]
    assert len(reply["changed"]["cells"]) == 2
    assert (reply["annotated"], reply["outdated"]) == (2, 1)
    pinned = [event for event in reply["pairs"][1]["events"] if event["pinned"]]
    assert [event["sources"] for event in pinned] == [
        event["sources"] for event in moves[1:]
    ]
    first = reply["questions"][0]
    assert first["frame"] == 4
    assert cut in first["sources"] or moves[0]["targets"][0] in first["targets"]
    assert first["reasons"] == ["changed-cell"]
    answer(page, first, 4)  # replaces what was said of the cell as it was
    assert get(page, "/status")["outdated"] == 0
    travel(page, "undo")
    travel(page, "undo")  # the cut: what was answered before holds again
    status = get(page, "/status")
    assert (status["annotated"], status["outdated"], status["edits"]) == (3, 0, 0)


def test_edits_are_there_after_reopening_and_in_what_is_exported(serve, simulated):
    movie = simulated.movie
    with serve() as page:
        one, other = (cell["id"] for cell in get(page, "/pair/6")["a"][:2])
        merged = edit(page, "merge", 6, cells=[one, other]).json()["changed"]["cells"]
        assert len(merged) == 1
        free = np.argwhere(movie.label(6) == 0)
        y, x = free[len(free) // 2].tolist()
        drawn = [[x - 4, y - 4], [x + 5, y - 4], [x + 5, y + 5], [x - 4, y + 5]]
        added = edit(page, "add", 6, points=drawn).json()["changed"]["cells"]
        edits = page.session.store.edits()
        expected = labels_of(page, 6)
    with serve() as page:
        assert page.session.store.edits() == edits
        assert np.array_equal(labels_of(page, 6), expected)
        assert np.array_equal(apply_edits(movie.label(6), edits), expected)
        cells = [cell["id"] for cell in get(page, "/pair/6")["a"]]
        assert set(merged + added) <= set(cells)
        files = zipfile.ZipFile(
            io.BytesIO(page.client.get(MOVIE + "/export/masks").content)
        )
        assert len(files.namelist()) == movie.n_frames
        assert np.array_equal(
            tifffile.imread(io.BytesIO(files.read("mask006.tif"))), expected
        )
        assert np.array_equal(
            tifffile.imread(io.BytesIO(files.read("mask003.tif"))), movie.label(3)
        )
        tracked = zipfile.ZipFile(
            io.BytesIO(page.client.get(MOVIE + "/export/ctc").content)
        )
        mask = tifffile.imread(io.BytesIO(tracked.read("mask006.tif")))
        assert np.array_equal(mask > 0, expected > 0)
        travel(page, "undo")
        travel(page, "undo")
        assert np.array_equal(labels_of(page, 6), movie.label(6))


def test_an_edit_counts_once_and_is_refused_if_it_was_made_of_other_masks(page):
    cells = [cell["id"] for cell in get(page, "/pair/4")["a"]]
    body = {
        "key": "once",
        "revision": 0,
        "frame": 4,
        "kind": "delete",
        "cells": [cells[0]],
        "masks": 0,
    }
    first = page.client.post(MOVIE + "/edits", json=body).json()
    second = page.client.post(MOVIE + "/edits", json=body).json()
    assert first["revision"] == second["revision"] == page.session.store.revision == 1
    stale = page.client.post(
        MOVIE + "/edits",
        json={**body, "key": "other", "revision": 1, "cells": [cells[1]]},
    )
    assert (stale.status_code, stale.json()["kind"]) == (400, "input")
    assert "changed meanwhile" in stale.json()["error"]
    behind = page.client.post(
        MOVIE + "/edits", json={**body, "key": "other", "masks": 1}
    )
    assert behind.status_code == 409
    assert page.session.store.revision == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"kind": "paint"}, "'merge', 'cut', 'delete' or 'add'"),
        ({"kind": "merge", "cells": [1]}, "expected two different ones"),
        ({"kind": "delete", "cells": []}, "expected the cell to delete"),
        ({"kind": "delete", "cells": [10**6]}, "no cell 1000000"),
        ({"kind": "cut", "points": []}, "points of the stroke"),
        ({"kind": "cut", "points": [[1, "2"]]}, "points.0.1 is '2'"),
        ({"kind": "cut", "points": [[1e300, 2]]}, "less than 1000000"),
        ({"kind": "cut", "points": [[0, 0]] * 10_001}, "at most 10000"),
        ({"kind": "cut", "points": [[1, 1]], "z": 0}, "no slice 0"),
        ({"kind": "delete", "cells": [1], "frame": 99}, "no frame 99"),
        ({"kind": "add", "points": [[-5, 3]]}, "not in the picture"),
    ],
)
def test_what_cannot_be_edited_is_refused_and_nothing_is_kept(still, body, problem):
    reply = edit(still, **{"kind": "delete", **body})
    assert (reply.status_code, reply.json()["kind"]) == (400, "input")
    assert problem in reply.json()["error"]


def test_edits_of_masks_that_were_replaced_since_are_set_aside(
    serve, simulated, source
):
    from clew.tracking.frames import ArrayFrames

    with serve() as page:
        pair = get(page, "/pair/4")
        answer(
            page, next(event for event in pair["events"] if event["event"] == "move"), 8
        )
        edit(page, "delete", cells=[pair["a"][0]["id"]])
    other = np.stack(
        [simulated.movie.label(t) for t in range(simulated.movie.n_frames)]
    )
    other[4] = np.roll(other[4], 1, axis=0)
    movie = replace(simulated.movie, labels=ArrayFrames.from_data(other, "labels"))
    with serve(movie=movie, measured=source.remeasure_frames(movie, [4])) as page:
        status = get(page, "/status")
        assert (status["edits"], status["set_aside"]) == (0, 1)
        assert np.array_equal(labels_of(page, 4), other[4])


def test_learner_with_edited_masks_redoes_only_what_changed(page, source):
    session = page.session
    working = _MovieLearner(source)
    before = session.loop.task
    learner = working.prepare(before)
    old = [learner.get_pair(t) for t in range(13)]
    cells = [cell["id"] for cell in get(page, "/pair/4")["a"]]
    edit(page, "delete", cells=[cells[0]])
    assert working.prepare(session.loop.task) is learner
    new = [learner.get_pair(t) for t in range(13)]
    assert [t for t in range(13) if new[t] is not old[t]] == [3, 4]
    predictions = [learner.predict(t) for t in (3, 4)]
    assert cells[0] not in predictions[1].events.sources
    # predictions that were made of the old masks are not used
    loop = session.loop
    page.client.portal.call(loop.use_predictions, before, predictions)
    assert session.predictions.by_frame[4] is not predictions[1]
    page.client.portal.call(loop.use_predictions, loop.task, predictions)
    assert session.predictions.by_frame[4] is predictions[1]
    # other initial weights start again
    assert working.prepare(replace(loop.task, start=1)) is not learner
