"""The version: pyproject.toml and ``clew.__version__`` read it here."""

__version__ = "0.2.0"
