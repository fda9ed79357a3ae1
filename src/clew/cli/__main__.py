"""`python -m clew.cli` is the `clew` command."""

from clew.cli import main

main()
