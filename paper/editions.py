"""Jobs of each figure, in the whole edition and in the quick one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clew.errors import InputError
from paper import active_annotation, fig34, fig56, table3
from paper.runner import Job
from paper.strategies import DEFAULT

PARTS = {
    "fig3": "fig34",
    "fig4": "fig34",
    "table3": "table3",
    "fig5": "fig56",
    "fig6": "fig56",
    "beyond": "beyond",
}
"""Figures and tables, and the experiment behind each."""
ALL = "all"


@dataclass(frozen=True)
class Edition:
    """Size of a run."""

    pairs: int
    """Frame pairs to learn from."""
    fractions: tuple[float, ...]
    draws: int
    """Draws of Figures 3 and 4 and of Table 3."""
    lesion_draws: int
    """Draws of Figures 5 and 6."""
    sessions: int
    """Sessions of active annotation."""
    budgets: tuple[float, ...]
    strategies: tuple[str, ...]
    """Strategies of active annotation."""


WHOLE = Edition(
    pairs=20,
    fractions=fig34.FRACTIONS,
    draws=10,
    lesion_draws=3,
    sessions=3,
    budgets=active_annotation.BUDGETS,
    strategies=active_annotation.ACTIVE,
)
QUICK = Edition(
    pairs=10,
    fractions=fig34.QUICK_FRACTIONS,
    draws=2,
    lesion_draws=1,
    sessions=4,
    budgets=active_annotation.QUICK_BUDGETS,
    strategies=(DEFAULT,),
)


def experiments_for(parts: Iterable[str]) -> list[str]:
    """Return the experiments behind some parts, each once."""
    names = list(parts) or [ALL]
    unknown = [part for part in names if part not in (*PARTS, ALL)]
    if unknown:
        raise InputError(
            f"there is no {unknown[0]!r} to reproduce; there are {', '.join(PARTS)} and {ALL}"
        )
    return list(
        dict.fromkeys(
            PARTS.values() if ALL in names else (PARTS[part] for part in names)
        )
    )


def jobs_for(
    experiments: Iterable[str], edition: Edition, draws: int | None = None
) -> list[Job]:
    """List the jobs of some experiments; `draws` replaces that of the edition."""
    n = draws if draws is not None else edition.draws
    if n < 1:
        raise InputError(f"{n} draws were asked for; expected at least one")
    settings = {
        "fig34": lambda: fig34.list_jobs(n, edition.fractions),
        "table3": lambda: table3.list_jobs(n),
        "fig56": lambda: fig56.list_jobs(min(n, edition.lesion_draws)),
        "beyond": lambda: active_annotation.list_jobs(
            edition.sessions if draws is None else min(n, edition.sessions),
            edition.budgets,
            edition.strategies,
        ),
    }
    return [
        Job(experiment, job)
        for experiment in experiments
        for job in settings[experiment]()
    ]
