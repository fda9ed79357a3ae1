"""clew: large-margin learning of structured outputs from partial annotations."""

from clew import errors, models
from clew.errors import ClewError
from clew.estimator import StructuredPerceptron, StructuredSVM
from clew.learning.cccp import PRESETS, Algorithm, learn
from clew.learning.losses import LOSSES, Loss
from clew.learning.result import Result, Status
from clew.learning.task import Argmax, Space, Task
from clew.tracking.archive import load
from clew.tracking.lineage import Lineage
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
