"""Errors and warnings of clew."""

from __future__ import annotations


class ClewError(Exception):
    """Base class of the errors of clew."""


class InputError(ClewError, ValueError):
    """An argument, array or file is wrong; the message names it and what is expected."""


class InputTypeError(InputError, TypeError):
    """An argument holds objects of a type that cannot be converted."""


class InfeasibleAnnotation(InputError):
    """No output satisfies an annotation.

    Parameters
    ----------
    message : str
    example : int, optional
        Index of the example.
    parts : tuple
        The parts in conflict.
    """

    def __init__(
        self, message: str, example: int | None = None, parts: tuple[object, ...] = ()
    ) -> None:
        super().__init__(message)
        self.example = example
        self.parts = parts


class MissingCapability(InputError):
    """A model lacks a method that a loss or an estimator needs."""


class NotCalibrated(InputError, AttributeError):
    """Probabilities need a calibration; an AttributeError, so that `hasattr` is False."""


class MissingMasks(InputError):
    """A movie of raw images has no label images beside it."""


class MissingExtra(ClewError, ImportError):
    """A package is not installed.

    `extra` is the extra of clew-learn that brings it; "" if none does.
    """

    def __init__(self, message: str, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra


class NotConverged(ClewError):
    """A fit did not reach its precision; raised by `Result.require()`."""


class StoreError(ClewError):
    """A file cannot be read or written: damaged, of another kind, or too new."""


class SolverError(ClewError):
    """A numerical solver failed; the message has its status."""


class ClusterError(ClewError):
    """A Dask cluster cannot be reached, or loses its workers."""


class ClewWarning(UserWarning):
    """Base class of the warnings of clew."""


class NotConvergedWarning(ClewWarning):
    """A fit stopped at a limit or by Ctrl-C; the best iterate and its gap are kept."""


class DataWarning(ClewWarning):
    """Data are unusual; the message says where, and how they are interpreted."""


class CacheWarning(ClewWarning):
    """Measurements could not be cached on disk; the run continues without."""


class InexactArgmaxWarning(ClewWarning):
    """An argmax returned an output with a lower score than an earlier one."""
