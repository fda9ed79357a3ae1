"""Labels of a node: the states that an annotation allows, and their names."""

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
"""The classes, as callers declare them."""
ClassWeight: TypeAlias = Literal["balanced"] | Mapping[Any, float]
"""Cost of a mistake by class.

Keys are labels. They are typed as Any because Mapping is invariant in its key.
"""
LARGEST_WEIGHT = 1e100
"""Largest class weight: sums of squares of such weights are finite."""
Place: TypeAlias = Callable[[int], tuple[int | None, int | None]]
"""From a node's index to its example and its position there, for error messages."""


class Nodes(Protocol):
    """Annotations of all nodes of an example, in order."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def name_place(
    example: int | None, position: int | None = None, unnamed: str = "the annotation"
) -> str:
    """Return the place of a node in words, `unnamed` if there is none."""
    words = []
    if example is not None:
        words.append(f"example {example}")
    if position is not None:
        words.append(f"position {position}")
    return ", ".join(words) or unnamed


def to_python_scalar(label: object) -> Any:
    """Convert a NumPy scalar to a Python scalar, which JSON can store."""
    is_array = isinstance(label, np.ndarray) and not label.ndim
    if is_array or isinstance(label, np.generic):
        return label.item()  # type: ignore[attr-defined]
    return label


def as_nodes(labels: Any, example: int | None) -> Nodes:
    """Return the labels of all nodes as an array or a sequence."""
    if isinstance(labels, np.ndarray) and labels.ndim:
        return labels
    if hasattr(labels, "__array__") and np.asarray(labels).ndim:
        return np.asarray(labels)
    is_unordered = isinstance(labels, (Set, dict, type))
    if is_unordered or not hasattr(labels, "__len__") or hasattr(labels, "shape"):
        raise InputError(
            f"{name_place(example)}: a sequence with a label for each node is "
            f"expected, not {short_repr(labels)}"
        )
    nodes: Nodes = labels
    return nodes


def is_candidates(label: object) -> TypeGuard[Nodes]:
    """Whether the annotation of one node is a set of labels, one of them right."""
    is_array = isinstance(label, np.ndarray) and label.ndim > 0
    return is_array or isinstance(label, (Set, list, tuple))


def is_mask(label: object) -> TypeGuard[Mask]:
    """Whether the annotation of one node marks its candidates in a boolean array."""
    return isinstance(label, np.ndarray) and label.dtype == bool and label.ndim == 1


def is_flat(labels: object) -> TypeGuard[NDArray[Any]]:
    """Whether these labels are an array without candidates or None."""
    is_vector = isinstance(labels, np.ndarray) and labels.ndim == 1
    return is_vector and labels.dtype.kind in "biufU"  # type: ignore[attr-defined]


def is_candidate_mask(labels: object) -> TypeGuard[Mask]:
    """Whether a boolean matrix marks the candidates, with a row for each node."""
    return isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype == bool


def is_whole(label: object) -> TypeGuard[float]:
    """Whether a Python scalar is a whole number."""
    is_number = isinstance(label, (int, float)) and not isinstance(label, bool)
    return is_number and label % 1 == 0  # type: ignore[operator]


def is_minus_one(label: object) -> bool:
    """Whether a Python scalar is the number -1."""
    return isinstance(label, (int, float)) and label == -1


def is_missing(label: object) -> bool:
    """Whether a Python scalar is None or NaN, which are never classes."""
    return label is None or (isinstance(label, float) and math.isnan(label))


@dataclass(frozen=True)
class LabelSpace:
    """The classes of a node, in the order of its states.

    A node's annotation is a label, a set of candidate labels, or unknown: None, NaN,
    and -1 unless -1 is among the classes.
    """

    classes: tuple[Label, ...]
    nouns: tuple[str, str] = ("label", "classes")
    """What one is and what all of them are, in error messages."""

    @classmethod
    def of(
        cls,
        annotations: Iterable[object],
        classes: Classes | None = None,
        n_states: int | None = None,
    ) -> LabelSpace:
        """Find the classes.

        Parameters
        ----------
        annotations : iterable
        classes : iterable of labels, optional
            The classes, if the caller declares them.
        n_states : int, optional
            The number of classes: range(n_states) if all labels are in it.
        """
        if n_states is not None:
            n_states = check_int(n_states, "the number of states", 1)
        if classes is not None:
            return cls(check_classes(classes, n_states))
        labels, has_minus_one, width = find_labels(annotations)
        if width is not None:
            if n_states not in (None, width):
                raise InputError(
                    f"a boolean candidate matrix has {width} columns for {n_states} "
                    "states"
                )
            n_states = width
        if n_states is not None:
            if all(is_whole(label) and 0 <= label < n_states for label in labels):
                return cls(tuple(range(int(n_states))))
            if len(labels) > n_states or width is not None:
                raise InputError(
                    f"{len(labels)} labels are annotated, {short_repr(labels)}; there "
                    f"should be {n_states} states"
                )
        elif not labels:
            raise InputError(
                "nothing is annotated: give the classes or their number, or annotate "
                "an example"
            )
        elif has_minus_one and labels == [1]:
            raise InputError(
                "the labels are -1 and 1, but -1 marks the unknown; give "
                "classes=[-1, 1] if it is a class"
            )
        return cls(tuple(labels))

    @property
    def n_states(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @cached_property
    def _state_of(self) -> dict[Label, int]:
        return {label: state for state, label in enumerate(self.classes)}

    @cached_property
    def _labels(self) -> NDArray[np.generic]:
        types = {type(label) for label in self.classes}
        if len(types) == 1 or types == {int, float}:
            return np.array(self.classes)
        labels = np.empty(self.n_states, dtype=object)
        labels[:] = self.classes
        return labels

    def decode(self, states: Indices) -> NDArray[np.generic]:
        """Return the labels of these states."""
        return self._labels[states]

    def class_weights(self, class_weight: ClassWeight, allowed: Mask) -> Array:
        """(S,) the weight of each class.

        Balanced weights are n / (S · nₛ), where nₛ of the n annotated nodes have class
        s, as in scikit-learn; a node with several candidates counts for each in equal
        parts.
        """
        if isinstance(class_weight, str) and class_weight == "balanced":
            known = allowed[~allowed.all(axis=1)]
            counts = (known / known.sum(axis=1, keepdims=True)).sum(axis=0)
            counts = np.where(counts > 0, counts, len(known) / self.n_states)
            return np.asarray(len(known) / (self.n_states * counts))
        if not isinstance(class_weight, Mapping):
            raise InputError(
                f"class_weight is {short_repr(class_weight)}; expected 'balanced' or a "
                "mapping from classes to weights"
            )
        weights = np.ones(self.n_states)
        for key, weight in class_weight.items():
            label = to_python_scalar(key)
            if not isinstance(key, Hashable) or label not in self._state_of:
                raise InputError(
                    f"class_weight names {short_repr(key)}, which is not one of the "
                    f"classes {list_classes(self.classes)}"
                )
            name = f"class_weight of {key!r}"
            weights[self._state_of[label]] = check_positive(
                weight, name, LARGEST_WEIGHT
            )
        return weights

    def is_unknown(self, label: object) -> bool:
        """Whether this marks a node, or a whole example, as not annotated."""
        label = to_python_scalar(label)
        return is_missing(label) or (is_minus_one(label) and -1 not in self._state_of)

    def encode(self, labels: object, n_nodes: int | None = None) -> Indices:
        """(T,) the states of an output, which has one label at every node."""
        allowed = self.allowed(labels, n_nodes)
        indefinite = np.flatnonzero(allowed.sum(axis=1) != 1)
        if len(indefinite):
            raise InputError(
                "an output needs one label at every position; position "
                f"{indefinite[0]} has none"
            )
        return np.asarray(allowed.argmax(axis=1), dtype=np.intp)

    def allowed(
        self,
        labels: object,
        n_nodes: int | None = None,
        place: Place = lambda k: (None, k),
    ) -> Mask:
        """(T, S) whether a state agrees with the annotation of its node.

        Parameters
        ----------
        labels : array or sequence
            The annotation of each node, or an unknown marker for all of them.
        n_nodes : int, optional
            Expected number of nodes.
        place : callable
            Maps a node to its example and position, for error messages.
        """
        if self.is_unknown(labels):
            return np.ones((n_nodes or 0, self.n_states), dtype=bool)
        example = place(0)[0]
        nodes = as_nodes(labels, example)
        if n_nodes is not None and len(nodes) != n_nodes:
            raise InputError(
                f"{name_place(example)}: {len(nodes)} {self.nouns[0]}s are given; "
                f"expected {n_nodes}"
            )
        if is_candidate_mask(nodes) and self._is_complete(nodes):
            return np.asarray(nodes)
        if is_flat(nodes):
            different, first, which = np.unique(
                nodes, return_index=True, return_inverse=True
            )
            rows = [
                self._allowed_states(label, int(k), place)
                for label, k in zip(different, first, strict=True)
            ]
            return np.array(rows, dtype=bool).reshape(-1, self.n_states)[which]
        return self._allowed_by_node(nodes, place)

    def _is_complete(self, mask: Mask) -> bool:
        """Whether a candidate mask has all states, and a candidate for each node."""
        return mask.shape[1] == self.n_states and bool(mask.any(axis=1).all())

    def _allowed_by_node(self, labels: Nodes, place: Place) -> Mask:
        """(T, S) the same for a list; equal labels are looked up once."""
        rows: list[Mask] = []
        row_of: dict[object, int] = {}
        which: list[int] = []
        for k, label in enumerate(labels):
            try:
                row = row_of.setdefault(label, len(rows))
            except (TypeError, ValueError):  # candidates in a set, a list or an array
                row = len(rows)
            if row == len(rows):
                rows.append(self._allowed_states(label, k, place))
            which.append(row)
        table = np.array(rows, dtype=bool).reshape(-1, self.n_states)
        return table[np.array(which, dtype=np.intp)]

    def _allowed_states(self, annotation: object, k: int, place: Place) -> Mask:
        """(S,) the states that agree with one node's annotation."""
        label = to_python_scalar(annotation)
        if self.is_unknown(label):
            return np.ones(self.n_states, dtype=bool)
        if not is_candidates(label):
            candidates = [label]
        elif is_mask(label):
            if len(label) != self.n_states:
                raise InputError(
                    f"{name_place(*place(k))}: {len(label)} candidate marks for "
                    f"{self.n_states} classes"
                )
            candidates = [self.classes[state] for state in np.flatnonzero(label)]
        else:
            candidates = [to_python_scalar(candidate) for candidate in label]
        if not candidates:
            example, position = place(k)
            raise InfeasibleAnnotation(
                f"{name_place(example, position)}: the candidate set is empty; None "
                "marks an unknown label",
                example,
                () if position is None else (position,),
            )
        allowed = np.zeros(self.n_states, dtype=bool)
        for candidate in candidates:
            try:
                allowed[self._state_of[candidate]] = True
            except (KeyError, TypeError, ValueError):
                hint = ""
                if self.is_unknown(candidate):
                    hint = "; an unknown marker cannot be a candidate"
                noun, nouns = self.nouns
                raise InputError(
                    f"{name_place(*place(k))}: {noun} {candidate!r} is not one of the "
                    f"{self.n_states} {nouns} {list_classes(self.classes)}{hint}"
                ) from None
        return allowed


def list_classes(classes: tuple[Label, ...]) -> str:
    """Return the first ten classes, for a message."""
    ending = ", …" if len(classes) > 10 else ""
    return ", ".join(map(repr, classes[:10])) + ending


def check_classes(classes: Classes, n_states: int | None) -> tuple[Label, ...]:
    """Return the classes that a caller declares, in order; raise an error if invalid.

    Parameters
    ----------
    classes : iterable of labels
    n_states : int or None
        Expected number of classes.
    """
    if not isinstance(classes, Iterable) or getattr(classes, "ndim", 1) != 1:
        raise InputError(
            f"classes is {short_repr(classes)}; expected the labels that there are"
        )
    labels = [to_python_scalar(label) for label in classes]
    for label in labels:
        check_label(label)
    if isinstance(classes, Set):
        labels = sort_labels(labels)
    if not labels or len(set(labels)) != len(labels):
        raise InputError(
            "classes must be different labels, at least one; they are "
            f"{short_repr(labels)}"
        )
    if n_states not in (None, len(labels)):
        raise InputError(
            f"{len(labels)} classes are declared, and the number of states is "
            f"{n_states}; give one of both"
        )
    return tuple(labels)


def find_labels(annotations: Iterable[object]) -> tuple[list[Label], bool, int | None]:
    """Find the labels that are annotated.

    Returns
    -------
    labels : list
        In order, without -1.
    has_minus_one : bool
    width : int or None
        Number of columns of boolean candidate masks.
    """
    labels: set[Label] = set()
    widths: set[int] = set()
    arrays: dict[np.dtype[Any], list[NDArray[Any]]] = {}
    for example, annotation in enumerate(annotations):
        scalar = to_python_scalar(annotation)
        if is_missing(scalar) or is_minus_one(scalar):
            continue
        nodes = as_nodes(annotation, example)
        if is_flat(nodes):
            arrays.setdefault(nodes.dtype, []).append(nodes)
        elif is_candidate_mask(nodes):
            widths.add(nodes.shape[1])
        else:
            widths |= _find_mask_widths(nodes)
            labels |= _labels_of_nodes(nodes)
    for same_type in arrays.values():
        labels |= _labels_of_array(np.concatenate(same_type))
    if len(widths) > 1:
        raise InputError(
            f"boolean candidate marks have different lengths, {sorted(widths)}"
        )
    has_int = any(type(label) is int for label in labels)
    if has_int and all(is_whole(label) for label in labels):
        labels = {int(label) for label in labels}  # 1.0 beside 1 is the same label
    classes = sort_labels(label for label in labels if not is_minus_one(label))
    return classes, -1 in labels, next(iter(widths), None)


def _find_mask_widths(nodes: Nodes) -> set[int]:
    """Return the lengths of the boolean candidate masks in a list of annotations."""
    return {len(label) for label in nodes if is_mask(label)}


def _labels_of_nodes(nodes: Nodes) -> set[Label]:
    """Return the labels in a list of labels, candidates and unknown markers."""
    try:
        different: Iterable[object] = set(nodes)  # most labels occur many times
    except (TypeError, ValueError):  # ValueError: NumPy's time spans
        different = nodes
    labels: set[Label] = set()
    for annotation in different:
        if is_mask(annotation):
            continue
        members = annotation if is_candidates(annotation) else [annotation]
        for member in members:
            label = to_python_scalar(member)
            if not is_missing(label) and check_label(label):
                labels.add(label)
    return labels


def _labels_of_array(labels: NDArray[np.generic]) -> set[Label]:
    """Return the labels in an array; whole numbers beside NaN are integers."""
    different = np.unique(labels).tolist()
    known = {
        label for label in different if not is_missing(label) and check_label(label)
    }
    has_nan = len(known) < len(different)
    if has_nan and all(is_whole(label) for label in known):
        return {int(label) for label in known}
    return known


def check_label(label: object) -> TypeGuard[Label]:
    """Return True for a possible class; raise an error otherwise."""
    is_infinite = isinstance(label, float) and not math.isfinite(label)
    if is_infinite or not isinstance(label, (str, int, float)):
        raise InputError(
            "a class must be a string, a number or a boolean, so that it can be "
            f"saved; not {short_repr(label)}"
        )
    if isinstance(label, int) and not -(2**63) <= label < 2**63:
        raise InputError(
            f"a class is {short_repr(label)}; expected an integer of at most 64 bits"
        )
    return True


def sort_labels(labels: Iterable[Label]) -> list[Label]:
    """Return the labels in order, numbers before strings."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))
