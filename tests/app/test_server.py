"""The page's interface: what it shows, and what becomes of answers."""

import io
import json
import zipfile
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

from clew.annotation.files import ExportKind
from clew.app.broadcast import MAX_WAITING, EventsStream
from clew.app.images import (
    SECTION_INK,
    SECTION_MARGIN,
    SECTION_PIXELS,
    Pictures,
)
from clew.errors import InputError, StoreError
from clew.tracking.events import FALSE_DETECTIONS, EventTable
from clew.tracking.io.annotations import read_annotation_table
from clew.tracking.io.geff import is_geff
from clew.tracking.movie import Movie
from clew.tracking.persistence import load_tracker
from clew.tracking.tracker import Origin
from tests.app.conftest import use_weights

MOVIE = "/api/movies/0"


def get(page, path):
    answer = page.client.get(MOVIE + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def moves(pair):
    return [event for event in pair["events"] if event["event"] == "move"]


def send(page, event, /, *, frame=0, key="k", revision=None, **others):
    revision = page.session.store.revision if revision is None else revision
    named = {name: event[name] for name in ("event", "sources", "targets")}
    return page.client.post(
        MOVIE + "/answers",
        json={
            "key": key,
            "revision": revision,
            "frame": frame,
            "happened": True,
            **named,
            **others,
        },
    )


def travel(page, way, key, revision=None):
    revision = page.session.store.revision if revision is None else revision
    return page.client.post(f"{MOVIE}/{way}", json={"key": key, "revision": revision})


def swapped(pair):
    """Two predicted moves, and one from the first's source to the second's target."""
    first, second = moves(pair)[:2]
    return (
        first,
        second,
        {"event": "move", "sources": first["sources"], "targets": second["targets"]},
    )


def test_the_movies(page, simulated):
    (about,) = page.client.get("/api/movies").json()
    movie = simulated.movie
    assert about == {
        "id": 0,
        "name": movie.name,
        "n_frames": 14,
        "ndim": 2,
        "shape": list(movie.shape),
        "spacing": list(movie.spacing),
        "has_images": True,
        "annotated": 0,
        "store": page.session.store.id,
    }


def test_an_outline_that_is_no_cell_is_an_answer_about_both_its_ends(serve):
    with serve() as page:
        before = {frame: len(moves(get(page, f"/pair/{frame}"))) for frame in range(13)}
        event = moves(get(page, "/pair/4"))[0]
        label = event["sources"][0]
        confirmed = send(page, event, frame=4, key="move")
        assert confirmed.status_code == 200
        ends = {3: ("false_begin", [], [label]), 4: ("false_end", [label], [])}
        false = {"event": "false_end", "sources": [label], "targets": []}
        reply = send(page, false, frame=4)
        assert (reply.status_code, reply.json()["kind"]) == (422, "contradiction")
        reply = send(page, false, frame=4, replace=True, masks=[0, 0]).json()
        assert reply["annotated"] == 2
        for pair in reply["pairs"]:
            pinned = [one for one in pair["events"] if one["pinned"]]
            named = [(one["event"], one["sources"], one["targets"]) for one in pinned]
            assert named == [ends[pair["frame"]]]
        again = send(page, false, frame=4, replace=True, masks=[0, 0], revision=1)
        assert again.json()["revision"] == reply["revision"] == 3
        task = page.session.loop.task
        assert task.start == 1  # the features are others
        assert FALSE_DETECTIONS in task.profile.groups
    with serve() as page:
        assert FALSE_DETECTIONS in page.session.loop.task.profile.groups
        assert len(moves(get(page, "/pair/8"))) >= before[8] - 1
        travel(page, "undo", "u")
        assert get(page, "/status")["annotated"] == 1  # the move that it replaced
        pair = get(page, "/pair/4")
        assert [one["event"] for one in pair["events"] if one["pinned"]] == ["move"]


def test_labels_are_exact_and_images_stretched(page, simulated):
    answer = page.client.get(MOVIE + "/labels/3.png")
    rgb = imagecodecs.png_decode(answer.content).astype(int)
    assert np.array_equal(rgb @ [1, 256, 65536], simulated.movie.label(3))
    assert "immutable" in answer.headers["cache-control"]
    gray = imagecodecs.png_decode(page.client.get(MOVIE + "/image/3.png").content)
    raw = simulated.movie.image(3)
    low, high = page.session.pictures.contrast()
    assert (
        raw.min()
        <= low
        < high
        <= max(simulated.movie.image(t).max() for t in range(14))
    )
    assert np.abs(gray - np.clip((raw - low) * 255 / (high - low), 0, 255)).max() <= 1


def test_sections_show_the_cell_along_all_axes():
    labels = np.zeros((1, 10, 40, 60), dtype=np.uint16)
    labels[0, 4:7, 10:22, 30:36] = 5  # 6 × 12 × 6 with this spacing
    images = np.where(labels == 5, 100, 0)
    pictures = Pictures(Movie.from_arrays(labels, images, spacing=(2, 1, 1)))
    drawn = imagecodecs.png_decode(pictures.sections(0, 5))
    views = np.split(drawn, 3, axis=1)
    sizes = []
    for view in views:
        rows, columns = np.nonzero((view == SECTION_INK).all(axis=2))
        sizes.append((np.ptp(rows) + 1, np.ptp(columns) + 1))
    unit = SECTION_PIXELS / (12 * (1 + SECTION_MARGIN))
    expected = np.array([(12, 6), (6, 6), (6, 12)]) * unit
    assert np.abs(np.array(sizes) - expected).max() < unit
    with pytest.raises(InputError, match="has no cell 6"):
        pictures.sections(0, 6)
    with pytest.raises(InputError, match="is 2D"):
        Pictures(Movie.from_arrays(labels[:, 5])).sections(0, 5)


def test_large_labels_floats_and_slices():
    labels = np.zeros((2, 3, 4, 5), dtype=np.int32)
    labels[0, 1, 2, 3] = 2**24 - 1
    labels[1, 0, 0, 0] = 2**24
    images = np.full(labels.shape, np.nan)
    images[:, 2] = np.arange(5.0)
    pictures = Pictures(Movie.from_arrays(labels, images))
    assert (imagecodecs.png_decode(pictures.labels(0, 1))[2, 3] == 255).all()
    assert (imagecodecs.png_decode(pictures.labels(0))[2, 3] == 255).all()
    assert not imagecodecs.png_decode(pictures.labels(0, 0)).any()
    assert imagecodecs.png_decode(pictures.image(0, 2))[0].tolist() == [
        0,
        63,
        127,
        191,
        255,
    ]
    with pytest.raises(ValueError, match="label 16777216"):
        pictures.labels(1)
    with pytest.raises(ValueError, match="no slice 3"):
        pictures.image(0, 3)
    assert (
        imagecodecs.png_decode(Pictures(Movie.from_arrays(labels)).image(0)).max() > 0
    )  # the masks


def test_pictures_in_memory_are_bounded(simulated):
    pictures = Pictures(simulated.movie, cache_bytes=1)
    assert pictures.image(0) == pictures.image(0)
    pictures.image(1)
    assert len(pictures._encoded) == 1


def test_a_slice_of_a_flat_movie_is_refused(page):
    assert page.client.get(MOVIE + "/image/0.png?z=0").status_code == 400
    assert page.client.get(MOVIE + "/image/0.png?z=-1").status_code == 400


def test_a_pair_is_a_whole_assignment(page, source, simulated):
    pair = get(page, "/pair/4")
    a, b = source.detections(4), source.detections(5)
    assert [cell["id"] for cell in pair["a"]] == a.label.tolist()
    assert (
        sorted(label for event in pair["events"] for label in event["sources"])
        == a.label.tolist()
    )
    assert (
        sorted(label for event in pair["events"] for label in event["targets"])
        == b.label.tolist()
    )
    y, x = a.position[0] / simulated.movie.spacing
    assert pair["a"][0] == {
        "id": int(a.label[0]),
        "x": pytest.approx(x, abs=0.01),
        "y": pytest.approx(y, abs=0.01),
    }
    assert get(page, "/frames/4/cells") == pair["a"]
    assert all(event["pinned"] is None for event in pair["events"])
    assert all(
        event["confidence"] is None or event["confidence"] >= 0
        for event in pair["events"]
    )


def test_an_answer_is_kept_and_pinned_at_once(page):
    _, second, wrong = swapped(get(page, "/pair/0"))
    answer = send(page, wrong).json()
    assert (answer["revision"], answer["annotated"]) == (1, 1)
    pinned = [event for event in answer["pairs"][0]["events"] if event["pinned"]]
    assert [(event["sources"], event["targets"]) for event in pinned] == [
        (wrong["sources"], wrong["targets"])
    ]
    assert all(
        event["targets"] != second["targets"]
        for event in answer["pairs"][0]["events"]
        if not event["pinned"]
    )
    assert get(page, "/pair/0")["events"] == answer["pairs"][0]["events"]
    task = page.session.loop.task
    assert (task.revision, len(task.annotations)) == (1, 1)


def test_a_quick_solution_is_the_same_as_a_slow_one(page):
    predictions, state = page.session.predictions, page.session.state
    before = predictions.solve(2, state.annotations.select_frame(2))
    send(page, moves(get(page, "/pair/2"))[0], frame=2)
    here = page.session.state.annotations.select_frame(2)
    predictions.by_frame = {2: before}
    quick = predictions.solve(2, here)
    predictions.by_frame = {}
    slow = predictions.solve(2, here)
    assert np.array_equal(quick.events.row_keys(), slow.events.row_keys())
    pinned = np.isin(quick.events.row_keys(), here.events.row_keys())
    assert np.isinf(quick.confidence[pinned]).all()
    assert np.isfinite(slow.confidence[~pinned]).any()
    assert not np.isnan(quick.confidence).any()


def test_a_denied_event_is_not_predicted(page):
    first = moves(get(page, "/pair/0"))[0]
    pair = send(page, first, happened=False).json()["pairs"][0]
    assert pair["denied"] == [
        {name: first[name] for name in ("event", "sources", "targets")}
    ]
    assert (first["sources"], first["targets"]) not in [
        (e["sources"], e["targets"]) for e in moves(pair)
    ]


def test_a_post_sent_twice_counts_once(page):
    first, second, _ = swapped(get(page, "/pair/0"))
    once, twice = send(page, first, revision=0), send(page, first, revision=0)
    assert once.json()["revision"] == twice.json()["revision"] == 1
    send(page, second, key="other")
    late = send(
        page, first, revision=0
    )  # it is the same answer still, though the revision is old
    assert (late.status_code, late.json()["revision"], len(page.session.store)) == (
        200,
        2,
        2,
    )
    back, again = travel(page, "undo", "u", 2), travel(page, "undo", "u", 2)
    assert back.json()["revision"] == again.json()["revision"] == 3
    assert len(page.session.store) == 1


def test_a_stale_revision_is_a_conflict_and_nothing_is_lost(page):
    first, second, _ = swapped(get(page, "/pair/0"))
    send(page, first)
    stale = send(page, second, key="late", revision=0)
    assert (stale.status_code, stale.json()["revision"], stale.json()["kind"]) == (
        409,
        1,
        "stale",
    )
    assert travel(page, "undo", "u", 0).status_code == 409
    assert (page.session.store.revision, len(page.session.store)) == (1, 1)
    assert send(page, second, key="late", revision=1).json()["annotated"] == 2


def test_a_contradiction_is_told_in_words_and_can_replace(page):
    first, _, wrong = swapped(get(page, "/pair/0"))
    send(page, first)
    refused = send(page, wrong, key="2")
    assert (refused.status_code, refused.json()["kind"]) == (422, "contradiction")
    assert "contradicts" in refused.json()["error"]
    replaced = send(page, wrong, key="3", replace=True).json()
    assert replaced["annotated"] == 1
    pinned = [
        event["targets"] for event in replaced["pairs"][0]["events"] if event["pinned"]
    ]
    assert pinned == [wrong["targets"]]


def test_an_answer_that_leaves_no_assignment_is_refused(page):
    """Everything else that a cell could do was denied."""
    pair = page.session.predictions.cache.pairs.build(0)
    table = pair.candidates.table(pair.a, pair.b, np.arange(len(pair.candidates)))
    source = int(pair.a.label[0])
    mine = list(table[np.flatnonzero((table.sources == source).any(axis=1))])
    for number, (frame, event, sources, targets) in enumerate(mine[:-1]):
        page.session.store.answer(
            frame, event, sources, targets, False, key=str(number)
        )
    _, event, sources, targets = mine[-1]
    last = {"event": str(event), "sources": list(sources), "targets": list(targets)}
    revision = page.session.store.revision
    refused = send(page, last, key="last", happened=False)
    assert (refused.status_code, refused.json()["kind"]) == (422, "infeasible")
    assert page.session.store.revision == revision
    assert send(page, last, key="stale", happened=False, revision=0).status_code == 409
    assert send(page, last, key="yes").status_code == 200


def test_undo_and_redo_across_a_restart(serve):
    with serve() as page:
        first, second, _ = swapped(get(page, "/pair/0"))
        send(page, first, key="1")
        send(page, second, key="2")
        page.client.post(MOVIE + "/place", json={"frame": 7, "label": 3})
    with serve() as page:
        status = get(page, "/status")
        assert (status["annotated"], status["can_undo"], status["can_redo"]) == (
            2,
            True,
            False,
        )
        assert status["place"] == {"frame": 7, "label": 3}
        assert status["counts"]["move"] == 2
        undone = travel(page, "undo", "u1").json()
        assert (undone["frame"], undone["annotated"], undone["can_redo"]) == (
            0,
            1,
            True,
        )
        assert undone["changed"]["targets"] == second["targets"]
        assert [
            event["targets"]
            for event in undone["pairs"][0]["events"]
            if event["pinned"]
        ] == [first["targets"]]
        travel(page, "undo", "u2")
        nothing = travel(page, "undo", "u3").json()
        assert (nothing["frame"], nothing["can_undo"]) == (None, False)
        assert travel(page, "redo", "r1").json()["annotated"] == 1
    with serve() as page:
        assert travel(page, "redo", "r2").json()["annotated"] == 2


def test_a_changed_mask_sets_aside_the_answers_about_its_cells_alone(
    serve, simulated, source, tmp_path
):
    """Eight frames were looked at before: a change elsewhere went unseen, and one there locked all answers out."""
    from clew.tracking.measurement.measure import measure_movie

    with serve() as page:
        for t in (0, 6, 7):
            send(page, moves(get(page, f"/pair/{t}"))[0], frame=t, key=str(t))
        kept = page.session.state.annotations.events
    label = int(kept.sources[kept.frame == 6][0, 0])
    for looked_at in (False, True):
        masks = np.stack([simulated.movie.label(t) for t in range(14)])
        masks[6][masks[6] == label] = np.where(
            np.arange((masks[6] == label).sum()) % 5, label, 0
        )
        if looked_at:  # the first frame is one of the eight
            masks[0][masks[0] == int(source.detections(0).label[-1])] = 0
        changed = Movie.from_arrays(
            masks, np.stack([simulated.movie.image(t) for t in range(14)])
        )
        with serve(
            movie=changed, measured=measure_movie(changed, cache=None, n_jobs=1)
        ) as page:
            status = get(page, "/status")
            assert (status["annotated"], status["outdated"]) == (2, 1)
            assert page.session.state.annotations.annotated_frames() == [0, 7]
            assert page.session.state.outdated[0].sources == (label,)
    other = Movie.from_arrays(masks[::-1].copy())
    with (
        pytest.raises(StoreError, match="other cells are in its masks"),
        serve(movie=other, measured=measure_movie(other, cache=None, n_jobs=1)),
    ):
        pass


def test_undo_takes_back_what_the_same_page_answered(page):
    first, second, _ = swapped(get(page, "/pair/0"))
    page.session.open_pages.update(["one", "two"])
    send(page, first, key="1", page="one", name="Ada")
    send(page, second, key="2", page="two")
    assert [entry.author.name for entry in page.session.store.history()] == ["Ada", ""]
    undone = page.client.post(
        f"{MOVIE}/undo", json={"key": "u", "revision": 2, "page": "one"}
    ).json()
    assert undone["changed"]["targets"] == first["targets"]
    assert (undone["can_undo"], undone["can_redo"]) == (False, True)
    page.session.open_pages["two"] -= 1  # it was closed: its answers are anybody's
    assert get(page, "/status?page=one")["can_undo"]
    assert (
        page.client.post(
            MOVIE + "/undo", json={"key": "v", "revision": 3, "page": 7}
        ).status_code
        == 400
    )


def test_places_that_are_none_are_refused(page):
    for place in (
        {"frame": 14},
        {"frame": -1},
        {"label": 1},
        {"frame": 0, "label": "x"},
    ):
        assert page.client.post(MOVIE + "/place", json=place).status_code == 400
    assert get(page, "/status")["place"] is None


def test_questions_are_about_open_predicted_events_and_can_be_filtered(page):
    pairs = {t: get(page, f"/pair/{t}") for t in (0, 5)}
    questions = get(page, "/questions?n=5")["questions"]
    assert len(questions) == 5
    for question in questions:
        event = {name: question[name] for name in ("event", "sources", "targets")}
        predicted = [
            {name: one[name] for name in ("event", "sources", "targets")}
            for one in pairs[question["frame"]]["events"]
        ]
        assert event in predicted
        assert question["reasons"]
    query = "/questions?n=50&event=move&from=5&to=5&box=0,0,200,200"
    chosen = get(page, query)["questions"]
    assert chosen
    assert {(q["frame"], q["event"]) for q in chosen} == {(5, "move")}
    assert all(max(question["centre"]) <= 200 for question in chosen)
    for bad in ("event=jump", "from=x", "box=1,2,3", "box=1,2,3,nan"):
        assert page.client.get(f"{MOVIE}/questions?{bad}").status_code == 400


def test_kinds_of_events_are_switched_and_stay_so(serve):
    with serve() as page:
        for names in (["divide"], ["divide", "split", "merge"]):
            found = page.client.post(MOVIE + "/events", json={"events": names}).json()[
                "events"
            ]
            assert found == sorted({"move", "appear", "disappear", *names})
            allowed = sorted(map(str, page.session.loop.task.profile.events))
            assert allowed == found == get(page, "/status")["events"]
            kinds = {
                event["event"]
                for t in range(13)
                for event in get(page, f"/pair/{t}")["events"]
            }
            assert kinds <= set(found)
        page.client.post(MOVIE + "/events", json={"events": []})
        assert (
            page.client.post(MOVIE + "/events", json={"events": ["jump"]}).status_code
            == 400
        )
    with serve() as page:
        assert get(page, "/status")["events"] == ["appear", "disappear", "move"]


def test_doubts_along_the_movie(page):
    get(page, "/pair/4")
    doubts = get(page, "/doubts")["doubtful"]
    known = {t for t, n in enumerate(doubts) if n is not None}
    assert {4} <= known <= {0, 4}  # the first is solved at the start


def test_a_geff_of_annotations_comes_back_in(page):
    first, second, _ = swapped(get(page, "/pair/0"))
    send(page, first, key="1")
    send(page, second, key="2", happened=False)
    packed = page.client.get(MOVIE + "/export/annotations.geff").content
    for key in ("a", "b"):
        travel(page, "undo", key)
    address = MOVIE + "/import?key=i&file=earlier.zip"
    kept = page.client.post(
        address, content=packed, headers={"content-type": "application/octet-stream"}
    ).json()
    assert (kept["new"], kept["given"], kept["annotated"]) == (2, 2, 2)
    bad = page.client.post(MOVIE + "/import?key=j&file=x.doc", content=b"?")
    assert bad.status_code == 400


def test_a_lineage_in_ctc_format_comes_in_as_annotations(page):
    """As earlier tracking by another program does; here it is what clew itself exports."""
    packed = page.client.get(MOVIE + "/export/ctc").content
    headers = {"content-type": "application/octet-stream"}
    kept = page.client.post(
        MOVIE + "/import?key=i&file=earlier.zip", content=packed, headers=headers
    ).json()
    held = page.session.state.annotations
    told = EventTable.join(
        [one.events for one in page.session.predictions.solve_missing(held)]
    )
    assert kept["new"] == kept["given"] == len(held) > 100
    assert np.isin(
        held.to_pairwise().events.row_keys(), told.row_keys()
    ).all()  # gaps are found among all pairs


def test_question_that_was_answered_is_not_asked_again(page):
    get(page, "/pair/0")
    first = get(page, "/questions?n=2")["questions"][0]
    pair = get(page, "/pair/0")
    asked = [(pair["a"], first["sources"]), (pair["b"], first["targets"])]
    cells = [cell for side, labels in asked for cell in side if cell["id"] in labels]
    center = [np.mean([cell[axis] for cell in cells]) for axis in "xy"]
    assert first["centre"] == pytest.approx(center, abs=0.02)
    left = send(page, first, frame=first["frame"]).json()["questions"]
    asked = [(one["event"], one["sources"], one["targets"]) for one in left]
    assert (first["event"], first["sources"], first["targets"]) not in asked
    again = travel(page, "undo", "u").json()["questions"]
    asked = [(one["event"], one["sources"], one["targets"]) for one in again]
    assert (first["event"], first["sources"], first["targets"]) in asked


def test_open_pages_receive_different_questions(page):
    for t in range(5):
        get(page, f"/pair/{t}")
    alone = get(page, "/questions?n=6&page=one")["questions"]
    page.session.open_pages.update(["one", "two"])
    one = get(page, "/questions?n=6&page=one")["questions"]
    two = get(page, "/questions?n=6&page=two")["questions"]
    assert (one[0], two[0]) == (alone[0], alone[1])
    assert not [question for question in one if question in two]


def test_answer_to_masks_that_changed_since_is_refused(page):
    pair = get(page, "/pair/4")
    first, second = moves(pair)[:2]
    edit = {"key": "e", "revision": 0, "frame": 4, "kind": "delete", "masks": 0}
    reply = page.client.post(
        MOVIE + "/edits", json={**edit, "cells": second["sources"]}
    )
    assert reply.status_code == 200
    stale = send(page, first, frame=4, key="s", revision=1, masks=[0, 0])
    assert (stale.status_code, stale.json()["kind"]) == (409, "masks")
    seen = send(page, first, frame=4, key="s", revision=1, masks=[1, 0])
    assert seen.status_code == 200
    again = send(page, first, frame=4, key="s", revision=1, masks=[0, 0])
    assert again.status_code == 200  # it is stored already


def test_new_weights_and_predictions_are_shown(page):
    pair = get(page, "/pair/0")
    predictions = page.session.predictions
    loop = page.session.loop
    use_weights(page, -predictions.weights.values)
    other = get(page, "/pair/0")
    assert (other["version"], pair["version"]) == (1, 0)
    assert other["events"] != pair["events"]
    annotations = page.session.state.annotations.select_frame(0)
    late = replace(predictions.solve(0, annotations), version=2)
    for event in moves(other)[:1]:
        send(page, event)
    page.client.portal.call(loop.use_predictions, loop.task, [late])
    assert predictions.by_frame[0].version == 1  # it was made before the answer
    annotations = page.session.state.annotations.select_frame(0)
    new = replace(late, key=annotations.content_key())
    page.client.portal.call(loop.use_predictions, loop.task, [new])
    assert predictions.by_frame[0].version == 2


def test_the_annotations_are_exported_as_they_were_clicked(page, tmp_path):
    first, second, _ = swapped(get(page, "/pair/0"))
    send(page, first, key="1")
    send(page, second, key="2", happened=False)
    answer = page.client.get(MOVIE + "/export/annotations.csv")
    assert "attachment" in answer.headers["content-disposition"]
    (tmp_path / "a.csv").write_bytes(answer.content)
    annotations = read_annotation_table(tmp_path / "a.csv")
    assert [
        (frame, str(event), [*sources], [*targets])
        for frame, event, sources, targets in annotations.events
    ] == [(0, "move", event["sources"], event["targets"]) for event in (first, second)]
    assert annotations.happened.tolist() == [True, False]
    packed = page.client.get(MOVIE + "/export/annotations.geff").content
    zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / "geff")
    assert is_geff(tmp_path / "geff/annotations.geff")
    import geff.core_io

    graph = geff.core_io.read_to_memory(tmp_path / "geff/annotations.geff")
    labels = graph["node_props"]["seg_id"]["values"]
    assert [labels[node] for node in graph["edge_ids"][0]] == [
        *first["sources"],
        *first["targets"],
    ]
    assert graph["metadata"].extra["clew"]["denied"][0]["targets"] == second["targets"]


def test_an_export_of_nothing_and_unknown_ones(page):
    assert page.client.get(MOVIE + "/export/annotations.geff").status_code == 200
    assert page.client.get(MOVIE + "/export/everything").status_code == 404
    assert {str(kind) for kind in ExportKind if not kind.is_learned} == {
        "annotations.csv",
        "annotations.geff",
        "masks",
    }


def test_export_takes_the_best_weights_there_are(page, tmp_path):
    packed = page.client.get(MOVIE + "/export/ctc").content
    assert "res_track.txt" in zipfile.ZipFile(io.BytesIO(packed)).namelist()
    send(page, moves(get(page, "/pair/0"))[0])
    w = page.session.predictions.weights.values
    for factor, is_complete in ((2, False), (3, True)):
        use_weights(page, factor * w, is_complete)
        reply = page.client.get(MOVIE + "/export/weights")
        assert reply.headers["x-clew-learned"] == ("yes" if is_complete else "no")
        (tmp_path / "w.clew").write_bytes(reply.content)
        tracker = load_tracker(tmp_path / "w.clew")
        assert np.array_equal(tracker.coef_, factor * w)
        assert (tracker.origin_, tracker.n_annotated_) == (Origin.ADAPTED, 1)


def test_learning_process_that_ended_is_shown_and_exports_work(page):
    send(page, moves(get(page, "/pair/0"))[0])
    page.client.portal.call(page.server._on_worker_status, False, "it ended")
    expected = {"alive": False, "problem": "it ended"}
    assert get(page, "/status")["worker"] == expected
    assert page.client.get(MOVIE + "/export/weights").status_code == 200


def test_news_reach_all_pages_and_end(page):
    async def scenario():
        stream = EventsStream()
        one, other = stream.listen(), stream.listen()
        assert b"retry" in await anext(one)
        await anext(other)
        stream.publish("changed", {"movie": 0})
        for listening in (one, other):
            assert await anext(listening) == b'event: changed\ndata: {"movie": 0}\n\n'
        for _ in range(MAX_WAITING + 1):
            stream.publish("x", {})
        stream.close()
        return len([text async for text in one]), len(stream._listeners)

    assert page.client.portal.call(scenario) == (0, 0)


def test_problem_of_learning_is_published(page):
    news = []
    page.session.publish = lambda event, data: news.append((event, data))
    page.client.portal.call(page.session.loop._report_problem, "nothing learned")
    assert news == [("problem", {"revision": 0, "problem": "nothing learned"})]
    assert not get(page, "/status")["learning"]


def test_json_has_no_infinity(page):
    text = page.client.get(MOVIE + "/pair/0").text
    assert "Infinity" not in text
    json.loads(text)
