"""Which jobs the figures need, in the whole edition and in the quick one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clew.errors import InputError
from paper import active_annotation, fig34, fig56, table3
from paper.runner import Job

PARTS = {
    "fig3": "fig34",
    "fig4": "fig34",
    "table3": "table3",
    "fig5": "fig56",
    "fig6": "fig56",
    "beyond": "beyond",
}
"""What can be asked for, and the experiment that gives it."""
ALL = "all"


@dataclass(frozen=True)
class Edition:
    """How much of everything."""

    pairs: int
    fractions: tuple[float, ...]
    draws: int
    """Of Figures 3 and 4 and of Table 3."""
    lesion_draws: int
    """Of Figures 5 and 6."""
    sessions: int
    """Of active annotation."""
    budgets: tuple[float, ...]


WHOLE = Edition(20, fig34.FRACTIONS, 10, 3, 3, active_annotation.BUDGETS)
QUICK = Edition(10, fig34.QUICK_FRACTIONS, 2, 1, 1, active_annotation.QUICK_BUDGETS)


def experiments_for(parts: Iterable[str]) -> list[str]:
    """The experiments behind the parts that were asked for, each once."""
    asked = list(parts) or [ALL]
    unknown = [part for part in asked if part not in (*PARTS, ALL)]
    if unknown:
        raise InputError(
            f"there is no {unknown[0]!r} to reproduce; there are {', '.join(PARTS)} and {ALL}"
        )
    return list(
        dict.fromkeys(
            PARTS.values() if ALL in asked else (PARTS[part] for part in asked)
        )
    )


def jobs_for(
    experiments: Iterable[str], edition: Edition, draws: int | None = None
) -> list[Job]:
    """All jobs of some experiments; `draws` overrules the edition's."""
    n = draws if draws is not None else edition.draws
    if n < 1:
        raise InputError(f"{n} draws were asked for; expected at least one")
    settings = {
        "fig34": lambda: fig34.list_jobs(n, edition.fractions),
        "table3": lambda: table3.list_jobs(n),
        "fig56": lambda: fig56.list_jobs(min(n, edition.lesion_draws)),
        "beyond": lambda: active_annotation.list_jobs(
            min(n, edition.sessions), edition.budgets
        ),
    }
    return [
        Job(experiment, job)
        for experiment in experiments
        for job in settings[experiment]()
    ]
