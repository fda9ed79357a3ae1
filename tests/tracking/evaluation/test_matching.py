"""Evaluation by positions, where one side has no masks."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from clew.errors import DataWarning, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.matching import match_points, match_positions
from clew.tracking.events import Event
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.result_tables import write_events, write_track_table
from clew.tracking.io.results import write_results
from clew.tracking.tracker import Tracker


def frames(*points):
    """Cells by frame: lists of (id, y, x)."""
    return lambda t: (
        np.array([cell[0] for cell in points[t]], dtype=np.int64),
        np.array([cell[1:] for cell in points[t]], dtype=float).reshape(-1, 2),
    )


def test_as_many_pairs_as_possible_and_the_nearest_of_those():
    truth = frames([(1, 0, 0), (2, 0, 4), (3, 50, 50)])
    # 7 is nearest to 2, but is all that 1 has; 9 is beyond reach, and 5 is 3's, with 6 beside it
    result = frames([(5, 50, 51), (6, 50, 53), (7, 0, 2.5), (8, 0, 6.5), (9, 20, 20)])
    (held,), within = match_positions(truth, result, 1, distance=3.0)
    assert within == 3.0
    assert held.cell.tolist() == [1, 2, 3]
    assert held.holder.tolist() == [7, 8, 5]
    assert held.touched.tolist() == [True, True, True]


def test_by_default_half_of_the_way_to_the_next_cell():
    truth = frames([(1, 0, 0), (2, 0, 8)], [(1, 0, 0)])
    matched, within = match_positions(
        truth, frames([(1, 0, 3.9), (2, 0, 8)], [(9, 0, 4.1)]), 2
    )
    assert within == 4.0
    assert [held.holder.tolist() for held in matched] == [[1, 2], [0]]


def test_one_cell_a_frame_needs_a_distance():
    one = frames([(1, 0, 0)])
    with pytest.raises(InputError, match="--distance"):
        match_positions(one, one, 1)
    assert match_positions(one, one, 1, distance=0.5)[0][0].holder.tolist() == [1]
    with pytest.raises(InputError, match="distance is 0"):
        match_positions(one, one, 1, distance=0)


def test_other_units_are_told():
    truth = frames([(1, 0, 0), (2, 0, 40), (3, 0, 80)])
    with pytest.warns(
        DataWarning, match=r"only 1 of 3 true cells .* x 0 to 80, .* x 0 to 20"
    ):
        match_positions(
            truth, frames([(1, 0, 0), (2, 0, 10), (3, 0, 20)]), 1, distance=1
        )


def test_masks_and_positions_of_one_result_agree(tmp_path, simulated, lineage):
    """Against itself the same is found, whichever side is a table; of merges, tracks say something else than events."""
    write_results(tmp_path / "m", lineage, simulated.movie, ["ctc", "csv"])
    write_results(tmp_path / "t", lineage, simulated.movie, ["csv"])
    write_results(tmp_path / "p", lineage, simulated.movie, ["parquet"])
    by_masks = evaluate(tmp_path / "m", tmp_path / "m", scores=False)
    assert (by_masks.matched_by, by_masks.aogm.total) == ("masks", 0)
    for result, truth in [("m", "t"), ("t", "m"), ("t", "t"), ("p", "m")]:
        found = evaluate(tmp_path / result, tmp_path / truth, scores=False)
        assert found.matched_by.startswith("positions, at most")
        assert found.aogm == by_masks.aogm, (result, truth)
        assert found.loss.to_dict() == by_masks.loss.to_dict(), (result, truth)
        assert found.events_from == (
            "events.parquet" if result == "p" else "events.csv"
        )


def test_against_a_truth_with_masks_positions_tell_nearly_what_masks_tell(
    tmp_path, simulated, lineage
):
    write_results(tmp_path / "t", lineage, simulated.movie, ["csv"])
    by_masks = evaluate(lineage, simulated.truth, simulated.movie)
    by_places = evaluate(tmp_path / "t", simulated.truth)
    assert by_places.scores is None
    assert by_places.loss.annotated.sum() == pytest.approx(
        by_masks.loss.annotated.sum(), rel=0.05
    )
    # by positions alone a mask that holds two cells is one of them, and nothing merges or splits
    fused = by_masks.loss.annotated[[Event.SPLIT, Event.MERGE]].sum()
    assert abs(by_places.loss.missed.sum() - by_masks.loss.missed.sum()) <= fused
    with pytest.raises(InputError, match="need a result with masks"):
        evaluate(tmp_path / "t", simulated.truth, scores=True)


def test_a_lineage_against_a_table_needs_no_movie(tmp_path, lineage):
    write_track_table(tmp_path / "truth.csv", lineage)
    assert evaluate(lineage, tmp_path / "truth.csv").aogm.total == 0


def test_wrong_links_are_found(tmp_path):
    truth = "frame,track,parent,y,x\n0,1,0,0,0\n0,2,0,0,9\n1,1,0,0,1\n1,2,0,0,8\n"
    (tmp_path / "truth.csv").write_text(truth)
    (tmp_path / "swapped.csv").write_text(
        truth.replace("1,1,0,0,1", "1,1,0,0,8").replace("1,2,0,0,8\n", "1,2,0,0,1\n")
    )
    found = evaluate(tmp_path / "swapped.csv", tmp_path / "truth.csv")
    assert (
        found.aogm.false_edges,
        found.aogm.missing_edges,
        found.aogm.missing_vertices,
    ) == (2, 2, 0)
    assert found.loss.total == 1.0
    assert evaluate(tmp_path / "truth.csv", tmp_path / "truth.csv").loss.total == 0


def test_frames_and_spacing(tmp_path):
    cells = "frame,track,y,x\n" + "".join(
        f"{t},{k},{10 * k},{t}\n" for t in range(4) for k in (1, 2)
    )
    (tmp_path / "truth.csv").write_text(cells)
    (tmp_path / "part.csv").write_text(
        "frame,track,y,x\n0,1,20,2\n0,2,40,2\n1,1,20,4\n1,2,40,4\n"
    )
    found = evaluate(
        tmp_path / "part.csv",
        tmp_path / "truth.csv",
        frames=range(1, 3),
        spacing=(2, 2),
        complete=True,
    )
    assert (found.aogm.total, found.aogm.vertices) == (0, 4)
    assert (
        evaluate(
            tmp_path / "truth.csv",
            tmp_path / "truth.csv",
            frames=range(1, 3),
            complete=True,
        ).aogm.vertices
        == 4
    )
    with pytest.raises(InputError, match="has no frames 1 to 4; it has 0 to 3"):
        evaluate(tmp_path / "part.csv", tmp_path / "truth.csv", frames=range(1, 5))
    (tmp_path / "deep.csv").write_text("frame,track,z,y,x\n0,1,5,1,1\n0,2,6,9,9\n")
    with pytest.raises(InputError, match="different dimensions"):
        evaluate(tmp_path / "deep.csv", tmp_path / "truth.csv")


def test_a_table_that_goes_beyond_the_masks(tmp_path, simulated):
    n = simulated.movie.n_frames
    (tmp_path / "late.csv").write_text(f"frame,track,y,x\n0,1,1,1\n{n},2,1,1\n")
    with pytest.raises(
        InputError, match=f"the truth has {n} frames, but there are cells in frame {n}"
    ):
        evaluate(tmp_path / "late.csv", simulated.truth)


def test_events_of_another_result(tmp_path, simulated, lineage):
    write_events(tmp_path / "events.csv", lineage)
    (tmp_path / "tracks.csv").write_text(
        "frame,label,track,y,x\n0,1,1,5,5\n0,2,2,50,50\n"
    )
    with pytest.raises(
        InputError, match=r"events\.csv: .*: tracks\.csv does not have its cells"
    ):
        evaluate(tmp_path, simulated.truth)


def test_a_lineage_as_annotations_of_points_and_of_masks(tmp_path, simulated, lineage):
    """By positions, a truth determines what it determines by masks; but for cells that share a mask."""
    points = DetectionTable(lineage.frame, lineage.label, lineage.position)
    found = read_annotations(simulated.truth, points)
    same = np.isin(found.events.row_keys(), simulated.known.events.row_keys())
    assert same.mean() > 0.95
    assert abs(len(found) - len(simulated.known)) < 0.05 * len(found)
    write_track_table(tmp_path / "tracks.csv", lineage)
    by_table = read_annotations(tmp_path / "tracks.csv", simulated.movie)
    assert np.isin(by_table.events.row_keys(), lineage.events.row_keys()).mean() > 0.95
    part = read_annotations(tmp_path / "tracks.csv", points[2:5])
    assert set(part.events.frame.tolist()) == {0, 1}
    (tmp_path / "long.csv").write_text(
        f"frame,track,y,x\n0,1,5,5\n{points.n_frames},2,5,5\n"
    )
    with pytest.raises(InputError, match="it must be the truth of this movie"):
        read_annotations(tmp_path / "long.csv", points)


def test_tables_are_physical_as_annotations(tmp_path, simulated, lineage):
    write_track_table(
        tmp_path / "tracks.csv", replace(lineage, position=2 * lineage.position)
    )
    movie = replace(simulated.movie, spacing=(2.0, 2.0))
    assert len(read_annotations(tmp_path / "tracks.csv", movie)) > 100


def test_a_result_knows_the_spacing_of_its_movie(tmp_path, simulated_3d):
    """So that tables in physical units are compared with masks in pixels; but for that of a result of clew's."""
    lineage = Tracker.generic().set_params(cache=None).track(simulated_3d.movie)
    assert simulated_3d.movie.spacing != (1, 1, 1)
    for name, formats in (("t", ["csv"]), ("n", ["napari"]), ("m", ["ctc", "csv"])):
        write_results(tmp_path / name, lineage, simulated_3d.movie, formats)
        by_masks = (
            evaluate(tmp_path / "m", simulated_3d.truth, scores=False)
            if name == "m"
            else None
        )
    for name in ("t", "n"):
        found = evaluate(tmp_path / name, simulated_3d.truth)
        assert (
            found.aogm.missing_vertices
            <= by_masks.aogm.missing_vertices + by_masks.aogm.split_vertices
        )
        assert evaluate(tmp_path / name, tmp_path / "t").aogm.total == 0
        with pytest.warns(DataWarning, match="must be in the same unit"):
            evaluate(tmp_path / name, simulated_3d.truth, spacing=(1, 1, 0.1))


@pytest.mark.parametrize("seed", range(30))
def test_points_make_the_most_pairs_with_the_smallest_sum(seed):
    rng = np.random.default_rng(seed)
    # coarse places, so that distances tie and some are 0
    first, second = (
        rng.integers(0, 4, (n, 2)).astype(float) for n in rng.integers(1, 6, 2)
    )
    ids, labels = np.arange(1, len(first) + 1), np.arange(1, len(second) + 1)
    match = match_points(ids, first, labels, second, 1.5)
    distance = np.linalg.norm(first[:, None] - second[None], axis=2)
    choices = [
        [(i, j) for i, j in enumerate(chosen) if j >= 0 and distance[i, j] <= 1.5]
        for chosen in product(range(-1, len(second)), repeat=len(first))
        if len({j for j in chosen if j >= 0}) == sum(j >= 0 for j in chosen)
    ]
    best = min((-len(pairs), sum(distance[p] for p in pairs)) for pairs in choices)
    found = [(i, j - 1) for i, j in enumerate(match.holder) if j]
    assert len({j for _, j in found}) == len(found)
    assert (-len(found), sum(distance[p] for p in found)) == pytest.approx(best)
