"""Save fitted estimators to files, and load whatever clew saved.

Values that JSON does not know are objects with one key, their type: a tuple is
``{"tuple": [...]}``, a dataclass ``{"Loss": {...}}``. Arrays stand in the file's npz.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, fields, is_dataclass, replace
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clew import models
from clew.errors import InputError, StoreError
from clew.estimators.calibration import Calibration
from clew.learning.cccp import Algorithm
from clew.learning.likelihood import LikelihoodResult
from clew.learning.losses import Loss
from clew.learning.passive_aggressive import OnlineResult
from clew.learning.perceptron import PerceptronResult
from clew.learning.result import Record, Result, Status
from clew.learning.task import Space
from clew.models.base import ListedLoss, Model, StructuredModel
from clew.utils.parameters import check_fitted
from clew.utils.storage import (
    Arrays,
    Json,
    read_document,
    wrap_content_errors,
    write_document,
)

if TYPE_CHECKING:
    from clew.estimators.base import StructuredEstimator

AnyResult: TypeAlias = Result | PerceptronResult | LikelihoodResult | OnlineResult
KIND = "estimator"
READERS = {"tracker": "clew.tracking.persistence"}
"""Modules that read other kinds of files; imported when such a file is met."""
ESTIMATORS = {
    "StructuredSVM": "svm",
    "StructuredPerceptron": "perceptron",
    "StructuredCRF": "crf",
}
"""Modules of the estimators; imported when needed, since scikit-learn loads slowly."""
DATACLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Loss,
        ListedLoss,
        Algorithm,
        Result,
        PerceptronResult,
        LikelihoodResult,
        OnlineResult,
        Calibration,
    )
}
ENUMS: dict[str, type[Enum]] = {cls.__name__: cls for cls in (Space, Status)}


def save_estimator(estimator: StructuredEstimator, path: str | Path) -> None:
    """Write a fitted estimator to one file: all but the bounds.

    Models of `clew.models` are stored. Of an own model only the name is, so that `load`
    needs the model.
    """
    meta, arrays = pack_estimator(estimator)
    write_document(path, KIND, meta, arrays)


def load(path: str | Path, model: StructuredModel | None = None) -> Any:
    """Load what clew's `save` wrote.

    A later ``fit(warm_start=...)`` starts at the weights, since bounds are not stored.

    Parameters
    ----------
    path : str or Path
    model : StructuredModel, optional
        Needed if the file was made with an own model.

    Returns
    -------
    estimator : StructuredSVM, StructuredPerceptron, StructuredCRF or Tracker
    """
    document = read_document(path, KIND, *READERS)
    if document.kind in READERS:
        return import_module(READERS[document.kind]).load_tracker(path)
    return unpack_estimator(path, document.meta, document.arrays, model)


def describe_file(path: str | Path) -> dict[str, str]:
    """Describe the content of a file of any kind; needs no model."""
    document = read_document(path, KIND, *READERS)
    if document.kind in READERS:
        facts: dict[str, str] = import_module(READERS[document.kind]).describe(path)
        return facts
    facts = describe_estimator(path, document.meta, document.arrays)
    return facts | {"written by": f"clew {document.clew_version}"}


def pack_estimator(
    estimator: StructuredEstimator,
) -> tuple[dict[str, object], Arrays]:
    """Convert a fitted estimator to JSON content and arrays."""
    check_fitted(estimator, "coef_")
    name = type(estimator).__name__
    if name not in ESTIMATORS or _get_estimator_class(name) is not type(estimator):
        raise InputError(
            f"a {name} cannot be saved, only {' and '.join(ESTIMATORS)} themselves; "
            "save its coef_"
        )
    arrays: Arrays = {"coef": np.asarray(estimator.coef_)}
    params = estimator.get_params(deep=False)
    params.pop("model")
    meta = {
        "estimator": name,
        "params": _encode_all(params, "parameter", arrays),
        "model": _pack_model(estimator.model_, arrays),
        "result": _pack_result(estimator.result_, arrays),
    }
    if hasattr(estimator, "calibration_"):
        meta["calibration"] = _encode(estimator.calibration_, "calibration_", arrays)
    if hasattr(estimator, "feature_names_in_"):
        meta["feature_names"] = estimator.feature_names_in_.tolist()
    return meta, arrays


def unpack_estimator(
    path: str | Path, meta: Json, arrays: Arrays, model: StructuredModel | None = None
) -> StructuredEstimator:
    """Make the estimator that `pack_estimator` converted; errors name `path`."""
    with wrap_content_errors(path):
        estimator_class = _get_estimator_class(meta["estimator"])
        params = _decode_all(meta["params"], arrays)
        stored = _check_stored_model(meta["model"])
        domain = _decode_all(stored["domain"], arrays)
        result = _unpack_result(meta, arrays)
        coef = arrays["coef"]
        calibration = _unpack_calibration(meta, arrays)
        names = _unpack_feature_names(meta)
    if model is None:
        model = _make_stored_model(path, stored, arrays)
    else:
        _check_own_model(path, stored, model)
    with wrap_content_errors(path):
        estimator = estimator_class(model, **params)
        untyped: Any = model  # an own model may lack `restored`
        estimator.model_ = untyped.restored(domain) if domain else model
    estimator.coef_ = coef
    estimator.result_ = result
    if not isinstance(result, PerceptronResult):
        estimator.lam_ = result.lam
        estimator.path_ = []
    if calibration is not None:
        estimator.calibration_ = calibration
    if names is not None:
        estimator.feature_names_in_ = names
    _check_n_features(path, estimator.model_, coef.size)
    return estimator


def describe_estimator(path: str | Path, meta: Json, arrays: Arrays) -> dict[str, str]:
    """Describe a packed estimator; errors name `path`."""
    with wrap_content_errors(path):
        params = _decode_all(meta["params"], arrays)
        result = _unpack_result(meta, arrays)
        stored = _check_stored_model(meta["model"])
        if stored["params"] is None:
            model = f"{stored['class']} (your own)"
        else:
            model = repr(_make_stored_model(path, stored, arrays))
        facts = {
            "estimator": meta["estimator"],
            "model": " ".join(model.split()),
            "weights": str(len(result.w)),
        }
        if isinstance(result, Result):
            loss = params["loss"]
            is_chosen = not isinstance(params["lam"], int | float)
            note = " (chosen on held-out annotations)" if is_chosen else ""
            facts |= {
                "loss": loss if isinstance(loss, str) else str(loss.name),
                "regulariser": result.regulariser,
                "λ": f"{result.lam:.4g}{note}",
                "algorithm": str(params["algorithm"]),
                "examples": str(result.n_examples),
            }
    return facts | {"certificate": str(result)}


def _get_estimator_class(name: str) -> type[StructuredEstimator]:
    module = import_module(f"clew.estimators.{ESTIMATORS[name]}")
    estimator_class: type[StructuredEstimator] = getattr(module, name)
    return estimator_class


def _get_model_classes() -> dict[str, type[Model]]:
    """Return the models of `clew.models` by name."""
    public = {name: getattr(models, name) for name in models.__all__}
    return {
        name: value
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, Model)
    }


def _pack_model(model: StructuredModel, arrays: Arrays) -> dict[str, object]:
    """Convert a model: class, parameters, domain and number of features.

    The parameters of an own model are None.
    """
    cls = type(model)
    params = None
    name = f"{cls.__module__}.{cls.__qualname__}"
    if isinstance(model, Model) and _get_model_classes().get(cls.__name__) is cls:
        name = cls.__name__
        params = _encode_all(
            model.get_params(deep=False), "parameter of the model", arrays
        )
    domain = model.domain if isinstance(model, Model) else {}
    return {
        "class": name,
        "params": params,
        "domain": _encode_all(domain, "attribute of the model", arrays),
        "n_features": int(model.n_features),
    }


def _check_stored_model(stored: Json) -> Json:
    """Return what `_pack_model` wrote; raise ValueError if it is something else."""
    has_all = {"params", "domain", "n_features"} <= stored.keys()
    if not isinstance(stored["class"], str) or not has_all:
        raise ValueError("the description of the model is not one")
    return stored


def _make_stored_model(path: str | Path, stored: Json, arrays: Arrays) -> Model:
    """Make a model of `clew.models`."""
    name = stored["class"]
    if stored["params"] is None:
        raise InputError(
            f"{path}: it was made with a model of your own, {name}; give it, as in "
            f"load(path, model={_strip_module(name)}(...))"
        )
    classes = _get_model_classes()
    if name not in classes:
        raise StoreError(
            f"{path}: its model {name!r} is none of this clew's: "
            + ", ".join(sorted(classes))
        )
    with wrap_content_errors(path):
        return classes[name](**_decode_all(stored["params"], arrays))


def _check_own_model(path: str | Path, stored: Json, model: StructuredModel) -> None:
    """Refuse a model of another class, or one that was prepared for other features."""
    if _strip_module(stored["class"]) != type(model).__name__:
        raise InputError(
            f"{path}: it was made with the model {stored['class']}, the one that was "
            f"given is a {type(model).__name__}"
        )
    if all(hasattr(model, name) for name in stored["domain"]):
        _check_n_features(path, model, stored["n_features"])


def _check_n_features(path: str | Path, model: StructuredModel, expected: int) -> None:
    """Refuse a model with another number of features than there are weights."""
    with wrap_content_errors(path):  # it may be computed from what the file holds
        n_features = getattr(model, "n_features", None)
    if n_features != expected:
        raise InputError(
            f"{path}: it has weights for {expected} features, and the "
            f"{type(model).__name__} has {n_features}; give the model with the "
            "settings that it was fitted with"
        )


def _strip_module(name: str) -> str:
    """Return a class name alone: `__main__.A` in a script is `script.A` elsewhere."""
    return name.rpartition(".")[2]


def _pack_result(result: AnyResult, arrays: Arrays) -> object:
    """Convert a result without its bounds; the history becomes one array."""
    if isinstance(result, Result):
        history = [astuple(record) for record in result.history]
        arrays["history"] = np.array(history, dtype=float)
        result = replace(result, history=(), bundle=None)
    return _encode(result, "result_", arrays)


def _unpack_result(meta: Json, arrays: Arrays) -> AnyResult:
    """Make the result, with its history if it has one."""
    result = _decode(meta["result"], arrays)
    if isinstance(result, PerceptronResult | LikelihoodResult | OnlineResult):
        return result
    if not isinstance(result, Result):
        raise ValueError("result is not one of a fit")
    history = tuple(
        Record(int(iteration), passes, int(bounds), *others)
        for iteration, passes, bounds, *others in arrays["history"].tolist()
    )
    return replace(result, history=history)


def _unpack_calibration(meta: Json, arrays: Arrays) -> Calibration | None:
    if "calibration" not in meta:
        return None
    calibration = _decode(meta["calibration"], arrays)
    if not isinstance(calibration, Calibration):
        raise ValueError("calibration is none")
    return calibration


def _unpack_feature_names(meta: Json) -> NDArray[np.object_] | None:
    names = meta.get("feature_names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError("feature_names are no list of names")
    return np.array(names, dtype=object)


def _encode_all(
    values: Mapping[str, object], what: str, arrays: Arrays
) -> dict[str, object]:
    """Encode values by name; errors name the first that cannot be encoded."""
    return {
        name: _encode(value, f"the {what} {name!r}", arrays)
        for name, value in values.items()
    }


def _encode(value: Any, what: str, arrays: Arrays) -> object:
    """Encode a value as JSON; arrays are added to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}

    def encode_items(items: Any) -> list[object]:
        return [_encode(item, what, arrays) for item in items]

    def encode_values(content: Mapping[str, Any]) -> dict[str, object]:
        return {key: _encode(item, what, arrays) for key, item in content.items()}

    match value:
        case list():
            return encode_items(value)
        case tuple():
            return {"tuple": encode_items(value)}
        case set() | frozenset():
            return {"set": encode_items(sorted(value, key=repr))}
        case range():
            return {"range": [value.start, value.stop, value.step]}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": encode_values(value)}
        case np.ndarray() if value.dtype.kind == "U":
            return {"text": value.tolist()}
        case np.ndarray() if value.dtype.kind in "biuf":
            return {"array": _add_array(value, arrays)}
    name = type(value).__name__
    if ENUMS.get(name) is type(value):
        return {name: value.value}
    if is_dataclass(value) and DATACLASSES.get(name) is type(value):
        content = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: encode_values(content)}
    raise InputError(
        f"{what} is a {name} and cannot be saved; numbers, strings, lists, tuples, "
        "sets, dicts with string keys, and arrays of numbers can"
    )


def _add_array(array: NDArray[np.generic], arrays: Arrays) -> str:
    """Return the name of an array; one that is there already is not added again."""
    for name, other in arrays.items():
        if other is array:
            return name
    name = f"array.{len(arrays)}"
    arrays[name] = array
    return name


def _decode_all(values: Json, arrays: Arrays) -> Json:
    """Decode values by name."""
    return {name: _decode(value, arrays) for name, value in values.items()}


def _decode(value: Any, arrays: Arrays) -> Any:
    """Decode what `_encode` made."""
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag in ENUMS:
        return ENUMS[tag](content)
    if tag in DATACLASSES:
        return DATACLASSES[tag](**_decode_all(content, arrays))
    decoders: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "tuple": lambda items: tuple(_decode(items, arrays)),
        "set": lambda items: set(_decode(items, arrays)),
        "range": lambda limits: range(*limits),
        "dict": lambda items: _decode_all(items, arrays),
        "text": lambda items: np.array(items, dtype=str),
        "array": lambda name: arrays[name],
    }
    if tag not in decoders:
        raise ValueError(f"unknown tag {tag!r}")
    return decoders[tag](content)
