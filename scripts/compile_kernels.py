"""Compile the kernels that most tests need, before several processes need them at once.

tests/conftest.py runs this in a fresh clone while the processes collect their tests.
"""

import tempfile

import numpy as np
from scipy.sparse import csr_array

import clew
from clew.annotation.sampling import sample
from clew.models import Assignment, Chain, Tree
from clew.simulation.kinds import KINDS
from clew.simulation.simulate import NucleiSettings, settings_of, simulate
from clew.simulation.write import write_simulation
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker


def main() -> None:
    """Learn and track once, as small as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        write_simulation(folder, NucleiSettings(frames=6, cells=12, cycle=20))
        movie = open_movie(f"{folder}/01")
        truth = open_ctc_lineage(f"{folder}/01_GT/TRA")
        annotations = sample(derive_annotations(truth, movie), 0.5, 0)
        Tracker(lam=100.0, cache=None, n_jobs=1).fit(movie, annotations).track(movie)
    for kind in KINDS:
        next(iter(simulate(settings_of(kind, frames=1, cells=5))))

    words, labels = [np.eye(2), np.eye(2)[::-1]], [[0, 1], [None, 0]]
    clew.StructuredSVM(Chain(), lam=0.1).fit(words, labels).margins(words)
    clew.StructuredSVM(Chain(), lam=0.1, loss="pair").fit(words, labels)
    ascent = clew.Algorithm(solver="ascent", stochastic=False)
    rows = [csr_array(word) for word in words]
    clew.StructuredSVM(Chain(), lam=0.1, algorithm=ascent).fit(rows, labels)
    trees = [(word, np.array([-1, 0])) for word in words]
    clew.StructuredSVM(Tree(), lam=0.1).fit(trees, labels).margins(trees)
    clew.StructuredPerceptron(Chain()).fit(words, labels)
    clew.StructuredCRF(Chain()).fit(words, labels).predict_proba(words)
    costs, assignments = [np.eye(2)[:, :, None]] * 2, [[0, 1], [1, 0]]
    clew.StructuredSVM(Assignment(), lam=0.1).fit(costs, assignments)


if __name__ == "__main__":
    main()
