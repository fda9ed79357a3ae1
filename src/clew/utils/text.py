"""Text from outside, such as names in files, made safe to show."""

from __future__ import annotations

import re

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""What no document may hold, and what terminals obey in place of showing it."""


def replace_control_characters(value: object) -> str:
    """Return the text of a value, with a mark in place of each control character."""
    return CONTROL_CHARACTERS.sub("\ufffd", str(value))
