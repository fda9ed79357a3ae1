"""Tracker: learns from a few annotated events, and tracks whole movies."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from clew.errors import DataWarning, InputError
from clew.learning.task import Array
from clew.parallel import Executor, ThreadExecutor, make_executor
from clew.tracking.blocks import (
    PAIRS_PER_BLOCK,
    MovieProblem,
    StoredLineage,
    block_length,
    frame_size,
    solve_movie,
)
from clew.tracking.candidates.candidates import NEIGHBOURS
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import GROUPS, OVERLAP, Source
from clew.tracking.events import (
    FALSE_DETECTIONS,
    Annotations,
    Event,
    check_annotations,
)
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.lineage.gaps import LONGEST_GAP
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.measurement.label_faults import NO_FAULTS, LabelFaults
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie, open_movie
from clew.tracking.profile import (
    EventKinds,
    MovieProfile,
    TrainingRange,
    appearance_of_pairs,
    decide_events,
    describe_groups,
    estimate_profile,
    find_informative_groups,
    parse_events,
)
from clew.tracking.training.calibration import GENERIC_CALIBRATION, Calibration
from clew.tracking.training.generic_weights import (
    GENERIC_SETS,
    find_generic_set,
    generic_weights,
    weights_by_name,
)
from clew.tracking.training.prior import scale_prior
from clew.tracking.user_columns import (
    Standard,
    add_user_columns,
    get_user_columns,
    is_user_group,
    measure_standards,
)
from clew.utils.parameters import Parametrized, check_fitted
from clew.utils.progress import ProgressBar
from clew.utils.validation import check_bool, check_int, check_path, short_repr

if TYPE_CHECKING:
    from clew.learning.algorithm import Algorithm
    from clew.learning.losses import Loss
    from clew.learning.model_update import Regulariser
    from clew.learning.result import Result

AnyMovie = Movie | Source | str | Path
SOURCE_METHODS = ("detections", "overlap", "n_frames", "ndim", "has")


class Origin(StrEnum):
    """Where the weights of a tracker come from."""

    GENERIC = "generic"
    """They came with clew, learned from simulated movies."""
    LEARNED = "learned"
    """`Tracker.fit` learned them from annotated events."""
    ADAPTED = "adapted"
    """Learned on the annotation page, from answers and pseudo-labels."""

    def describe(self, n_annotated: int, n_pairs: int) -> str:
        """Return a description for reports."""
        if self is Origin.GENERIC:
            return "simulated movies (the generic weights that come with clew)"
        where = "" if self is Origin.LEARNED else ", adapted on the annotation page"
        return f"{n_annotated} annotated events in {n_pairs} frame pairs{where}"


@dataclass(frozen=True)
class Coverage:
    """How many annotated events are candidates by themselves."""

    n_annotated: int = 0
    n_added: int = 0
    """Annotated events that had to be added to the candidates."""

    def __str__(self) -> str:
        if not self.n_annotated:
            return "candidates: no event is annotated"
        if not self.n_added:
            return f"candidates: all of {self.n_annotated:,} annotated events"
        found = self.n_annotated - self.n_added
        return (
            f"candidates: {found:,} of {self.n_annotated:,} annotated events "
            f"({self.n_added:,} added)"
        )


class Tracker(Parametrized):
    """Tracking by assignment, with weights that are learned from partial annotations.

    See section 5 of the paper.

    Parameters
    ----------
    neighbours : int
        Cells of the next frame that each cell is compared with.
    reach : float, optional
        How far a cell may move from one frame to the next, in physical units; estimated
        from the movie unless given.
    events : str or iterable of str
        The kinds of events that can happen, as in "move divide"; "auto" decides for
        each movie whether its masks have splits and merges. Annotated events are
        always possible.
    max_gap : int, optional
        Frames that a cell may be missing from the masks within its track; 32 unless
        given. 0 closes no gaps.
    fill : bool
        Whether cells that are missing within tracks, and where images show them at
        their ends, are recovered, with a mask. They have the column "recovered".
        Without, gaps of one frame are events, and longer
        ones stay open.
    prior : "generic", Tracker or None
        Weights to start from: those that come with clew, those of a fitted tracker, or
        none. Their score is one more feature of each event.
    loss, lam, regulariser, algorithm
        Of the learner, see `StructuredSVM`.
    cache : "auto", path or None
        Where measurements are stored: next to the movie, in a folder, or nowhere.
    n_jobs : int
        Processes for measuring, threads for learning and tracking; −1 for all cores.
    verbose : bool
        Show progress.
    random_state : int
        Seed of the folds by which λ is chosen.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        The weights.
    feature_names_ : list of str
    svm_ : StructuredSVM
        The learner.
    result_ : Result
        Its certificate.
    lam_ : float
    n_annotated_ : int
        Events that were learned from.
    events_ : frozenset of Event
        Their kinds.
    origin_ : Origin
        Where the weights come from.
    improved_ : bool
        Whether learning made fewer mistakes on held-out annotations than the prior;
        otherwise `coef_` are the prior's weights.
    domain_ : TrainingRange
        The range of the training data.
    unfamiliar_ : str
        How the last movie is outside of it; empty if it is not.
    label_faults_ : LabelFaults
        What is odd about the labels of the last movie.
    event_kinds_ : EventKinds
        Kinds of events of the last movie.
    measurements_ : str
        Measurements that the last movie was tracked by, in words.
    learned_kinds_ : list of EventKinds
        Kinds of events of each movie that was learned from.
    standards_ : dict of Standard
        Mean and deviation of each column of the user, by group.
    coverage_ : Coverage
        Annotated events among the candidates of the last movie, or of all movies that
        were learned from.
    """

    events_: frozenset[Event]
    event_kinds_: EventKinds
    measurements_: str
    learned_kinds_: list[EventKinds]
    calibration_: Calibration
    coverage_: Coverage
    domain_: TrainingRange
    unfamiliar_: str
    label_faults_: LabelFaults
    standards_: dict[str, Standard]

    def __init__(
        self,
        *,
        neighbours: int = NEIGHBOURS,
        reach: float | None = None,
        events: str | Iterable[str | Event] = "auto",
        max_gap: int | None = None,
        fill: bool = True,
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
        self.max_gap = max_gap
        self.fill = fill
        self.prior = prior
        self.loss = loss
        self.lam = lam
        self.regulariser = regulariser
        self.algorithm = algorithm
        self.cache = cache
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def generic(cls, **parameters: Any) -> Self:
        """Return a tracker with the weights that come with clew.

        There are several sets of them: for points and for masks, each with and without
        intensities, for points in 3D, and for masks that tile the field. A movie takes
        the largest one whose measurements it has.
        """
        tracker = cls(**parameters)
        tracker.groups_ = frozenset({*GROUPS, OVERLAP})
        tracker.feature_names_ = feature_names(tracker.groups_)
        tracker.coef_ = generic_weights(tracker.feature_names_)
        tracker.n_annotated_ = 0
        tracker.n_pairs_ = 0
        tracker.origin_ = Origin.GENERIC
        tracker.events_ = frozenset()
        tracker.domain_ = TrainingRange.generic()
        tracker.calibration_ = GENERIC_CALIBRATION
        tracker.standards_ = {}
        return tracker

    def fit(
        self,
        movie: Any,
        annotations: Any,
        *,
        warm_start: Result | None = None,
        client: Any = None,
    ) -> Self:
        """Learn from annotated events.

        Only annotated frame pairs are used; each is one example.

        Parameters
        ----------
        movie : Movie, Source or path, or a list of them
        annotations : Annotations, or a list of them
            One for each movie.
        warm_start : Result, optional
            `result_` of an earlier fit, whose bounds are reused where the annotations
            of a frame pair are the same.
        client : dask.distributed.Client, optional
            Its workers measure cells and solve frame pairs.

        Returns
        -------
        Tracker
        """
        # scikit-learn and the models load slowly: only to learn.
        from clew.tracking.training.examples import build_examples
        from clew.tracking.training.weights import learn_weights

        movies, tables = _as_lists(movie, annotations)
        executor = make_executor(client, self.n_jobs)
        sources = [self.measure(item, executor) for item in movies]
        groups = _find_common_groups(sources)
        if any(table.events.is_false.any() for table in tables):
            groups = groups | {FALSE_DETECTIONS}
        known = self.prior.standards_ if isinstance(self.prior, Tracker) else {}
        self.standards_ = measure_standards(sources, groups) | known
        names = feature_names(groups)
        profiles = [self._profile(source, groups, executor) for source in sources]
        sets = {profile.generic_set for profile in profiles}
        prior = scale_prior(
            self.prior, names, generic_set=sets.pop() if len(sets) == 1 else None
        )
        tables = [
            _check_movie_annotations(table, source)
            for table, source in zip(tables, sources, strict=True)
        ]
        by_movie = []
        learned_kinds = []
        for source, profile, table in zip(sources, profiles, tables, strict=True):
            builder = self._build_pairs(
                source, profile, prior, table.happened_kinds(), executor
            )
            learned_kinds.append(self.event_kinds_)
            by_movie.append(build_examples(builder, table))
        examples = [example for examples in by_movie for example in examples]
        learned = learn_weights(
            self, examples, names, prior, warm_start, getattr(executor, "client", None)
        )
        self.svm_ = learned.svm
        self.groups_ = groups
        self.feature_names_ = names
        self.improved_ = learned.improved
        self.coef_ = learned.coef
        self.calibration_ = learned.calibration
        self.result_ = self.svm_.result_
        self.lam_ = self.svm_.lam_
        self.origin_ = Origin.LEARNED
        self.n_annotated_ = sum(map(len, tables))
        self.n_pairs_ = len(examples)
        self.events_ = frozenset().union(*(table.happened_kinds() for table in tables))
        self.learned_kinds_ = learned_kinds
        self.coverage_ = Coverage(
            self.n_annotated_, sum(example.pair.n_added for example in examples)
        )
        self.domain_ = TrainingRange.of(
            appearance_of_pairs([example.pair for example in examples], self.coef_)
            for examples in by_movie
        )
        return self

    def track(
        self,
        movie: AnyMovie,
        *,
        annotations: Annotations | None = None,
        client: Any = None,
    ) -> Lineage:
        """Track a movie.

        Parameters
        ----------
        movie : Movie, Source or path
        annotations : Annotations, optional
            The lineage agrees with them.
        client : dask.distributed.Client, optional
            Its workers solve blocks of frames, with the same result.

        Returns
        -------
        Lineage
        """
        executor = make_executor(client, self.n_jobs)
        problem = self._movie_problem(movie, annotations, executor)
        return solve_movie(problem, executor, self.verbose)

    def track_blocks(
        self,
        movie: AnyMovie,
        output: str | Path,
        *,
        annotations: Annotations | None = None,
        client: Any = None,
        memory: int | None = None,
    ) -> StoredLineage:
        """Track a movie that does not fit into memory, with the same result as `track`.

        Solved blocks of frames are stored in a hidden folder within `output`, so that
        the same call continues an interrupted run; `write_results` writes the results.

        Parameters
        ----------
        movie, annotations, client
            See `track`.
        output : path
        memory : int, optional
            Bytes that a worker has.

        Returns
        -------
        StoredLineage
        """
        folder = check_path(output, "output")
        memory = None if memory is None else check_int(memory, "memory", 1)
        executor = make_executor(client, self.n_jobs)
        problem = self._movie_problem(movie, annotations, executor, memory)
        checkpoints = Checkpoints.for_output(folder)
        lineage = StoredLineage.of(problem, executor, checkpoints, self.verbose)
        if annotations is not None:
            self.coverage_ = Coverage(len(annotations), lineage.n_added)
        return lineage

    def _movie_problem(
        self,
        movie: AnyMovie,
        annotations: Annotations | None,
        executor: Executor,
        memory: int | None = None,
    ) -> MovieProblem:
        """Measure and profile a movie, ready to be solved."""
        check_fitted(self, "coef_")
        source = self.measure(movie, executor)
        groups = self.groups_for(source)
        if annotations is not None:
            annotations = _check_movie_annotations(annotations, source)
        builder = self.pairs(source, groups, annotations, executor)
        profile = builder.profile
        self.measurements_ = describe_groups(groups, profile.generic_set, source)
        self.coverage_ = Coverage()
        self.label_faults_ = getattr(source, "label_faults", NO_FAULTS)
        self.unfamiliar_ = self.domain_.warning(profile.medians, source.name)
        if self.unfamiliar_:
            warnings.warn(self.unfamiliar_, DataWarning, stacklevel=3)
        length = PAIRS_PER_BLOCK
        if memory is not None:
            length = block_length(memory, *frame_size(source))
        w = self.weights_for(profile)
        max_gap = self.max_gap
        if max_gap is not None:
            max_gap = check_int(max_gap, "max_gap", 0, LONGEST_GAP)
        fill = check_bool(self.fill, "fill")
        return MovieProblem(
            builder, w, annotations, length, self.calibration_, max_gap, fill
        )

    def measure(self, movie: AnyMovie, executor: Executor | None = None) -> Source:
        """Measure the cells of a movie, unless the cache has them."""
        if isinstance(movie, str | Path):
            movie = open_movie(movie)
        if not isinstance(movie, Movie):
            is_source = all(hasattr(movie, name) for name in SOURCE_METHODS)
            if not is_source or isinstance(movie, type):
                raise InputError(
                    f"movie is {short_repr(movie)}; expected a Movie, a DetectionTable "
                    "or a path"
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
    ) -> FramePairBuilder:
        """Profile a movie, and return a builder of its frame pairs.

        Kinds of events that were learned, or are annotated in this movie, are enabled.
        """
        known = self.events_
        if annotations is not None:
            known = known | annotations.happened_kinds()
        executor = executor or ThreadExecutor(self.n_jobs)
        profile = self._profile(source, groups, executor)
        w = self.weights_for(profile)
        return self._build_pairs(source, profile, w, known, executor)

    def _profile(
        self, source: Source, groups: frozenset[str], executor: Executor
    ) -> MovieProfile:
        """Profile a movie, all kinds of events enabled."""
        return estimate_profile(
            source,
            groups,
            neighbours=self.neighbours,
            reach=self.reach,
            map_function=executor.map,
        )

    def _build_pairs(
        self,
        source: Source,
        profile: MovieProfile,
        w: Array | None,
        known_events: frozenset[Event],
        executor: Executor,
    ) -> FramePairBuilder:
        """A builder of frame pairs; weights `w` decide kinds that are not known."""
        standards = getattr(self, "standards_", {})
        source = add_user_columns(source, profile.groups, standards)
        profile = decide_events(
            source,
            profile,
            w,
            events=parse_events(self.events),
            known_events=known_events,
            map_function=executor.map,
        )
        self.event_kinds_ = profile.event_kinds
        return FramePairBuilder(source, profile, w)

    def save(self, path: str | Path) -> None:
        """Write the weights with all that `track` needs to one file, for `clew.load`."""
        from clew.tracking.persistence import save_tracker

        save_tracker(self, path)

    def weights_for(self, profile: MovieProfile) -> Array:
        """Return the weights of the features that a movie has, (d,)."""
        names = feature_names(profile.groups)
        return weights_by_name(self, names, profile.generic_set)

    def groups_for(self, source: Source) -> frozenset[str]:
        """Return the groups of measurements that features of a movie are made of.

        Generic weights are those of the largest set that the movie has; the
        measurements of learned ones are required.
        """
        if self.origin_ is Origin.GENERIC:
            return GENERIC_SETS[find_generic_set(find_informative_groups(source))]
        available = source.has | get_user_columns(source).list_groups()
        available = available | {FALSE_DETECTIONS}
        known = set(feature_names(available))
        missing = [name for name in self.feature_names_ if name not in known]
        if missing:
            lacking = ", ".join(sorted(self.groups_ - available))
            raise InputError(
                f"{source.name} has no measurements of {lacking}, which {len(missing)} "
                f"of the learned weights are for (the first is {missing[0]!r}); give "
                "the movie's images, a table with these columns or links, or learn "
                "weights without them"
            )
        return self.groups_ & available


def _as_lists(movie: Any, annotations: Any) -> tuple[list[Any], list[Annotations]]:
    """One movie and its annotations, or lists of both, as lists."""
    if not isinstance(movie, list | tuple):
        movie = [movie]
        annotations = [annotations]
    if len(movie) != len(annotations) or not len(movie):
        raise InputError(
            f"there are {len(movie)} movies and annotations of {len(annotations)}; "
            "expected as many"
        )
    for table in annotations:
        if not isinstance(table, Annotations):
            raise InputError(
                f"annotations is a {type(table).__name__}; expected a clew.tracking "
                "Annotations table"
            )
    if not sum(len(table) for table in annotations):
        raise InputError(
            "nothing is annotated; at least a few events are needed to learn from"
        )
    return list(movie), list(annotations)


def _find_common_groups(sources: Sequence[Source]) -> frozenset[str]:
    """Return the groups of measurements that all movies have."""
    found = list(map(find_informative_groups, sources))
    common = frozenset.intersection(*found)
    lost = [group for group in frozenset.union(*found) - common if is_user_group(group)]
    if lost:
        warnings.warn(
            f"not all movies have {', '.join(sorted(lost))}; learning goes without",
            DataWarning,
            stacklevel=3,
        )
    return common


def _check_movie_annotations(annotations: Annotations, source: Source) -> Annotations:
    """Validate the annotations of a movie, and return each once."""
    if not isinstance(annotations, Annotations):
        raise InputError(
            f"annotations is {short_repr(annotations)}; expected a clew.tracking "
            "Annotations table"
        )
    return check_annotations(
        annotations,
        lambda t: source.detections(t).label,
        source.n_frames,
        f"annotations of {source.name}",
    )
