"""Learned weights against those that they began with: never worse by more than noise, on any kind of cells.

    CLEW_DATA=… python benchmarks/never_worse.py [--kind rods …] [--draws 20] [--frames 12] [--setting few …]

For each kind and draw, weights are learned from 5 % of the events, from 25 events drawn at random (`few`), and from 25
answers to the questions that the page would ask (`asked`), and compared with the generic weights that all of them began
with, on the events that nobody annotated. Each line is a kind and a setting: missed events in percent with generic and
with learned weights, the difference over draws as mean ± standard deviation, and the worst draw. Its z is McNemar's:
events that only the learned weights miss, less those that only the generic ones miss, in standard deviations of what
chance would give; some draw of twenty is beyond 1.6 by chance alone.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kinds_movies import KINDS, REAL, Scene, open_kind
from numpy.typing import NDArray

from clew.annotation.learner import Learner
from clew.annotation.sampling import sample
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import Annotations
from clew.tracking.io.annotations import read_annotations
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.tracker import Tracker
from paper.simulated_annotator import annotate
from paper.strategies import DEFAULT

SETTINGS = ("random5", "few", "asked")
SHARE, NUMBER, AT_ONCE = 0.05, 25, 5
LEAST = 6
"""Events that are annotated at least, of short movies; λ is chosen by leaving out a third of them."""


@dataclass(frozen=True)
class Compared:
    """One draw: how many of the events that nobody annotated each of the two missed."""

    events: int
    generic: int
    learned: int
    only_learned: int
    """Events that the learned weights miss and the generic ones do not."""
    seconds: float

    @property
    def difference(self) -> float:
        """Missed with learned weights less missed with generic ones, in percent."""
        return 100 * (self.learned - self.generic) / max(self.events, 1)

    @property
    def z(self) -> float:
        """McNemar's statistic; positive where learning did harm."""
        only_generic = self.only_learned - (self.learned - self.generic)
        return (self.only_learned - only_generic) / max(
            np.sqrt(self.only_learned + only_generic), 1.0
        )


def missed(truth: Annotations, lineage: Lineage) -> NDArray[np.bool_]:
    """(n,) which true events a lineage lacks."""
    return ~np.isin(truth.events.row_keys(), lineage.events.row_keys())


def shortened(scene: Scene, frames: int, folder: Path) -> tuple[Scene, Annotations]:
    """The first frames of a movie, and what is true of them."""
    if frames >= scene.movie.n_frames:
        return scene, derive_annotations(scene.lineage, scene.movie)
    movie = scene.movie[:frames]
    known = read_annotations(Path(scene.lineage.source), movie)
    return Scene(
        movie,
        measure_movie(movie, cache=folder / "measured", n_jobs=1),
        scene.lineage[:frames],
    ), known


def learn(
    setting: str, scene: Scene, truth: Annotations, draw: int
) -> tuple[Tracker, Annotations]:
    """Weights from some annotations, and those."""
    if setting == "asked":
        learner = Learner(scene.source, tracker=Tracker.generic(n_jobs=1))
        for _ in annotate(
            learner, truth, DEFAULT, range(AT_ONCE, NUMBER + 1, AT_ONCE), draw, rounds=1
        ):
            pass
        return learner.make_tracker(), learner.annotations
    rng = np.random.default_rng([draw, 5])
    share = round(SHARE * len(truth)) if setting == "random5" else NUMBER
    given = sample(truth, rng=rng, number=int(np.clip(share, LEAST, len(truth) // 2)))
    return Tracker(n_jobs=1, random_state=draw).fit(scene.source, given), given


def compare(
    setting: str,
    scene: Scene,
    truth: Annotations,
    generic: NDArray[np.bool_],
    draw: int,
) -> Compared:
    """One draw."""
    began = time.process_time()
    tracker, given = learn(setting, scene, truth, draw)
    seconds = time.process_time() - began
    others = ~np.isin(truth.events.row_keys(), given.events.row_keys())
    learned = missed(truth, tracker.track(scene.source))[others]
    before = generic[others]
    return Compared(
        int(others.sum()),
        int(before.sum()),
        int(learned.sum()),
        int((learned & ~before).sum()),
        seconds,
    )


def told(found: list[Compared]) -> str:
    """A line of figures."""
    differences = np.array([one.difference for one in found])
    generic, learned = (
        100 * np.mean([getattr(one, name) / max(one.events, 1) for one in found])
        for name in ("generic", "learned")
    )
    worst = max(found, key=lambda one: one.z)
    return (
        f"generic {generic:.2f} %, learned {learned:.2f} %, difference {differences.mean():+.3f} ± "
        f"{differences.std():.3f}, worst draw {differences.max():+.2f} (z {worst.z:+.1f}); better in "
        f"{(differences < 0).sum()}, worse in {(differences > 0).sum()} of {len(found)} draws, "
        f"{np.mean([one.seconds for one in found]):.1f} CPU s a fit"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", nargs="+", default=[*KINDS], choices=KINDS)
    parser.add_argument("--setting", nargs="+", default=[*SETTINGS], choices=SETTINGS)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument(
        "--movies",
        type=int,
        default=4,
        help="simulated movies of a kind, for all draws",
    )
    parser.add_argument(
        "--frames", type=int, default=10**9, help="of each movie, from the first"
    )
    parser.add_argument("--folder", type=Path, default=Path("results/kinds/movies"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    every: list[Compared] = []
    for kind in options.kind:
        found: dict[str, list[Compared]] = {setting: [] for setting in options.setting}
        for movie in range(1 if kind in REAL else min(options.movies, options.draws)):
            scene, truth = shortened(
                open_kind(kind, movie, options.folder), options.frames, options.folder
            )
            generic = missed(truth, Tracker.generic(n_jobs=1).track(scene.source))
            for draw in range(options.draws)[
                movie :: 1 if kind in REAL else options.movies
            ]:
                for setting in options.setting:
                    found[setting].append(compare(setting, scene, truth, generic, draw))
        for setting, draws in found.items():
            print(f"{kind}, {setting}: {told(draws)}", flush=True)
            every += draws
    print(f"all: {told(every)}")


if __name__ == "__main__":
    main()
