"""Fitted estimators in files: what `save` writes, and `clew.load` for whatever clew wrote."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
from clew.models.base import Model, StructuredModel
from clew.models.listed import ListedLoss
from clew.utils import storage
from clew.utils.parameters import check_fitted
from clew.utils.storage import Arrays, Json, wrap_content_errors

if TYPE_CHECKING:
    from clew.estimators.base import StructuredEstimator

AnyResult: TypeAlias = Result | PerceptronResult | LikelihoodResult | OnlineResult
KIND = "estimator"
READERS = {"tracker": "clew.tracking.persistence"}
"""Kinds of files that parts above this one write, and who reads them: imported by name, when such a file is met."""
ESTIMATORS = {
    "StructuredSVM": "svm",
    "StructuredPerceptron": "svm",
    "StructuredCRF": "crf",
}
"""By name, and the module of each, which is imported when one is made: scikit-learn loads slowly."""
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


def save(estimator: StructuredEstimator, path: str | Path) -> None:
    """Write a fitted estimator to one file: parameters, model, weights and certificate, but not the bounds.

    One of `clew.models` is stored whole; of a model of your own only the name, so `load` must be given the model.
    """
    storage.write_document(path, KIND, *pack(estimator))


def pack(estimator: StructuredEstimator) -> tuple[dict[str, object], Arrays]:
    """A fitted estimator as JSON content and arrays."""
    check_fitted(estimator, "coef_")
    name = type(estimator).__name__
    if name not in ESTIMATORS or _estimator(name) is not type(estimator):
        raise InputError(
            f"a {name} cannot be saved, only {' and '.join(ESTIMATORS)} themselves; save its coef_"
        )
    arrays: Arrays = {"coef": np.asarray(estimator.coef_)}
    params = {
        key: value
        for key, value in estimator.get_params(deep=False).items()
        if key != "model"
    }
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


def load(
    path: str | Path, model: StructuredModel | None = None
) -> Any:  # what it is, the file alone says
    """Read what clew's `save` wrote: a `StructuredSVM`, `StructuredPerceptron` or `Tracker`.

    `model` is needed where the file was made with a model of your own. Predictions, scores, `result_` and its plot are
    as before; a later `fit(warm_start=result_)` starts at its weights.
    """
    document = storage.read_document(path, KIND, *READERS)
    if document.kind in READERS:
        return import_module(READERS[document.kind]).load_tracker(path)
    return unpack(path, document.meta, document.arrays, model)


def unpack(
    path: str | Path, meta: Json, arrays: Arrays, model: StructuredModel | None = None
) -> StructuredEstimator:
    """The inverse of `pack`; `path` is for messages."""
    with wrap_content_errors(path):
        estimator_class = _estimator(meta["estimator"])
        params = _decode_all(meta["params"], arrays)
        stored, result = _described(meta["model"]), _unpack_result(meta, arrays)
        domain, coef = _decode_all(stored["domain"], arrays), arrays["coef"]
        calibration, names = _unpack_calibration(meta, arrays), _unpack_names(meta)
    if model is None:
        model = _own_model(path, stored, arrays)
    else:
        _check_given(path, stored, model)
    with wrap_content_errors(path):
        estimator = estimator_class(model, **params)
        given: Any = model  # one of a user's own may lack restored: then the file does not fit it
        estimator.model_ = given.restored(domain) if domain else given
    estimator.coef_, estimator.result_ = coef, result
    if isinstance(result, (Result, LikelihoodResult, OnlineResult)):
        estimator.lam_, estimator.path_ = result.lam, []
    if calibration is not None:
        estimator.calibration_ = calibration
    if names is not None:
        estimator.feature_names_in_ = names
    _check_features(path, estimator.model_, coef.size)
    return estimator


def describe(path: str | Path) -> dict[str, str]:
    """What a file of any kind holds, in words; needs no model."""
    document = storage.read_document(path, KIND, *READERS)
    if document.kind in READERS:
        about: dict[str, str] = import_module(READERS[document.kind]).describe(path)
        return about
    about = describe_packed(path, document.meta, document.arrays)
    return about | {"written by": f"clew {document.clew_version}"}


def describe_packed(path: str | Path, meta: Json, arrays: Arrays) -> dict[str, str]:
    """A packed estimator in words."""
    with wrap_content_errors(path):
        params = _decode_all(meta["params"], arrays)
        result = _unpack_result(meta, arrays)
        own = meta["model"]["params"] is not None
        model = (
            repr(_own_model(path, _described(meta["model"]), arrays))
            if own
            else f"{meta['model']['class']} (your own)"
        )
        about = {
            "estimator": meta["estimator"],
            "model": " ".join(model.split()),
            "weights": f"{len(result.w)}",
        }
        if isinstance(result, Result):
            about |= {
                "loss": params["loss"]
                if isinstance(params["loss"], str)
                else str(params["loss"].name),
                "regulariser": result.regulariser,
                "λ": f"{result.lam:.4g}"
                + (
                    " (chosen on held-out annotations)"
                    if not _is_number(params["lam"])
                    else ""
                ),
                "algorithm": str(params["algorithm"]),
                "examples": str(result.n_examples),
            }
    return about | {"certificate": str(result)}


def _is_number(lam: object) -> bool:
    return isinstance(lam, (int, float))


def _estimator(name: str) -> type[StructuredEstimator]:
    """The class of this name."""
    found: type[StructuredEstimator] = getattr(
        import_module(f"clew.estimators.{ESTIMATORS[name]}"), name
    )
    return found


def _own_models() -> dict[str, type[Model]]:
    """The models that clew exports, by name."""
    return {
        name: value
        for name, value in vars(models).items()
        if isinstance(value, type) and issubclass(value, Model)
    }


def _pack_model(model: StructuredModel, arrays: Arrays) -> dict[str, object]:
    """Class, parameters (None of a user's own class), domain and number of features."""
    cls = type(model)
    known = _own_models().get(cls.__name__) is cls
    return {
        "class": cls.__name__ if known else f"{cls.__module__}.{cls.__qualname__}",
        "params": _encode_all(
            model.get_params(deep=False), "parameter of the model", arrays
        )
        if known and isinstance(model, Model)
        else None,
        "domain": _encode_all(
            model.domain if isinstance(model, Model) else {},
            "attribute of the model",
            arrays,
        ),
        "n_features": int(model.n_features),
    }


def _described(stored: Json) -> Json:
    """What `_pack_model` wrote, if it is that."""
    if (
        not isinstance(stored["class"], str)
        or not {"params", "domain", "n_features"} <= stored.keys()
    ):
        raise ValueError("the description of the model is not one")
    return stored


def _own_model(path: str | Path, stored: Json, arrays: Arrays) -> Model:
    """A model of clew's, made anew."""
    if stored["params"] is None:
        raise InputError(
            f"{path}: it was made with a model of your own, {stored['class']}; give it, as in "
            f"load(path, model={_short(stored['class'])}(...))"
        )
    known = _own_models()
    if stored["class"] not in known:
        raise StoreError(
            f"{path}: its model {stored['class']!r} is none of this clew's: {', '.join(sorted(known))}"
        )
    with wrap_content_errors(path):
        return known[stored["class"]](**_decode_all(stored["params"], arrays))


def _check_given(path: str | Path, stored: Json, model: StructuredModel) -> None:
    """Refuse a model of another class, or one that was prepared for other features."""
    if _short(stored["class"]) != type(model).__name__:
        raise InputError(
            f"{path}: it was made with the model {stored['class']}, the one that was given is a {type(model).__name__}"
        )
    if not stored["domain"] or all(hasattr(model, name) for name in stored["domain"]):
        _check_features(path, model, stored["n_features"])


def _check_features(path: str | Path, model: StructuredModel, expected: int) -> None:
    """As many features as weights."""
    with wrap_content_errors(path):  # it may follow from what the file says of the data
        found = getattr(model, "n_features", None)
    if found != expected:
        raise InputError(
            f"{path}: it has weights for {expected} features, and the {type(model).__name__} has {found}; "
            "give the model with the settings that it was fitted with"
        )


def _short(qualified: str) -> str:
    """A class name without its module: the same class is `__main__.A` in a script and `script.A` elsewhere."""
    return qualified.rpartition(".")[2]


def _pack_result(result: AnyResult, arrays: Arrays) -> object:
    """A result without its bounds; the history becomes one array."""
    if isinstance(result, Result):
        arrays["history"] = np.array(
            [astuple(record) for record in result.history], dtype=float
        )
        result = replace(result, history=(), bundle=None)
    return _encode(result, "result_", arrays)


def _unpack_result(meta: Json, arrays: Arrays) -> AnyResult:
    """The result, with its history if it had one."""
    result = _decode(meta["result"], arrays)
    if isinstance(result, (PerceptronResult, LikelihoodResult, OnlineResult)):
        return result
    if not isinstance(result, Result):
        raise ValueError("result is not one of a fit")
    rows = arrays["history"].tolist()
    return replace(
        result,
        history=tuple(
            Record(int(iteration), n, int(bounds), *rest)
            for iteration, n, bounds, *rest in rows
        ),
    )


def _unpack_calibration(meta: Json, arrays: Arrays) -> Calibration | None:
    """The calibration, if there was one."""
    if "calibration" not in meta:
        return None
    calibration = _decode(meta["calibration"], arrays)
    if not isinstance(calibration, Calibration):
        raise ValueError("calibration is none")
    return calibration


def _unpack_names(meta: Json) -> NDArray[np.object_] | None:
    """The names of the inputs' columns, if there were any."""
    names = meta.get("feature_names")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise ValueError("feature_names are no list of names")
    return None if names is None else np.array(names, dtype=object)


def _encode_all(
    values: Mapping[str, object], what: str, arrays: Arrays
) -> dict[str, object]:
    """Each value for JSON; the first that cannot be held is named."""
    return {
        name: _encode(value, f"the {what} {name!r}", arrays)
        for name, value in values.items()
    }


def _encode(value: object, what: str, arrays: Arrays) -> object:
    """A value as JSON, with a tag for what JSON does not know; arrays go to `arrays`."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [_encode(item, what, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, what, arrays) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {
            "set": [_encode(item, what, arrays) for item in sorted(value, key=repr)]
        }
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            "dict": {key: _encode(item, what, arrays) for key, item in value.items()}
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        return (
            {"text": value.tolist()}
            if value.dtype.kind == "U"
            else {"array": _keep(value, arrays)}
        )
    name = type(value).__name__
    if ENUMS.get(name) is type(value):
        return {name: value.value}
    if is_dataclass(value) and DATACLASSES.get(name) is type(value):
        return {
            name: {
                field.name: _encode(getattr(value, field.name), what, arrays)
                for field in fields(value)
            }
        }
    raise InputError(
        f"{what} is a {name} and cannot be saved; numbers, strings, lists, tuples, sets, dicts with string keys, and "
        "arrays of numbers can"
    )


def _keep(array: NDArray[np.generic], arrays: Arrays) -> str:
    """The name of an array among those to be written; coef_ and result_.w are one array and stay one."""
    for name, known in arrays.items():
        if known is array:
            return name
    name = f"array.{len(arrays)}"
    arrays[name] = array
    return name


def _decode_all(values: Json, arrays: Arrays) -> Json:
    """The inverse of `_encode_all`."""
    return {name: _decode(value, arrays) for name, value in values.items()}


def _decode(value: Any, arrays: Arrays) -> Any:
    """The inverse of `_encode`."""
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag in ENUMS:
        return ENUMS[tag](content)
    if tag in DATACLASSES:
        return DATACLASSES[tag](**_decode_all(content, arrays))
    match tag:
        case "float":
            return float(content)
        case "tuple":
            return tuple(_decode(content, arrays))
        case "set":
            return set(_decode(content, arrays))
        case "range":
            return range(*content)
        case "dict":
            return _decode_all(content, arrays)
        case "text":
            return np.array(content, dtype=str)
        case "array":
            return arrays[content]
    raise ValueError(f"unknown tag {tag!r}")
