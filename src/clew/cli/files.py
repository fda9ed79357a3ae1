"""The command info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clew.cli.options import command, path_text


@command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .clew file.")],
) -> None:
    """Show the content of a .clew file: model or tracker, loss, λ and certificate."""
    from clew.estimators import persistence

    about = persistence.describe_file(file)
    table = Table(show_header=False, title=Text(path_text(file)), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in about.items():
        table.add_row(name, Text(text))
    Console().print(table)
