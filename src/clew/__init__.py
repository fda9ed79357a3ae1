"""clew: large-margin learning of structured outputs from partial annotations."""

from clew import errors, models
from clew.archive import load
from clew.errors import ClewError
from clew.estimator import StructuredPerceptron, StructuredSVM
from clew.learning.cccp import PRESETS, Algorithm, learn
from clew.learning.losses import LOSSES, Loss
from clew.learning.result import Result, Status
from clew.learning.task import Argmax, Space, Task

__all__ = [
    "LOSSES",
    "PRESETS",
    "Algorithm",
    "Argmax",
    "ClewError",
    "Loss",
    "Result",
    "Space",
    "Status",
    "StructuredPerceptron",
    "StructuredSVM",
    "Task",
    "errors",
    "learn",
    "load",
    "models",
]
