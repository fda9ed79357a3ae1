"""Named entities in simulated sentences: clew beside CRFsuite, in one run, by the size of the data and its annotation.

    pip install -e '.[bench]'
    OMP_NUM_THREADS=1 python benchmarks/text.py                          # 1,000 to 8,000 sentences
    OMP_NUM_THREADS=1 python benchmarks/text.py --sizes 1000 --fractions 1 0.25 0.1

Every learner gets the same features (clew.datasets.token_features) and is tested on the same 2,000 sentences. Each fit
runs in a process of its own, so that its peak of memory is its own; seconds are CPU seconds of the fit alone, without
reading and vectorising, after the kernels were compiled. Where only some tokens are annotated, CRFsuite learns from
the runs of annotated tokens, each as a sequence of its own.

The last line has the exponent of clew's seconds in the number of sentences.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew import Algorithm, StructuredCRF, StructuredSVM
from clew.datasets import entity_f1, hide, sentences, token_features, vectorise
from clew.models import Chain

N_TEST = 2000
LEARNERS = ("clew", "clew CRF", "crfsuite l-bfgs", "crfsuite averaged perceptron")
C = 0.05
"""λ = 1 / (C N): the same weight of each sentence's loss at every size and share of annotations. It is about what clew
chooses by itself on another draw (seed 3): 0.076, 0.035 and 0.050 with 1,000 sentences and 100, 25 and 10 %, 0.035 with
4,000 and 25 %."""
C_CRF = 1.6
"""The same for the CRF: on that other draw it chooses 2.4, 3.5 and 0.5 with 1,000 sentences and 100, 25 and 10 %; this is
their geometric mean."""
TOL = 1e-2
Draw = tuple[list[list[str]], list[Any], np.random.Generator]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1000, 2000, 4000, 8000]
    )
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.25, 0.1])
    parser.add_argument(
        "--learners",
        nargs="+",
        choices=[name.split()[0] for name in LEARNERS],
        default=None,
    )
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(width=150)
    columns = "sentences annotated learner F1 CPU_s peak_MB gap passes"
    table = Table(*columns.split())
    seconds: dict[int, list[float]] = {}
    for n in arguments.sizes:
        draws = [draw(n, seed) for seed in range(arguments.seeds)]
        for fraction in arguments.fractions:
            for learner in LEARNERS:
                if arguments.learners and learner.split()[0] not in arguments.learners:
                    continue
                runs = [in_a_process(learner, fraction, drawn) for drawn in draws]
                f1, cpu, peak = (np.array([run[k] for run in runs]) for k in range(3))
                spread = f" ± {100 * f1.std():.1f}" if len(runs) > 1 else ""
                table.add_row(
                    str(n),
                    f"{fraction:.0%}",
                    learner,
                    f"{100 * f1.mean():.1f}{spread}",
                    f"{cpu.mean():.1f}",
                    f"{peak.max():.0f}",
                    runs[0][3],
                    runs[0][4],
                )
                console.print(
                    f"{n} {fraction:.0%} {learner}: F1 {100 * f1.mean():.1f}{spread}, {cpu.mean():.1f} s, "
                    f"{peak.max():.0f} MB, gap {runs[0][3]}, passes {runs[0][4]}"
                )
                if learner == "clew" and fraction == 1:
                    seconds[n] = [float(cpu.mean())]
        table.add_section()
    console.print(table)
    if len(seconds) > 1:
        sizes = np.log(list(seconds))
        exponent = np.polyfit(
            sizes, np.log([values[0] for values in seconds.values()]), 1
        )[0]
        console.print(
            f"clew's seconds grow as the number of sentences to the power {exponent:.2f}"
        )


def draw(n: int, seed: int) -> Draw:
    """Sentences to learn from and to test on, their labels, and the generator that hides some of them."""
    rng = np.random.default_rng(seed)
    return *sentences(n + N_TEST, rng), rng


def in_a_process(
    learner: str, fraction: float, drawn: Draw
) -> tuple[float, float, float, str, str]:
    """F1, CPU seconds, peak memory in MB, gap and passes of one fit."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (learner, fraction, drawn))


def measure(
    learner: str, fraction: float, drawn: Draw
) -> tuple[float, float, float, str, str]:
    """One fit, and its F1 on sentences that it has not seen."""
    texts, truth, rng = drawn
    n = len(texts) - N_TEST
    features = [token_features(tokens) for tokens in texts]
    labels: Sequence[Any] = (
        truth[:n] if fraction == 1 else hide(truth[:n], fraction, rng)
    )
    fits = {"clew": fit_clew, "clew CRF": fit_crf}
    fit = fits.get(learner, fit_crfsuite)
    predicted, cpu, gap, passes = fit(learner, features[:n], labels, features[n:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return entity_f1(truth[n:], predicted), cpu, peak, gap, passes


def fit_clew(
    _: str, features: list[Any], labels: Sequence[Any], test: list[Any]
) -> tuple[Any, float, str, str]:
    X, index = vectorise(features)
    X_test, _index = vectorise(test, index)
    algorithm = Algorithm(tol=TOL, eta=TOL)
    StructuredSVM(Chain(), lam=0.1, algorithm=algorithm).fit(
        X[:150], labels[:150]
    )  # compiles
    began = time.process_time()
    svm = StructuredSVM(Chain(), lam=1 / (C * len(X)), algorithm=algorithm).fit(
        X, labels
    )
    cpu = time.process_time() - began
    return (
        svm.predict(X_test),
        cpu,
        f"{svm.result_.gap:.2g}",
        f"{svm.result_.passes:.0f}",
    )


def fit_crf(
    _: str, features: list[Any], labels: Sequence[Any], test: list[Any]
) -> tuple[Any, float, str, str]:
    X, index = vectorise(features)
    X_test, _index = vectorise(test, index)
    StructuredCRF(Chain(), lam=0.1, tol=TOL).fit(X[:150], labels[:150])  # compiles
    began = time.process_time()
    crf = StructuredCRF(Chain(), lam=1 / (C_CRF * len(X)), tol=TOL).fit(X, labels)
    cpu = time.process_time() - began
    result = crf.result_
    return crf.predict(X_test), cpu, f"{result.gap:.2g}", f"{result.evaluations}"


def fit_crfsuite(
    learner: str, features: list[Any], labels: Sequence[Any], test: list[Any]
) -> tuple[Any, float, str, str]:
    import pycrfsuite

    trainer = pycrfsuite.Trainer(
        algorithm="lbfgs" if "bfgs" in learner else "ap", verbose=False
    )
    for sentence, marks in zip(features, labels, strict=True):
        for run in annotated_runs(marks):
            trainer.append([sentence[i] for i in run], [str(marks[i]) for i in run])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        began = time.process_time()
        trainer.train(path)
        cpu = time.process_time() - began
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        return [tagger.tag(sentence) for sentence in test], cpu, "", ""


def annotated_runs(labels: Sequence[Any]) -> list[list[int]]:
    """The positions of consecutive annotated tokens."""
    known = [i for i, label in enumerate(labels) if label is not None]
    return (
        [
            run.tolist()
            for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
        ]
        if known
        else []
    )


if __name__ == "__main__":
    main()
