"""What a person says about one event."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.tracking.events import Event, EventTable

MAX_LABEL = 2**63 - 1
Fact = tuple[int, Event, tuple[int, ...], tuple[int, ...]]
"""(frame, event, sources, targets)"""
Cell = tuple[int, bool, int]
"""(frame, if it is a target, label): its history if it is a target, else its fate."""
LabelsOf = Callable[[int], ArrayLike]
"""The labels of a frame."""


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
        """An answer of plain integers, labels ascending; an InputError says what cannot be."""
        try:
            kind = Event(operator.index(event))
        except (TypeError, ValueError):
            raise InputError(
                f"{event!r} is not an event; {', '.join(f'{e.value} ({e})' for e in Event)} are"
            ) from None
        if not isinstance(happened, (bool, np.bool_)):
            raise InputError(f"happened is {happened!r}; expected True or False")
        n_sources, n_targets = kind.arity
        before, after = (
            _labels("source", kind, n_sources, sources),
            _labels("target", kind, n_targets, targets),
        )
        return cls(_integer("the frame", frame), kind, before, after, bool(happened))

    @property
    def fact(self) -> Fact:
        """What it is about, whether that happened or not."""
        return self.frame, self.event, self.sources, self.targets

    def cells(self) -> Iterator[Cell]:
        """The cells whose fate or history it tells."""
        yield from ((self.frame, False, label) for label in self.sources)
        yield from (
            (self.frame + self.event.span, True, label) for label in self.targets
        )

    def check(self, n_frames: int, labels_of: LabelsOf | None) -> None:
        """Refuse an answer about frames or, where `labels_of` a frame are known, cells that the movie does not have."""
        if not 0 <= self.frame < n_frames - self.event.span:
            raise InputError(
                f"{self}, but the movie has {n_frames} frames, which count from 0"
            )
        if labels_of is not None:
            for frame, _, label in self.cells():
                if not np.isin(label, np.asarray(labels_of(frame))):
                    raise InputError(
                        f"{self}, but there is no label {label} in frame {frame}"
                    )

    def __str__(self) -> str:
        """In words: "divide 5 → 17 + 18 from frame 12 to 13 did not happen"."""
        return EventTable.of([self.fact]).describe(0) + (
            "" if self.happened else " did not happen"
        )


def _labels(
    name: str, event: Event, number: int, labels: Sequence[Any]
) -> tuple[int, ...]:
    """The labels of one side of an event, ascending."""
    if (
        isinstance(labels, (str, bytes))
        or not hasattr(labels, "__len__")
        or len(labels) != number
    ):
        raise InputError(f"the {name}s of {event} are {labels!r}; it has {number}")
    found = tuple(sorted(_integer(f"a {name} of {event}", label) for label in labels))
    if found and not 0 < found[0] <= found[-1] <= MAX_LABEL:
        raise InputError(
            f"the {name}s of {event} are {list(found)}; labels are over 0 and less than 2**63"
        )
    if len(set(found)) < number:
        raise InputError(
            f"the {name}s of {event} are {list(found)}; they are different cells"
        )
    return found


def _integer(name: str, value: Any) -> int:
    """A whole number, of Python or NumPy."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}; expected an integer") from None
