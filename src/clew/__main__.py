"""`python -m clew`, for where the command is not on the path."""

from clew.cli import main

main()
