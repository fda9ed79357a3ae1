"""The `clew` command: arguments in, calls out, printing. One module for each group of commands."""

from clew.cli import annotate, data, demo, files, reproduce, tracking
from clew.cli.base import app, main

__all__ = ["annotate", "app", "data", "demo", "files", "main", "reproduce", "tracking"]
