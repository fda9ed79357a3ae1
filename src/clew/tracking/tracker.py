"""Tracker: learns what events look like from a few annotated ones, and tracks whole movies."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

from clew.errors import DataWarning, InputError
from clew.learning.cccp import Algorithm
from clew.learning.losses import Loss
from clew.learning.model_update import Regulariser
from clew.learning.result import Result
from clew.learning.task import Array
from clew.parallel import Executor, ThreadExecutor, make_executor
from clew.tracking.annotations import check_annotations
from clew.tracking.blocks.plan import PAIRS, block_length, sizes
from clew.tracking.blocks.track import Problems, TrackedBlocks, track_problems
from clew.tracking.candidates.candidates import NEIGHBOURS
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import GROUPS, OVERLAP, Source
from clew.tracking.events import Annotations, Event
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie
from clew.tracking.profiling.coverage import Coverage, look_for
from clew.tracking.profiling.domain import Domain, look_at, look_over
from clew.tracking.profiling.event_kinds import EventKinds, decide_events, parse_events
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.examples import (
    MODEL,
    TrainingExample,
    held_out_folds,
    improves,
    lambdas,
    training_examples,
    with_starts,
)
from clew.tracking.training.gap_training import gap_examples
from clew.tracking.training.prior import (
    first_weights,
    generic_weights,
    joined,
    prior_calibration,
    prior_direction,
    weights_by_name,
)
from clew.tracking.training.pseudo_labels import PseudoLabels, with_all
from clew.tracking.training.recalibration import GENERIC, recalibrate
from clew.utils.parameters import Parametrized, check_fitted
from clew.utils.progress import ProgressBar
from clew.utils.validation import check_int, check_path, short_repr

AnyMovie = Movie | Source | str | Path


class Origin(StrEnum):
    """Where the weights of a tracker come from."""

    GENERIC = "generic"
    """They came with clew, learned from simulated movies."""
    LEARNED = "learned"
    """`Tracker.fit` learned them from annotated events."""
    ADAPTED = "adapted"
    """Learned on the annotation page, from answers and from pseudo-labels of the weights that it began with."""

    def describe(self, n_annotated: int, n_pairs: int) -> str:
        """In words, for reports."""
        if self is Origin.GENERIC:
            return "simulated movies (the generic weights that come with clew)"
        where = "" if self is Origin.LEARNED else ", adapted on the annotation page"
        return f"{n_annotated} annotated events in {n_pairs} frame pairs{where}"


class Tracker(Parametrized):
    """Tracking by assignment, with weights that are learned from partial annotations (section 5 of the paper).

    Args:
        neighbours: how many cells of the next frame each cell is compared with.
        reach: how far a cell may move from one frame to the next, in physical units; None estimates it from the movie.
        events: the kinds of events that can happen, by name, as in "move divide"; "auto" decides for each movie whether
            its masks have splits and merges (`model.event_kinds`). Annotated events are always possible.
        prior: weights to begin with: "generic" (learned from simulated movies, they come with clew), those of another
            fitted `Tracker`, or None. Their score is one more feature of each event, so that few annotations go a
            long way.
        loss: of the learner, as are `lam`, `regulariser` and `algorithm`; see `StructuredSVM`.
        cache: where measurements of the cells are kept: "auto" (next to the movie), a folder, or None for nowhere.
        n_jobs: processes for measuring, threads for learning and tracking; -1 for all cores.
        verbose: show progress.
        random_state: seed of the folds by which λ is chosen.

    After `fit`: `coef_` (the weights), `feature_names_`, `svm_` (the learner), `result_` (its certificate), `lam_`,
    `n_annotated_`, how many events it learned from, `events_`, of which kinds those were, and `origin_`, where the
    weights come from. `improved_` says whether learning made fewer mistakes on held-out annotations than the prior, or
    as many; else `coef_` are the prior's weights. `domain_` is what cells and moves looked like, and `unfamiliar_` says
    in what the last movie was outside of it (empty if in nothing). `event_kinds_` is what was decided about the kinds
    of events of the last movie, `learned_kinds_` of each movie that was learned from, and `coverage_` the share of
    annotated and plausible events among the candidates of the last movie, or of all that were learned from.
    """

    events_: frozenset[Event]
    event_kinds_: EventKinds
    learned_kinds_: list[EventKinds]
    calibration_: Calibration
    coverage_: Coverage
    domain_: Domain
    unfamiliar_: str

    def __init__(
        self,
        *,
        neighbours: int = NEIGHBOURS,
        reach: float | None = None,
        events: str | Iterable[str | Event] = "auto",
        prior: Tracker | Literal["generic"] | None = "generic",
        loss: str | Loss = "bridge",
        lam: float | str | Sequence[float] = "auto",
        regulariser: Regulariser = "l2",
        algorithm: str | Algorithm = "clew",
        cache: Literal["auto"] | str | Path | None = "auto",
        n_jobs: int | None = -1,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.neighbours = neighbours
        self.reach = reach
        self.events = events
        self.prior = prior
        self.loss = loss
        self.lam = lam
        self.regulariser = regulariser
        self.algorithm = algorithm
        self.cache = cache
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        movie: Any,
        annotations: Any,
        *,
        warm_start: Result | None = None,
        client: Any = None,
    ) -> Self:
        """Learn from annotated events of a movie, or of several: then both are lists, one entry a movie.

        Only frame pairs that carry an annotation take part; each is one example (a programme). `warm_start` is the
        `result_` of an earlier fit, whose bounds serve again where a pair's annotations are the same. `client` is a
        Dask client, on whose workers cells are measured and frame pairs are solved.
        """
        from clew.estimators.svm import (
            StructuredSVM,
        )  # scikit-learn's, which loads slowly: only to learn

        movies, given = _as_lists(movie, annotations)
        executor = make_executor(client, self.n_jobs)
        sources = [self.measure(one, executor) for one in movies]
        groups = frozenset.intersection(*(source.has for source in sources))
        prior = prior_direction(self.prior, feature_names(groups))
        examples: list[list[TrainingExample]] = []
        gaps: list[TrainingExample] = []
        covered: list[Coverage] = []
        kinds: list[EventKinds] = []
        given = [
            _checked(table, source)
            for source, table in zip(sources, given, strict=True)
        ]
        n_annotated = sum(map(len, given))
        for source, checked in zip(sources, given, strict=True):
            pairs = self._training_pairs(source, groups, checked, prior, executor)
            kinds.append(self.event_kinds_)
            covered.append(look_for(pairs, checked, executor.map))
            pseudo = self._pseudo_labels(pairs, prior, n_annotated, executor)
            examples.append(training_examples(pairs, checked, prior, pseudo))
            gaps += gap_examples(examples[-1], checked, prior)
        every, self.coverage_ = [*chain(*examples), *gaps], Coverage.sum(covered)
        self.svm_ = StructuredSVM(
            MODEL,
            loss=self.loss,
            lam=lambdas(self.lam, len(every), prior),
            regulariser=self.regulariser,
            algorithm=with_starts(self.algorithm)
            if warm_start is None
            else self.algorithm,
            start=first_weights(prior) if warm_start is None else "auto",
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            random_state=self.random_state,
        )
        programs, annotated = (
            [one.program for one in every],
            [one.annotated for one in every],
        )
        self.svm_.fit(
            programs,
            annotated,
            warm_start=warm_start,
            client=getattr(executor, "client", None),
            pseudo_labels=with_all,
        )
        self.groups_, self.feature_names_ = groups, feature_names(groups)
        self.improved_ = prior is None or improves(self.svm_, every, prior)
        self.coef_ = joined(
            self.svm_.coef_ if self.improved_ else first_weights(prior), prior
        )
        self.result_, self.lam_ = self.svm_.result_, self.svm_.lam_
        self.n_annotated_ = n_annotated
        self.n_pairs_, self.origin_ = len(every) - len(gaps), Origin.LEARNED
        self.events_, self.learned_kinds_ = (
            frozenset().union(*(table.happened_kinds() for table in given)),
            kinds,
        )
        self.calibration_ = self._calibrated(list(chain(*examples)), prior)
        self.domain_ = Domain.of(
            look_over([one.pair for one in some], self.coef_, groups)
            for some in examples
        )
        return self

    def _calibrated(
        self, examples: Sequence[TrainingExample], prior: Array | None
    ) -> Calibration:
        """How likely what was learned predicts is right; the prior's weights have not seen any annotation."""
        used = [one for one in examples if one.annotated]
        pairs = [one.pair for one in used]
        if not self.improved_:
            unseen = [(self.coef_, [one.annotated for one in used])]
            return recalibrate(
                pairs, self.coef_, unseen, prior_calibration(self.prior), GENERIC
            )
        folds = [
            (w, parts[: len(pairs)]) for w, parts in held_out_folds(self.svm_, prior)
        ]  # gaps come after the pairs
        return recalibrate(pairs, self.coef_, folds, GENERIC_CALIBRATION)

    def track(
        self,
        movie: AnyMovie,
        *,
        annotations: Annotations | None = None,
        client: Any = None,
    ) -> Lineage:
        """Track a whole movie; `annotations` of it are kept to, whatever the weights say.

        It is solved in blocks of frames, in threads or on the workers of `client`, a Dask client: with the same result.
        Memory holds a few frames, and for each detection a row of the lineage; `track_blocks` holds less.
        """
        executor = make_executor(client, self.n_jobs)
        work = self._problems(movie, annotations, executor)
        return track_problems(work, executor, self.verbose)

    def track_blocks(
        self,
        movie: AnyMovie,
        output: str | Path,
        *,
        annotations: Annotations | None = None,
        client: Any = None,
        memory: int | None = None,
    ) -> TrackedBlocks:
        """Track a movie of which nothing the size of it is ever in one process, with the same result as `track`.

        Solved blocks of frames are kept in a hidden folder within `output`, so that the same call goes on after it was
        cut short; `formats.results.write_blocks` makes results of them. `memory` is what a worker has, in bytes.
        """
        folder = check_path(output, "output")
        memory = None if memory is None else check_int(memory, "memory", 1)
        executor = make_executor(client, self.n_jobs)
        work = self._problems(movie, annotations, executor, memory)
        return TrackedBlocks.of(
            work, executor, Checkpoints.for_output(folder), self.verbose
        )

    def _problems(
        self,
        movie: AnyMovie,
        annotations: Annotations | None,
        executor: Executor,
        memory: int | None = None,
    ) -> Problems:
        """The blocks of a movie, ready to be solved."""
        check_fitted(self, "coef_")
        source = self.measure(movie, executor)
        groups = self.groups_for(source)
        w = weights_by_name(self, feature_names(groups))
        if annotations is not None:
            annotations = _checked(annotations, source)
        pairs = self.pairs(source, groups, annotations, executor)
        self.coverage_ = look_for(pairs, annotations, executor.map)
        self.unfamiliar_ = self.domain_.warning(
            look_at(pairs, w, executor.map), source.name
        )
        if self.unfamiliar_:
            warnings.warn(self.unfamiliar_, DataWarning, stacklevel=3)
        length = PAIRS if memory is None else block_length(memory, *sizes(source))
        return Problems(pairs, w, annotations, length, self.calibration_)

    @classmethod
    def generic(cls, **parameters: Any) -> Self:
        """A tracker that needs no annotation: its weights were learned from simulated movies, and come with clew.

        Where a movie has no images, the weights for intensities drop out.
        """
        tracker = cls(**parameters)
        tracker.groups_ = frozenset({*GROUPS, OVERLAP})
        tracker.feature_names_ = feature_names(tracker.groups_)
        tracker.coef_ = generic_weights(tracker.feature_names_)
        tracker.n_annotated_, tracker.n_pairs_, tracker.origin_ = 0, 0, Origin.GENERIC
        tracker.events_, tracker.domain_ = frozenset(), Domain.generic()
        tracker.calibration_ = GENERIC_CALIBRATION
        return tracker

    def measure(self, movie: AnyMovie, executor: Executor | None = None) -> Source:
        """The detections of a movie, measured once and kept in the cache; by an executor, or in `n_jobs` threads."""
        if isinstance(movie, str | Path):
            movie = open_movie(movie)
        if not isinstance(movie, Movie):
            lacking = [
                name
                for name in ("detections", "overlap", "n_frames", "ndim", "has")
                if not hasattr(movie, name)
            ]
            if lacking or isinstance(movie, type):
                raise InputError(
                    f"movie is {short_repr(movie)}; expected a Movie, a DetectionTable or a path"
                )
            return movie
        with ProgressBar(f"measuring {movie.name}", self.verbose) as progress:
            return measure_movie(
                movie,
                cache=self.cache,
                n_jobs=self.n_jobs,
                progress=progress,
                executor=executor,
            )

    def pairs(
        self,
        source: Source,
        groups: frozenset[str],
        annotations: Annotations | None = None,
        executor: Executor | None = None,
    ) -> Pairs:
        """The frame pairs of a movie with their candidates and features, of the kinds of events that it has.

        Kinds that were learned from, or that are annotated in this movie, are kinds that it has.
        """
        known = (
            self.events_
            if annotations is None
            else self.events_ | annotations.happened_kinds()
        )
        w = weights_by_name(self, feature_names(groups))
        return self._pairs(
            source, groups, w, known, executor or ThreadExecutor(self.n_jobs)
        )

    def _training_pairs(
        self,
        source: Source,
        groups: frozenset[str],
        annotations: Annotations,
        prior: Array | None,
        executor: Executor | None = None,
    ) -> Pairs:
        """The frame pairs to learn from; the prior's weights look for kinds that nobody annotated."""
        return self._pairs(
            source,
            groups,
            prior,
            annotations.happened_kinds(),
            executor or ThreadExecutor(self.n_jobs),
        )

    def _pseudo_labels(
        self, pairs: Pairs, prior: Array | None, n_annotated: int, executor: Executor
    ) -> PseudoLabels | None:
        """What the prior is almost certain about in a movie."""
        if prior is None:
            return None
        return PseudoLabels.of(
            pairs, prior, prior_calibration(self.prior), n_annotated, executor.map
        )

    def _pairs(
        self,
        source: Source,
        groups: frozenset[str],
        w: Array | None,
        known: frozenset[Event],
        executor: Executor,
    ) -> Pairs:
        """The frame pairs of a movie; weights `w` look for kinds of events that are not `known` to happen in it."""
        pairs = Pairs.of(
            source,
            groups,
            neighbours=self.neighbours,
            reach=self.reach,
            over=executor.map,
        )
        given = parse_events(self.events)
        if given is not None:
            self.event_kinds_ = EventKinds(given | known, "as asked for")
            return replace(pairs, events=self.event_kinds_.events)
        self.event_kinds_ = decide_events(pairs, w, known, executor.map)
        return replace(pairs, events=self.event_kinds_.events)

    def save(self, path: str | Path) -> None:
        """Write the learned weights with all that `track` needs to one file; `clew.load` reads it."""
        from clew.tracking import persistence as archive

        archive.save(self, path)

    def groups_for(self, source: Source) -> frozenset[str]:
        """The groups of measurements to score a movie's events by; one that lacks what was learned is refused.

        Generic weights were learned for movies in general, so that those for what a movie lacks just drop out.
        """
        missing = [
            name
            for name in self.feature_names_
            if name not in set(feature_names(source.has))
        ]
        if missing and self.origin_ is not Origin.GENERIC:
            lacking = ", ".join(sorted(self.groups_ - source.has))
            raise InputError(
                f"{source.name} has no measurements of {lacking}, which {len(missing)} of the learned weights are for "
                f"(the first is {missing[0]!r}); give the movie's images, or learn weights without them"
            )
        return self.groups_ & source.has


def _as_lists(movie: Any, annotations: Any) -> tuple[list[Any], list[Annotations]]:
    """One movie and its annotations, or lists of both, as lists."""
    if not isinstance(movie, list | tuple):
        movie, annotations = [movie], [annotations]
    if len(movie) != len(annotations) or not len(movie):
        raise InputError(
            f"there are {len(movie)} movies and annotations of {len(annotations)}; expected as many"
        )
    for table in annotations:
        if not isinstance(table, Annotations):
            raise InputError(
                f"annotations is a {type(table).__name__}; expected a clew.tracking Annotations table"
            )
    if not sum(len(table) for table in annotations):
        raise InputError(
            "nothing is annotated; at least a few events are needed to learn from"
        )
    return list(movie), list(annotations)


def _checked(annotations: Annotations, source: Source) -> Annotations:
    """Annotations whose cells are in the movie and that do not contradict each other, each once."""
    if not isinstance(annotations, Annotations):
        raise InputError(
            f"annotations is {short_repr(annotations)}; expected a clew.tracking Annotations table"
        )
    return check_annotations(
        annotations,
        lambda t: source.detections(t).label,
        source.n_frames,
        f"annotations of {source.name}",
    )
