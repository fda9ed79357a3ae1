"""Annotations exported as a GEFF come back as they were: what nobody annotated stays open."""

import json

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.geff import write_annotation_geff


def as_set(annotations):
    return {
        (*event, bool(happened))
        for event, happened in zip(
            annotations.events, annotations.happened, strict=True
        )
    }


@pytest.mark.parametrize("seed", range(5))
def test_what_was_annotated_and_nothing_else_comes_back(simulated, tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(simulated.known))[:30]
    rare = np.flatnonzero(simulated.known.events.event != Event.MOVE)
    rows = np.union1d(rows, rng.permutation(rare)[:10])
    given = Annotations.of(simulated.known.events[rows], rng.random(len(rows)) < 0.8)
    write_annotation_geff(tmp_path / "marks.geff", given, simulated.movie)
    assert as_set(read_annotations(tmp_path / "marks.geff", simulated.movie)) == as_set(
        given
    )


def test_false_detections_come_back(simulated, tmp_path):
    movie = simulated.movie
    label = int(np.unique(movie.label(2))[1])
    given = Annotations.of(EventTable.of_false([2], [label], movie.n_frames))
    write_annotation_geff(tmp_path / "marks.geff", given, movie)
    assert as_set(read_annotations(tmp_path / "marks.geff", movie)) == as_set(given)


def test_denied_events_that_make_no_sense_are_refused(simulated, tmp_path):
    path = tmp_path / "marks.geff"
    write_annotation_geff(path, simulated.some[:3], simulated.movie)
    told = next(
        file for file in (path / "zarr.json", path / ".zattrs") if file.exists()
    )
    content = json.loads(told.read_text())
    geff = content.get("attributes", content)["geff"]
    geff["extra"]["clew"]["denied"] = [
        {"frame": 0, "event": "explode", "sources": [1], "targets": []}
    ]
    told.write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"denied events .* cannot be read \(KeyError: 'explode'\)"
    ):
        read_annotations(path, simulated.movie)
