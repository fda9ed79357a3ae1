"""Answers: that an event happened, or that it did not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.tracking.events import END_OF_FALSE, Event, EventTable

MAX_LABEL = 2**63 - 1
Fact = tuple[int, Event, tuple[int, ...], tuple[int, ...]]
"""(frame, event, sources, targets)"""
Cell = tuple[int, bool, int]
"""(frame, is_target, label): the history of a target, the fate of a source."""
LabelsOf = Callable[[int], ArrayLike]
"""Returns the labels of a frame."""


@dataclass(frozen=True, slots=True)
class Answer:
    """That an event happened, or did not."""

    frame: int
    event: Event
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    happened: bool = True

    @classmethod
    def of(
        cls,
        frame: Any,
        event: Any,
        sources: Sequence[Any],
        targets: Sequence[Any],
        happened: Any = True,
    ) -> Self:
        """Return an answer of plain integers, with labels in ascending order.

        Parameters
        ----------
        frame : int
            The first frame.
        event : Event
        sources : sequence of int
            Labels in the first frame.
        targets : sequence of int
            Labels in the frame after the event.
        happened : bool

        Raises
        ------
        InputError
            If there can be no such event.
        """
        try:
            kind = Event(operator.index(event))
        except (TypeError, ValueError):
            names = ", ".join(f"{one.value} ({one})" for one in Event)
            raise InputError(f"event is {event!r}; expected one of {names}") from None
        if not isinstance(happened, (bool, np.bool_)):
            raise InputError(f"happened is {happened!r}; expected True or False")
        n_sources, n_targets = kind.arity
        return cls(
            _check_integer("the frame", frame),
            kind,
            _check_labels("source", kind, n_sources, sources),
            _check_labels("target", kind, n_targets, targets),
            bool(happened),
        )

    @property
    def fact(self) -> Fact:
        """The event, whether it happened or not."""
        return self.frame, self.event, self.sources, self.targets

    def cells(self) -> Iterator[Cell]:
        """Yield the cells whose fate or history the answer gives."""
        for label in self.sources:
            yield self.frame, False, label
        for label in self.targets:
            yield self.frame + self.event.span, True, label

    def other_ends(self, n_frames: int) -> list[Answer]:
        """Return what an answer says of other frame pairs.

        A detection that is no cell comes from nothing, and leads to nothing.
        """
        if self.event not in END_OF_FALSE or not self.happened:
            return []
        ((frame, _, label),) = self.cells()
        ends = [
            Answer.of(*fact) for fact in EventTable.of_false([frame], [label], n_frames)
        ]
        return [end for end in ends if end != self]

    def check(self, n_frames: int, labels_of: LabelsOf | None = None) -> None:
        """Raise InputError if the movie does not have these frames or cells.

        Parameters
        ----------
        n_frames : int
            Of the movie.
        labels_of : callable, optional
            Returns the labels of a frame; without it, cells are not checked.
        """
        if not 0 <= self.frame < n_frames - self.event.span:
            raise InputError(
                f"{self}, but the movie has {n_frames} frames, which count from 0"
            )
        if labels_of is None:
            return
        for frame, _, label in self.cells():
            if not np.isin(label, np.asarray(labels_of(frame))):
                raise InputError(
                    f"{self}, but there is no label {label} in frame {frame}"
                )

    def __str__(self) -> str:
        """Return words: "divide 5 → 17 + 18 from frame 12 to 13 did not happen"."""
        words = EventTable.of([self.fact]).describe(0)
        return words if self.happened else f"{words} did not happen"


def _check_labels(
    side: str, event: Event, n_labels: int, labels: Sequence[Any]
) -> tuple[int, ...]:
    """Return the labels of one side of an event, ascending."""
    is_sequence = hasattr(labels, "__len__") and not isinstance(labels, (str, bytes))
    if not is_sequence or len(labels) != n_labels:
        raise InputError(f"the {side}s of {event} are {labels!r}; expected {n_labels}")
    checked = [_check_integer(f"a {side} of {event}", label) for label in labels]
    ordered = tuple(sorted(checked))
    if ordered and not 0 < ordered[0] <= ordered[-1] <= MAX_LABEL:
        raise InputError(
            f"the {side}s of {event} are {list(ordered)}; expected labels over 0 and "
            "under 2**63"
        )
    if len(set(ordered)) < n_labels:
        raise InputError(
            f"the {side}s of {event} are {list(ordered)}; expected different cells"
        )
    return ordered


def _check_integer(name: str, value: Any) -> int:
    """Return an integer of Python or NumPy as an int."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}; expected an integer") from None
