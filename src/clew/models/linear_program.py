"""Models whose outputs are the 0/1 points of a linear program, and their Task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.sparse_rows import row_of_entries
from clew.learning.task import Array, Indices, Matrix, Space, Task
from clew.models.base import Model, SeparateTask, check_weights, identity
from clew.models.examples import (
    Annotation,
    Input,
    Output,
    check_lengths,
    fingerprint,
)
from clew.models.highs_solver import Binary, WarmStartedProgram, propagate_bounds
from clew.parallel import map_examples

T = TypeVar("T")


@dataclass(frozen=True)
class AnnotatedProgram:
    """A program with its annotation, all linear in the output z ∈ {0, 1}ⁿ.

    φ = featuresᵀ z. The number of annotated parts that are wrong in z is
    ⟨wrong, z⟩ + wrong_constant; Δ is that number divided by `divisor`, and z is in Y°
    if it is at least one.
    """

    features: Matrix
    """(n, d) dense or CSR."""
    A: Matrix
    """(m, n) CSR."""
    row_lower: Array
    row_upper: Array
    fixed: Binary
    """(n,) 0 or 1 where the annotation fixes a variable in all of Y*, else -1."""
    wrong: Array
    """(n,)"""
    wrong_constant: int
    n_parts: int
    """Number of annotated parts; if there are none, Y* is Y and Y° is empty."""
    divisor: float

    @property
    def n_variables(self) -> int:
        """Length of z."""
        return int(self.A.shape[1])

    def make_program(self, space: Space) -> WarmStartedProgram:
        """Return the program of one space."""
        n = self.n_variables
        A = self.A
        row_lower = self.row_lower
        row_upper = self.row_upper
        lower = np.zeros(n)
        upper = np.ones(n)
        if space is Space.INCOMPATIBLE:
            A = sp.vstack([A, sp.csr_array(self.wrong[None, :])], format="csr")
            row_lower = np.append(row_lower, 1.0 - self.wrong_constant)
            row_upper = np.append(row_upper, np.inf)
        elif space is Space.COMPATIBLE:
            lower, upper = bounds_of(self.fixed)
        return WarmStartedProgram(A, row_lower, row_upper, lower, upper)

    def compute_scores(self, w: Array, loss_weight: float) -> Array:
        """(n,) what each variable adds to ⟨w, φ⟩ + loss_weight · Δ."""
        return np.asarray(self.features @ w + (loss_weight / self.divisor) * self.wrong)

    def joint_features(self, z: Binary | Array) -> Array:
        """(d,) φ = featuresᵀ z; z may be fractional."""
        return np.asarray(self._transposed_features @ z.astype(float)).ravel()

    @cached_property
    def _transposed_features(self) -> Matrix:
        """(d, n) kept, since rows of a sparse matrix cost ten times the product."""
        transposed = self.features.T
        return sp.csr_array(transposed) if sp.issparse(transposed) else transposed

    @cached_property
    def _fixed_in_compatible(self) -> tuple[Binary, bool]:
        """The values that hold in all of Y*, -1 elsewhere; whether Y* is not empty.

        They are the annotated ones and those that follow row by row.
        """
        if not self.n_parts:
            return np.full(self.n_variables, -1, dtype=np.int8), True
        lower, upper, is_consistent = propagate_bounds(
            self.A, self.row_lower, self.row_upper, *bounds_of(self.fixed)
        )
        return np.where(lower >= upper, lower, -1).astype(np.int8), is_consistent

    @property
    def determined(self) -> Binary:
        """(n,) the values that are seen to hold in all of Y*; -1 elsewhere."""
        return self._fixed_in_compatible[0]

    @property
    def is_determined(self) -> bool:
        """Whether Y* is seen to be the one output `determined`."""
        values, is_consistent = self._fixed_in_compatible
        return self.n_parts > 0 and is_consistent and bool((values >= 0).all())

    def restrict(self, fixed: Binary) -> AnnotatedProgram:
        """Return the program of the variables that are not at -1, with these values.

        The others may do to each row what they can.
        """
        is_known = fixed >= 0
        m = self.A.shape[0]
        row = row_of_entries(self.A)
        stays = is_known[self.A.indices]
        sizes = np.bincount(row[stays], minlength=m)
        rows = np.flatnonzero(sizes)
        others = np.where(stays, 0.0, self.A.data)
        least = np.bincount(row, np.minimum(others, 0.0), m)[rows]
        most = np.bincount(row, np.maximum(others, 0.0), m)[rows]
        # by hand, since indexing is far slower in scipy.sparse
        indptr = np.concatenate([[0], np.cumsum(sizes[rows])])
        place = np.cumsum(is_known) - 1
        A = sp.csr_array(
            (self.A.data[stays], place[self.A.indices[stays]], indptr),
            shape=(len(rows), np.count_nonzero(is_known)),
        )
        return replace(
            self,
            features=self.features[is_known],
            A=A,
            row_lower=self.row_lower[rows] - most,
            row_upper=self.row_upper[rows] - least,
            fixed=fixed[is_known],
            wrong=self.wrong[is_known],
        )

    def loss(self, z: Binary | Array) -> float:
        """Δ(y*, z); mistakes of a 0/1 output are counted exactly."""
        mistakes = float(self.wrong @ z) + self.wrong_constant
        if z.dtype == np.int8:
            return round(mistakes) / self.divisor
        return max(0.0, mistakes) / self.divisor

    def explain_infeasibility(self, n: int) -> InputError:
        """Return the error for an empty Y or Y*, with a minimal set of conflicts."""
        program = self.make_program(Space.ALL)
        scores = np.zeros(self.n_variables)

        def is_feasible(variables: Sequence[int]) -> bool:
            fixed = np.full(len(scores), -1, dtype=np.int8)
            fixed[list(variables)] = self.fixed[list(variables)]
            program.set_bounds(*bounds_of(fixed))
            return program.solve(scores) is not None

        if not is_feasible([]):
            return InputError(
                f"example {n}: no output satisfies the rows of its programme, whatever "
                "the annotation"
            )
        annotated = np.flatnonzero(self.fixed >= 0).tolist()
        parts = find_minimal_conflict(annotated, is_feasible)
        values = ", ".join(f"variable {part} = {self.fixed[part]}" for part in parts)
        return InfeasibleAnnotation(
            f"example {n}: no output agrees with its annotation; not possible "
            f"together: {values}",
            n,
            tuple(parts),
        )


class LinearTask(SeparateTask):
    """Annotated programs as a Task, with a warm-started program by example and space.

    Parameters
    ----------
    examples : sequence of AnnotatedProgram
    keys : sequence of bytes
        Fingerprint of each example.
    n_features : int
    n_jobs : int
        Number of threads that share the examples.
    relaxed : bool
        For annotated parts: all variables are fixed in Y*, and outputs may be
        fractional.
    """

    loss_zero_iff_compatible = True

    def __init__(
        self,
        examples: Sequence[AnnotatedProgram],
        keys: Sequence[bytes],
        n_features: int,
        n_jobs: int = 1,
        relaxed: bool = False,
    ) -> None:
        self.examples = examples
        self.keys = keys
        self.n_examples = len(examples)
        self.n_features = n_features
        self.n_jobs = n_jobs
        self.relaxed = relaxed
        self.programs: dict[tuple[int, Space], WarmStartedProgram] = {}

    @property
    def determined(self) -> bool:
        """Whether Y* is seen to be one output for each example."""
        return all(example.is_determined for example in self.examples)

    def describe_best(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> tuple[Array, float] | None:
        """Return φ and Δ of a maximizer for example n, from its last basis."""
        z = self.solve_example(n, w, space, loss_weight)
        example = self.examples[n]
        return None if z is None else (example.joint_features(z), example.loss(z))

    def solve_example(
        self, n: int, w: Array, space: Space, loss_weight: float
    ) -> Binary | Array | None:
        """Return a maximizer; None where Y° is empty.

        Raises
        ------
        InputError
            If Y or Y* is empty.
        """
        example = self.examples[n]
        if not example.n_parts:
            if space is Space.INCOMPATIBLE:
                return None
            space = Space.ALL
        if space is Space.COMPATIBLE and self.relaxed:
            return example.fixed  # an annotated part has no other variables
        if space is Space.COMPATIBLE and example.is_determined:
            return example.determined
        program = self.programs.get((n, space))
        if program is None:
            program = example.make_program(space)
            self.programs[n, space] = program
        scores = example.compute_scores(w, loss_weight)
        z: Binary | Array | None
        if self.relaxed:
            z = program.solve_relaxed(scores)
        else:
            solution = program.solve(scores)
            z = None if solution is None else solution.y
        if z is None and space is not Space.INCOMPATIBLE:
            raise example.explain_infeasibility(n)
        return z

    def annotated_part(self) -> Task | None:
        """Return the variables that have one value in all of Y*.

        It is relaxed: the other variables may do something else for each row, and
        outputs may be fractional, since integral ones would often take an integer
        program that decides nothing that counts.
        """
        if self.relaxed:
            return None  # it is one itself
        is_known = [example.determined >= 0 for example in self.examples]
        if not any(mask.any() for mask in is_known):
            return None
        if all(mask.all() for mask in is_known):
            return None
        parts = [example.restrict(example.determined) for example in self.examples]
        keys = [fingerprint("annotated part", key) for key in self.keys or ()]
        return LinearTask(parts, keys, self.n_features, self.n_jobs, relaxed=True)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "programs": {}}


class LinearModel(Model):
    """Base of the models that are encoded as a 0/1 linear program."""

    domain_names: tuple[str, ...] = ("n_features",)

    def encode(
        self, x: Input, annotation: Annotation, example: int | None = None
    ) -> AnnotatedProgram:
        """Return the program of x with this annotation; `example` is for errors."""
        raise NotImplementedError

    def decode(self, x: Input, z: Binary) -> Output:
        """Return the output that z stands for."""
        raise NotImplementedError

    def choices(self, x: Input) -> tuple[Indices, Binary]:
        """(parts, choices) twice: the variable and the value of each choice."""
        raise NotImplementedError

    def max_marginals(
        self, X: Sequence[Input], w: Array, n_jobs: int = 1
    ) -> list[Array]:
        """For each input (parts, choices) what the best output loses by a choice."""

        def compute_losses(n: int) -> Array:
            variables, values = self.choices(X[n])
            best = _BestOutput(self, X[n], w, n)
            return best.force(variables, values)

        return map_examples(compute_losses, range(len(X)), n_jobs)

    def margins(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Array]:
        """For each input (parts,) what the best output loses if a part must change."""

        def compute_margins(n: int) -> Array:
            variables, values = self.choices(X[n])
            best = _BestOutput(self, X[n], w, n)
            parts = np.arange(len(variables))
            chosen = (best.y[variables] == values).argmax(axis=1)
            return -best.force(variables[parts, chosen], 1 - values[parts, chosen])

        return map_examples(compute_margins, range(len(X)), n_jobs)

    def check_inputs(self, X: Sequence[Input]) -> None:
        """Raise an error for inputs that cannot be encoded."""
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
        """Return the best output in `space`; None if the space is empty."""
        task = LinearTask([self.encode(x, annotation)], [b""], self.n_features)
        w = check_weights(w, self.n_features)
        z = task.solve_example(0, w, space, loss_weight)
        return None if z is None else self.decode(x, np.asarray(z, dtype=np.int8))

    def task(
        self, X: Sequence[Input], Y: Sequence[Annotation], n_jobs: int = 1
    ) -> LinearTask:
        """Return the learning problem on these examples."""
        check_lengths(X, Y)
        model_key = identity(self)
        examples = []
        keys = []
        for n, (x, y) in enumerate(zip(X, Y, strict=True)):
            e = self.encode(x, y, n)
            content = e.features, e.A, e.row_lower, e.row_upper, e.fixed
            examples.append(e)
            keys.append(fingerprint(*model_key, *content))
        return LinearTask(examples, keys, self.n_features, n_jobs)

    def predict(self, X: Sequence[Input], w: Array, n_jobs: int = 1) -> list[Output]:
        """Return the best output for each input."""
        return map_examples(
            lambda n: self.decode(X[n], _BestOutput(self, X[n], w, n).y),
            range(len(X)),
            n_jobs,
        )


class _BestOutput:
    """The best output of x, and the best outputs with one variable forced."""

    def __init__(self, model: LinearModel, x: Input, w: Array, n: int) -> None:
        example = model.encode(x, None, n)
        w = check_weights(w, model.n_features)
        self.scores = example.compute_scores(w, 0.0)
        self.program = example.make_program(Space.ALL)
        solution = self.program.solve(self.scores)
        if solution is None:
            raise example.explain_infeasibility(n)
        self.y = solution.y

    def force(self, variables: Indices, values: Binary) -> Array:
        """Return the change of the score with each variable forced, at most 0."""
        changes = np.zeros(variables.shape)
        for place in map(tuple, np.argwhere(self.y[variables] != values)):
            fixed = np.full(len(self.y), -1, dtype=np.int8)
            fixed[variables[place]] = values[place]
            self.program.set_bounds(*bounds_of(fixed))
            solution = self.program.solve(self.scores)
            changes[place] = -np.inf
            if solution is not None:
                change = float(self.scores @ (solution.y - self.y.astype(float)))
                changes[place] = min(0.0, change)
        return changes


def bounds_of(fixed: Binary) -> tuple[Array, Array]:
    """(n,), (n,) bounds that fix variables at 0 or 1, and leave those at -1 free."""
    return np.where(fixed == 1, 1.0, 0.0), np.where(fixed == 0, 0.0, 1.0)


def find_minimal_conflict(
    parts: Sequence[T], is_feasible: Callable[[Sequence[T]], bool]
) -> list[T]:
    """Return an infeasible subset of `parts` whose proper subsets are feasible.

    QuickXplain (Junker 2004).
    """

    def explain(background: list[T], is_new: bool, rest: Sequence[T]) -> list[T]:
        if is_new and not is_feasible(background):
            return []
        if len(rest) == 1:
            return list(rest)
        half = len(rest) // 2
        first = rest[:half]
        of_second = explain([*background, *first], True, rest[half:])
        of_first = explain([*background, *of_second], bool(of_second), first)
        return of_first + of_second

    return explain([], False, parts)
