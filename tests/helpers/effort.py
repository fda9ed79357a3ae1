"""How hard the tests search: `make test` samples what `make slow` searches in full."""

import os

import pytest
from hypothesis import settings

THOROUGH = bool(os.environ.get("CLEW_THOROUGH"))
"""Whether all examples are tried. `make slow` sets it, and runs all tests by hypothesis besides those marked slow."""


def examples(n: int) -> settings:
    """Settings of hypothesis for n examples when thorough, and a quarter of them else."""
    return settings(max_examples=n if THOROUGH else -(-n // 4))


def sweep(few: int, all_: int) -> pytest.MarkDecorator:
    """The parameter `n` of a test: over how many instances it goes in `make test`, and in `make slow`."""
    return pytest.mark.parametrize(
        "n", [few, pytest.param(all_, marks=pytest.mark.slow)]
    )
