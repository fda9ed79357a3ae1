"""Task, Space and Argmax: the interface between a learner and a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InputError, MissingCapability
from clew.utils.validation import short_repr

if TYPE_CHECKING:
    from clew.learning.bounds import Bundle
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


class Task(ABC):
    """N partially annotated examples that share one weight vector.

    A subclass has `n_examples`, `n_features` and `argmax`. The other attributes and
    methods have defaults, which report that it lacks a capability.
    """

    n_examples: int
    """Number of examples N."""
    n_features: int
    """Length of w."""
    spaces: frozenset[Space] = frozenset(Space)
    """Spaces that `argmax` can search."""
    loss_zero_iff_compatible: bool = False
    """Whether Δ ≥ 0, with Δ = 0 exactly on Y*: the condition of `simplify`."""
    keys: Sequence[bytes] | None = None
    """Fingerprint of each example and its annotation.

    A later fit reuses the bounds of examples with the same fingerprint.
    """
    is_online: bool = False
    """Whether `online` returns an oracle."""

    @property
    def column_order(self) -> Indices | None:
        """(d,) permutation of the weights in which its oracle is fastest, or None."""
        return None

    @property
    def weights_of_examples(self) -> Array:
        """(n_examples,) weights of the examples, which multiply φ and Δ."""
        return np.ones(self.n_examples)

    @abstractmethod
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
        return None

    @property
    def determined(self) -> bool:
        """Whether Y* is known to have one output per example.

        Then reward space Y* is convex.
        """
        return False

    def certainty(self, examples: Indices | None = None) -> Array:
        """(n,) probability that a compatible label is right, candidates being equal."""
        return np.ones(self.n_examples if examples is None else len(examples))

    def separated(
        self,
        examples: Indices | None = None,  # noqa: ARG002
    ) -> Task | None:
        """Return a task of simpler examples with the same mean loss, or None.

        The loss of CLPL is a sum of hinges. A bundle with one group for each of them is
        a much tighter model.
        """
        return None

    def online(
        self,
        w: Array,  # noqa: ARG002
        loss: Loss,  # noqa: ARG002
        examples: Indices | None = None,  # noqa: ARG002
        weights: Array | None = None,  # noqa: ARG002
    ) -> OnlineOracle | None:
        """Return an oracle for C_n of the loss, see `losses`; None if there is none.

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
        return None

    def epochs(self) -> Epochs | None:
        """Return the perceptron's state before its first step.

        None if its steps cost more than their change has entries.
        """
        return None

    def log_loss(
        self,
        w: Array,  # noqa: ARG002
        share: Array,  # noqa: ARG002
        examples: Indices | None = None,  # noqa: ARG002
    ) -> tuple[Array, Array]:
        """Return (n,) -log P(Y* | x), and (d,) its gradient, weighted by `share`."""
        raise MissingCapability(
            "a likelihood sums over all outputs, which the task of this model does not "
            "offer (log_loss); those of Multiclass, Chain and Tree do"
        )

    def ascent(
        self,
        lam: float,  # noqa: ARG002
        share: Array,  # noqa: ARG002
        examples: Indices | None = None,  # noqa: ARG002
    ) -> Ascent | None:
        """Return stochastic steps from w = 0 that maximize the likelihood, or None.

        Parameters
        ----------
        lam : float
        share : ndarray of shape (n_examples,)
            Weights of the examples' losses.
        examples : ndarray of int, optional
        """
        return None

    def curvature(
        self,
        share: Array,  # noqa: ARG002
        examples: Indices | None = None,  # noqa: ARG002
    ) -> Array:
        """Return (d,) about the diagonal of the Hessian of Σ_n share_n log Z_n."""
        return np.ones(self.n_features)


class Subset(Task):
    """Some examples of another task, with weights that multiply φ and Δ.

    Parameters
    ----------
    task : Task
        If it is a Subset itself, this one refers to the task behind it.
    examples : ndarray of int, optional
        All if None.
    weights : ndarray of shape (n_examples,), optional
        Positive weights of the chosen examples.
    """

    def __init__(
        self, task: Task, examples: Indices | None = None, weights: Array | None = None
    ) -> None:
        task = as_task(task)
        chosen = np.arange(task.n_examples) if examples is None else examples
        if weights is not None:
            scale = np.ones(task.n_examples)
            scale[chosen] = weights
            weights = scale
        keys = task.keys
        self.keys = None if keys is None else [keys[i] for i in chosen]
        if self.keys is not None and weights is not None:
            pairs = zip(self.keys, weights[chosen], strict=True)
            self.keys = [key + weight.tobytes() for key, weight in pairs]
        whole = task
        if isinstance(task, Subset):
            chosen = task.examples[chosen]
            weights = task._combine_weights(weights)
            whole = task.task
        self.task: Task = whole
        self.examples: Indices = chosen
        self.weights: Array | None = weights
        """(N,) weights of all examples of the task; None for 1."""
        self.n_examples = len(chosen)
        self.n_features = task.n_features
        self.spaces = task.spaces
        self.loss_zero_iff_compatible = task.loss_zero_iff_compatible
        self.is_online = task.is_online

    def _combine_weights(self, weights: Array | None) -> Array | None:
        """Return weights of the task's examples, times those (n,) of this one's."""
        if weights is None:
            return self.weights
        combined = np.ones(self.task.n_examples)
        combined[self.examples] = weights
        return combined if self.weights is None else self.weights * combined

    def _choose(self, examples: Indices | None) -> Indices:
        """Return the task's examples behind these."""
        return self.examples if examples is None else self.examples[examples]

    @property
    def column_order(self) -> Indices | None:
        """The whole task's order."""
        return self.task.column_order

    @property
    def weights_of_examples(self) -> Array:
        """(n_examples,) weights of the chosen examples."""
        scale = np.ones(self.task.n_examples) if self.weights is None else self.weights
        return scale[self.examples]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return the task's outputs, with φ and Δ times the weight of the example."""
        chosen = self._choose(examples)
        argmax = self.task.argmax(w, space, loss_weight, chosen)
        if self.weights is None:
            return argmax
        scale = self.weights[chosen]
        features = sp.csr_array(sp.diags_array(scale) @ sp.csr_array(argmax.features))
        return Argmax(features, scale * argmax.loss, argmax.found)

    def annotated_part(self) -> Task | None:
        """Return the chosen examples of the whole task's annotated part."""
        part = self.task.annotated_part()
        weights = None if self.weights is None else self.weights_of_examples
        return None if part is None else Subset(part, self.examples, weights)

    @property
    def determined(self) -> bool:
        """Whether this is known of the whole task."""
        return self.task.determined

    def certainty(self, examples: Indices | None = None) -> Array:
        """Return the certainty of the chosen examples."""
        return self.task.certainty(self._choose(examples))

    def separated(self, examples: Indices | None = None) -> Task | None:
        """Separate the chosen examples, unless they have weights."""
        if self.weights is not None:
            return None
        return self.task.separated(self._choose(examples))

    def online(
        self,
        w: Array,
        loss: Loss,
        examples: Indices | None = None,
        weights: Array | None = None,
    ) -> OnlineOracle | None:
        """Return the task's oracle for the chosen examples, with the weights."""
        scale = self._combine_weights(weights)
        return self.task.online(w, loss, self._choose(examples), scale)

    def log_loss(
        self, w: Array, share: Array, examples: Indices | None = None
    ) -> tuple[Array, Array]:
        """Return -log P(Y* | x) of the chosen examples, and its weighted gradient."""
        return self.task.log_loss(w, share, self._choose(examples))

    def ascent(
        self, lam: float, share: Array, examples: Indices | None = None
    ) -> Ascent | None:
        """Return the task's steps on the chosen examples."""
        return self.task.ascent(lam, share, self._choose(examples))

    def curvature(self, share: Array, examples: Indices | None = None) -> Array:
        """Return the curvature of the chosen examples."""
        return self.task.curvature(share, self._choose(examples))


NEEDED = "n_examples", "n_features", "argmax"
"""What a user's task must have."""


class AdaptedTask(Task):
    """A task of a user that has only some of the attributes and methods."""

    def __init__(self, task: Any) -> None:
        self.task = task
        for name in vars(Task).keys() - vars(AdaptedTask).keys():
            is_settable = not isinstance(vars(Task)[name], property)
            if not name.startswith("_") and is_settable and hasattr(task, name):
                setattr(self, name, getattr(task, name))
        self.n_examples = task.n_examples
        self.n_features = task.n_features
        self.is_online = hasattr(task, "online")

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Return what the user's task answers."""
        argmax: Argmax = self.task.argmax(w, space, loss_weight, examples)
        return argmax

    def annotated_part(self) -> Task | None:
        """Return what the user's task says, if it does."""
        part = getattr(self.task, "annotated_part", lambda: None)()
        return None if part is None else as_task(part)

    @property
    def determined(self) -> bool:
        """What the user's task says, if it does."""
        return bool(getattr(self.task, "determined", False))


def as_task(task: Any) -> Task:
    """Return the task; adapt one of a user that is no Task but has what it needs."""
    if isinstance(task, Task):
        return task
    if isinstance(task, type) or not all(hasattr(task, name) for name in NEEDED):
        raise InputError(
            f"got {short_repr(task)}; expected a Task: n_examples, n_features and "
            "argmax(w, space, loss_weight, examples)"
        )
    return AdaptedTask(task)


def weight_examples(task: Task, weights: Array | None) -> Task:
    """Weight the examples of a task.

    Parameters
    ----------
    task : Task
    weights : ndarray of shape (n_examples,), optional
        Positive weights, scaled to a mean of 1. None returns the task itself.
    """
    if weights is None:
        return task
    return Subset(task, weights=np.asarray(weights, dtype=float) / np.mean(weights))


class OnlineOracle(Protocol):
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

    def follow(self, bundle: Bundle, w: Array) -> None:
        """Make the reward's outputs at w the references; shift the bounds to them."""
        ...

    def run(
        self,
        bundle: Bundle,
        w: Array,
        lam: float,
        groups: Indices,
        steps: int,
        gaps: Array,
    ) -> None:
        """Visit groups in turn: argmax at w, a new bound, pairwise steps on the bounds.

        Parameters
        ----------
        bundle : Bundle
            With room for the new bounds. Its columns are in `Task.column_order`.
        w : ndarray of shape (n_features,)
            w(α), in the same order, which moves with the dual weights α.
        lam : float
        groups : ndarray of int
            One example per group.
        steps : int
            Pairwise steps per group.
        gaps : ndarray of shape (n_groups,)
            Overwritten with the gap of each visited group before its steps.
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


class Ascent(Protocol):
    """Stochastic steps that maximize a likelihood, starting at w = 0."""

    @property
    def w(self) -> Array:
        """The weights."""
        ...

    def run(self, order: Indices) -> tuple[float, float, float]:
        """Take one step for each of these examples in turn.

        Returns
        -------
        loss : float
            Mean loss before each step.
        gap : float
            Estimate of how far the objective is above the minimum.
        n_passes : float
            Evaluations of the losses and gradients of all examples.
        """
        ...
