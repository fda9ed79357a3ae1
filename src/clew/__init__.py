"""clew: large-margin learning of structured outputs from partial annotations.

Public names are imported when they are first used, so that `import clew` and `clew --help` take no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew._version import __version__ as __version__
from clew.utils.lazy import import_lazily

if TYPE_CHECKING:
    from clew import errors, models
    from clew.errors import ClewError
    from clew.estimators.crf import StructuredCRF
    from clew.estimators.perceptron import StructuredPerceptron
    from clew.estimators.persistence import load
    from clew.estimators.svm import StructuredSVM
    from clew.learning.cccp import PRESETS, Algorithm, learn
    from clew.learning.losses import LOSSES, Loss
    from clew.learning.result import Result, Status
    from clew.learning.task import Argmax, Space, Task
    from clew.tracking.lineage.lineage import Lineage
    from clew.tracking.movie import Movie, open_movie
    from clew.tracking.tracker import Tracker

__all__ = [
    "LOSSES",
    "PRESETS",
    "Algorithm",
    "Argmax",
    "ClewError",
    "Lineage",
    "Loss",
    "Movie",
    "Result",
    "Space",
    "Status",
    "StructuredCRF",
    "StructuredPerceptron",
    "StructuredSVM",
    "Task",
    "Tracker",
    "errors",
    "learn",
    "load",
    "models",
    "open_movie",
]

_MODULES = ("annotation", "errors", "estimators", "learning", "models", "tracking")
_HOMES = {
    "clew.estimators.persistence": ("load",),
    "clew.estimators.crf": ("StructuredCRF",),
    "clew.errors": ("ClewError",),
    "clew.estimators.perceptron": ("StructuredPerceptron",),
    "clew.estimators.svm": ("StructuredSVM",),
    "clew.learning.cccp": ("PRESETS", "Algorithm", "learn"),
    "clew.learning.losses": ("LOSSES", "Loss"),
    "clew.learning.result": ("Result", "Status"),
    "clew.learning.task": ("Argmax", "Space", "Task"),
    "clew.tracking.lineage.lineage": ("Lineage",),
    "clew.tracking.movie": ("Movie", "open_movie"),
    "clew.tracking.tracker": ("Tracker",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_get_name, __dir__ = import_lazily(__name__, _HOME_OF)


def __getattr__(name: str) -> Any:
    return import_module(f"clew.{name}") if name in _MODULES else _get_name(name)
