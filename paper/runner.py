"""Run jobs in parallel; each writes its result to a file, so that runs can continue."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config

from clew.errors import StoreError
from clew.parallel import resolve_jobs
from clew.utils.storage import read_json, write_json
from paper import active_annotation, fig34, fig56, table3
from paper.experiment_data import ExperimentData, Setup

RUNNERS: Mapping[str, Callable[[ExperimentData, dict[str, Any]], dict[str, Any]]] = {
    "fig34": fig34.run_job,
    "table3": table3.run_job,
    "fig56": fig56.run_job,
    "beyond": active_annotation.run_job,
}
EDITIONS = {"fig34": 2, "table3": 3, "fig56": 3, "beyond": 3}
"""Version of each experiment; raise it when results would change, so that older
files are not reused."""
WARM_UP = 0.05
"""Annotated fraction of a first fit in each worker, which only compiles."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One fit or session, which depends on nothing but its settings and the setup."""

    experiment: str
    settings: Json

    def key(self, setup: Setup) -> str:
        """Return a name that is the same for the same job."""
        edition = EDITIONS[self.experiment]
        content = {
            "edition": edition,
            "experiment": self.experiment,
            "job": self.settings,
            "setup": setup.as_dict(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[
            :16
        ]


def run_jobs(
    jobs: Sequence[Job],
    setup: Setup,
    folder: Path,
    n_jobs: int = -1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Json]:
    """The results of all jobs, in their order; those that are in the folder are not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{job.experiment}-{job.key(setup)}.json" for job in jobs]
    results = {path: _read_result(path) for path in paths}
    todo = [
        (job, path)
        for job, path in zip(jobs, paths, strict=True)
        if results[path] is None
    ]
    if progress is not None:
        progress(len(jobs) - len(todo), len(jobs))
    workers = min(resolve_jobs(n_jobs), max(len(todo), 1))
    with (
        parallel_config(
            backend="loky" if workers > 1 else "sequential",
            inner_max_num_threads=1 if workers > 1 else None,
        ),
        warnings.catch_warnings(),
    ):
        # loky puts a fresh process in the place of one whose memory has grown, and its job to another: nothing is lost
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given to the executor"
        )
        done = Parallel(workers, return_as="generator_unordered")(
            delayed(_run_job)(setup, job, str(path)) for job, path in todo
        )
        for n, (path, entry) in enumerate(done, 1):
            results[Path(path)] = entry
            if progress is not None:
                progress(len(jobs) - len(todo) + n, len(jobs))
    return [entry for path in paths if (entry := results[path]) is not None]


def _run_job(setup: Setup, job: Job, path: str) -> tuple[str, Json]:
    """In a worker: run a job and write its file."""
    entry = {
        "experiment": job.experiment,
        **job.settings,
        **RUNNERS[job.experiment](_open_data(_serialize_setup(setup)), job.settings),
    }
    write_json(path, entry)
    return path, entry


def _read_result(path: Path) -> Json | None:
    """A result that is there; one that is damaged is made again."""
    try:
        entry = read_json(path)
    except StoreError:
        return None
    return entry if isinstance(entry, dict) else None


def _serialize_setup(setup: Setup) -> str:
    return json.dumps(setup.as_dict() | {"cache": setup.cache}, sort_keys=True)


@lru_cache(maxsize=1)
def _open_data(setup: str) -> ExperimentData:
    """The movies, opened once in each worker; a first fit compiles what later ones are timed with."""
    data = ExperimentData(Setup(**json.loads(setup)))
    for method in (fig34.FULL, fig34.PARTIAL):
        fig34.run_job(data, {"method": method, "fraction": WARM_UP, "draw": 0})
    return data
