"""Write results: results.json, a PNG and an SVG of each figure, and report.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clew.tracking.events import Event
from clew.utils.storage import write_bytes, write_json
from paper.claims import Claim, judge_claims
from paper.dataset import Dataset
from paper.experiment_data import ExperimentData
from paper.plots import FIGURES, render_figure
from paper.report import build_report, describe_environment
from paper.tables import Json


def write_results(
    folder: Path, results: Mapping[str, Sequence[Json]], data: ExperimentData, seed: int
) -> list[Claim]:
    """Judge the claims and write all files.

    Returns
    -------
    claims : list of Claim
    """
    claims = judge_claims(results)
    facts = _describe_run(data, seed)
    write_json(
        folder / "results.json",
        {
            "facts": facts,
            "setup": data.setup.as_dict(),
            "claims": [claim.as_dict() for claim in claims],
            "results": {name: list(entries) for name, entries in results.items()},
        },
    )
    for name, (experiment, draw) in FIGURES.items():
        if results.get(experiment):
            figure = draw(results[experiment])
            for suffix in ("png", "svg"):
                image = render_figure(figure, suffix)
                write_bytes(folder / f"{name}.{suffix}", image)
    page = build_report(results, claims, facts)
    write_bytes(folder / "report.html", page.encode())
    return claims


def _describe_run(data: ExperimentData, seed: int) -> dict[str, Any]:
    """List movies, sizes, settings and versions."""
    sizes = [program.A.shape[1] for program in data.programs]
    return {
        "training movie": _describe_movie(data.train),
        "test movie": _describe_movie(data.test),
        "training pairs": f"{len(data.frames)}, with {len(data.full)} true events and "
        f"{min(sizes)}–{max(sizes)} candidates each",
        "weights": data.programs[0].features.shape[1],
        "λ": data.setup.lam,
        "thresholds": "10⁻³, both",
        "seed": seed,
        **describe_environment(),
    }


def _describe_movie(dataset: Dataset) -> str:
    """Return a movie's name, length and number of events of each kind."""
    counts = np.bincount(dataset.truth.events.event, minlength=len(Event))
    events = ", ".join(f"{counts[event]} {event}" for event in Event if counts[event])
    return f"{dataset.name}: {dataset.source.n_frames} frames, {events}"
