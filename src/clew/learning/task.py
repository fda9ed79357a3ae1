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
    from clew.learning.losses import Loss


Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Matrix: TypeAlias = Any
"""Dense (n, d) array or csr_array; Any, because scipy.sparse has no types."""


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
    """Maximizers returned by a Task, one row for each requested example."""

    features: Matrix
    """(n, d) φ(x_n, ŷ_n), dense or CSR; zero rows where no output exists."""
    loss: Array
    """(n,) Δ(y*_n, ŷ_n)."""
    found: Mask
    """(n,) False where the space is empty; only Y° can be empty."""

    def values(self, w: Array, loss_weight: float) -> Array:
        """Return (n,) ⟨w, φ⟩ + loss_weight · Δ; −∞ where the space is empty."""
        dense = isinstance(self.features, np.ndarray)
        scores = dot(self.features, w) if dense else np.asarray(self.features @ w)
        return np.where(self.found, scores + loss_weight * self.loss, -np.inf)


@runtime_checkable
class Task(Protocol):
    """N partially annotated examples that share one weight vector."""

    @property
    def n_examples(self) -> int:
        """Number of examples N."""
        ...

    @property
    def n_features(self) -> int:
        """Length of w."""
        ...

    @property
    def spaces(self) -> frozenset[Space]:
        """Spaces that `argmax` can search."""
        ...

    @property
    def loss_zero_iff_compatible(self) -> bool:
        """Whether Δ ≥ 0, with Δ = 0 exactly on Y*: the condition of `simplify`."""
        ...

    @property
    def keys(self) -> Sequence[bytes] | None:
        """Fingerprint of each example and its annotation.

        A later fit reuses the bounds of examples with the same fingerprint.
        """
        ...

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Maximize ⟨w, φ(x, y)⟩ + loss_weight · Δ(y*, y) over `space` for each example.

        Parameters
        ----------
        w : ndarray of shape (n_features,)
        space : Space
        loss_weight : float
        examples : ndarray of int, optional
            Examples to search; all if None.

        Returns
        -------
        argmax : Argmax
        """
        ...

    def annotated_part(self) -> Task | None:
        """Return the examples with only the features that the annotation determines.

        There, all of Y* has the same features, so that every loss with reward space Y*
        is convex. Its minimizer is a start for the non-convex problem; a relaxation of
        Y is precise enough for that.

        Returns
        -------
        part : Task or None
            None if the annotations determine nothing or everything. In the second case
            the problem is convex itself.
        """
        ...


@dataclass(frozen=True)
class Subset:
    """A task made of some examples of another task."""

    task: Task
    examples: Indices

    @property
    def n_examples(self) -> int:
        """Number of chosen examples."""
        return len(self.examples)

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return self.task.n_features

    @property
    def spaces(self) -> frozenset[Space]:
        """Spaces that the whole task can search."""
        return self.task.spaces

    @property
    def loss_zero_iff_compatible(self) -> bool:
        """Same value as for the whole task."""
        return self.task.loss_zero_iff_compatible

    @property
    def keys(self) -> Sequence[bytes] | None:
        """Fingerprints of the chosen examples."""
        keys = self.task.keys
        return None if keys is None else [keys[i] for i in self.examples]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Search the chosen examples in the whole task."""
        return self.task.argmax(
            w,
            space,
            loss_weight,
            self.examples if examples is None else self.examples[examples],
        )

    def annotated_part(self) -> Task | None:
        """Return the chosen examples of the whole task's annotated part."""
        part = self.task.annotated_part()
        return None if part is None else Subset(part, self.examples)


@runtime_checkable
class SeparableTask(Task, Protocol):
    """A task whose loss is a sum over simpler examples, as CLPL is a sum of hinges."""

    def separated(self, examples: Indices | None = None) -> Task:
        """Return a task with these simpler examples and the same mean loss.

        A bundle with one group for each of them is a much tighter model.
        """
        ...


@runtime_checkable
class DeterminedTask(Task, Protocol):
    """A task that can report whether its annotations are complete."""

    @property
    def determined(self) -> bool:
        """Whether Y* has one output per example, so that reward space Y* is convex."""
        ...


def is_determined(task: Task) -> bool:
    """Return whether Y* is known to have one output for each example."""
    whole = task.task if isinstance(task, Subset) else task
    return isinstance(whole, DeterminedTask) and whole.determined


class Layout(Protocol):
    """A permutation of the weights that makes compiled code faster."""

    def columns_in(self, columns: NDArray[np.integer]) -> NDArray[np.integer]:
        """Map columns of φ to positions in this layout."""
        ...

    def columns_out(self, places: NDArray[np.integer]) -> NDArray[np.integer]:
        """Map positions in this layout to columns of φ."""
        ...

    def vector_in(self, w: Array) -> Array:
        """Permute weights into this layout."""
        ...

    def vector_out(self, w: Array) -> Array:
        """Permute weights back to the order of φ."""
        ...


class SameOrder:
    """The identity layout."""

    def columns_in(self, columns: NDArray[Kept]) -> NDArray[Kept]:
        """Return the argument."""
        return columns

    columns_out = vector_in = vector_out = columns_in


class OnlineOracle(Layout, Protocol):
    """Compiled argmax for one example at a time, while w moves (`frank_wolfe`).

    Bounds are differences from the features of one reference output per example: the
    reward's argmax at a fixed w.
    """

    @property
    def fixed_reward(self) -> bool:
        """Whether all of Y* has the same features: the reward is linear in w."""
        ...

    def capacity(self, groups: Indices) -> int:
        """Return the most entries that new bounds of these groups can have."""
        ...

    def follow(self, working_set: WorkingSet, w: Array) -> None:
        """Make the reward's outputs at w the references; shift the bounds to them."""
        ...

    def run(
        self, working_set: WorkingSet, groups: Indices, steps: int, gaps: Array
    ) -> None:
        """Visit groups in turn: argmax at w, a new bound, pairwise steps on the bounds.

        Parameters
        ----------
        working_set : WorkingSet
        groups : ndarray of int
            One example per group.
        steps : int
            Pairwise steps per group.
        gaps : ndarray of shape (n_groups,)
            Overwritten with the gap of each visited group before its steps.
        """
        ...


@runtime_checkable
class OnlineTask(Task, Protocol):
    """A task with a compiled argmax for one example at a time."""

    def online(
        self,
        w: Array,
        loss: Loss,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle:
        """Return an oracle for C_n of the loss, see `losses`.

        Parameters
        ----------
        w : ndarray of shape (n_features,)
            The reward's outputs at w are the reference outputs.
        loss : Loss
            Its penalty space is Y without a margin, or Y° with the reward space Y*.
        examples : ndarray of int, optional
            Restrict the oracle to these examples, numbered from 0.
        weights : ndarray of shape (n_examples,), optional
            Weights of all examples, which multiply φ and Δ.
        """
        ...


class Epochs(Protocol):
    """Epochs of the perceptron in compiled code, starting at w = 0."""

    @property
    def weights(self) -> tuple[Array, Array]:
        """The weights w, and the sum of its changes, each times the steps before it."""
        ...

    def run(self, order: Indices) -> None:
        """Take one step for each of these examples in turn."""
        ...


@runtime_checkable
class EpochTask(Task, Protocol):
    """A task whose perceptron steps cost as much as their change has entries."""

    def epochs(self) -> Epochs:
        """Return the perceptron's state before its first step."""
        ...


def online_task(task: Task) -> tuple[OnlineTask, Indices | None] | None:
    """Return the `OnlineTask` behind a task and the chosen examples.

    Returns
    -------
    task, examples : (OnlineTask, ndarray of int or None), or None
        None if the task is not an OnlineTask or a Subset of one.
    """
    whole, examples = (
        (task.task, task.examples) if isinstance(task, Subset) else (task, None)
    )
    return (whole, examples) if isinstance(whole, OnlineTask) else None


def separate_examples(task: Task) -> Task:
    """Split a `SeparableTask` into simpler examples; return other tasks unchanged."""
    whole, examples = (
        (task.task, task.examples) if isinstance(task, Subset) else (task, None)
    )
    return whole.separated(examples) if isinstance(whole, SeparableTask) else task


def weight_examples(task: Task, weights: Array | None) -> Task:
    """Weight the examples of a task.

    Parameters
    ----------
    task : Task
    weights : ndarray of shape (n_examples,), optional
        Positive weights, scaled to a mean of 1. None returns the task itself.
    """
    return (
        task
        if weights is None
        else _apply_weights(task, np.asarray(weights, dtype=float) / np.mean(weights))
    )


def _apply_weights(task: Task, weights: Array) -> WeightedTask:
    """Wrap the task, preserving its online oracle if it has one."""
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
        """Fingerprints of the examples, which include their weights."""
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
        """Return the task's outputs, with φ and Δ times the weight of the example."""
        argmax = self.task.argmax(w, space, loss_weight, examples)
        scale = self.weights if examples is None else self.weights[examples]
        features = sp.csr_array(sp.diags_array(scale) @ sp.csr_array(argmax.features))
        return Argmax(features, scale * argmax.loss, argmax.found)

    def annotated_part(self) -> Task | None:
        """Return the annotated part with the same weights."""
        part = self.task.annotated_part()
        return None if part is None else _apply_weights(part, self.weights)


class OnlineWeightedTask(WeightedTask):
    """A weighted task with an online oracle."""

    task: OnlineTask

    def online(
        self,
        w: Array,
        loss: Loss,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle:
        """Return the task's oracle, with φ and Δ times the weights."""
        weights = self.weights if weights is None else self.weights * weights
        return self.task.online(w, loss, examples, weights)
