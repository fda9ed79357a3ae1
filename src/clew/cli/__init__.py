"""The `clew` command: arguments in, calls out, printing. One module for each group of commands."""

from clew.cli import files
from clew.cli.base import app, main

__all__ = ["app", "files", "main"]
