"""Draw random settings (domain randomization) for training movies."""

from __future__ import annotations

from typing import Any

import numpy as np


def draw_between(
    rng: np.random.Generator, low: float, high: float, log: bool = False
) -> float:
    """Draw a number between two, uniformly or log-uniformly."""
    return (
        float(np.exp(rng.uniform(np.log(low), np.log(high))))
        if log
        else float(rng.uniform(low, high))
    )


def draw_sometimes(
    rng: np.random.Generator, share: float, low: float, high: float
) -> float:
    """Draw a log-uniform number with probability `share`, else 0."""
    value = draw_between(rng, low, high, log=True)
    return value if rng.random() < share else 0.0


def draw_shared_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Draw the settings that all kinds share."""
    return {
        "seed": int(rng.integers(2**31)),
        "noise": draw_between(rng, 0.5, 3.0, log=True),
        "unevenness": rng.uniform(0, 0.15),
        "over_segmentation": draw_sometimes(rng, 0.6, 0.0005, 0.02),
        "missed": draw_sometimes(rng, 0.6, 0.0005, 0.02),
        "shake": draw_sometimes(rng, 0.4, 0.2, 3.0),
        "stage_jumps": draw_sometimes(rng, 0.2, 0.02, 0.2),
        "jump_size": draw_between(rng, 0.5, 4.0, log=True),
        "missing_frames": draw_sometimes(rng, 0.15, 0.02, 0.2),
    }


def draw_body_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Draw the settings that all kinds with bodies share."""
    return draw_shared_settings(rng) | {
        "under_segmentation": draw_sometimes(rng, 0.6, 0.0005, 0.05),
        "outline_error": draw_between(rng, 0.02, 0.15, log=True),
    }
