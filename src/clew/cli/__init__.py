"""The `clew` command: arguments in, calls out, printing. One module for each group of commands."""

from clew.cli import data, demo, files, tracking
from clew.cli.base import app, main

__all__ = ["app", "data", "demo", "files", "main", "tracking"]
