"""Everything clew raises on purpose, under one root."""

from __future__ import annotations


class ClewError(Exception):
    """Root of all errors that clew raises on purpose."""


class InputError(ClewError, ValueError):
    """An argument, array or file is not what it must be; the message says which and what would be right."""


class InfeasibleAnnotation(InputError):
    """No output satisfies the annotation. `example` is its index, `parts` are the parts in conflict."""

    def __init__(
        self, message: str, example: int | None = None, parts: tuple[object, ...] = ()
    ) -> None:
        super().__init__(message)
        self.example = example
        self.parts = parts


class MissingCapability(InputError):
    """A loss needs a search that the model does not offer; the message names both and the way out."""


class NotCalibrated(InputError, AttributeError):
    """Probabilities were asked for before margins were calibrated; an AttributeError too, so `hasattr` is False."""


class MissingExtra(ClewError, ImportError):
    """A part of clew is not installed; the message and `extra` name the extra that brings it."""

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class NotConverged(ClewError):
    """A limit was reached before the certified gap; raised only by `Result.require()`."""


class StoreError(ClewError):
    """A file is damaged, of another kind, or of a newer version than this clew can read."""


class SolverError(ClewError):
    """A numerical solver gave up; the message carries its own status."""


class ClusterError(ClewError):
    """A Dask cluster cannot be reached, or loses its workers faster than they finish anything."""


class ClewWarning(UserWarning):
    """Root of clew's warnings."""


class NotConvergedWarning(ClewWarning):
    """A fit stopped at a limit or by Ctrl-C; the best iterate and its gap were kept."""


class DataWarning(ClewWarning):
    """Data that are unusual, but possible, were accepted; the message says where and how they are understood."""


class CacheWarning(ClewWarning):
    """Measurements could not be kept on disk; the run goes on without."""


class InexactArgmaxWarning(ClewWarning):
    """An argmax returned an output that scores less than one it returned before: it is no argmax."""
