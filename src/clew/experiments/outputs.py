"""Puts results into a folder: results.json, a PNG and an SVG for each figure, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.experiments.claims import Claim, claims
from clew.experiments.dataset import Dataset
from clew.experiments.plots import FIGURES, image
from clew.experiments.report import environment, report
from clew.experiments.setup import ExperimentData
from clew.experiments.tables import Json
from clew.tracking.events import Event
from clew.tracking.io.manifest import written_whole
from clew.tracking.io.names import REPORT, REPRODUCE
from clew.utils.storage import write_bytes, write_json

RESULTS, KINDS = "results.json", ("png", "svg")


def write_results(
    folder: Path, results: Mapping[str, Sequence[Json]], data: ExperimentData, seed: int
) -> list[Claim]:
    """Write everything; what the claims came to."""
    judged = claims(results)
    facts: dict[str, Any] = {
        "training movie": _in_words(data.train),
        "test movie": _in_words(data.test),
        "training pairs": f"{len(data.frames)}, with {len(data.full)} true events and "
        f"{min(p.A.shape[1] for p in data.programs)}–{max(p.A.shape[1] for p in data.programs)} candidates each",
        "weights": data.programs[0].features.shape[1],
        "λ": data.setup.lam,
        "thresholds": "10⁻³, both",
        "seed": seed,
        **environment(),
    }
    drawn = {f"{name}.{kind}" for name in FIGURES for kind in KINDS}
    own = {RESULTS, REPORT, *drawn}
    with written_whole(
        folder, REPRODUCE, own.__contains__, {"setup": data.setup.as_dict()}
    ) as stage:
        write_json(
            stage / RESULTS,
            {
                "facts": facts,
                "setup": data.setup.as_dict(),
                "claims": [
                    {"claim": c.text, "holds": c.holds, "figures": c.figures}
                    for c in judged
                ],
                "results": {name: list(entries) for name, entries in results.items()},
            },
        )
        for name, (experiment, draw) in FIGURES.items():
            if results.get(experiment):
                figure = draw(results[experiment])
                for kind in KINDS:
                    write_bytes(stage / f"{name}.{kind}", image(figure, kind))
        write_bytes(stage / REPORT, report(results, judged, facts).encode())
    return judged


def _in_words(dataset: Dataset) -> str:
    """A movie's name, size and events."""
    counts = np.bincount(dataset.truth.events.event, minlength=len(Event))
    events = ", ".join(f"{counts[event]} {event}" for event in Event if counts[event])
    return f"{dataset.name}: {dataset.source.n_frames} frames, {events}"
