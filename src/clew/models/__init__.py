"""Structured outputs: features, task loss, and the argmax in Y, Y* and Y°.

A model is imported when it is first used: tracking needs only the solver of 0/1 programs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.models.assignment import Assignment
    from clew.models.base import Model, StructuredModel
    from clew.models.binary_program import BinaryProgram
    from clew.models.chain import Chain
    from clew.models.checking import check_model
    from clew.models.graph import Graph
    from clew.models.highs_solver import Program
    from clew.models.multiclass import Multiclass
    from clew.models.tree import Tree

__all__ = [
    "Assignment",
    "BinaryProgram",
    "Chain",
    "Graph",
    "Model",
    "Multiclass",
    "Program",
    "StructuredModel",
    "Tree",
    "check_model",
]

_HOME_OF = {
    "Assignment": "assignment",
    "BinaryProgram": "binary_program",
    "Chain": "chain",
    "Graph": "graph",
    "Model": "base",
    "Multiclass": "multiclass",
    "Program": "highs_solver",
    "StructuredModel": "base",
    "Tree": "tree",
    "check_model": "checking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'clew.models' has no attribute {name!r}")
    home = import_module(f"clew.models.{_HOME_OF[name]}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
