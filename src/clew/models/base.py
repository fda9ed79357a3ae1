"""Structured models: the methods that clew calls, and the Task made from them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from clew.errors import InfeasibleAnnotation, InputError, MissingCapability
from clew.learning.clpl import ListedTask
from clew.learning.losses import Loss
from clew.learning.sparse_rows import sparse
from clew.learning.task import Argmax, Array, Indices, Mask, Space, Task
from clew.models.examples import (
    Annotation,
    Examples,
    Input,
    Output,
    check_lengths,
    fingerprint,
    n_examples,
)
from clew.models.labels import ClassWeight
from clew.models.node_features import LARGEST
from clew.models.weight_blocks import Block, input_names, make_blocks
from clew.parallel import map_examples
from clew.utils.parameters import Parametrized
from clew.utils.validation import check_bool, check_floats, check_int, short_repr

ALL_SPACES = frozenset(Space)

MAX_WEIGHTS = 1e8
"""Most weights of a model: 0.8 GB for each copy of w, of which learning keeps a few."""
MAX_TABLE = 1e9
"""Most entries of a table of scores (nodes × states), to detect a mistyped number."""


@runtime_checkable
class StructuredModel(Protocol):
    """All that clew needs of a user's model; docs/own-model.md has an example."""

    @property
    def n_features(self) -> int:
        """The length of w; an attribute will do."""
        ...

    def joint_features(self, x: Input, y: Output, /) -> Array:
        """(d,) φ(x, y)."""
        ...

    def loss(self, annotation: Annotation, y: Output, /) -> float:
        """Δ(y*, y) ≥ 0: how far y is from the annotation."""
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
        """Return argmax over y in `space` of ⟨w, φ(x, y)⟩ + loss_weight · Δ(y*, y).

        None if the space is empty. For a prediction, `annotation` is None, `space` is
        ALL and `loss_weight` is 0.
        """
        ...


class Model(Parametrized):
    """Base of clew's models: parameters in `__init__`, the data's domain by `prepare`.

    A subclass has the methods here that raise NotImplementedError. From them follow Δ
    as a number of wrong parts, hidden parts, margins and the blocks of weights. Another
    Δ replaces `loss`; it must be 0 where `mistakes` is. `task` and `predict` ask
    `argmax` about one example after the other, and do not look at x: a subclass
    replaces them to check its inputs, or to answer for all examples at once.
    """

    spaces: frozenset[Space] = ALL_SPACES
    loss_zero_iff_compatible: bool = True
    normalize: bool = False
    """Whether Δ is divided by the number of annotated parts."""
    of_rows: bool = False
    """Whether an input is one row, so that X may be one sparse matrix."""
    domain_names: tuple[str, ...] = ()
    """Attributes that `prepare` sets, saved with a fitted model."""

    n_features: int

    def prepare(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """Return a copy with the data's labels and dimensions.

        Raises
        ------
        InputError
            If an example is invalid.
        """
        check_kind(self, X)
        model = self.learn_domain(X, Y)
        model.task(X, Y)  # checks what the subclass checks
        return model

    def check_parameters(self) -> None:
        """Raise an error for switches that are not boolean."""
        switches = {"bias", "boundary", "normalize", "symmetric"}
        for name in switches & self.get_params(deep=False).keys():
            check_bool(getattr(self, name), name)

    def learn_domain(self, X: Sequence[Input], Y: Sequence[Annotation]) -> Self:
        """Return the copy of `prepare`, without a check of every example."""
        raise NotImplementedError

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Raise an error for inputs that this model cannot take."""
        self.task(X, [None] * len(X))

    def encode_annotations(
        self,
        X: Sequence[Input],  # noqa: ARG002
        Y: Sequence[Annotation],
    ) -> Examples:
        """Return the annotations in the form that is read fastest, one an example."""
        return Y

    def restored(self, domain: Mapping[str, object]) -> Self:
        """Return a copy with the attributes that an earlier `prepare` set.

        A file of an older clew may lack one that has a default.
        """
        model = copy.copy(self)
        for name in self.domain_names:
            if name in domain or not hasattr(model, name):
                setattr(model, name, domain[name])
        return model

    @property
    def domain(self) -> dict[str, object]:
        """The attributes that `prepare` set."""
        return {name: getattr(self, name) for name in self.domain_names}

    def joint_features(self, x: Input, y: Output) -> Array:
        """(d,) φ(x, y)."""
        raise NotImplementedError

    def allowed(self, annotation: Annotation, n_parts: int | None = None) -> Mask:
        """(parts, choices) the choices that an annotation allows for each part.

        Parameters
        ----------
        annotation : annotation
        n_parts : int, optional
            Expected number of parts.
        """
        raise NotImplementedError

    def encode_output(self, y: Output) -> Indices:
        """(parts,) the choice of each part of an output."""
        raise NotImplementedError

    def loss(self, annotation: Annotation, y: Output) -> float:
        """Δ(y*, y): `mistakes`, divided by the annotated parts if `normalize`."""
        divisor = max(self.n_parts(annotation), 1) if self.normalize else 1
        return self.mistakes(annotation, y) / divisor

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Output | None:
        """Return the best output in `space`; None if the space is empty."""
        raise NotImplementedError

    def outputs(self, x: Input) -> Iterator[Output]:
        """Every output for x: for small problems, CLPL (Eq. 3) and tests."""
        raise NotImplementedError

    def n_parts(self, annotation: Annotation) -> int:
        """The number of annotated parts, of which not all choices are allowed."""
        return len(find_annotated(self.allowed(annotation)))

    def count_parts(self, Y: Sequence[Annotation]) -> Indices:
        """(N,) the number of annotated parts of each example."""
        return np.array([self.n_parts(annotation) for annotation in Y], dtype=np.intp)

    def hide(self, annotation: Annotation, parts: Mask) -> Annotation:
        """The annotation without the marked ones of its annotated parts.

        If there are any, it is a boolean matrix of the allowed choices.
        """
        allowed = self.allowed(annotation)
        annotated = find_annotated(allowed)
        if len(parts) != len(annotated):
            raise InputError(
                f"the mask has {len(parts)} entries for {len(annotated)} annotated "
                "parts"
            )
        if not np.any(parts):
            return annotation
        allowed = allowed.copy()
        allowed[annotated[np.asarray(parts, dtype=bool)]] = True
        return allowed

    def mistakes(self, annotation: Annotation, y: Output) -> int:
        """The number of annotated parts that are wrong in y."""
        choices = self.encode_output(y)
        allowed = self.allowed(annotation, len(choices))
        return int((~allowed[np.arange(len(choices)), choices]).sum())

    def blocks(self, names: Sequence[object] | None = None) -> list[Block]:
        """The weights by block; `names` are those of the input features."""
        return make_blocks(("features", [input_names(names, int(self.n_features))]))

    @property
    def column_scale(self) -> Array:
        """(d,) the size of each feature."""
        return np.ones(int(self.n_features))

    def with_class_weight(
        self,
        class_weight: ClassWeight,  # noqa: ARG002
        Y: Examples,  # noqa: ARG002
    ) -> tuple[Self, Array | None]:
        """Return a copy whose Δ weighs the classes, or equivalent example weights."""
        raise MissingCapability(
            "class_weight expects a Multiclass, Chain or Tree, not a "
            f"{type(self).__name__}"
        )

    def candidates(self, x: Input, annotation: Annotation) -> Mask:
        """(parts, choices) the choices that an annotation allows for each part."""
        raise NotImplementedError

    def max_marginals(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> Sequence[Array] | Array:
        """For each input (parts, choices) what the best output loses by a choice.

        max over y with y_t = s of ⟨w, φ(x, y)⟩, less the maximum over all y; minus
        infinity where no output has it.
        """
        raise NotImplementedError

    def margins(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> Sequence[Array] | Array:
        """For each input (parts,) what the best output loses if a part must change."""
        losses = self.max_marginals(X, w, n_jobs=n_jobs)
        return [best_alternative(loss) for loss in losses]

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> Task:
        """Return the learning problem on these examples."""
        check_lengths(X, Y)
        return ExampleTask(self, X, Y, n_jobs)

    def predict(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Output]:
        """Return the best output for each input."""
        w = check_weights(w, int(self.n_features))
        return map_examples(
            lambda x: self.argmax(x, w, None, Space.ALL, 0.0), X, n_jobs
        )


class SeparateTask(Task):
    """Base of the Tasks that solve one example at a time, in threads."""

    n_jobs: int = 1
    """Number of threads that share the examples."""

    def describe_best(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> tuple[Array, float] | None:
        """Return φ and Δ of a maximizer for example n; None where Y° is empty."""
        raise NotImplementedError

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Solve the examples in threads."""
        w = check_weights(w, self.n_features)
        chosen = range(self.n_examples) if examples is None else map(int, examples)
        answers = map_examples(
            lambda n: self.describe_best(n, w, space, loss_weight), chosen, self.n_jobs
        )
        features = np.zeros((len(answers), self.n_features))
        loss = np.zeros(len(answers))
        found = np.zeros(len(answers), dtype=bool)
        for i, answer in enumerate(answers):
            if answer is not None:
                features[i], loss[i] = answer
                found[i] = True
        return Argmax(sparse(features), loss, found)


class ExampleTask(SeparateTask):
    """The Task of a model that solves one example at a time.

    Parameters
    ----------
    model : StructuredModel
    X, Y : sequences
    n_jobs : int
        Number of threads that share the examples.
    """

    def __init__(
        self,
        model: StructuredModel,
        X: Sequence[Input],
        Y: Sequence[Annotation],
        n_jobs: int = 1,
    ) -> None:
        self.model = model
        self.X = X
        self.Y = Y
        self.n_jobs = n_jobs
        self.n_examples = len(X)
        n_features = getattr(model, "n_features", None)
        self.n_features = check_int(n_features, "the model's n_features", 1)
        self.spaces = frozenset(getattr(model, "spaces", ALL_SPACES))
        self.loss_zero_iff_compatible = bool(
            getattr(model, "loss_zero_iff_compatible", False)
        )
        model_key = identity(model)
        self.keys = [fingerprint(*model_key, x, y) for x, y in zip(X, Y, strict=True)]

    def describe_best(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> tuple[Array, float] | None:
        """Ask the model; check what it answers."""
        x = self.X[n]
        annotation = self.Y[n]
        y = self.model.argmax(x, w, annotation, space, loss_weight)
        if y is None:
            if space is Space.INCOMPATIBLE:
                return None
            raise InfeasibleAnnotation(
                f"example {n}: no output in {space.value}; its annotation is "
                f"{annotation!r}",
                n,
            )
        features = np.asarray(self.model.joint_features(x, y), dtype=float)
        if features.shape != (self.n_features,):
            raise InputError(
                f"example {n}: joint_features gave shape {features.shape}, the "
                f"model's n_features asks for ({self.n_features},)"
            )
        if not np.isfinite(features).all():
            raise InputError(f"example {n}: joint_features gave NaN or infinity")
        return features, self._check_loss(n, self.model.loss(annotation, y), space)

    def _check_loss(self, n: int, value: object, space: Space) -> float:
        """Return the task loss as a float; raise an error if it is not possible."""
        is_real = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"  # type: ignore[arg-type]
        loss = float(value) if is_real else np.nan  # type: ignore[arg-type]
        if not loss >= 0:
            raise InputError(
                f"example {n}: the task loss must be ≥ 0, the model gave "
                f"{short_repr(value)}"
            )
        is_possible = space is Space.ALL or (loss > 0) != (space is Space.COMPATIBLE)
        if self.loss_zero_iff_compatible and not is_possible:
            raise InputError(
                f"example {n}: the model says loss_zero_iff_compatible, but an output "
                f"of {space.value} has loss {loss}"
            )
        return loss


@dataclass(frozen=True, slots=True)
class ListedLoss(Loss):
    """A loss that is defined on the list of all outputs, and makes its own task."""

    def task(self, model: StructuredModel, X: Examples, Y: Examples) -> ListedTask:
        """Return the examples with their outputs listed."""
        return list_outputs(model, X, Y)


CLPL = ListedLoss("clpl", Space.ALL, None)
"""Formulation I: the convex loss for partial labels; all penalty, no reward."""


def list_outputs(model: StructuredModel, X: Examples, Y: Examples) -> ListedTask:
    """Return the CLPL task of a model with `outputs(x)`, for Formulation I (Eqs. 2, 3).

    A model may list all examples at once by `listed(X, Y)`, which returns φ (m, d), the
    example of each row, and whether it agrees with the annotation.
    """
    if not hasattr(model, "outputs"):
        raise MissingCapability(
            f"loss='clpl' lists every output: {type(model).__name__} needs a method "
            "outputs(x), or another loss"
        )
    indices = range(n_examples(X))
    model_key = identity(model)
    keys = [fingerprint("clpl", *model_key, X[n], Y[n]) for n in indices]
    if hasattr(model, "listed"):
        features, of_row, agrees = model.listed(X, Y)
        return ListedTask(features, of_row, agrees, keys)
    rows = []
    example_of = []
    is_compatible = []
    for n in indices:
        for y in model.outputs(X[n]):
            rows.append(sp.csr_array(model.joint_features(X[n], y)[None, :]))
            example_of.append(n)
            is_compatible.append(model.loss(Y[n], y) == 0)
    return ListedTask(
        sp.vstack(rows, format="csr"),
        np.array(example_of),
        np.array(is_compatible),
        keys,
    )


def find_annotated(allowed: Mask) -> Indices:
    """Return the parts of which not all choices are allowed."""
    return np.flatnonzero(~allowed.all(axis=1))


def best_alternative(max_marginals: Array) -> Array:
    """(parts,) by how much the second best choice is worse; infinite without one."""
    n_parts, n_choices = max_marginals.shape
    if n_choices < 2:
        return np.full(n_parts, np.inf)
    top_two = -np.partition(-max_marginals, 1, axis=1)[:, :2]
    return np.asarray(top_two[:, 0] - top_two[:, 1])


def forced_margins(model: StructuredModel, x: Input, w: Array) -> Array:
    """(parts,) the margins of any model with `parts`, by one argmax for each part.

    A part's margin is the score of the best output, less that of the best output that
    differs in this part: the best one in Y° of an annotation of that part alone.
    """
    spaces = getattr(model, "spaces", ALL_SPACES)
    if not hasattr(model, "parts") or Space.INCOMPATIBLE not in spaces:
        raise MissingCapability(
            "margins force each part of an output to be other than it is: "
            f"{type(model).__name__} needs a method parts(x, y) that lists an "
            "annotation for each, and an argmax that searches Y°"
        )
    y = model.argmax(x, w, None, Space.ALL, 0.0)
    best = float(w @ model.joint_features(x, y))
    margins = []
    for annotation in model.parts(x, y):
        other = model.argmax(x, w, annotation, Space.INCOMPATIBLE, 0.0)
        if other is None:
            margins.append(np.inf)
        else:
            margins.append(best - float(w @ model.joint_features(x, other)))
    return np.array(margins)


def identity(model: StructuredModel) -> tuple[object, ...]:
    """Return what distinguishes the features of a model, for fingerprints."""
    if hasattr(model, "get_params"):
        params = model.get_params(deep=False)
    else:
        params = getattr(model, "__dict__", {})
    domain = getattr(model, "domain", {})
    return type(model).__qualname__, int(model.n_features), params, domain


def check_kind(model: object, X: Examples) -> None:
    """Raise an error for one sparse matrix where each input is more than a row."""
    if sp.issparse(X) and isinstance(model, Model) and not model.of_rows:
        raise InputError(
            f"X is one sparse matrix of shape {X.shape}; a {type(model).__name__} "
            "expects a sequence with an entry each"
        )


def check_size(size: float, limit: float, what: str) -> None:
    """Raise an error for what would not fit into memory, before it is allocated."""
    if size > limit:
        raise InputError(
            f"{what} would take {size:.3g} numbers; expected at most {limit:.3g}"
        )


def check_weights(w: ArrayLike, n_features: int) -> Array:
    """Return w as a finite float vector of the right length."""
    weights = check_floats(w, "w")
    if weights.shape != (n_features,):
        raise InputError(
            f"w has shape {weights.shape}; expected ({n_features},), one weight for "
            "each of the model's features"
        )
    if not np.isfinite(weights).all():
        raise InputError("w has NaN or infinite entries")
    return weights


def check_finite(array: Array, what: str) -> None:
    """Raise an error that names the first NaN, infinite or too large feature."""
    bad = ~(np.abs(array) <= LARGEST)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{what} has {array[place]} at index {place}; features must be finite, "
            f"at most {LARGEST:g}"
        )
