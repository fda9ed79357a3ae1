"""Compare the claims of a run with stored ones, within tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clew.utils.storage import read_json, write_json
from paper.claims import Claim


def store_claims(path: Path, claims: Sequence[Claim]) -> None:
    """Write claims to a JSON file, to compare later runs with."""
    write_json(path, [claim.as_dict() for claim in claims])


def compare_claims(path: Path, claims: Sequence[Claim]) -> list[str]:
    """List how claims differ from those in a file.

    Figures may differ by the tolerance of their unit. Whether a claim holds must not
    change.

    Returns
    -------
    differences : list of str
        One line for each difference; empty if there is none.
    """
    stored = {entry["claim"]: entry for entry in read_json(path)}
    texts = [claim.text for claim in claims]
    differences = [f"not judged: {text}" for text in stored if text not in texts]
    for claim in claims:
        if claim.text not in stored:
            differences.append(f"not stored in {path}: {claim.text}")
            continue
        expected = stored[claim.text]
        if claim.holds != expected["holds"]:
            differences.append(f"holds was {expected['holds']}: {claim}")
        figures = {figure.label: figure for figure in claim.figures}
        if set(claim.as_dict()["figures"]) != set(expected["figures"]):
            differences.append(f"other figures than in {path}: {claim}")
            continue
        for label, value in expected["figures"].items():
            figure = figures[label]
            if abs(figure.value - value) > figure.tolerance(value):
                differences.append(f"{claim.text}: {figure}, expected {value:.6g}")
    return differences
