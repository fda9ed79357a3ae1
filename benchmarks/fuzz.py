"""Feed every reader files, and every call arguments, that are nearly right: anything but an answer or a ClewError,
at once, is a finding.

    make fuzz SECONDS=3600          or  python benchmarks/fuzz.py --seconds 60 --readers zarr geff

Mutators know the structure of what they change: entries of a TIFF's directories, leaves of JSON, cells of tables,
rows of a database, and model files whose checksums are made anew, so that damage reaches the code behind them. What
gives a message that was not seen before, or runs lines of clew that never ran before, joins the corpus, from which the
next are made; the corpus is kept in a folder between runs. A finding is any exception outside ClewError, more than five
seconds of work, a minute in which nothing is done, or more than 1 GB of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import tifffile
import zarr
from fuzz_api import api_calls
from fuzz_coverage import Coverage
from fuzz_mutators import mutate
from starlette.requests import Request

import clew
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store as AnnotationStore
from clew.app.api_models import (
    AnswerRequest,
    EventKindsRequest,
    MaskEditRequest,
    PositionRequest,
    RequestBody,
    TrackReviewRequest,
    read_body,
)
from clew.errors import ClewError
from clew.models import Multiclass
from clew.napari.reader import read_layers
from clew.sequence import read_tagged_text
from clew.tracking.detections import DetectionTable
from clew.tracking.io import mastodon
from clew.tracking.io.annotations import read_annotations
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.io.formats import open_lineage
from clew.tracking.io.geff import read_geff, write_geff
from clew.tracking.io.lineage_tables import read_events
from clew.tracking.io.napari import read_napari
from clew.tracking.io.result_folder import require_intact, write_atomically
from clew.tracking.io.results import write_results
from clew.tracking.io.tables import read_detections
from clew.tracking.io.tiff import write_frame
from clew.tracking.io.track_tables import read_track_table
from clew.tracking.movie import Movie, open_frames
from clew.tracking.tracker import Tracker
from clew.utils.storage import read_bytes

SECONDS, WAITING, IDLE, GIGABYTE = 5, 60, 0.05, 2**30
FOREIGN = Path(__file__).parents[1] / "tests" / "tracking" / "io" / "foreign"
TOLD = 300
"""Seconds between two lines of progress."""


class TooLong(BaseException):
    """A reader that did not come back."""


# what is read, and sound examples of it


def _frames() -> np.ndarray[Any, Any]:
    masks = np.zeros((4, 12, 16), np.uint16)
    for t in range(4):
        masks[t, 2:6, 2 + t : 6 + t], masks[t, 8:11, 9:13] = 1, 2
    return masks


def seed(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """A sound example for every reader, each in a folder of its own."""
    masks, tracker = _frames(), Tracker.generic()
    movie = Movie.from_arrays(masks)
    lineage = tracker.track(movie)
    readers: dict[str, tuple[Path, Callable[[Path], object]]] = {}

    def add(name: str, read: Callable[[Path], object]) -> Path:
        readers[name] = (folder / name, read)
        (folder / name).mkdir(parents=True)
        return folder / name

    place = add("tiff", lambda p: _look(open_frames(p)))
    for t, mask in enumerate(masks):
        write_frame(place / f"t{t:03}.tif", mask)
    tifffile.imwrite(
        add("stack", lambda p: _look(open_frames(p / "a.tif"))) / "a.tif",
        masks,
        imagej=True,
        metadata={"axes": "TYX"},
    )
    place = add("ome", lambda p: _look(open_frames(p / "a.tif", channel=0)))
    tifffile.imwrite(
        place / "a.tif",
        np.stack([masks, masks], 1),
        ome=True,
        metadata={"axes": "TCYX"},
        photometric="minisblack",
    )
    for version in (2, 3):
        place = add(f"zarr{version}", lambda p: _look(open_frames(p / "a")))
        zarr.create_array(
            place / "a", data=masks, chunks=(1, 12, 16), zarr_format=version
        )
    place = add("ctc", lambda p: _look(open_ctc_lineage(p).masks))
    for t, mask in enumerate(masks):
        write_frame(place / f"man_track{t:03}.tif", mask)
    (place / "man_track.txt").write_text("1 0 3 0\n2 0 3 0\n")
    write_geff(add("geff", lambda p: read_geff(p / "a.geff")) / "a.geff", lineage)
    place = add(
        "tables",
        lambda p: (
            read_detections(p / "a.csv"),
            read_annotations(p / "b.csv", movie),
            read_events(p / "b.csv"),
        ),
    )
    (place / "a.csv").write_text(
        "frame,label,y,x,area\n"
        + "".join(f"{t},{c},{5 * c},{t},{9}\n" for t in range(4) for c in (1, 2))
    )
    (place / "b.csv").write_text(
        "frame,event,sources,targets,happened\n0,move,1,1,yes\n1,divide,1,1 2,no\n2,appear,,2,yes\n"
    )
    place = add("parquet", lambda p: read_detections(p / "a.parquet"))
    pyarrow.parquet.write_table(
        pyarrow.table(
            {"frame": [0, 1], "label": [1, 1], "y": [1.0, 2.0], "x": [3.0, 4.0]}
        ),
        place / "a.parquet",
    )
    place = add("tracks", lambda p: read_track_table(p / "a.csv"))
    (place / "a.csv").write_text(
        "frame,label,track,parent,y,x\n0,4,1,0,1,2\n1,7,2,1,1,2\n1,8,3,1,3,2\n3,1,2,1,2,2\n"
    )
    place = add("trackmate", lambda p: read_detections(p / "a.xml"))
    spots = "".join(
        f'<Spot ID="{k}" FRAME="{k // 2}" POSITION_X="{k}" POSITION_Y="1" POSITION_Z="0" VISIBILITY="1" AREA="9"/>\n'
        for k in range(4)
    )
    (place / "a.xml").write_text(
        f'<?xml version="1.0"?>\n<TrackMate version="7"><Model>{spots}</Model></TrackMate>'
    )
    place = add(
        "napari", lambda p: (read_napari(p / "a.csv"), read_track_table(p / "a.csv"))
    )
    (place / "a.csv").write_text("track_id,t,y,x,label\n1,0,1.5,2,1\n1,1,1.5,2,1\n")
    (place / "a.json").write_text('{"2": [1]}')
    tracker.save(add("tracker", lambda p: clew.load(p / "a.clew")) / "a.clew")
    svm = clew.StructuredSVM(Multiclass(), lam=1.0).fit(np.eye(4), [0, 1, 0, 1])
    svm.save(add("model", lambda p: clew.load(p / "a.clew")) / "a.clew")
    place = add(
        "manifest",
        lambda p: require_intact(p / "r", lambda name: name.endswith(".csv")),
    )
    with write_atomically(
        place / "r", "track", lambda name: name.endswith(".csv"), {"movie": "a"}
    ) as stage:
        (stage / "a.csv").write_text("a")
    _add_foreign(add)
    _add_mastodon(add)
    _add_texts(add)
    _add_bodies(add)
    place = add("plugin", lambda p: read_layers([str(p / "r"), str(p / "a.csv")]))
    write_results(place / "r", lineage, movie, ["ctc", "csv", "geff", "napari"])
    shutil.copy(folder / "tracks" / "a.csv", place / "a.csv")
    place = add("shards", lambda p: _look(open_frames(p / "a")))
    shards = {"chunks": (1, 6, 8), "shards": (1, 12, 16)}
    gzip = zarr.codecs.GzipCodec()
    zarr.create_array(place / "a", data=masks, compressors=gzip, **shards)
    place = add("store", lambda p: _look_store(p / "a.clewdb", movie))
    with AnnotationStore.open(
        place / "a.clewdb", movie=MovieIdentity.of(movie)
    ) as store:
        for frame, event, sources, targets in lineage.events[:3]:
            store.answer(frame, event, sources, targets, key=f"{frame}{event}{sources}")
    events = [
        [frame, int(event), sources, targets]
        for frame, event, sources, targets in lineage.events
    ]
    return readers | api_calls(folder, masks.tolist(), events, folder / "ctc")


def _add_foreign(add: Callable[..., Path]) -> None:
    """Lineages that other programs wrote, as truths and as annotations."""
    cells = [(t, k + 1, 10 * k + 0.3 * t, 20 + t) for t in range(6) for k in range(6)]
    frame, label, y, x = np.array(cells).T
    points = DetectionTable(frame.astype(int), label.astype(int), np.stack([y, x], 1))
    for source in sorted(FOREIGN.iterdir()):
        name = source.name.removesuffix(".zip")
        if source.suffix == ".md" or re.search(
            r"[-_](split|merge|edges|Link)\.csv$", name
        ):
            continue

        def read(folder: Path, name: str = name) -> None:
            open_lineage(folder / name)
            read_annotations(folder / name, points)
            if name.endswith(".ilp"):
                _look(open_frames(folder / name))

        place = add(f"foreign {name}", read)
        if source.suffix == ".zip":
            shutil.unpack_archive(source, place / name)
            continue
        stem = source.stem.removesuffix("-spots").removesuffix("-Spot")
        for part in FOREIGN.glob(f"{stem}*.csv"):
            shutil.copy(part, place)
        shutil.copy(source, place)


def _add_mastodon(add: Callable[..., Path]) -> None:
    """The unpacked project of Mastodon: its spots and links, in one block of Java."""
    spots = np.zeros(6, mastodon.SPOT)
    spots["position"] = np.arange(18).reshape(6, 3)
    spots["frame"] = np.arange(6) // 2
    links = np.zeros(4, mastodon.LINK)
    links["spots"] = [[0, 2], [1, 3], [2, 4], [2, 5]]
    records = [struct.pack(">i", len(part)) + part.tobytes() for part in (spots, links)]
    data = b"".join(records)
    block = bytes([mastodon.LONG_BLOCK]) + struct.pack(">i", len(data)) + data
    place = add("foreign mastodon", lambda p: open_lineage(p / "a"))
    (place / "a").mkdir()
    (place / "a" / mastodon.MODEL).write_bytes(mastodon.HEADER + block)


def _add_texts(add: Callable[..., Path]) -> None:
    """Annotated sentences."""
    texts = {
        "conll": "Ada B-PER\nwrites _\n. O\n\nLondon B-LOC|B-ORG\n",
        "iob": "Ada|NNP|B-PER writes|VBZ|O\nLondon|NNP|B-LOC\n",
        "json": '{"text": "Ada writes", "answer": "accept", "tokens": [{"text": "Ada", '
        '"start": 0, "end": 3, "id": 0}, {"text": "writes", "start": 4, "end": 10, '
        '"id": 1}], "spans": [{"start": 0, "end": 3, "label": "PER"}]}',
    }
    for suffix, text in texts.items():

        def read(folder: Path, name: str = f"a.{suffix}") -> None:
            read_tagged_text(folder / name)

        (add(f"text {suffix}", read) / f"a.{suffix}").write_text(text)


def _add_bodies(add: Callable[..., Path]) -> None:
    """Bodies of requests to the page."""
    cells = {"event": "move", "sources": [1], "targets": [1]}
    change = {"key": "k", "frame": 0, "revision": 0}
    bodies: dict[type[RequestBody], dict[str, Any]] = {
        AnswerRequest: change | cells | {"asked": cells, "masks": [0, 0]},
        MaskEditRequest: change
        | {"kind": "cut", "cells": [1], "points": [[1, 2.5], [3, 4]], "masks": 0},
        TrackReviewRequest: {"key": "k", "frame": 1, "label": 2, "right": False},
        PositionRequest: {"frame": 1, "label": None},
        EventKindsRequest: {"events": ["move", "divide"]},
    }
    for model, body in bodies.items():

        def read(folder: Path, model: type[RequestBody] = model) -> None:
            request = _make_request(read_bytes(folder / "a.json"))
            request_body = asyncio.run(read_body(request, model))
            if isinstance(request_body, AnswerRequest):
                request_body.to_change()

        place = add(f"body {model.__name__}", read)
        (place / "a.json").write_text(json.dumps(body))


def _make_request(body: bytes) -> Request:
    """A request with a JSON body."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "headers": headers}, receive)


def _look(frames: Any) -> None:
    for t in range(min(len(frames), 6)):
        frames[t]


def _look_store(path: Path, movie: Movie) -> None:
    with AnnotationStore.open(path, movie=MovieIdentity.of(movie)) as store:
        _ = store.history(), store.annotations()


# the loop


def fingerprint(error: BaseException) -> str:
    """An error without what differs from case to case."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return re.sub(
        r"[0-9]+|'[^']*'|/\S+",
        "#",
        f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {str(error)[:80]}",
    )


COVERAGE = Coverage()


def attempt(
    read: Callable[[Path], object], folder: Path
) -> tuple[str, BaseException | None]:
    """What reading a folder gives: "answer", "refused", or the finding."""
    signal.setitimer(
        signal.ITIMER_PROF, SECONDS
    )  # of work, for a busy machine is no finding
    signal.setitimer(signal.ITIMER_REAL, WAITING, WAITING)
    try:
        with warnings.catch_warnings(), COVERAGE:
            warnings.simplefilter("ignore")
            read(folder)
        return "answer", None
    except ClewError as error:
        return "refused", error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "finding", error
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)


def main() -> None:
    """Fuzz for a while, and say how many cases there were and what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=None, help="end after so many")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--readers", nargs="*", help="those whose names begin so; all, if none is named"
    )
    parser.add_argument(
        "--corpus",
        type=Path,
        default=Path(".fuzz"),
        help="where inputs and findings are kept",
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    signal.signal(signal.SIGPROF, _too_long)
    signal.signal(signal.SIGALRM, _waits)
    counts: Counter[tuple[str, str]] = Counter()
    findings: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        readers = seed(Path(folder) / "seeds")
        names = [
            name
            for name in readers
            if not options.readers or name.startswith(tuple(options.readers))
        ]
        for (
            name
        ) in names:  # compiles what the cases are timed with; sound input is answered
            shutil.copytree(readers[name][0], Path(folder) / "work", dirs_exist_ok=True)
            readers[name][1](Path(folder) / "work")
            shutil.rmtree(Path(folder) / "work")
        corpus = {
            name: [readers[name][0], *_kept(options.corpus / "corpus" / name)]
            for name in names
        }
        answered: dict[str, list[Path]] = {name: [] for name in names}
        seen: dict[str, set[str]] = {name: set() for name in names}
        for name in names:  # also the corpus of earlier runs must hold
            for path in corpus[name]:
                before = counts[name, "answer"]
                _judge(
                    name,
                    readers[name][1],
                    path,
                    Path(folder) / "work",
                    counts,
                    seen,
                    findings,
                    options.corpus,
                )
                answered[name] += [path] * (counts[name, "answer"] > before)
        COVERAGE.grown()
        _limit_memory()
        again = counts.total()
        started = told = time.monotonic()
        while time.monotonic() - started < options.seconds and (
            not options.cases or counts.total() - again < options.cases
        ):
            if time.monotonic() - told > TOLD:
                told = time.monotonic()
                cases = counts.total() - again
                print(
                    f"{told - started:.0f} s: {cases} cases, {len(findings)} findings",
                    flush=True,
                )
            name = rng.choice(names)
            work = Path(folder) / "work"
            # what was refused stays so with one more change, mostly: half of the cases come from what was answered
            source = rng.choice(answered[name] if rng.random() < 0.5 else corpus[name])
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(source, work)
            mutate(work, rng)
            made = Path(folder) / "made"
            shutil.rmtree(made, ignore_errors=True)
            shutil.copytree(
                work, made
            )  # readers may finish what was cut short, and so change it
            before = counts[name, "answer"]
            said = _judge(
                name,
                readers[name][1],
                made,
                work,
                counts,
                seen,
                findings,
                options.corpus,
            )
            if COVERAGE.grown() or said:
                corpus[name].append(_keep(made, options.corpus / "corpus" / name))
                answered[name] += corpus[name][-1:] * (counts[name, "answer"] > before)
        seconds = time.monotonic() - started
    total = counts.total() - again
    for name in names:
        said_of = ", ".join(
            f"{n} {kind}"
            for (reader, kind), n in sorted(counts.items())
            if reader == name
        )
        print(f"{name:12} {said_of}; corpus {len(corpus[name])}")
    print(
        f"{total} new cases in {seconds:.0f} s, {total / max(seconds, 1e-9):.1f} a second ({again} of the corpus "
        f"before), {COVERAGE.lines} lines reached; {len(findings)} findings"
    )
    sys.exit(bool(findings))


def _judge(
    name: str,
    read: Callable[[Path], object],
    made: Path,
    work: Path,
    counts: Counter[tuple[str, str]],
    seen: dict[str, set[str]],
    findings: set[str],
    kept: Path,
) -> bool:
    """Count a case; whether it said something new."""
    if made != work:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(made, work)
    kind, error = attempt(read, work)
    counts[name, kind] += 1
    if error is None:
        return False
    words = fingerprint(error)
    if kind == "finding" and words not in findings:
        findings.add(words)
        where = _keep(made, kept / "findings" / name)
        print(
            f"{time.strftime('%H:%M:%S')} FINDING {name}: {words}\n  {where}",
            flush=True,
        )
        (where.parent / f"{where.name}.txt").write_text(
            "".join(traceback.format_exception(error))
        )
    new = words not in seen[name]
    seen[name].add(words)
    return new and kind == "refused"


def _keep(source: Path, folder: Path) -> Path:
    place = folder / f"{time.time_ns():x}"
    shutil.copytree(source, place)
    return place


def _kept(folder: Path) -> list[Path]:
    return (
        sorted(path for path in folder.iterdir() if path.is_dir())
        if folder.is_dir()
        else []
    )


def _too_long(*_: object) -> None:
    raise TooLong(f"more than {SECONDS} s of work")


def _waits(*_: object) -> None:
    """Raise where nothing was done since this was called before: on a busy machine, five seconds of work take long."""
    done, _waits.done = time.process_time() - _waits.done, time.process_time()  # type: ignore[attr-defined]
    if done < IDLE:
        raise TooLong(f"{WAITING} s of waiting")


_waits.done = 0.0  # type: ignore[attr-defined]


def _limit_memory() -> None:
    """A gigabyte more than everything that is loaded takes."""
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0])
        if Path("/proc/self/statm").exists()
        else 0
    )
    if pages:
        limit = pages * os.sysconf("SC_PAGE_SIZE") + GIGABYTE
        resource.setrlimit(
            resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1])
        )


if __name__ == "__main__":
    main()
