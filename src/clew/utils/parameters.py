"""Parameters as in scikit-learn, without importing it.

``import sklearn.base`` loads scipy.stats and, if installed, pandas, which takes as long
as all else that a command imports. Models and trackers therefore have their own
`get_params` and `set_params`; the learners of `clew.estimators` are estimators of
scikit-learn.
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
    """An object whose parameters are the arguments of `__init__`."""

    @classmethod
    def _get_defaults(cls) -> Mapping[str, object]:
        """Return parameters with their defaults (`inspect.Parameter.empty` if none)."""
        if cls.__init__ is object.__init__:
            return {}
        _, *arguments = inspect.signature(cls.__init__).parameters.values()
        return {
            argument.name: argument.default
            for argument in arguments
            if argument.kind != argument.VAR_KEYWORD
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Whether to add parameters of parameters, as in ``model__n_states``.
        """
        params: dict[str, Any] = {}
        for name in sorted(self._get_defaults()):
            value = getattr(self, name)
            params[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                for inner_name, inner_value in value.get_params().items():
                    params[f"{name}__{inner_name}"] = inner_value
        return params

    def set_params(self, **params: object) -> Self:
        """Set parameters by name; those of a parameter as in ``model__n_states``."""
        names = self._get_defaults()
        nested: dict[str, dict[str, object]] = {}
        for full_name, value in params.items():
            name, _, inner_name = full_name.partition("__")
            if name not in names:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid "
                    f"parameters are: {sorted(names)}."
                )
            if inner_name:
                nested.setdefault(name, {})[inner_name] = value
            else:
                setattr(self, name, value)
        for name, values in nested.items():
            getattr(self, name).set_params(**values)
        return self

    def __repr__(self) -> str:
        """Return the constructor call, with the parameters that are no defaults."""
        changed = []
        for name, default in self._get_defaults().items():
            value = getattr(self, name, None)
            if not _is_default(value, default):
                changed.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn, which is imported when it asks."""
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


def _is_default(value: object, default: object) -> bool:
    """Return whether a value equals its default; arrays never do."""
    if value is default:
        return True
    is_comparable = isinstance(value, str | int | float | tuple)
    return is_comparable and type(value) is type(default) and value == default


def clone(thing: T) -> T:
    """Return an unfitted copy with the same parameters."""
    if isinstance(thing, type) or not hasattr(thing, "get_params"):
        return copy.deepcopy(thing)
    params = thing.get_params(deep=False)
    copied: T = type(thing)(**{name: clone(value) for name, value in params.items()})
    return copied


def check_fitted(estimator: object, attribute: str) -> None:
    """Raise scikit-learn's NotFittedError unless there is a fitted attribute."""
    if not hasattr(estimator, attribute):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"This {type(estimator).__name__} instance is not fitted yet. Call 'fit' "
            "with appropriate arguments before using it."
        )
