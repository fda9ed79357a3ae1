"""Structured outputs: features, task loss, and the argmax in Y, Y* and Y°.

A model is imported when it is first used: tracking needs only the solver of 0/1 programs.
"""

from typing import TYPE_CHECKING

from clew.utils.lazy import import_lazily

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
    "Assignment": ".assignment",
    "BinaryProgram": ".binary_program",
    "Chain": ".chain",
    "Graph": ".graph",
    "Model": ".base",
    "Multiclass": ".multiclass",
    "Program": ".highs_solver",
    "StructuredModel": ".base",
    "Tree": ".tree",
    "check_model": ".checking",
}

__getattr__, __dir__ = import_lazily(__name__, _HOME_OF)
