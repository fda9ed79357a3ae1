"""Options that choose where to compute: threads, local processes or a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from clew.cli.options import path_text, print_note
from clew.errors import ClusterError, InputError

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        max=1024,
        show_default=False,
        help="Compute in N processes on this machine instead of threads.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        show_default=False,
        help="Compute on a Dask cluster: tcp://HOST:PORT of its scheduler, or a scheduler file (.json).",
    ),
]
MemoryPerWorker = Annotated[
    str | None,
    typer.Option(
        "--memory-per-worker",
        metavar="SIZE",
        show_default=False,
        help="Memory of a worker, as in 4GB. Blocks of frames are made small enough for it.",
    ),
]
Profile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        show_default=False,
        help="Write Dask's performance report (.html); needs --workers or --cluster.",
    ),
]


@dataclass(frozen=True)
class ComputeOptions:
    """Where to compute, and with how much memory."""

    workers: int | None
    cluster: str | None
    memory: int | None
    profile: Path | None

    @classmethod
    def of(
        cls,
        workers: int | None,
        cluster: str | None,
        memory: str | None = None,
        profile: Path | None = None,
    ) -> ComputeOptions:
        """Check that the options fit together."""
        from clew.tracking.blocks import BYTES_OF_PROCESS, parse_memory

        if workers is not None and cluster is not None:
            raise InputError(
                "--workers and --cluster cannot be combined; expected one of them"
            )
        if profile is not None and workers is None and cluster is None:
            raise InputError("--profile needs --workers or --cluster")
        n_bytes = None if memory is None else parse_memory(memory)
        if n_bytes is not None and n_bytes < BYTES_OF_PROCESS:
            # Dask would kill such workers and start others for ten minutes
            raise InputError(
                f"--memory-per-worker is {memory}; expected more than the "
                f"{BYTES_OF_PROCESS / 2**20:,.0f} MiB that a worker takes at its start"
            )
        return cls(workers, cluster, n_bytes, profile)


@contextmanager
def open_client(where: ComputeOptions) -> Iterator[Any]:
    """Open a Dask client for a with block; None means threads of this process."""
    if where.workers is None and where.cluster is None:
        yield None
        return
    from clew.utils.extras import require_extra

    require_extra("dask", "--workers and --cluster")
    import distributed

    from clew.parallel import report_lost_scheduler

    # its tracebacks would hide the one line that clew prints
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with report_lost_scheduler(), ExitStack() as stack:
        client = stack.enter_context(
            _start_workers(where, stack)
            if where.cluster is None
            else _connect_client(where.cluster)
        )
        n = len(client.scheduler_info(n_workers=-1)["workers"])
        print_note(
            f"computing on {n} workers of {client.scheduler.address}"
            if where.cluster
            else f"{n} workers"
        )
        if where.profile is not None:
            stack.enter_context(
                distributed.performance_report(filename=str(where.profile))
            )
        yield client
    if where.profile is not None:
        print_note(f"Written {path_text(where.profile)}")


def _start_workers(where: ComputeOptions, stack: ExitStack) -> Any:
    """Start workers on this machine."""
    import distributed

    from clew.parallel import start_local_cluster

    cluster = start_local_cluster(
        where.workers or 1, where.memory, where.profile is not None
    )
    return distributed.Client(stack.enter_context(cluster))


def _connect_client(address: str) -> Any:
    """Connect to a Dask scheduler; errors name the option."""
    from clew.parallel import connect_to_cluster

    try:
        return connect_to_cluster(address)
    except ClusterError as error:
        raise ClusterError(f"--cluster {error}") from error
