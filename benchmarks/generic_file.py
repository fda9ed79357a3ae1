"""Writes sections of the weights and coefficients that come with clew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clew.tracking.events import Event
from clew.tracking.training.calibration import Calibration

PATH = Path(__file__).parents[1] / "src/clew/tracking/training/generic_weights.json"


def update_generic(**sections: Any) -> Path:
    """Replace some sections of the file."""
    content = json.loads(PATH.read_text(encoding="utf-8")) | sections
    PATH.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return PATH


def calibration_section(
    calibration: Calibration, typical_rank: float
) -> dict[str, Any]:
    """Return the section of a calibration."""
    names = ("slope", "growth", "border", "torn", "swap", "clearness", "spread")
    intercepts = calibration.intercept.tolist()
    return {
        **{name: round(getattr(calibration, name), 4) for name in names},
        "typical_rank": round(typical_rank, 4),
        "intercepts": {
            str(event): round(value, 4)
            for event, value in zip(Event, intercepts, strict=True)
        },
    }
