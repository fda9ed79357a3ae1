"""Parameters of models and trackers as scikit-learn has them, without importing scikit-learn.

`import sklearn.base` loads scipy.stats and, where it is installed, pandas, which takes as long as all else that a
command of clew imports. What scikit-learn asks of an object with parameters is little: `get_params`, `set_params`, and
tags for those who look at them. Learners that are used in its pipelines and searches (`base.py`) are its own
estimators; they are imported when something is learned.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from sklearn.utils import Tags

T = TypeVar("T")


class Parametrized:
    """An object whose parameters are the arguments of `__init__`, kept under their names."""

    @classmethod
    def _defaults(cls) -> Mapping[str, object]:
        """The parameters by name, with their defaults (`inspect.Parameter.empty` for none)."""
        if cls.__init__ is object.__init__:
            return {}
        arguments = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {
            argument.name: argument.default
            for argument in arguments
            if argument.kind != argument.VAR_KEYWORD
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; if `deep`, also those of parameters that have some, as in `model__n_states`."""
        found = {}
        for name in sorted(self._defaults()):
            value = found[name] = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {
                    f"{name}__{inner}": each
                    for inner, each in value.get_params().items()
                }
        return found

    def set_params(self, **params: object) -> Self:
        """Set parameters by name; those of a parameter as in `model__n_states`."""
        known = self._defaults()
        nested: dict[str, dict[str, object]] = {}
        for name, value in params.items():
            own, _, inner = name.partition("__")
            if own not in known:
                raise ValueError(
                    f"Invalid parameter {own!r} for estimator {self}. Valid parameters are: {sorted(known)}."
                )
            if inner:
                nested.setdefault(own, {})[inner] = value
            else:
                setattr(self, own, value)
        for own, values in nested.items():
            getattr(self, own).set_params(**values)
        return self

    def __repr__(self) -> str:
        """As in Python, with the parameters that are not at their defaults."""
        values = [
            (name, getattr(self, name, None), default)
            for name, default in self._defaults().items()
        ]
        changed = [
            f"{name}={value!r}"
            for name, value, default in values
            if not _same(value, default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Tags:
        """For those of scikit-learn who ask, which is imported by then."""
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


def _same(value: object, default: object) -> bool:
    """Whether a parameter is at its default; arrays never are."""
    plain = isinstance(value, str | int | float | tuple)
    return value is default or (
        plain and type(value) is type(default) and value == default
    )


def clone(thing: T) -> T:
    """A copy with the same parameters that knows nothing of any data, as by scikit-learn's `clone(safe=False)`."""
    if isinstance(thing, type) or not hasattr(thing, "get_params"):
        return copy.deepcopy(thing)
    made: T = type(thing)(
        **{name: clone(value) for name, value in thing.get_params(deep=False).items()}
    )
    return made


def check_fitted(estimator: object, attribute: str) -> None:
    """Raise scikit-learn's NotFittedError unless an estimator has what `fit` sets."""
    if not hasattr(estimator, attribute):
        from sklearn.exceptions import NotFittedError

        name = type(estimator).__name__
        raise NotFittedError(
            f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using it."
        )
