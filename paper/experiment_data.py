"""Data of the experiments: two movies, frame pairs, draws of annotations, the test."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clew.annotation.sampling import sample
from clew.errors import InputError
from clew.learning.task import Array
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import Program
from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import MARKER, write_simulation
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.events import Annotations
from clew.tracking.profile import estimate_profile
from clew.tracking.training.examples import TrainingExample, build_examples
from paper.dataset import Dataset, Examiner, open_dataset

MODEL = BinaryProgram(normalize=True)
"""Δ is the fraction of annotated events that are missed, as in the paper."""

SIMULATED = {
    "train": NucleiSettings(
        frames=46,
        cells=45,
        density=0.10,
        speed=3.0,
        brightness=900.0,
        cycle=45.0,
        seed=101,
    ),
    "test": NucleiSettings(
        frames=46,
        cells=60,
        density=0.17,
        speed=4.5,
        brightness=500.0,
        cycle=45.0,
        merging=0.7,
        seed=202,
    ),
}
"""Two laboratories: the second has denser, faster and dimmer cells."""
TIE_BREAK = 1e-4
"""Size of the weights that stand for w = 0, see `draw_start_near_zero`."""
QUICK = {
    "train": NucleiSettings(
        frames=22,
        cells=30,
        density=0.10,
        speed=3.0,
        brightness=900.0,
        cycle=30.0,
        seed=101,
    ),
    "test": NucleiSettings(
        frames=22,
        cells=40,
        density=0.17,
        speed=4.5,
        brightness=500.0,
        cycle=30.0,
        merging=0.7,
        seed=202,
    ),
}


@dataclass(frozen=True)
class Setup:
    """Movies and sizes; the same setup gives the same results, except times."""

    train: str
    """A sequence folder, or frames of one (…/01[0:60])."""
    test: str
    cache: str
    """The folder for measurements."""
    pairs: int = 20
    """Frame pairs to learn from."""
    seed: int = 0
    lam: float = 1.0
    """λ, as in the paper."""
    simulated: dict[str, Any] = field(default_factory=dict)
    """Settings of the simulated movies."""

    def as_dict(self) -> dict[str, Any]:
        """What results depend on."""
        return {name: value for name, value in asdict(self).items() if name != "cache"}


def simulate_movies(
    folder: Path, settings: dict[str, NucleiSettings], progress: Any = None
) -> tuple[str, str]:
    """Simulate a training and a test movie, and return their addresses."""
    addresses = []
    for name, wanted in settings.items():
        home = folder / f"{name}-{wanted.frames}x{wanted.cells}-{wanted.seed}"
        if not (home / f"01{MARKER}").is_file():
            home.mkdir(parents=True, exist_ok=True)
            write_simulation(home, wanted, progress=progress)
        addresses.append(str(home / "01"))
    return addresses[0], addresses[1]


class ExperimentData:
    """The two movies of a setup, opened when they are first needed."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @cached_property
    def train(self) -> Dataset:
        """The movie to learn from."""
        return open_dataset(self.setup.train, Path(self.setup.cache))

    @cached_property
    def test(self) -> Dataset:
        """The movie to be tested on."""
        return open_dataset(self.setup.test, Path(self.setup.cache))

    @cached_property
    def groups(self) -> frozenset[str]:
        """The measurements that both movies have."""
        return self.train.source.has & self.test.source.has

    @cached_property
    def frames(self) -> list[int]:
        """The frame pairs to learn from, drawn at random."""
        known = np.unique(self.train.truth.events.frame)
        if len(known) < self.setup.pairs:
            raise InputError(
                f"{self.train.name} has {len(known)} frame pairs with true events; {self.setup.pairs} are needed"
            )
        chosen = np.random.default_rng(self.setup.seed).choice(
            known, self.setup.pairs, replace=False
        )
        return np.sort(chosen).tolist()  # type: ignore[no-any-return]

    @cached_property
    def all_examples(self) -> list[TrainingExample]:
        """The frame pairs with full annotation."""
        return build_examples(
            FramePairBuilder(
                self.train.source, estimate_profile(self.train.source, self.groups)
            ),
            self.full,
        )

    @property
    def programs(self) -> list[Program]:
        """The inputs to learn from: one 0/1 program for each frame pair."""
        return [example.program for example in self.all_examples]

    @cached_property
    def full(self) -> Annotations:
        """All true events of these frame pairs: full annotation."""
        return self.train.truth[np.isin(self.train.truth.events.frame, self.frames)]

    @cached_property
    def examiner(self) -> Examiner:
        """The test."""
        return Examiner(self.test, self.groups)

    def draw(self, fraction: float, number: int) -> Annotations:
        """A stratified draw of the full annotation."""
        rng = np.random.default_rng([self.setup.seed, number, round(1e6 * fraction)])
        return sample(self.full, fraction, rng)

    def examples(
        self, annotations: Annotations
    ) -> tuple[Sequence[Program], Sequence[dict[int, int]]]:
        """Return inputs and annotations of the annotated frame pairs."""
        programs, labels = [], []
        for example in self.all_examples:
            of_pair = annotations.select_frame(example.pair.a.frame)
            annotated = example.pair.find_annotated(of_pair)
            if annotated:
                programs.append(example.program)
                labels.append(annotated)
        return programs, labels


def draw_start_near_zero(n_features: int, draw: int) -> Array:
    """Draw weights so close to zero that they only break ties.

    At w = 0 all outputs tie, and CCCP follows the one that the solver happens to
    return. Here chance chooses, and every exact solver finds the same output.
    """
    rng = np.random.default_rng(draw)
    return TIE_BREAK * rng.standard_normal(n_features)


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """Measure the processor time of a block, as the only entry of a list."""
    spent: list[float] = []
    began = time.process_time()
    yield spent
    spent.append(time.process_time() - began)
