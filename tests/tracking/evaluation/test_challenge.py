"""The challenge's scores against py-ctcmetrics, which matches masks by itself."""

import sys

import numpy as np
import pytest

from clew.errors import MissingExtra
from clew.tracking.evaluation.challenge import score_matched_frames
from clew.tracking.evaluation.evaluate import evaluate
from clew.tracking.evaluation.matching import ResultMasks, match_frames
from clew.tracking.io import tiff
from clew.tracking.io.ctc import open_ctc_lineage, write_tracks
from clew.tracking.lineage.tracks import Tracks

from ...helpers.results import write_ctc_result


def score_folder(result, truth):
    """The scores of a folder by its masks alone."""
    own = open_ctc_lineage(result)
    true = open_ctc_lineage(truth)
    matched = match_frames(true, ResultMasks(own))
    return score_matched_frames(own, true, matched)


def test_scores(tmp_path, truth, movie, result):
    pytest.importorskip("ctc_metrics", reason="py-ctcmetrics is not installed")
    from ctc_metrics.scripts.evaluate import evaluate_sequence

    folder = tmp_path / "result"
    write_ctc_result(folder, movie, result)
    scores = score_folder(folder, truth)
    theirs = evaluate_sequence(str(folder), str(truth.parent), threads=1)
    assert theirs["Valid"] == 1
    for name in ("DET", "SEG", "TRA", "LNK", "CT", "TF", "CCA"):
        assert scores[name] == (
            None if theirs[name] is None else pytest.approx(theirs[name])
        ), name
    assert scores["BIO"] == pytest.approx(theirs["BIO(0)"])
    assert scores["BC"] == pytest.approx(theirs["BC(0)"])
    assert evaluate(folder, truth).aogm.total == pytest.approx(theirs["AOGM"])
    assert evaluate(folder, truth).aogm.score == pytest.approx(theirs["TRA"])
    assert evaluate(folder, truth).scores == scores
    perfect = score_folder(truth, truth)
    assert {
        name for name, value in perfect.items() if value is not None and value < 1
    } == set()
    assert perfect["SEG"] == 1


def test_scores_without_py_ctcmetrics(truth, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctc_metrics", None)
    with pytest.raises(MissingExtra, match=r"pip install 'clew-learn\[evaluate\]'"):
        score_folder(truth, truth)


def test_sliced_segmentation_in_3d(tmp_path):
    tra, seg = tmp_path / "01_GT/TRA", tmp_path / "01_GT/SEG"
    tra.mkdir(parents=True)
    seg.mkdir()
    volume = np.zeros((3, 4, 4), dtype=np.uint16)
    volume[1, 1:3, 1:3] = 1
    for t in range(2):
        tiff.write_frame(tra / f"man_track{t:03}.tif", volume)
    reference = volume[1].copy()
    reference[1, 1] = 0
    tiff.write_frame(seg / "man_seg_001_001.tif", reference)
    write_tracks(tra / "man_track.txt", Tracks.of([[1, 0, 1, 0]]))
    assert score_folder(tra, tra)["SEG"] == 0.75
