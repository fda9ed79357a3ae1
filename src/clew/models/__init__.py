"""Structured outputs: features, task loss, and the argmax in Y, Y* and Y°."""

from clew.models.assignment import Assignment
from clew.models.base import Model, StructuredModel
from clew.models.binary_program import BinaryProgram, Program
from clew.models.chain import Chain
from clew.models.checking import check_model
from clew.models.graph import Graph
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
