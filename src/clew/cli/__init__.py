"""The `clew` command: arguments in, calls out, printing. One module for each group of commands."""

from clew.cli import annotate, data, demo, evaluate, train
from clew.cli import track as tracking
from clew.cli.options import app, main

__all__ = ["annotate", "app", "data", "demo", "evaluate", "main", "tracking", "train"]
