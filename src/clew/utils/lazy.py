"""Public names of a package, imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        {public name: module that has it}; a module that begins with a dot is in the
        package.
    """
    namespace = vars(sys.modules[package])

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name], package), name)
        namespace[name] = value
        return value

    def list_names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]})

    return get_attribute, list_names
