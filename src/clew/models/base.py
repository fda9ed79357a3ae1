"""What a structured model must offer, what it may offer, and the Task that clew makes from it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from clew.errors import InfeasibleAnnotation, InputError, MissingCapability
from clew.learning.task import Argmax, Array, Indices, Mask, Space, Task
from clew.models.examples import Annotation, Examples, Input, Output
from clew.models.fingerprint import fingerprint
from clew.models.labels import ClassWeight
from clew.models.node_features import LARGEST
from clew.models.weight_blocks import Block, input_names, make_blocks
from clew.parallel import map_examples
from clew.utils.parameters import Parametrized
from clew.utils.validation import check_bool, check_floats, check_int, short_repr

ALL_SPACES = frozenset(Space)

MAX_WEIGHTS = 1e8
"""Weights that a model may have: 0.8 GB for each copy of w, of which learning keeps a few."""
MAX_TABLE = 1e9
"""Entries of a table of scores, nodes × states, or variables of a programme: a mistyped number of states is found out
here, before memory is asked for."""


@runtime_checkable
class StructuredModel(Protocol):
    """All that clew asks of a user's own model; docs/own-model.md has a complete example."""

    @property
    def n_features(self) -> int:
        """The length of w; a plain attribute will do."""
        ...

    def joint_features(self, x: Input, y: Output, /) -> Array:
        """(d,) φ(x, y)."""
        ...

    def loss(self, annotation: Annotation, y: Output, /) -> float:
        """Δ(y*, y) ≥ 0: how far y is from what was annotated."""
        ...

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
        /,
    ) -> Output | None:
        """The output in `space` that maximises ⟨w, φ(x, y)⟩ + loss_weight · Δ(y*, y); None where there is none.

        For a prediction, `annotation` is None, `space` is ALL and `loss_weight` is 0.
        """
        ...


class Model(Parametrized):
    """Base of clew's own models: parameters in `__init__`, and what they learn of the data by `prepare`.

    A subclass offers the three methods of `StructuredModel`, `prepare`, and what follows; `task` and `predict` are
    there to be replaced by something that works on all examples at once.
    """

    spaces: frozenset[Space] = ALL_SPACES
    loss_zero_iff_compatible: bool = True
    of_rows: bool = False
    """Whether an input is one row, so that all of them may be one sparse matrix."""
    domain_names: tuple[str, ...] = ()
    """The attributes that `prepare` sets (numbers, strings and lists of them): saved with a fitted model."""

    n_features: int

    def prepare(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """A copy that knows the data's labels and dimensions; refuses data that cannot be learned from."""
        check_kind(self, X)
        model = self.learn_domain(X, Y)
        model.task(X, Y)  # for its checks of every example
        return model

    def check_parameters(self) -> None:
        """Refuse switches that are neither on nor off."""
        for name in {"bias", "boundary", "normalize", "symmetric"} & self.get_params(
            deep=False
        ).keys():
            check_bool(getattr(self, name), name)

    def learn_domain(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """The copy that `prepare` returns, without a check of every example: a task checks them as well."""
        raise NotImplementedError

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Refuse inputs that are not of this model's kind, whatever their annotation; a task does so too."""
        self.task(X, [None] * len(X))

    def parsed(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Examples:  # noqa: ARG002
        """The annotations, an entry for each example as before, in the form in which they are read fastest."""
        return Y

    def restored(self, domain: Mapping[str, object]) -> Self:
        """A copy with the attributes that an earlier `prepare` had set."""
        model = copy.copy(self)
        for name in self.domain_names:
            if name in domain or not hasattr(
                model, name
            ):  # a file of an older clew may lack one that has a default
                setattr(model, name, domain[name])
        return model

    @property
    def domain(self) -> dict[str, object]:
        """What `prepare` learned of the data."""
        return {name: getattr(self, name) for name in self.domain_names}

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y)."""
        raise NotImplementedError

    def loss(self, annotation: Annotation, y: Output) -> float:
        """Δ(y*, y), zero exactly where y agrees with the annotation."""
        raise NotImplementedError

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Output | None:
        """The best output in `space`, or None where the space is empty."""
        raise NotImplementedError

    def outputs(self, x: Input) -> Iterator[Output]:
        """Every output for x: for small problems, for CLPL-SL (Eq. 3) and for checking."""
        raise NotImplementedError

    def n_parts(self, annotation: Annotation) -> int:
        """How many parts of the output are annotated."""
        raise NotImplementedError

    def count_parts(self, Y: Sequence[Annotation]) -> Indices:
        """(N,) how many parts are annotated in each example."""
        return np.array([self.n_parts(annotation) for annotation in Y], dtype=np.intp)

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation without the marked ones of its `n_parts` parts."""
        raise NotImplementedError

    def mistakes(self, annotation: Annotation, y: Output) -> int:
        """How many of the annotated parts y gets wrong."""
        raise NotImplementedError

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights by block; `names` are those of the input features."""
        return make_blocks(("features", [input_names(names, int(self.n_features))]))

    @property
    def column_scale(self) -> Array:
        """(d,) the size of each feature: the score that w adds is ⟨w · column_scale, counts of what is in y⟩."""
        return np.ones(int(self.n_features))

    def with_class_weight(
        self, class_weight: ClassWeight, Y: Examples
    ) -> tuple[Self, Array | None]:
        """A copy whose task loss weighs the classes, or weights of the examples that come to the same."""
        raise MissingCapability(
            f"class_weight expects a Multiclass, Chain or Tree, not a {type(self).__name__}"
        )

    def parts(self, x: Input, y: Output) -> Sequence[Annotation]:
        """An annotation for each part of the output y of x, which says of that part alone what y says."""
        raise NotImplementedError

    def candidates(self, x: Input, annotation: Annotation) -> Mask:
        """(parts, choices) the choices that an annotation allows for each part of an output of x."""
        raise NotImplementedError

    def max_marginals(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> Sequence[Array] | Array:
        """For each input (parts, choices) what the best output loses when a part is forced: 0 for its own choice.

        max over y with y_t = s of ⟨w, φ(x, y)⟩, less the maximum over all y; minus infinity where no output has it.
        """
        raise NotImplementedError

    def margins(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> Sequence[Array] | Array:
        """For each input (parts,) the score that is lost when a part is forced to be other than in the best output."""
        return [
            best_alternative(losses)
            for losses in self.max_marginals(X, w, n_jobs=n_jobs)
        ]

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> Task:
        """The learning problem on these examples."""
        return ExampleTask(self, X, Y, n_jobs)

    def predict(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Output]:
        """The best output for each input."""
        return map_examples(
            lambda x: self.argmax(x, w, None, Space.ALL, 0.0), X, n_jobs
        )


class ExampleTask:
    """The Task of a model that answers one example at a time; `n_jobs` threads share the examples."""

    def __init__(
        self,
        model: StructuredModel,
        X: Sequence[Input],
        Y: Sequence[Annotation],
        n_jobs: int = 1,
    ) -> None:
        self.model, self.X, self.Y, self.n_jobs = model, X, Y, n_jobs
        self.n_examples = len(X)
        self.n_features = check_int(
            getattr(model, "n_features", None), "the model's n_features", 1
        )
        self.spaces: frozenset[Space] = frozenset(getattr(model, "spaces", ALL_SPACES))
        self.loss_zero_iff_compatible: bool = bool(
            getattr(model, "loss_zero_iff_compatible", False)
        )
        self.keys: Sequence[bytes] | None = [
            fingerprint(*identity(model), x, y) for x, y in zip(X, Y, strict=True)
        ]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Ask the model about each example."""
        indices = (
            np.arange(self.n_examples) if examples is None else np.asarray(examples)
        )
        rows = map_examples(
            lambda n: self._one(int(n), w, space, loss_weight), indices, self.n_jobs
        )
        found = np.array([row is not None for row in rows], dtype=bool)
        nothing = np.zeros(self.n_features), 0.0
        features, loss = (
            zip(*[row or nothing for row in rows], strict=True) if rows else ((), ())
        )
        matrix = sp.csr_array(np.array(features).reshape(len(rows), self.n_features))
        return Argmax(matrix, np.array(loss, dtype=float), found)

    def _one(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> tuple[Array, float] | None:
        """φ and Δ of one maximiser, checked; None where Y° is empty."""
        x, annotation = self.X[n], self.Y[n]
        y = self.model.argmax(x, w, annotation, space, loss_weight)
        if y is None:
            if space is Space.INCOMPATIBLE:
                return None
            raise InfeasibleAnnotation(
                f"example {n}: no output in {space.value}; its annotation is {annotation!r}",
                n,
            )
        features = np.asarray(self.model.joint_features(x, y), dtype=float)
        if features.shape != (self.n_features,):
            raise InputError(
                f"example {n}: joint_features gave shape {features.shape}, the model's n_features asks for "
                f"({self.n_features},)"
            )
        if not np.isfinite(features).all():
            raise InputError(f"example {n}: joint_features gave NaN or infinity")
        given = self.model.loss(annotation, y)
        loss = (
            float(given)
            if np.ndim(given) == 0 and np.asarray(given).dtype.kind in "biuf"
            else np.nan
        )
        if not loss >= 0:
            raise InputError(
                f"example {n}: the task loss must be ≥ 0, the model gave {short_repr(given)}"
            )
        if (
            self.loss_zero_iff_compatible
            and space is not Space.ALL
            and (loss > 0) == (space is Space.COMPATIBLE)
        ):
            raise InputError(
                f"example {n}: the model says loss_zero_iff_compatible, but an output of {space.value} has loss {loss}"
            )
        return features, loss

    def annotated_part(self) -> Task | None:
        """None: which features belong to the annotation is not known of a general model."""
        return None


def best_alternative(max_marginals: Array) -> Array:
    """(parts,) how far the second best choice of each part lies below the best; infinite where there is none."""
    parts, choices = max_marginals.shape
    if choices < 2:
        return np.full(parts, np.inf)
    top_two = -np.partition(-max_marginals, 1, axis=1)[:, :2]
    return np.asarray(top_two[:, 0] - top_two[:, 1])


def forced_margins(model: StructuredModel, x: Input, w: Array) -> Array:
    """(parts,) the margins of any model with `parts`, by one argmax for each part.

    The best output y; for each of its parts the best output that does not agree with that part, from Y° of an
    annotation of it alone; and the difference of their scores, infinite where there is no such output.
    """
    if not hasattr(model, "parts") or Space.INCOMPATIBLE not in getattr(
        model, "spaces", ALL_SPACES
    ):
        raise MissingCapability(
            f"margins force each part of an output to be other than it is: {type(model).__name__} needs a method "
            "parts(x, y) that lists an annotation for each, and an argmax that searches Y°"
        )
    y = model.argmax(x, w, None, Space.ALL, 0.0)
    best = float(w @ model.joint_features(x, y))
    others = [
        model.argmax(x, w, annotation, Space.INCOMPATIBLE, 0.0)
        for annotation in model.parts(x, y)
    ]
    return np.array(
        [
            np.inf if o is None else best - float(w @ model.joint_features(x, o))
            for o in others
        ]
    )


def identity(model: StructuredModel) -> tuple[object, ...]:
    """What makes a model's features its own, for the fingerprints of its examples."""
    params = (
        model.get_params(deep=False)
        if hasattr(model, "get_params")
        else getattr(model, "__dict__", {})
    )
    return (
        type(model).__qualname__,
        int(model.n_features),
        params,
        getattr(model, "domain", {}),
    )


def n_examples(values: Examples, name: str = "X") -> int:
    """The length of a sequence, an array or a sparse matrix; anything else is refused by its name."""
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    indexed = (
        hasattr(values, "__len__") and hasattr(values, "__getitem__") and shape is None
    )
    if isinstance(values, (str, bytes, type, Mapping, Set)) or not indexed:
        kind = "None" if values is None else f"a {type(values).__name__}"
        hint = (
            ": learning requires y to be passed, but the target y is None"
            if name == "Y" and values is None
            else ""
        )
        raise InputError(
            f"{name} is {kind}; expected a sequence or an array with an entry for each example{hint}"
        )
    return len(values)


def check_kind(model: object, X: Examples) -> None:
    """Refuse one sparse matrix for all inputs where each input is more than a row."""
    if sp.issparse(X) and isinstance(model, Model) and not model.of_rows:
        kind = type(model).__name__
        raise InputError(
            f"X is one sparse matrix of shape {X.shape}; a {kind} expects a sequence with an entry each"
        )


def check_lengths(X: Examples, Y: Examples) -> None:
    """As many annotations as inputs, and at least one."""
    if sp.issparse(Y):
        raise InputError(
            f"Y is a sparse matrix of shape {Y.shape}; expected a sequence or an array of annotations"
        )
    n_inputs, n_annotations = n_examples(X, "X"), n_examples(Y, "Y")
    if n_inputs != n_annotations:
        raise InputError(
            f"X has {n_inputs} examples and Y has {n_annotations}; they must have the same length"
        )
    if n_inputs == 0:
        raise InputError("there are no examples: X is empty")


def check_size(size: float, limit: float, what: str) -> None:
    """Refuse what would not fit into memory before memory is asked for."""
    if size > limit:
        raise InputError(
            f"{what} would take {size:.3g} numbers; expected at most {limit:.3g}"
        )


def check_weights(w: ArrayLike, n_features: int) -> Array:
    """W as a finite float vector of the right length."""
    weights = check_floats(w, "w")
    if weights.shape != (n_features,):
        raise InputError(
            f"w has shape {weights.shape}; expected ({n_features},), one weight for each of the model's features"
        )
    if not np.isfinite(weights).all():
        raise InputError("w has NaN or infinite entries")
    return weights


def check_finite(array: Array, what: str) -> None:
    """Refuse NaN, infinity and what overflows when it is squared, naming the first place."""
    bad = ~(np.abs(array) <= LARGEST)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{what} has {array[where]} at index {where}; features must be finite, at most {LARGEST:g}"
        )


def take(values: Examples, indices: Sequence[int] | Indices) -> Examples:
    """Some elements of a list, array or sparse matrix, or of what reads its elements when they are asked for."""
    return (
        values[indices]
        if hasattr(values, "shape")
        else [values[int(i)] for i in indices]
    )
