"""Tables of golden runs: one file, or two side by side with what got worse."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Figures = dict[str, Any]


class Tolerance(NamedTuple):
    """How a figure is judged: it may get worse by the larger of both."""

    label: str
    digits: int
    sign: int
    """1 if lower is better, -1 if higher is."""
    absolute: float
    relative: float


class Change(NamedTuple):
    """Old and new values of a figure as text, and "worse", "better" or nothing."""

    text: str
    verdict: str


TOLERANCES = {
    "missed": Tolerance("missed events", 1, 1, 2, 0.1),
    "aogm": Tolerance("AOGM", 0, 1, 10, 0.1),
    "tra": Tolerance("TRA", 4, -1, 0.0005, 0),
    "division_f1": Tolerance("division F1", 3, -1, 0.01, 0),
    "accuracy": Tolerance("accuracy %", 2, -1, 0.3, 0),
    "f1": Tolerance("F1 %", 2, -1, 0.3, 0),
    "objective": Tolerance("objective", 4, 1, 1e-3, 2e-3),
    "converged": Tolerance("converged", 0, -1, 0, 0),
    "claims_held": Tolerance("claims held", 0, -1, 0, 0),
    "compile_cpu": Tolerance("compilation CPU s", 1, 1, 0.5, 0.15),
    "fit_cpu": Tolerance("fit CPU s", 2, 1, 0.3, 0.15),
    "train_cpu": Tolerance("train CPU s", 1, 1, 0.5, 0.15),
    "track_cpu": Tolerance("track CPU s", 1, 1, 0.5, 0.15),
    "evaluate_cpu": Tolerance("evaluate CPU s", 1, 1, 0.5, 0.15),
    "cpu": Tolerance("CPU s", 1, 1, 0.5, 0.15),
    "rss": Tolerance("peak MB", 0, 1, 15, 0.05),
    "next_ms": Tolerance("next question ms", 0, 1, 30, 0.3),
    "next_p95_ms": Tolerance("next question p95 ms", 0, 1, 100, 0.5),
    "predictions_ms": Tolerance("predictions ms", 0, 1, 100, 0.3),
    "predictions_p95_ms": Tolerance("predictions p95 ms", 0, 1, 300, 0.5),
    "startup_s": Tolerance("page opens s", 1, 1, 1, 0.3),
}
"""CPU seconds of equal work differ by about a tenth on a busy machine."""
SHOWN = (
    "true_events",
    "missed",
    "missed_percent",
    "aogm",
    "tra",
    "division_f1",
    "expected_wrong",
    "accuracy",
    "f1",
    "objective",
    "converged",
    "claims_held",
    "compile_cpu",
    "fit_cpu",
    "train_cpu",
    "track_cpu",
    "next_ms",
    "next_p95_ms",
    "predictions_ms",
    "predictions_p95_ms",
    "cpu",
    "rss",
)


def describe(figures: Figures) -> str:
    """One line with the figures of a case."""
    if "error" in figures:
        return f"FAILED: {figures['error']}"
    parts = [f"{name} {figures[name]:.5g}" for name in SHOWN if name in figures]
    if "is_over_limit" in figures:
        parts.append("stopped at the limit of CPU seconds")
    if "digest" in figures:
        parts.append(f"events {figures['digest'][:8]}")
    return ", ".join(parts)


def group_draws(records: dict[str, Figures]) -> dict[str, list[Figures]]:
    """Records by case, draws of annotations together and in order."""
    groups: dict[str, list[Figures]] = defaultdict(list)
    for name in sorted(records):
        groups[re.sub(r"-\d+$", "", name)].append({"case": name, **records[name]})
    return groups


def show(path: Path) -> None:
    """Print the figures of a file as tables, one for each sort of cases."""
    groups = group_draws(json.loads(path.read_text()))
    for sort in sorted({name.split("/")[0] for name in groups}):
        cases = {name: g for name, g in groups.items() if name.startswith(f"{sort}/")}
        names = [
            name
            for name in SHOWN
            if any(name in draw for draws in cases.values() for draw in draws)
        ]
        print(f"\n| {sort} | draws | " + " | ".join(names) + " |")
        print("| --- |" + " ---: |" * (len(names) + 1))
        for case, draws in cases.items():
            cells = [show_mean(draws, name) for name in names]
            label = case.split("/", 1)[1]
            print(f"| {label} | {len(draws)} | " + " | ".join(cells) + " |")
            for draw in draws:
                if "error" in draw:
                    print(f"| {draw['case']} failed: {draw['error'][:200]!r} |")
    total = sum(draw.get("cpu", 0) for draws in groups.values() for draw in draws)
    print(f"\nCPU seconds of all cases: {total:.0f}")
    for draws in groups.values():
        for text, holds, figures in draws[0].get("claims", []):
            print(f"- {'holds' if holds else 'does not hold'}: {text} ({figures})")


def show_mean(draws: list[Figures], name: str) -> str:
    """The mean over draws, with the standard deviation of several."""
    values = [float(draw[name]) for draw in draws if name in draw]
    if not values:
        return ""
    digits = TOLERANCES[name].digits if name in TOLERANCES else 2
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def compare(old_path: Path, new_path: Path) -> None:
    """Print old and new figures side by side, and list what got worse."""
    old = json.loads(old_path.read_text())
    new = json.loads(new_path.read_text())
    common = [name for name in old if name in new]
    old_groups = group_draws({name: old[name] for name in common})
    new_groups = group_draws({name: new[name] for name in common})
    worse = []
    print("| case | events | accuracy, time and memory (old → new) | |")
    print("| --- | --- | --- | --- |")
    for case, old_draws in old_groups.items():
        new_draws = new_groups[case]
        changes = compare_figures(old_draws, new_draws)
        worsened = [change.text for change in changes if change.verdict == "worse"]
        worsened += [f"failed: {d['error'][:200]}" for d in new_draws if "error" in d]
        worsened += list_lost_claims(old_draws[0], new_draws[0])
        worse += [f"{case}: {text}" for text in worsened]
        verdict = "WORSE" if worsened else ""
        if not worsened and any(change.verdict == "better" for change in changes):
            verdict = "better"
        events = compare_digests(old_draws, new_draws)
        texts = "; ".join(change.text for change in changes)
        print(f"| {case} | {events} | {texts} | {verdict} |")
    print(f"\n{sum_cpu(old_groups, new_groups)}")
    missing = sorted(set(old) - set(new))
    if missing:
        print(f"not measured in {new_path}: {', '.join(missing)}")
    print(f"\nworse beyond noise: {len(worse)}")
    for line in worse:
        print(f"- {line}")


def compare_digests(old: list[Figures], new: list[Figures]) -> str:
    """Say whether the predicted events are the same."""
    if "digest" not in old[0]:
        return ""
    if [d.get("annotations_digest") for d in old] != [
        d.get("annotations_digest") for d in new
    ]:
        return "other annotations"
    same = [a.get("digest") == b.get("digest") for a, b in zip(old, new, strict=True)]
    return "same" if all(same) else f"same in {sum(same)} of {len(same)}"


def compare_figures(old: list[Figures], new: list[Figures]) -> list[Change]:
    """Compare every figure that both have."""
    changes = []
    for name, tolerance in TOLERANCES.items():
        pairs = [
            (float(a[name]), float(b[name]))
            for a, b in zip(old, new, strict=True)
            if name in a and name in b
        ]
        if pairs:
            noise = max(float(draw.get(f"{name}_noise", 0)) for draw in old)
            changes.append(judge_change(np.array(pairs), tolerance, noise))
    return changes


def judge_change(pairs: Any, tolerance: Tolerance, noise: float) -> Change:
    """Judge a figure's change; the (n, 2) old and new values are of n draws.

    A change by the standard error `noise` of a figure is allowed; with several draws,
    two standard errors of the differences between old and new are allowed as well.
    """
    old, new = pairs.mean(axis=0)
    change = tolerance.sign * (pairs[:, 1] - pairs[:, 0])
    allowed = max(tolerance.absolute, tolerance.relative * abs(old), noise)
    if len(pairs) > 1:
        allowed = max(allowed, 2 * change.std(ddof=1) / np.sqrt(len(pairs)))
    verdict = ""
    if change.mean() > allowed:
        verdict = "worse"
    elif change.mean() < -allowed:
        verdict = "better"
    text = f"{tolerance.label} {old:.{tolerance.digits}f}"
    if old != new:
        text += f" → {new:.{tolerance.digits}f}"
        if old:
            text += f" (× {new / old:.2f})"
    return Change(text, verdict)


def list_lost_claims(old: Figures, new: Figures) -> list[str]:
    """Claims of the paper that held and hold no longer; texts may change."""
    before = old.get("claims", [])
    after = new.get("claims", [])
    if len(before) != len(after):
        return [f"{len(before)} claims before, {len(after)} now"]
    return [
        f"no longer holds: {claim[0]} ({claim[2]} → {present[2]})"
        for claim, present in zip(before, after, strict=True)
        if claim[1] and not present[1]
    ]


def sum_cpu(old: dict[str, list[Figures]], new: dict[str, list[Figures]]) -> str:
    """CPU seconds of each sort of cases, old and new."""
    parts = []
    for sort in sorted({name.split("/")[0] for name in old}):
        totals = []
        for groups in (old, new):
            cases = [draws for name, draws in groups.items() if name.startswith(sort)]
            totals.append(sum(d.get("cpu", 0) for draws in cases for d in draws))
        ratio = totals[1] / totals[0] if totals[0] else float("nan")
        parts.append(f"{sort} {totals[0]:.0f} → {totals[1]:.0f} s ({ratio:.2f})")
    return "CPU: " + ", ".join(parts)
