"""The colours of certainty, as people with the common kinds of colour blindness see them (Machado et al. 2009)."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import clew.app

STATIC = Path(clew.app.__file__).parent / "static"
INK = (STATIC / "ink.js").read_text()
SEEN = {
    "as most people do": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour, seen):
    """CIE L*a*b* of a colour as it is seen."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    f = np.cbrt(TO_XYZ @ np.clip(np.asarray(seen) @ linear, 0, 1) / WHITE)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eye", SEEN)
def test_degrees_of_certainty_can_be_told_apart(eye):
    ink = dict(re.findall(r'(unsure|fair|sure|pinned): \{ colour: "(#\w{6})"', INK))
    assert len(ink) == 4
    seen = {name: lab(colour, SEEN[eye]) for name, colour in ink.items()}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 12, (
            one,
            other,
        )  # five times what is just noticed


def test_colour_never_speaks_alone():
    styles = re.findall(
        r"(?:unsure|fair|sure|pinned): \{[^}]*?dash: (\[[^\]]*\])[^}]*?\}", INK
    )
    doubled = re.findall(r"(?:unsure|fair|sure|pinned): \{([^}]*)\}", INK)
    assert (
        len(
            {
                (style, "double: true" in words)
                for style, words in zip(styles, doubled, strict=True)
            }
        )
        == 4
    )


def luminance(colour):
    """The relative luminance of a colour (WCAG 2)."""
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return float(TO_XYZ[1] @ linear)


LEAST = {"text": 7, "quiet": 4.5, "accent": 4.5, "fair": 3, "unsure": 3, "edge": 3}
"""How far words and marks are to stand out."""


@pytest.mark.parametrize("theme", [0, 1])
def test_marks_and_words_stand_out_from_the_ground_in_both_themes(theme):
    block = (STATIC / "style.css").read_text().split(":root")[1 + theme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
    ground = luminance(colours["surface"])
    for name, least in LEAST.items():
        low, high = sorted([luminance(colours[name]), ground])
        assert (high + 0.05) / (low + 0.05) >= least, name
