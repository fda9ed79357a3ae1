"""BLAS threads do not spin during a fit."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from clew.utils.threads import single_threaded_blas

FIT = """
import os
import numpy as np
from clew.estimators.svm import StructuredSVM
from clew.learning.algorithm import Algorithm
from clew.models.assignment import Assignment

rng = np.random.default_rng(0)
X = [rng.normal(size=(5, 6, 200)) for _ in range(20)]
Y = [rng.permutation(6)[:5] for _ in X]
svm = StructuredSVM(Assignment(), lam=0.01, algorithm=Algorithm(tol=1e-2))
svm.fit(X, Y)  # compiles
before = os.times()
for _ in range(3):
    svm.fit(X, Y)
after = os.times()
print(after.user + after.system - before.user - before.system)
"""


def blas_threads():
    return [
        pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
    ]


def cpu_of_fit(environment):
    run = subprocess.run(
        [sys.executable, "-c", FIT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return float(run.stdout)


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core has one thread")
def test_fit_with_default_threads_costs_the_cpu_of_one_thread():
    default = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_NUM_THREADS")
    }
    single = default | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    assert cpu_of_fit(default) <= 2.0 * cpu_of_fit(single)


def test_blas_limit_ends_with_the_block():
    np.linalg.inv(np.eye(2))
    before = blas_threads()
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_blas_limits_of_two_threads_leave_nothing_behind():
    before = blas_threads()
    entered, left = threading.Event(), threading.Event()

    def overlap():
        with single_threaded_blas():
            entered.set()
            left.wait(10)

    thread = threading.Thread(target=overlap)
    with single_threaded_blas():
        thread.start()
        assert entered.wait(10)
    left.set()
    thread.join()
    assert blas_threads() == before
