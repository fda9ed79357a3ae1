"""Trackers in files: what comes back tracks the same, and what is no tracker is refused."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import clew
from clew.errors import InputError, StoreError
from clew.estimators.svm import StructuredSVM
from clew.models.multiclass import Multiclass
from clew.tracking import persistence as archive
from clew.tracking.tracker import Tracker
from clew.utils import storage


@pytest.fixture
def file(tmp_path, learned):
    learned.save(tmp_path / "weights.clew")
    return tmp_path / "weights.clew"


def rewrite(file, change):
    """The same file with other content, and a right checksum."""
    document = storage.read_document(file)
    change(document.meta, document.arrays)
    storage.write_document(file, document.kind, document.meta, document.arrays)


def test_what_comes_back_tracks_the_same(file, learned, simulated, lineage):
    back = clew.load(file)
    assert isinstance(back, Tracker)
    assert np.array_equal(back.coef_, learned.coef_)
    back.set_params(cache=None, n_jobs=1)
    one, two = back.track(simulated.movie), lineage
    assert np.array_equal(one.events.row_keys(), two.events.row_keys())
    assert np.array_equal(one.confidence, two.confidence)
    for name in (
        "feature_names_",
        "groups_",
        "n_annotated_",
        "n_pairs_",
        "lam_",
        "prior",
        "lam",
        "loss",
        "algorithm",
    ):
        assert getattr(back, name) == getattr(learned, name), name
    assert str(back.result_) == str(learned.result_)


def test_learning_goes_on_from_what_was_read(file, learned, simulated):
    back = clew.load(file).set_params(cache=None, n_jobs=1)
    back.fit(simulated.movie, simulated.some, warm_start=back.result_)
    assert back.result_.objective == pytest.approx(
        learned.result_.objective, abs=2 * learned.result_.gap + 1e-9
    )


def test_the_same_tracker_gives_the_same_bytes(file, learned, tmp_path):
    learned.save(tmp_path / "again.clew")
    assert (tmp_path / "again.clew").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("prior", ["none", "tracker"])
def test_the_prior_comes_back(tmp_path, simulated, learned, prior):
    given = None if prior == "none" else learned
    fitted = Tracker(
        prior=given,
        lam=100.0,
        reach=50,
        algorithm=replace(clew.PRESETS["clew"], tol=0.01),
        cache=None,
        n_jobs=1,
    ).fit(simulated.movie, simulated.some)
    fitted.save(tmp_path / "a.clew")
    back = clew.load(tmp_path / "a.clew").set_params(cache=None, n_jobs=1)
    assert np.array_equal(back.coef_, fitted.coef_)
    assert (back.reach, back.algorithm) == (50, fitted.algorithm)
    assert (back.prior is None) == (given is None)
    assert np.allclose(
        back.fit(simulated.movie, simulated.some).coef_, fitted.coef_, atol=1e-6
    )


def test_generic_weights_can_be_saved_too(tmp_path):
    Tracker.generic().save(tmp_path / "a.clew")
    back = archive.load_tracker(tmp_path / "a.clew")
    assert np.array_equal(back.coef_, Tracker.generic().coef_)
    assert "generic" in archive.describe(tmp_path / "a.clew")["learned from"]


def test_what_learned_nothing_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        Tracker().save(tmp_path / "a.clew")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_words(file, learned):
    about = archive.describe(file)
    assert clew.estimators.persistence.describe_file(file) == about
    assert (
        about["learned from"]
        == f"{learned.n_annotated_} annotated events in {learned.n_pairs_} frame pairs"
    )
    assert about["weights"] == str(len(learned.coef_))
    assert "intensity" in about["measurements"]
    assert about["reach"] == "estimated from each movie"
    assert about["certificate"] == str(learned.result_)


def test_other_estimators_are_loaded_and_described_as_ever(tmp_path):
    svm = StructuredSVM(Multiclass(), lam=1.0).fit(np.eye(4), [0, 1, 0, 1])
    svm.save(tmp_path / "a.clew")
    assert np.array_equal(clew.load(tmp_path / "a.clew").coef_, svm.coef_)
    assert (
        clew.estimators.persistence.describe_file(tmp_path / "a.clew")["estimator"]
        == "StructuredSVM"
    )
    with pytest.raises(StoreError, match="estimator"):
        archive.load_tracker(tmp_path / "a.clew")


def test_weights_for_other_features_are_refused_with_the_difference(file):
    def change(meta, arrays):
        meta["tracker"]["features"][3] = "move: charm"

    rewrite(file, change)
    with pytest.raises(
        InputError, match="has weights for 'move: charm' and lacks weights for 'move: "
    ) as told:
        clew.load(file)
    assert "train anew" in str(told.value)


def test_feature_that_is_no_text_is_refused(file):
    def change(meta, arrays):
        meta["tracker"]["features"][3] = []

    rewrite(file, change)
    with pytest.raises(InputError, match="has weights for"):
        clew.load(file)


def test_features_in_another_order_are_refused(file):
    rewrite(file, lambda meta, arrays: meta["tracker"]["features"].reverse())
    with pytest.raises(InputError, match="in another order"):
        clew.load(file)


def test_too_few_weights_are_refused(file):
    rewrite(
        file,
        lambda meta, arrays: arrays.update(
            {archive.WEIGHTS: arrays[archive.WEIGHTS][:-1]}
        ),
    )
    with pytest.raises(InputError, match="weights of shape"):
        clew.load(file)


def test_what_is_missing_is_the_files_fault(file):
    rewrite(file, lambda meta, arrays: meta["tracker"].pop("groups"))
    for read in (clew.load, archive.describe):
        with pytest.raises(StoreError, match="not that of a clew"):
            read(file)


def test_a_flipped_byte_is_noticed(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        clew.load(file)
