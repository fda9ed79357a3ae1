"""Files that clew 0.1.0 wrote are read: an estimator, weights and a store.

They were written by the last commit of version 0.1.0: an SVM fitted to 20 simulated
words, weights learned from 20 events of a simulated movie, and five answers about it,
of which the last was taken back.
"""

import json
import shutil
from pathlib import Path

import numpy as np

import clew
from clew.annotation.store.history import Act
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.tracking.persistence import load_tracker

FILES = Path(__file__).parents[1] / "fixtures" / "release-0.1"


def test_estimator_of_0_1_predicts_as_it_did():
    svm = clew.load(FILES / "svm.clew")
    with np.load(FILES / "svm-answers.npz") as answers:
        assert list(svm.predict([answers["x"]])[0]) == answers["y"].tolist()


def test_weights_of_0_1_are_read():
    tracker = load_tracker(FILES / "weights.clew")
    assert tracker.n_annotated_ == 20
    assert np.isfinite(tracker.coef_).all()


def test_store_of_0_1_is_read_and_continued(tmp_path):
    path = tmp_path / "store.clewdb"
    shutil.copy(FILES / "store.clewdb", path)
    content = json.loads((FILES / "movie.json").read_text())
    movie = MovieIdentity.from_json(content)
    store = Store.open(path, movie=movie)
    try:
        assert store.revision == 6
        assert len(store.annotations()) == 4
        store.undo_or_redo(Act.REDO, key="again")
        assert len(store.annotations()) == 5
    finally:
        store.close()
