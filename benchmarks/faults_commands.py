"""The commands that faults.py kills: how each is run for an old and a new result, and how the result is opened."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.tracking.events import BY_NAME
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.tiff import write_frame
from clew.tracking.lineage.tracks import check_frame
from clew.tracking.movie import open_frames, open_movie
from clew.tracking.persistence import load_tracker

ANSWERS = [(t, "move", [cell], [cell]) for t in range(3) for cell in (1, 2)]
"""What is answered on the page, one after the other; the first ones make the old result."""
OLD_ANSWERS = 2


class Command(NamedTuple):
    """A command that replaces a result: how to run it for the old and the new one, and how its result is opened."""

    name: str
    place: str
    """Of the result, in the working folder."""
    old: list[str]
    new: list[str]
    read: Callable[[Path], object]
    """Open the result as any reader would; what it holds, where its bytes differ from run to run."""
    exact: bool = True
    """Whether two runs write the same bytes: times of fits are in some results."""
    talk: Callable[[str, int], int] | None = None
    """Speaks with a command that serves a page, given its address and the number of answers; how many were kept."""
    share: int = 4
    """Of the cases: fewer for a command that takes long."""


def read_result(folder: Path) -> None:
    """Open a lineage as evaluation does, and look at every mask."""
    lineage = open_ctc_lineage(folder)
    for t in range(lineage.n_frames):
        check_frame(lineage.tracks, t, np.unique(lineage.masks[t]), lineage.source)


def read_weights(path: Path) -> float:
    """Which λ the weights in a file were learned with."""
    return float(load_tracker(path).lam_)


def read_answers(path: Path) -> int:
    """How many answers a store holds, which must be those that were given first."""
    movie = open_movie(path.parent / "m" / "01")
    if not path.exists():
        raise FileNotFoundError(path)
    with Store.open(path, movie=MovieIdentity.of(movie)) as store:
        kept = [
            (frame, event, list(a), list(b))
            for frame, event, a, b in store.annotations().events
        ]
    expected = [
        (frame, BY_NAME[event], a, b) for frame, event, a, b in ANSWERS[: len(kept)]
    ]
    if kept != expected:
        raise ValueError(f"the store holds {kept}")
    return len(kept)


def answer(address: str, n: int) -> int:
    """Answer as the page does until all is said or the server is gone; how many answers it has acknowledged."""
    base, token = address.split("/?token=")
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=60)
    headers = {"X-Clew-Token": token, "Content-Type": "application/json"}

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        connection.request(
            "POST" if body else "GET",
            f"/api/movies/0/{path}",
            json.dumps(body or {}),
            headers,
        )
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:  # a server that is ending
            raise http.client.HTTPException(f"status {reply.status}")
        return json.loads(content)

    acknowledged = 0
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        contextlib.closing(connection),
    ):
        revision = ask("status")["revision"]
        for k, (frame, event, sources, targets) in enumerate(ANSWERS[:n]):
            said = {
                "frame": frame,
                "event": event,
                "sources": sources,
                "targets": targets,
                "happened": True,
            }
            # the key is the same in every run: an answer that is sent again is kept once
            reply = ask(
                "answers",
                {**said, "key": f"answer-{k}", "revision": revision, "replace": False},
            )
            acknowledged, revision = k + 1, reply["revision"]
    return acknowledged


ANNOTATE = ["annotate", "m/01", "--store", "a.clewdb", "--no-browser", "--port", "0"]
COMMANDS = [
    Command(
        "track",
        "r",
        ["track", "m/01", "-o", "r", "-f", "ctc,csv,geff", "--no-report"],
        [
            "track",
            "m/01",
            "-o",
            "r",
            "-f",
            "ctc,napari",
            "--no-report",
            "-w",
            "w0.clew",
        ],
        read_result,
    ),
    Command(
        "detect",
        "d",
        ["detect", "m/01", "-o", "d", "--diameter", "7"],
        ["detect", "m/01", "-o", "d", "--diameter", "5"],
        open_frames,
    ),
    Command(
        "simulate",
        "s",
        ["simulate", "s", "--frames", "3", "--cells", "3"],
        ["simulate", "s", "--frames", "2", "--cells", "4", "--seed", "1"],
        lambda place: open_movie(place / "01"),
    ),
    Command(
        "train",
        "w.clew",
        ["train", "m/01", "-a", "a.csv", "-o", "w.clew", "--lam", "1"],
        ["train", "m/01", "-a", "a.csv", "-o", "w.clew", "--lam", "0.1"],
        read_weights,
        exact=False,
    ),
    Command(
        "annotate",
        "a.clewdb",
        ANNOTATE,
        ANNOTATE,
        read_answers,
        exact=False,
        talk=answer,
    ),
]


def make_inputs(folder: Path) -> None:
    """A movie of four frames, and some annotations."""
    for name in ("01", "01_SEG"):
        (folder / "m" / name).mkdir(parents=True)
    for t in range(4):
        mask = np.zeros((40, 60), np.uint16)
        for cell in range(4):
            mask[4 + t : 10 + t, 4 + 13 * cell : 10 + 13 * cell] = cell + 1
        write_frame(folder / f"m/01_SEG/mask{t:03}.tif", mask)
        write_frame(
            folder / f"m/01/t{t:03}.tif",
            ((mask > 0) * 900 + 100 + np.arange(60) % 7).astype(np.uint16),
        )
    rows = [f"{t},move,{cell},{cell}\n" for t in range(3) for cell in (1, 2, 3)]
    (folder / "a.csv").write_text("frame,event,sources,targets\n" + "".join(rows))
