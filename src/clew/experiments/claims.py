"""The paper's claims, and what is claimed beyond it: each holds or does not, with its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clew.annotation.questions import DEFAULT
from clew.experiments import active as beyond
from clew.experiments import fig34, fig56, table3
from clew.experiments.tables import Json, curve, summary, values, where

TOLERANCE = 2e-3
"""Objectives that differ by no more are the same: both stopping thresholds are 1e-3."""
SAME = 1e-9
"""Losses at the same weights that differ by no more are the same."""
NAMES = {name: name.replace("-delta", " − Δ") for name in table3.LOSSES} | {
    "yu-joachims": "Yu & Joachims",
    "recycling-only": "recycling",
    "adaptive-only": "adaptive",
    "paper": "both",
    "clew": "clew's default",
}
"""Of losses and of ways to optimise, in words."""
STARTS = {"zero": "from w = 0", "auto": "from clew's start"}
ENOUGH = 0.25
MARGIN = 1.1
ACTIVE = 0.08
THIRD = 1 / 3


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds on these movies, and why one may say so."""

    text: str
    holds: bool
    figures: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does not hold'}: {self.text} ({self.figures})"


def claims(results: Mapping[str, Sequence[Json]]) -> list[Claim]:
    """All claims that the results speak of."""
    judges: dict[str, Sequence[Callable[[Sequence[Json]], Claim]]] = {
        "fig34": (partial_is_enough, beats_perceptron, beats_averaged),
        "table3": (ramp_and_max_are_worse, subtracting_repairs, twins_coincide),
        "fig56": (fewer_bounds, same_objective_from_zero, same_objective_from_start),
        "beyond": (active_is_enough, active_elsewhere),
    }
    return [
        judge(results[name])
        for name, those in judges.items()
        if results.get(name)
        for judge in those
    ]


def partial_is_enough(entries: Sequence[Json]) -> Claim:
    """From a quarter on, partial annotation is as good as full annotation, but for a tenth."""
    full = summary(entries, "loss", method=fig34.FULL).mean
    partial = {
        f: summary(entries, "loss", method=fig34.PARTIAL, fraction=f).mean
        for f in _fractions(entries)
    }
    looked_at = {f: loss for f, loss in partial.items() if f >= ENOUGH}
    worst = max(looked_at, key=lambda f: looked_at[f])
    return Claim(
        "partial annotation is within 10 % of full annotation from 25 % on",
        looked_at[worst] <= MARGIN * full,
        f"full {100 * full:.2f} %, partial at most {100 * looked_at[worst]:.2f} % (at {worst:.0%})",
    )


def beats_perceptron(entries: Sequence[Json]) -> Claim:
    """At every fraction."""
    return _beats(entries, fig34.PERCEPTRON, "the structured perceptron")


def beats_averaged(entries: Sequence[Json]) -> Claim:
    """At every fraction, too."""
    return _beats(entries, fig34.AVERAGED, "the averaged perceptron")


def _beats(entries: Sequence[Json], rival: str, name: str) -> Claim:
    pairs = {
        f: tuple(
            summary(entries, "loss", method=method, fraction=f).mean
            for method in (fig34.PARTIAL, rival)
        )
        for f in _fractions(entries)
    }
    lost = [f for f, (ours, theirs) in pairs.items() if not ours < theirs]
    told = ", ".join(
        f"{f:.0%}: {100 * ours:.2f} against {100 * theirs:.2f} %"
        for f, (ours, theirs) in pairs.items()
    )
    where_not = "" if not lost else f"not at {', '.join(f'{f:.0%}' for f in lost)}; "
    return Claim(
        f"bridge (and so hinge) beats {name} at every fraction",
        not lost,
        where_not + told,
    )


def ramp_and_max_are_worse(entries: Sequence[Json]) -> Claim:
    """Than bridge, as in Table 3: from w = 0, with Y° really searched."""
    loss = _by_loss(entries, table3.LITERAL)
    other = _by_loss(entries, table3.STARTED)
    return Claim(
        "ramp and max are worse than bridge, from w = 0",
        min(loss["ramp"], loss["max"]) > loss["bridge"],
        f"{_told(loss, 'bridge', 'ramp', 'max')}; from clew's start {_told(other, 'bridge', 'ramp', 'max')}",
    )


def subtracting_repairs(entries: Sequence[Json]) -> Claim:
    """Repaired means: at least half of what ramp and max lose against bridge is won back."""
    loss = _by_loss(entries, table3.LITERAL)
    repaired = all(
        loss[name] > loss["bridge"]
        and loss[f"{name}-delta"] <= (loss[name] + loss["bridge"]) / 2
        for name in ("ramp", "max")
    )
    told = _told(loss, "bridge", "ramp", "ramp-delta", "max", "max-delta")
    return Claim("−Δ repairs ramp and max, from w = 0", repaired, told)


def twins_coincide(entries: Sequence[Json]) -> Claim:
    """The identities, at the weights that were found: both losses of a pair have the same value."""
    apart = max(abs(entry["twins"][0] - entry["twins"][1]) for entry in entries)
    reached = {
        pair: max(
            abs(a["objective"] - b["objective"])
            for a, b in zip(
                *(_rows(entries, name, table3.LITERAL) for name in pair), strict=True
            )
        )
        for pair in table3.TWINS
    }
    told = ", ".join(
        f"{NAMES[a]} and {NAMES[b]} by {gap:.1e}" for (a, b), gap in reached.items()
    )
    return Claim(
        "six losses are three: bridge = hinge, max = ramp, max − Δ = ramp − Δ as functions of w",
        apart <= SAME,
        f"at most {apart:.1e} apart at {len(entries)} weight vectors; local minima that were reached differ: {told}",
    )


def fewer_bounds(entries: Sequence[Json]) -> Claim:
    """Recycling and adaptive precision together, against neither, from the paper's start."""
    bounds = {
        start: {
            w: summary(entries, "passes", way=w, start=start).mean for w in fig56.WAYS
        }
        for start in STARTS
    }
    told = "; ".join(
        f"{STARTS[start]}: "
        + ", ".join(f"{NAMES[way]} {n:.0f}" for way, n in found.items())
        for start, found in bounds.items()
    )
    return Claim(
        "recycling and adaptive precision need at most a third of Yu & Joachims' bounds",
        bounds["zero"]["paper"] <= THIRD * bounds["zero"]["yu-joachims"],
        told,
    )


def same_objective_from_zero(entries: Sequence[Json]) -> Claim:
    """As the paper says of Figure 5."""
    return _same_objective(entries, "zero")


def same_objective_from_start(entries: Sequence[Json]) -> Claim:
    """From where clew starts."""
    return _same_objective(entries, "auto")


def _same_objective(entries: Sequence[Json], start: str) -> Claim:
    """All ways, on the same draw, up to the stopping thresholds."""
    apart = 0.0
    for draw in values(entries, "draw"):
        reached = [
            entry["objective"] for entry in where(entries, start=start, draw=draw)
        ]
        apart = max(apart, max(reached) - min(reached))
    means = {
        way: summary(entries, "objective", way=way, start=start).mean
        for way in fig56.WAYS
    }
    told = ", ".join(f"{NAMES[way]} {mean:.5f}" for way, mean in means.items())
    return Claim(
        f"all ways reach the same objective {STARTS[start]}",
        apart <= TOLERANCE,
        f"at most {apart:.1e} apart; {told}",
    )


def active_is_enough(entries: Sequence[Json]) -> Claim:
    """In the movie itself."""
    return _active(entries, beyond.OWN, "in the test movie itself")


def active_elsewhere(entries: Sequence[Json]) -> Claim:
    """From the training movie to the test movie."""
    return _active(entries, beyond.OTHER, "in another movie")


def _active(entries: Sequence[Json], movie: str, place: str) -> Claim:
    """Against random annotation of a quarter, by the loss of the weights alone once 8 % are annotated."""
    told, holds = [], True
    for prior in values(entries, "prior"):
        here = where(entries, movie=movie, prior=prior)
        goal = curve(where(here, strategy=beyond.RANDOM), "loss")[-1][1].mean
        points = curve(where(here, strategy=DEFAULT), "loss")
        last = max(share for share, _ in points if share <= ACTIVE + 1e-3)
        end = dict(points)[last].mean
        holds &= end <= goal
        first = next(
            (
                f", first reached with {share:.1%}"
                for share, loss in points
                if loss.mean <= goal
            ),
            "",
        )
        told.append(
            f"from {prior}: {100 * goal:.2f} % at random, {100 * end:.2f} % with {last:.1%} chosen{first}"
        )
    return Claim(
        f"annotating 8 % actively {place} is as good as 25 % at random",
        holds,
        "; ".join(told),
    )


def _fractions(entries: Sequence[Json]) -> list[float]:
    return [f for f in values(entries, "fraction") if f < 1]


def _rows(entries: Sequence[Json], loss: str, way: str) -> list[Json]:
    return sorted(
        where(entries, surrogate=loss, way=way), key=lambda entry: int(entry["draw"])
    )


def _by_loss(entries: Sequence[Json], way: str) -> dict[str, float]:
    """The mean test task loss for each surrogate loss."""
    return {
        name: summary(entries, "loss", surrogate=name, way=way).mean
        for name in table3.LOSSES
    }


def _told(loss: Mapping[str, float], *names: str) -> str:
    return ", ".join(f"{NAMES[name]} {100 * loss[name]:.2f} %" for name in names)
