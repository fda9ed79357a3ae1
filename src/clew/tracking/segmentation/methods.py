"""Segmentation methods: the built-in threshold, networks of other programs, own functions.

Networks are imported when they are used. Each gets one frame at a time and returns a
label image.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError, MissingExtra
from clew.tracking.segmentation.threshold import DetectionSettings, detect_frame

THRESHOLD = "threshold"
DISTRIBUTIONS = {
    "cellpose": "cellpose",
    "stardist": "stardist",
    "instanseg": "instanseg-torch",
}
"""Distribution that has each network."""
METHODS = (THRESHOLD, *DISTRIBUTIONS)
STARDIST_WEIGHTS = {2: "2D_versatile_fluo", 3: "3D_demo"}
INSTANSEG_WEIGHTS = "fluorescence_nuclei_and_cells"

Segment = Callable[[NDArray[Any]], NDArray[Any]]
"""Makes a label image of an image (y, x) or (z, y, x)."""


@dataclass(frozen=True)
class Method:
    """A segmentation method that is ready to run.

    Attributes
    ----------
    name : str
        For people and for the manifest: the method, its version and its weights.
    segment : callable
    is_threshold : bool
        Whether this is the method of clew, which may run in several threads.
    """

    name: str
    segment: Segment
    is_threshold: bool = False


def load_method(
    name: str,
    settings: DetectionSettings,
    ndim: int,
    weights: str | None = None,
) -> Method:
    """Load a segmentation method with its weights.

    Parameters
    ----------
    name : str
        One of `METHODS`, or ``MODULE:FUNCTION``: a function that makes a label image of
        an image.
    settings : DetectionSettings
        Networks heed the diameter and the spacing.
    ndim : int
        Dimensions of a frame.
    weights : str, optional
        A file or folder, or a name that the network knows. Default: the network's own.
    """
    if weights is not None and name not in DISTRIBUTIONS:
        raise InputError(
            f"weights is {weights!r}; {name} has none, only {', '.join(DISTRIBUTIONS)}"
        )
    if name == THRESHOLD:
        detect = partial(detect_frame, settings=settings)
        return Method(THRESHOLD, detect, is_threshold=True)
    if name in DISTRIBUTIONS:
        load = {
            "cellpose": _load_cellpose,
            "stardist": _load_stardist,
            "instanseg": _load_instanseg,
        }[name]
        try:
            segment = load(settings, ndim, weights)
        except ImportError as error:
            raise MissingExtra(
                f"the method {name} needs the package {DISTRIBUTIONS[name]}, which "
                f"cannot be imported ({error}); install it: "
                f"pip install {DISTRIBUTIONS[name]}"
            ) from error
        except (OSError, ValueError, RuntimeError) as error:
            what = "its default weights" if weights is None else f"weights {weights!r}"
            raise InputError(
                f"{name} cannot load {what} ({_first_line(error)}); networks download "
                "their weights once, which needs a connection. Name a file with "
                "--weights where there is none"
            ) from error
        return Method(_describe_network(name, weights), segment)
    if ":" in name:
        return Method(name, _load_function(name))
    raise InputError(
        f"method is {name!r}; expected one of {', '.join(METHODS)}, or MODULE:FUNCTION"
    )


def _describe_network(name: str, weights: str | None) -> str:
    """Name a network with its version and weights."""
    try:
        number = version(DISTRIBUTIONS[name])
    except PackageNotFoundError:
        number = "of unknown version"
    return f"{name} {number}, weights {weights or 'by default'}"


def _load_function(name: str) -> Segment:
    """Import MODULE:FUNCTION."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"method is {name!r}; the module {module_name!r} cannot be imported "
            f"({error}). It must be installed, or lie in a folder of PYTHONPATH"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(
            f"method is {name!r}; {module_name} has no function {function_name!r}"
        )
    segment: Segment = function
    return segment


def _load_cellpose(
    settings: DetectionSettings, ndim: int, weights: str | None
) -> Segment:
    """Load a model of Cellpose 3 or 4; it uses a GPU if there is one."""
    core = importlib.import_module("cellpose.core")
    models = importlib.import_module("cellpose.models")
    chosen = {} if weights is None else {"pretrained_model": weights}
    model = models.CellposeModel(gpu=core.use_gpu(), **chosen)
    options: dict[str, Any] = {"diameter": settings.diameter}
    if ndim == 3:
        options |= {"do_3D": True, "z_axis": 0, "channel_axis": None}
        if settings.spacing is not None:
            options["anisotropy"] = settings.spacing[0] / settings.spacing[-1]

    def segment(image: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(model.eval(image, **options)[0])

    return segment


def _load_stardist(
    _settings: DetectionSettings, ndim: int, weights: str | None
) -> Segment:
    """Load a model of StarDist: one that it publishes, or a folder of one's own."""
    models = importlib.import_module("stardist.models")
    normalize = importlib.import_module("csbdeep.utils").normalize
    model_class = models.StarDist2D if ndim == 2 else models.StarDist3D
    if weights is not None and Path(weights).is_dir():
        folder = Path(weights).absolute()
        model = model_class(None, name=folder.name, basedir=str(folder.parent))
    else:
        model = model_class.from_pretrained(weights or STARDIST_WEIGHTS[ndim])
    if model is None:
        raise ValueError(f"StarDist knows no model of the name {weights!r}")

    def segment(image: NDArray[Any]) -> NDArray[Any]:
        # StarDist is trained on images whose percentiles 1 and 99.8 are 0 and 1
        scaled = normalize(image, 1, 99.8)
        return np.asarray(model.predict_instances(scaled)[0])

    return segment


def _load_instanseg(
    settings: DetectionSettings, ndim: int, weights: str | None
) -> Segment:
    """Load a model of InstanSeg; of nuclei and cells, cells are taken."""
    if ndim == 3:
        raise InputError(
            "the method instanseg takes images (y, x); frames of this movie are "
            "(z, y, x). Use cellpose or stardist"
        )
    instanseg = importlib.import_module("instanseg")
    model = instanseg.InstanSeg(weights or INSTANSEG_WEIGHTS, verbosity=0)
    pixel_size = None if settings.spacing is None else settings.spacing[-1]

    def segment(image: NDArray[Any]) -> NDArray[Any]:
        labels, _ = model.eval_small_image(image, pixel_size)
        cells: NDArray[np.int64] = np.asarray(labels)[0, -1].astype(np.int64)
        return cells

    return segment


def _first_line(error: BaseException) -> str:
    """Shorten the message of another library."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]
