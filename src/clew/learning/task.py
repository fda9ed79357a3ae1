"""Task, Space and Argmax: the interface between a learner and a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from clew.learning.frank_wolfe import WorkingSet


Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Matrix: TypeAlias = Any
"""A dense (n, d) array or a scipy.sparse.csr_array of that shape; Any, for scipy.sparse comes without types."""


Kept = TypeVar("Kept", bound=np.generic)


class Space(Enum):
    """The three sets of outputs that a loss can search (Fig. 1 of the paper)."""

    ALL = "Y"
    """Every output."""
    COMPATIBLE = "Y*"
    """The outputs that agree with the annotation."""
    INCOMPATIBLE = "Y°"
    """The outputs that do not."""

    def contains(self, other: Space) -> bool:
        """Whether `other` is a subset of this space for every annotation."""
        return self is Space.ALL or self is other


def dot(a: Array, b: Array) -> Array:
    """Multiply a vector or the rows of a matrix with a vector, on one thread.

    A long product makes the threads of BLAS spin, which costs more than it saves.
    """
    return np.asarray(np.einsum("...i,i->...", a, b))


@dataclass(frozen=True, slots=True)
class Argmax:
    """The maximisers that a Task found, one row for each example that was asked for."""

    features: Matrix
    """(n, d) φ(x_n, ŷ_n), dense or CSR; rows that were not found are zero."""
    loss: Array
    """(n,) Δ(y*_n, ŷ_n)."""
    found: Mask
    """(n,) False where the space is empty, which only Y° can be."""

    def values(self, w: Array, loss_weight: float) -> Array:
        """(n,) ⟨w, φ⟩ + loss_weight · Δ; minus infinity where nothing was found."""
        dense = isinstance(self.features, np.ndarray)
        scores = dot(self.features, w) if dense else np.asarray(self.features @ w)
        return np.where(self.found, scores + loss_weight * self.loss, -np.inf)


@runtime_checkable
class Task(Protocol):
    """N partially annotated examples that share one weight vector."""

    @property
    def n_examples(self) -> int:
        """N."""
        ...

    @property
    def n_features(self) -> int:
        """The length of w."""
        ...

    @property
    def spaces(self) -> frozenset[Space]:
        """The spaces that `argmax` can search."""
        ...

    @property
    def loss_zero_iff_compatible(self) -> bool:
        """Whether Δ ≥ 0, and Δ = 0 exactly on Y*: the condition of the identities in `losses.simplify`."""
        ...

    @property
    def keys(self) -> Sequence[bytes] | None:
        """A fingerprint of each example and its annotation; bounds carry over to another fit where it is unchanged."""
        ...

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """For each example, the output in `space` that maximises ⟨w, φ(x, y)⟩ + loss_weight · Δ(y*, y)."""
        ...

    def annotated_part(self) -> Task | None:
        """The same examples with only the features of parts that the annotation determines.

        On it, all of Y* has the same features, so that every loss with reward space Y* is convex: its minimiser is
        a start for the non-convex problem. Being no more than that, it may search a relaxation of Y. None where
        nothing is determined, and where everything is, since the problem is then convex itself.
        """
        ...


@dataclass(frozen=True)
class Subset:
    """Some examples of a task, as a task."""

    task: Task
    examples: Indices

    @property
    def n_examples(self) -> int:
        """How many examples were chosen."""
        return len(self.examples)

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.task.n_features

    @property
    def spaces(self) -> frozenset[Space]:
        """The spaces that the whole task can search."""
        return self.task.spaces

    @property
    def loss_zero_iff_compatible(self) -> bool:
        """As for the whole task."""
        return self.task.loss_zero_iff_compatible

    @property
    def keys(self) -> Sequence[bytes] | None:
        """The fingerprints of the chosen examples."""
        keys = self.task.keys
        return None if keys is None else [keys[i] for i in self.examples]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Ask the whole task about the chosen examples."""
        return self.task.argmax(
            w,
            space,
            loss_weight,
            self.examples if examples is None else self.examples[examples],
        )

    def annotated_part(self) -> Task | None:
        """The chosen examples of the whole task's annotated part."""
        part = self.task.annotated_part()
        return None if part is None else Subset(part, self.examples)


@runtime_checkable
class SeparableTask(Task, Protocol):
    """A task whose loss is a sum over more and simpler examples than it has, as CLPL is a sum of hinges."""

    def separated(self, examples: Indices | None = None) -> Task:
        """The same mean loss over those: a bundle with a group for each of them is a far better model."""
        ...


@runtime_checkable
class DeterminedTask(Task, Protocol):
    """A task that knows whether its annotations leave anything open."""

    @property
    def determined(self) -> bool:
        """Whether Y* is one output for each example: then every loss with reward space Y* is convex."""
        ...


def is_determined(task: Task) -> bool:
    """Whether Y* is known to be one output for each example."""
    whole = task.task if isinstance(task, Subset) else task
    return isinstance(whole, DeterminedTask) and whole.determined


class Layout(Protocol):
    """An order of the weights in which compiled code is faster: a permutation, said in both directions."""

    def columns_in(self, columns: NDArray[np.integer]) -> NDArray[np.integer]:
        """From columns of φ to places in this layout."""
        ...

    def columns_out(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        """And back."""
        ...

    def vector_in(self, w: Array) -> Array:
        """Weights in this layout."""
        ...

    def vector_out(self, w: Array) -> Array:
        """And back."""
        ...


class SameOrder:
    """The layout of φ itself."""

    def columns_in(self, columns: NDArray[Kept]) -> NDArray[Kept]:
        """The same columns."""
        return columns

    columns_out = vector_in = vector_out = columns_in


class OnlineOracle(Layout, Protocol):
    """Answers one example after the other while w moves, in compiled code; see `stochastic.py`.

    Bounds are differences from the features of one reference output for each example, the reward's at one w.
    """

    @property
    def fixed_reward(self) -> bool:
        """Whether all of Y* has the same features, so that the reward is the same linear function at every w."""
        ...

    def capacity(self, groups: Indices) -> int:
        """How many entries the bounds of these groups, an example each, can have at the most."""
        ...

    def follow(self, working_set: WorkingSet, w: Array) -> None:
        """Take the reward's outputs at w as the references, and let the bounds follow, relative to these."""
        ...

    def run(
        self, working_set: WorkingSet, groups: Indices, steps: int, gaps: Array
    ) -> None:
        """For each of these groups, an example each, in turn: argmax at w, new bound, pairwise steps on its bounds."""
        ...


@runtime_checkable
class OnlineTask(Task, Protocol):
    """A task that can look and learn example by example, where most weights do not concern any one of them."""

    def online(
        self,
        w: Array,
        reward: Space,
        reward_weight: float,
        penalty_weight: float,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle:
        """An oracle for max_Y [f + penalty_weight · Δ] whose reference outputs are the reward's at w.

        With `examples` it knows those alone, and counts them from 0 on. `weights` (n_examples,) of all examples
        multiply φ and Δ (weighted.py).
        """
        ...


class Epochs(Protocol):
    """Epochs of the perceptron in compiled code, from w = 0."""

    @property
    def weights(self) -> tuple[Array, Array]:
        """W, and the sum of all its changes times the steps before them."""
        ...

    def run(self, order: Indices) -> None:
        """A step for each of these examples in turn."""
        ...


@runtime_checkable
class EpochTask(Task, Protocol):
    """A task on which the perceptron's steps cost what their changes have entries, not what w has."""

    def epochs(self) -> Epochs:
        """The perceptron's state before its first step."""
        ...


def online_task(task: Task) -> tuple[OnlineTask, Indices | None] | None:
    """The `OnlineTask` that a task is or takes its examples from, with these examples; None if there is none."""
    whole, examples = (
        (task.task, task.examples) if isinstance(task, Subset) else (task, None)
    )
    return (whole, examples) if isinstance(whole, OnlineTask) else None


def separated(task: Task) -> Task:
    """The same mean loss over more and simpler examples, where the task is a `SeparableTask`."""
    whole, examples = (
        (task.task, task.examples) if isinstance(task, Subset) else (task, None)
    )
    return whole.separated(examples) if isinstance(whole, SeparableTask) else task


def weight_examples(task: Task, weights: Array | None) -> Task:
    """The task with these weights of its examples, positive and 1 in the mean; None leaves it as it is."""
    return (
        task
        if weights is None
        else _apply_weights(task, np.asarray(weights, dtype=float) / np.mean(weights))
    )


def _apply_weights(task: Task, weights: Array) -> WeightedTask:
    """The task with these weights; one that looks and learns example by example still does."""
    return (
        OnlineWeightedTask(task, weights)
        if isinstance(task, OnlineTask)
        else WeightedTask(task, weights)
    )


class WeightedTask:
    """A task whose examples have weights."""

    def __init__(self, task: Task, weights: Array) -> None:
        self.task = task
        self.weights = weights
        self.n_examples = task.n_examples
        self.n_features = task.n_features
        self.spaces = task.spaces
        self.loss_zero_iff_compatible = task.loss_zero_iff_compatible

    @property
    def keys(self) -> Sequence[bytes] | None:
        """The examples' fingerprints, which change with the weights."""
        keys = self.task.keys
        return (
            None
            if keys is None
            else [k + s.tobytes() for k, s in zip(keys, self.weights, strict=True)]
        )

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """The same outputs, with φ and Δ times the weight."""
        found = self.task.argmax(w, space, loss_weight, examples)
        scale = self.weights if examples is None else self.weights[examples]
        features = sp.csr_array(sp.diags_array(scale) @ sp.csr_array(found.features))
        return Argmax(features, scale * found.loss, found.found)

    def annotated_part(self) -> Task | None:
        """The annotated part with the same weights."""
        part = self.task.annotated_part()
        return None if part is None else _apply_weights(part, self.weights)


class OnlineWeightedTask(WeightedTask):
    """The same of a task that looks and learns example by example."""

    task: OnlineTask

    def online(
        self,
        w: Array,
        reward: Space,
        reward_weight: float,
        penalty_weight: float,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle:
        """The task's oracle, with φ and Δ times the weights."""
        weights = self.weights if weights is None else self.weights * weights
        return self.task.online(
            w, reward, reward_weight, penalty_weight, examples, weights
        )
