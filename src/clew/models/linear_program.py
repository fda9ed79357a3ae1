"""Models whose outputs are the 0/1 points of a linear programme, as a Task on kept HiGHS models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.sparse_rows import row_of_entries, sparse
from clew.learning.task import Argmax, Array, Indices, Matrix, Space, Task
from clew.models.base import ALL_SPACES, Model, check_lengths, check_weights, identity
from clew.models.examples import Annotation, Input, Output
from clew.models.fingerprint import fingerprint
from clew.models.highs_solver import Binary, KeptProgram, propagate
from clew.parallel import map_examples

T = TypeVar("T")


@dataclass(frozen=True)
class Annotated:
    """A programme with its annotation, all linear in the output z ∈ {0, 1}ⁿ.

    φ = featuresᵀ z; the number of annotated parts that z gets wrong is ⟨wrong, z⟩ + wrong_constant, Δ is that number
    divided by `divisor`, and z lies in Y° exactly if it is at least one.
    """

    features: Matrix
    """(n, d) dense or CSR."""
    A: Matrix
    """(m, n) CSR."""
    row_lower: Array
    row_upper: Array
    fixed: Binary
    """(n,) 0 or 1 where the annotation fixes a variable for all of Y*, −1 elsewhere."""
    wrong: Array
    """(n,)"""
    wrong_constant: int
    n_parts: int
    """How many parts are annotated; without any, Y* is Y and Y° is empty."""
    divisor: float

    def kept(self, space: Space) -> KeptProgram:
        """The programme of one space."""
        n = self.A.shape[1]
        if space is Space.INCOMPATIBLE:
            A = sp.vstack([self.A, sp.csr_array(self.wrong[None, :])], format="csr")
            rows = (
                np.append(self.row_lower, 1.0 - self.wrong_constant),
                np.append(self.row_upper, np.inf),
            )
            return KeptProgram(A, *rows, np.zeros(n), np.ones(n))
        bounds = (
            fixed_bounds(self.fixed)
            if space is Space.COMPATIBLE
            else (np.zeros(n), np.ones(n))
        )
        return KeptProgram(self.A, self.row_lower, self.row_upper, *bounds)

    def scores(self, w: Array, loss_weight: float) -> Array:
        """(n,) what each variable adds to ⟨w, φ⟩ + loss_weight · Δ."""
        return np.asarray(self.features @ w + (loss_weight / self.divisor) * self.wrong)

    def joint_features(self, z: Binary | Array) -> Array:
        """(d,) φ = featuresᵀ z; z may be fractional."""
        return np.asarray(self.columns @ z.astype(float)).ravel()

    @cached_property
    def columns(self) -> Matrix:
        """(d, n) the features' transpose, kept: to take rows of a sparse matrix costs ten times the product."""
        return (
            sp.csr_array(self.features.T)
            if sp.issparse(self.features)
            else self.features.T
        )

    @cached_property
    def determined(self) -> tuple[Binary, bool]:
        """(n,) the values that hold in all of Y*, of annotated variables and of what follows row by row; −1 elsewhere.

        And whether that leaves one output, which is all of Y* then.
        """
        lower, upper = fixed_bounds(self.fixed)
        if not self.n_parts:
            return np.full(len(lower), -1, dtype=np.int8), False
        consistent = propagate(self.A, self.row_lower, self.row_upper, lower, upper)
        return np.where(lower >= upper, lower, -1).astype(np.int8), consistent and bool(
            (lower == upper).all()
        )

    def part(self, fixed: Binary) -> Annotated:
        """The variables with these values in all of Y*, without those at −1, which may do to each row what they can."""
        known = fixed >= 0
        row, stays = (
            row_of_entries(self.A),
            known[self.A.indices],
        )  # by hand: indexing takes far longer in scipy.sparse
        sizes = np.bincount(row[stays], minlength=self.A.shape[0])
        rows, others = np.flatnonzero(sizes), np.where(stays, 0.0, self.A.data)
        least, most = (
            np.bincount(row, extreme(others, 0.0), self.A.shape[0])[rows]
            for extreme in (np.minimum, np.maximum)
        )
        begins, place = (
            np.concatenate([[0], np.cumsum(sizes[rows])]),
            np.cumsum(known) - 1,
        )
        A = sp.csr_array(
            (self.A.data[stays], place[self.A.indices[stays]], begins),
            shape=(len(rows), np.count_nonzero(known)),
        )
        return replace(
            self,
            features=self.features[known],
            A=A,
            row_lower=self.row_lower[rows] - most,
            row_upper=self.row_upper[rows] - least,
            fixed=fixed[known],
            wrong=self.wrong[known],
        )

    def delta(self, z: Binary | Array) -> float:
        """Δ(y*, z); the mistakes of a 0/1 output are counted exactly."""
        mistakes = float(self.wrong @ z) + self.wrong_constant
        return (
            round(mistakes) if z.dtype == np.int8 else max(0.0, mistakes)
        ) / self.divisor

    def why_infeasible(self, n: int) -> InputError:
        """The error for an empty Y or Y*, with a minimal set of annotated parts that cannot hold together."""
        program = self.kept(Space.ALL)
        scores = np.zeros(self.A.shape[1])

        def feasible(variables: Sequence[int]) -> bool:
            fixed = np.full(len(scores), -1, dtype=np.int8)
            fixed[list(variables)] = self.fixed[list(variables)]
            program.rebound(*fixed_bounds(fixed))
            return program.maximise(scores) is not None

        if not feasible([]):
            return InputError(
                f"example {n}: no output satisfies the rows of its programme, whatever the annotation"
            )
        parts = minimal_conflict(np.flatnonzero(self.fixed >= 0).tolist(), feasible)
        together = ", ".join(f"variable {part} = {self.fixed[part]}" for part in parts)
        message = f"example {n}: no output agrees with its annotation; not possible together: {together}"
        return InfeasibleAnnotation(message, n, tuple(parts))


class LinearTask:
    """Annotated programmes as a Task; a kept HiGHS model for each example and space, made when first asked for.

    `relaxed` is for annotated parts: all variables are fixed in Y*, and outputs may be fractional, combinations of
    outputs and what else satisfies the rows.
    """

    spaces = ALL_SPACES
    loss_zero_iff_compatible = True

    def __init__(
        self,
        examples: Sequence[Annotated],
        keys: Sequence[bytes],
        n_features: int,
        n_jobs: int = 1,
        relaxed: bool = False,
    ) -> None:
        self.examples, self.n_jobs, self.relaxed = examples, n_jobs, relaxed
        self.keys: Sequence[bytes] | None = keys
        self.n_examples, self.n_features = len(examples), n_features
        self.kept: dict[tuple[int, Space], KeptProgram] = {}

    @property
    def determined(self) -> bool:
        """Whether it is seen, row by row, that Y* is one output for each example."""
        return all(example.determined[1] for example in self.examples)

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Maximise ⟨w, φ⟩ + loss_weight · Δ in `space`, from the basis of the last question about each example."""
        w = check_weights(w, self.n_features)
        return self._answers(lambda n: self.output(n, w, space, loss_weight), examples)

    def _answers(
        self, output: Callable[[int], Binary | Array | None], examples: Indices | None
    ) -> Argmax:
        """φ and Δ of one output for each example."""

        def one(n: int) -> tuple[Array, float] | None:
            z = output(n)
            return (
                None
                if z is None
                else (self.examples[n].joint_features(z), self.examples[n].delta(z))
            )

        indices = (
            range(self.n_examples) if examples is None else [int(n) for n in examples]
        )
        found = map_examples(one, indices, self.n_jobs)
        rows = [np.zeros(self.n_features) if f is None else f[0] for f in found]
        features = sparse(np.array(rows).reshape(len(rows), self.n_features))
        loss = np.array([0.0 if f is None else f[1] for f in found])
        return Argmax(
            features, loss, np.array([f is not None for f in found], dtype=bool)
        )

    def output(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> Binary | Array | None:
        """The maximiser itself; None where Y° is empty, an error where Y or Y* is."""
        example = self.examples[n]
        if not example.n_parts:
            if space is Space.INCOMPATIBLE:
                return None
            space = Space.ALL
        if space is Space.COMPATIBLE and self.relaxed:
            return example.fixed  # an annotated part has no other variables
        if space is Space.COMPATIBLE and example.determined[1]:
            return example.determined[0]
        program = self.kept.get((n, space))
        if program is None:
            program = self.kept.setdefault((n, space), example.kept(space))
        z = (program.maximise_relaxed if self.relaxed else program.maximise)(
            example.scores(w, loss_weight)
        )
        if z is None and space is not Space.INCOMPATIBLE:
            raise example.why_infeasible(n)
        return z

    def annotated_part(self) -> Task | None:
        """The variables that have one value in all of Y*, while those that Y* leaves open may do what they like.

        Relaxed, in that the open ones may do something else for each row, and in that outputs may be fractional: an
        integral answer would often take an integer programme, to decide nothing that counts.
        """
        if self.relaxed:
            return None  # it is one itself
        determined = [example.determined[0] for example in self.examples]
        known = [fixed >= 0 for fixed in determined]
        if not any(mask.any() for mask in known) or all(mask.all() for mask in known):
            return None
        parts = [
            example.part(fixed)
            for example, fixed in zip(self.examples, determined, strict=True)
        ]
        keys = [fingerprint("annotated part", key) for key in self.keys or ()]
        return LinearTask(parts, keys, self.n_features, self.n_jobs, relaxed=True)

    def drop_solvers(self) -> None:
        """Give the kept solvers' memory back; the next question starts them afresh."""
        self.kept.clear()

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "kept": {}}


class LinearModel(Model):
    """Base of the models that are encoded as a 0/1 linear programme."""

    domain_names: tuple[str, ...] = ("n_features",)

    def encode(
        self, x: Input, annotation: Annotation, example: int | None = None
    ) -> Annotated:
        """The programme of x with this annotation; `example` is for error messages."""
        raise NotImplementedError

    def decode(self, x: Input, z: Binary) -> Output:
        """The output that z stands for."""
        raise NotImplementedError

    def choices(self, x: Input) -> tuple[Indices, Binary]:
        """(parts, choices) twice: the variable and its value that stand for each choice of each part of an output."""
        raise NotImplementedError

    def max_marginals(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> list[Array]:
        """For each input (parts, choices) what the best output loses when a part is forced, by solving again."""
        return map_examples(
            lambda n: self._forced(X[n], w, n, every=True), range(len(X)), n_jobs
        )

    def margins(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Array]:
        """For each input (parts,) what the best output loses when its choice for a part is forbidden."""
        return map_examples(
            lambda n: self._forced(X[n], w, n, every=False), range(len(X)), n_jobs
        )

    def _forced(self, x: Input, w: Array, n: int, every: bool) -> Array:
        """The losses of every choice that is not in the best output, or of the best of these for each part."""
        example = self.encode(x, None, n)
        scores = example.scores(check_weights(w, self.n_features), 0.0)
        program = example.kept(Space.ALL)
        z = program.maximise(scores)
        if z is None:
            raise example.why_infeasible(n)
        variables, values = self.choices(x)
        chosen = z[variables] == values
        losses = np.zeros(chosen.shape)

        def loss_with(variable: int, value: int) -> float:
            fixed = np.full(len(z), -1, dtype=np.int8)
            fixed[variable] = value
            program.rebound(*fixed_bounds(fixed))
            other = program.maximise(scores)
            return (
                -np.inf
                if other is None
                else min(0.0, float(scores @ (other - z.astype(float))))
            )

        if every:
            for part, choice in np.argwhere(~chosen):
                losses[part, choice] = loss_with(
                    int(variables[part, choice]), int(values[part, choice])
                )
            return losses
        own = chosen.argmax(axis=1)
        pairs = zip(
            variables[np.arange(len(own)), own],
            values[np.arange(len(own)), own],
            strict=True,
        )
        return np.array(
            [-loss_with(int(variable), 1 - int(value)) for variable, value in pairs]
        )

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Refuse what cannot be encoded."""
        for n, x in enumerate(X):
            self.encode(x, None, n)

    def argmax(
        self,
        x: Input,
        w: Array,
        annotation: Annotation,
        space: Space,
        loss_weight: float,
    ) -> Output | None:
        """The best output in `space`, or None where the space is empty."""
        task = LinearTask([self.encode(x, annotation)], [b""], self.n_features)
        z = task.output(0, check_weights(w, self.n_features), space, loss_weight)
        return None if z is None else self.decode(x, np.asarray(z, dtype=np.int8))

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> LinearTask:
        """The learning problem on these examples."""
        check_lengths(X, Y)
        examples = [
            self.encode(x, y, n) for n, (x, y) in enumerate(zip(X, Y, strict=True))
        ]
        keys = [
            fingerprint(
                *identity(self), e.features, e.A, e.row_lower, e.row_upper, e.fixed
            )
            for e in examples
        ]
        return LinearTask(examples, keys, self.n_features, n_jobs)

    def predict(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Output]:
        """The best output for each input."""
        w = check_weights(w, self.n_features)

        def best(n: int) -> Output:
            example = self.encode(X[n], None, n)
            z = example.kept(Space.ALL).maximise(example.scores(w, 0.0))
            if z is None:
                raise example.why_infeasible(n)
            return self.decode(X[n], z)

        return map_examples(best, range(len(X)), n_jobs)


def fixed_bounds(fixed: Binary) -> tuple[Array, Array]:
    """(n,), (n,) the bounds that hold variables at 0 or 1, and leave those at −1 open."""
    return np.where(fixed == 1, 1.0, 0.0), np.where(fixed == 0, 0.0, 1.0)


def minimal_conflict(
    parts: Sequence[T], feasible: Callable[[Sequence[T]], bool]
) -> list[T]:
    """A subset of `parts` that is infeasible while each of its own subsets is feasible (QuickXplain, Junker 2004)."""

    def explain(background: list[T], added: bool, rest: Sequence[T]) -> list[T]:
        if added and not feasible(background):
            return []
        if len(rest) == 1:
            return list(rest)
        first, second = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        of_second = explain([*background, *first], True, second)
        return explain([*background, *of_second], bool(of_second), first) + of_second

    return explain([], False, parts)
