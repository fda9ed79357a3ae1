"""Files of other programs and other surroundings: one test for each line of the list.

Lines that have their tests elsewhere: wrapped labels and labelled backgrounds in
tests/tracking/measurement/test_label_faults.py; chunks that unpack to too much in
tests/tracking/io/test_zarr_chunks.py; leftovers in tests/utils/test_storage.py and
tests/tracking/io/test_result_folder.py; clusters in tests/test_parallel.py and
tests/cli/test_options.py; GEFFs that lost a part in
tests/tracking/io/test_geff.py; codecs in tests/tracking/test_movie.py; results that
were changed by hand in tests/tracking/io/test_results.py; CPU without thread variables
in tests/utils/test_threads.py; answers without a server in
tests/app/browser/test_trouble.py and test_honest.py.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import clew
from clew.datasets import LETTERS, annotate, simulate
from clew.errors import InputError
from clew.tracking.movie import Movie


@pytest.fixture(scope="module")
def words():
    """Eight words, a few letters of which are annotated."""
    rng = np.random.default_rng(0)
    X, letters = simulate(8, rng)
    return X, annotate(letters, 0.6, rng)


def fit(X, Y, **options):
    """Weights of a chain."""
    model = clew.models.Chain(classes=list(LETTERS))
    return clew.StructuredSVM(model, random_state=0, **options).fit(X, Y)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_largest_label_is_refused(dtype):
    labels = np.zeros((2, 5, 5), dtype)
    labels[:, 1:3, 1:3] = 2**63 - 1
    with pytest.raises(InputError, match=r"label 9223372036854775807; labels must be"):
        Movie.from_arrays(labels).label(0)
    labels[labels > 0] -= 1
    assert Movie.from_arrays(labels).label(0).max() == 2**63 - 2


@pytest.mark.parametrize("kind", ["lil", "dok", "coo"])
def test_sparse_matrices_of_every_kind_are_as_csr(words, kind):
    X, Y = words
    rows = [sp.csr_array(x) for x in X]
    expected = fit(rows, Y, lam=1.0).coef_
    converted = [row.asformat(kind) for row in rows]
    np.testing.assert_allclose(fit(converted, Y, lam=1.0).coef_, expected)


def test_series_with_any_index_is_as_a_list(words):
    pandas = pytest.importorskip("pandas")
    X, Y = words
    expected = fit(X, Y, lam="auto")
    inputs = pandas.Series(X, index=range(5, 5 + len(X)))
    annotations = pandas.Series(Y, index=range(7, 7 + len(Y)))
    actual = fit(inputs, annotations, lam="auto")
    assert actual.lam_ == pytest.approx(expected.lam_)
    np.testing.assert_allclose(actual.coef_, expected.coef_, atol=1e-9)


def test_frames_of_polars_are_as_arrays(words):
    polars = pytest.importorskip("polars")
    X, Y = words
    frames = [polars.DataFrame(x) for x in X]
    expected = fit(X, Y, lam=1.0).coef_
    np.testing.assert_allclose(fit(frames, Y, lam=1.0).coef_, expected)


def test_no_thread_variable_gives_the_same_weights(words, tmp_path):
    code = """
import numpy as np, clew
from clew.datasets import LETTERS, annotate, simulate
rng = np.random.default_rng(0)
X, letters = simulate(8, rng)
Y = annotate(letters, 0.6, rng)
model = clew.models.Chain(classes=list(LETTERS))
np.save("coef.npy", clew.StructuredSVM(model, random_state=0, lam=1.0).fit(X, Y).coef_)
"""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_NUM_THREADS")
    }
    subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "coef.npy"), fit(*words, lam=1.0).coef_, atol=1e-9
    )
