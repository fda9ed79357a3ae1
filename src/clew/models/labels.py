"""The labels of a node: which states an annotation allows, and which label a state stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Array, Indices, Mask
from clew.utils.validation import check_int, check_positive, short_repr

Label: TypeAlias = str | int | float | bool
Classes: TypeAlias = Iterable[Label | np.generic]
"""The labels that there are, as callers declare them."""
ClassWeight: TypeAlias = Literal["balanced"] | Mapping[Any, float]
"""What a mistake costs by class. Keys are labels; Any, since a mapping's key type must fit exactly, so that
Mapping[str, float] would be no Mapping[Label, float]."""
LARGEST_WEIGHT = 1e100
"""Of a class: sums of such weights, and their squares, are still numbers."""
Place: TypeAlias = Callable[[int], tuple[int | None, int | None]]
"""From a node's index to its example and its position there, for error messages."""


class Nodes(Protocol):
    """The annotations of all nodes of an example, in order: a list, an array, or what else can be counted."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def name_place(
    example: int | None, position: int | None = None, unnamed: str = "the annotation"
) -> str:
    """The place of a node in words."""
    words = [f"example {example}"] * (example is not None) + [
        f"position {position}"
    ] * (position is not None)
    return ", ".join(words) or unnamed


def plain(label: object) -> Any:
    """A numpy scalar as the Python scalar that JSON knows."""
    return (
        label.item()
        if isinstance(label, np.generic)
        or (isinstance(label, np.ndarray) and not label.ndim)
        else label
    )


def as_nodes(labels: Any, example: int | None) -> Nodes:
    """The labels of all nodes as an array or a sequence; they must have an order."""
    if isinstance(labels, np.ndarray) and labels.ndim:
        return labels
    if hasattr(labels, "__array__") and np.asarray(labels).ndim:
        return np.asarray(labels)
    if (
        isinstance(labels, (Set, dict, type))
        or not hasattr(labels, "__len__")
        or hasattr(labels, "shape")
    ):
        raise InputError(
            f"{name_place(example)}: a sequence with a label for each node is expected, not {short_repr(labels)}"
        )
    nodes: Nodes = labels
    return nodes


def is_candidates(label: object) -> TypeGuard[Nodes]:
    """Whether the annotation of one node is a set of labels, one of which is right."""
    return isinstance(label, (Set, list, tuple)) or (
        isinstance(label, np.ndarray) and label.ndim > 0
    )


def is_mask(label: object) -> TypeGuard[Mask]:
    """Whether the annotation of one node marks its candidates in a boolean array, one entry for each class."""
    return isinstance(label, np.ndarray) and label.dtype == bool and label.ndim == 1


def is_flat(labels: object) -> TypeGuard[NDArray[Any]]:
    """Whether these labels can be looked up all at once."""
    return (
        isinstance(labels, np.ndarray)
        and labels.ndim == 1
        and labels.dtype.kind in "biufU"
    )


def is_parsed(labels: object) -> TypeGuard[Mask]:
    """Whether these are candidates marked in one boolean matrix, a row for each node: what parsing makes of any."""
    return isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype == bool


def is_whole(label: object) -> TypeGuard[float]:
    """Whether a plain label is a whole number."""
    return (
        isinstance(label, (int, float))
        and not isinstance(label, bool)
        and label % 1 == 0
    )


def is_minus_one(label: object) -> bool:
    """Whether a plain label is the number -1."""
    return isinstance(label, (int, float)) and label == -1


def is_missing(label: object) -> bool:
    """Whether a plain label is None or NaN, which are never classes."""
    return label is None or (isinstance(label, float) and math.isnan(label))


@dataclass(frozen=True)
class LabelSpace:
    """The classes of a node, in the order of its states.

    A node's annotation is a label, a set of candidate labels, or unknown: None, NaN, and -1 unless -1 is among the
    classes.
    """

    classes: tuple[Label, ...]

    @classmethod
    def of(
        cls,
        annotations: Iterable[object],
        classes: Classes | None = None,
        n_states: int | None = None,
    ) -> LabelSpace:
        """The classes that were declared, else range(n_states) where the labels fit in it, else the labels seen."""
        if n_states is not None:
            n_states = check_int(n_states, "the number of states", 1)
        if classes is not None:
            return cls(declared_classes(classes, n_states))
        labels, minus_one, width = labels_seen(annotations)
        if width is not None:
            if n_states not in (None, width):
                raise InputError(
                    f"a boolean candidate matrix has {width} columns for {n_states} states"
                )
            n_states = width
        if n_states is not None:
            if all(
                is_whole(label) and 0 <= float(label) < n_states for label in labels
            ):
                return cls(tuple(range(int(n_states))))
            if len(labels) > n_states or width is not None:
                raise InputError(
                    f"{len(labels)} labels are annotated, {short_repr(labels)}; there should be {n_states} states"
                )
        elif not labels:
            raise InputError(
                "nothing is annotated: give the classes or their number, or annotate an example"
            )
        elif minus_one and labels == [1]:
            raise InputError(
                "the labels are -1 and 1, but -1 marks the unknown; give classes=[-1, 1] if it is a class"
            )
        return cls(tuple(labels))

    @property
    def n_states(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @cached_property
    def _state_of(self) -> dict[Label, int]:
        return {label: state for state, label in enumerate(self.classes)}

    @cached_property
    def _labels(self) -> NDArray[np.generic]:
        kinds = {type(label) for label in self.classes}
        if len(kinds) == 1 or kinds == {int, float}:
            return np.array(self.classes)
        labels = np.empty(self.n_states, dtype=object)
        labels[:] = self.classes
        return labels

    def decode(self, states: Indices) -> NDArray[np.generic]:
        """The labels of these states."""
        return self._labels[states]

    def class_weights(self, class_weight: ClassWeight, allowed: Mask) -> Array:
        """(S,) the weight of each class: as given by a mapping from labels, or "balanced".

        Balanced weights are n / (S · nₛ), where nₛ nodes of the n annotated ones have class s, as in scikit-learn; a
        node with several candidates counts for each in equal parts.
        """
        if isinstance(class_weight, str) and class_weight == "balanced":
            known = allowed[~allowed.all(axis=1)]
            counts = (known / known.sum(axis=1, keepdims=True)).sum(axis=0)
            return np.asarray(
                len(known)
                / (
                    self.n_states
                    * np.where(counts > 0, counts, len(known) / self.n_states)
                )
            )
        if not isinstance(class_weight, Mapping):
            raise InputError(
                f"class_weight is {short_repr(class_weight)}; expected 'balanced' or a mapping from classes to weights"
            )
        weights = np.ones(self.n_states)
        for label, weight in class_weight.items():
            if not isinstance(label, Hashable) or plain(label) not in self._state_of:
                raise InputError(
                    f"class_weight names {short_repr(label)}, which is not one of the classes {shortened(self.classes)}"
                )
            weights[self._state_of[plain(label)]] = check_positive(
                weight, f"class_weight of {label!r}", LARGEST_WEIGHT
            )
        return weights

    def is_unknown(self, label: object) -> bool:
        """Whether this marks a node, or a whole example, as not annotated."""
        label = plain(label)
        return is_missing(label) or (is_minus_one(label) and -1 not in self._state_of)

    def encode(self, labels: object, n_nodes: int | None = None) -> Indices:
        """(T,) the states of an output: a definite label at every node."""
        allowed = self.allowed(labels, n_nodes)
        indefinite = np.flatnonzero(allowed.sum(axis=1) != 1)
        if len(indefinite):
            raise InputError(
                f"an output needs one label at every position; position {indefinite[0]} has none"
            )
        return np.asarray(allowed.argmax(axis=1), dtype=np.intp)

    def allowed(
        self,
        labels: object,
        n_nodes: int | None = None,
        place: Place = lambda k: (None, k),
    ) -> Mask:
        """(T, S) True where a state agrees with the annotation of its node."""
        if self.is_unknown(labels):
            return np.ones((n_nodes or 0, self.n_states), dtype=bool)
        example = place(0)[0]
        nodes = as_nodes(labels, example)
        if n_nodes is not None and len(nodes) != n_nodes:
            raise InputError(
                f"{name_place(example)}: {len(nodes)} labels are given for {n_nodes} nodes"
            )
        if (
            is_parsed(nodes)
            and nodes.shape[1] == self.n_states
            and nodes.any(axis=1).all()
        ):
            return np.asarray(nodes)
        if is_flat(nodes):
            # a look-up for each different label, not for each node
            different, first, which = np.unique(
                nodes, return_index=True, return_inverse=True
            )
            rows = [
                self._allowed_states(label, int(k), place)
                for label, k in zip(different, first, strict=True)
            ]
            return np.array(rows, dtype=bool).reshape(-1, self.n_states)[which]
        return self._allowed_one_by_one(nodes, place)

    def _allowed_one_by_one(self, labels: Nodes, place: Place) -> Mask:
        """(T, S) the same for a list; a label that was met before is looked up in a table, which is most of them."""
        rows: list[Mask] = []
        row_of: dict[object, int] = {}
        which: list[int] = []
        for k, label in enumerate(labels):
            try:
                row = row_of.get(label)
            except (TypeError, ValueError):  # candidates in a set, a list or an array
                which.append(len(rows))
                rows.append(self._allowed_states(label, k, place))
                continue
            if row is None:
                row = row_of[label] = len(rows)
                rows.append(self._allowed_states(label, k, place))
            which.append(row)
        return np.array(rows, dtype=bool).reshape(-1, self.n_states)[
            np.array(which, dtype=np.intp)
        ]

    def _allowed_states(self, label: object, k: int, place: Place) -> Mask:
        """(S,) the states that agree with one node's annotation."""
        given = plain(label)
        if self.is_unknown(given):
            return np.ones(self.n_states, dtype=bool)
        if not is_candidates(given):
            candidates = [given]
        elif is_mask(given):
            if len(given) != self.n_states:
                raise InputError(
                    f"{name_place(*place(k))}: {len(given)} candidate marks for {self.n_states} classes"
                )
            candidates = [self.classes[state] for state in np.flatnonzero(given)]
        else:
            candidates = [plain(candidate) for candidate in given]
        if not candidates:
            example, position = place(k)
            message = f"{name_place(example, position)}: the candidate set is empty; None marks an unknown label"
            raise InfeasibleAnnotation(
                message, example, () if position is None else (position,)
            )
        allowed = np.zeros(self.n_states, dtype=bool)
        for candidate in candidates:
            try:
                allowed[self._state_of[candidate]] = True
            except (KeyError, TypeError, ValueError):
                hint = (
                    "; an unknown marker cannot be a candidate"
                    if self.is_unknown(candidate)
                    else ""
                )
                message = f"label {candidate!r} is not one of the {self.n_states} classes {shortened(self.classes)}{hint}"
                raise InputError(f"{name_place(*place(k))}: {message}") from None
        return allowed


def shortened(classes: tuple[Label, ...]) -> str:
    """The first few classes, for a message."""
    return ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")


def declared_classes(classes: Classes, n_states: int | None) -> tuple[Label, ...]:
    """The user's explicit classes, checked."""
    if not isinstance(classes, Iterable) or getattr(classes, "ndim", 1) != 1:
        raise InputError(
            f"classes is {short_repr(classes)}; expected the labels that there are"
        )
    explicit = [plain(label) for label in classes]
    for label in explicit:
        check_label(label)
    if isinstance(classes, Set):
        explicit = in_order(explicit)
    if not explicit or len(set(explicit)) != len(explicit):
        raise InputError(
            f"classes must be different labels, at least one; they are {short_repr(explicit)}"
        )
    if n_states not in (None, len(explicit)):
        raise InputError(
            f"{len(explicit)} classes are declared, and the number of states is {n_states}; give one of both"
        )
    return tuple(explicit)


def labels_seen(annotations: Iterable[object]) -> tuple[list[Label], bool, int | None]:
    """The labels in order, whether -1 occurs, and the width of boolean candidate masks."""
    seen: set[Label] = set()
    widths: set[int] = set()
    arrays: dict[np.dtype[Any], list[NDArray[Any]]] = {}
    for example, annotation in enumerate(annotations):
        if is_missing(plain(annotation)) or is_minus_one(plain(annotation)):
            continue
        nodes = as_nodes(annotation, example)
        if is_flat(nodes):
            arrays.setdefault(nodes.dtype, []).append(nodes)
        elif is_parsed(nodes):
            widths.add(nodes.shape[1])
        else:
            seen |= _labels_of(nodes, widths)
    for same_type in arrays.values():
        seen |= _labels_of_array(np.concatenate(same_type))
    if len(widths) > 1:
        raise InputError(
            f"boolean candidate marks have different lengths, {sorted(widths)}"
        )
    if any(type(item) is int for item in seen) and all(is_whole(item) for item in seen):
        seen = {
            int(item) for item in seen
        }  # whole floats beside integers are the same labels
    return (
        in_order(item for item in seen if not is_minus_one(item)),
        -1 in seen,
        next(iter(widths), None),
    )


def _labels_of(nodes: Nodes, widths: set[int]) -> set[Label]:
    """The labels in a list of them, of candidates and of unknown markers; the lengths of masks go to `widths`."""
    try:
        different: Iterable[object] = set(nodes)  # most labels are met again and again
    except (TypeError, ValueError):  # ValueError: NumPy's spans of time
        different = nodes
    seen: set[Label] = set()
    for label in different:
        if is_mask(label):
            widths.add(len(label))
        else:
            labels = (
                [plain(item) for item in label]
                if is_candidates(label)
                else [plain(label)]
            )
            seen.update(
                item for item in labels if not is_missing(item) and check_label(item)
            )
    return seen


def _labels_of_array(labels: NDArray[np.generic]) -> set[Label]:
    """The labels in an array. Whole numbers beside NaN are integers: they are floats only because NaN is one."""
    different = np.unique(labels).tolist()
    known = {
        label for label in different if not is_missing(label) and check_label(label)
    }
    forced = len(known) < len(different) and all(is_whole(label) for label in known)
    return {int(label) for label in known} if forced else known


def check_label(label: object) -> TypeGuard[Label]:
    """True for what can be a class; anything else is refused."""
    if not isinstance(label, (str, int, float)) or (
        isinstance(label, float) and not math.isfinite(label)
    ):
        raise InputError(
            f"a class must be a string, a number or a boolean, so that it can be saved; not {short_repr(label)}"
        )
    if isinstance(label, int) and not -(2**63) <= label < 2**63:
        raise InputError(
            f"a class is {short_repr(label)}; expected an integer of at most 64 bits"
        )
    return True


def in_order(labels: Iterable[Label]) -> list[Label]:
    """Sorted, labels of different types by type."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))
