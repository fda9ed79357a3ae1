"""The annotation page: how fast it answers, how fast it learns, and whether it forgets.

    CLEW_DATA=… python benchmarks/page.py latency [--answers 40] [--simulated FOLDER]
    CLEW_DATA=… python benchmarks/page.py annotator [--blank] [--answers 150] [--random 600] [--plot FILE]
    python benchmarks/page.py kills [--kills 50]

`latency` presses Enter in headless Chromium and measures there: from the key to the next question drawn with its
pictures, and from the key to predictions by weights that know the answer. `annotator` answers from the truth with the
requests that the page sends, the suggested questions or events in random order, and prints the task loss on the whole
movie. `kills` ends the server by SIGKILL at random moments of a run of answers, and looks whether all acknowledged ones
are there afterwards. Everything is written into a temporary folder.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from clew.tracking.events import Annotations, Event, EventTable

CHROMIUM = os.environ.get("CLEW_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
PATIENCE = 60.0
"""Seconds that a busy machine has for anything."""
EVENTS = {str(event): event for event in Event}
console = Console(width=130)


class Served:
    """`clew annotate` in a process of its own, and one connection to it."""

    def __init__(self, movie: Path, store: Path, *options: str) -> None:
        self.command = [sys.executable, "-m", "clew.cli", "annotate", str(movie), "--no-browser"]
        self.command += ["--store", str(store), *options]
        self.start()

    def start(self) -> None:
        """Start; returns when the server can be asked."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        reader = threading.Thread(target=said.extend, args=(self.process.stderr,), daemon=True)
        reader.start()  # a pipe that nobody reads would stop the server when it is full
        line = next((line for line in self.process.stdout if line.startswith("clew annotate: ")), None)
        if line is None:
            reader.join()
            raise RuntimeError(f"the server did not start: {''.join(said)}")
        self.address = line.removeprefix("clew annotate: ").strip()
        base, self.token = self.address.split("/?token=")
        self.connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=PATIENCE)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """A request as the page sends it: status and reply."""
        headers = {"X-Clew-Token": self.token, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        self.connection.request("GET" if body is None else "POST", f"/api/movies/0/{path}", data, headers)
        reply = self.connection.getresponse()
        content = reply.read()
        return reply.status, json.loads(content) if reply.headers["Content-Type"].startswith(
            "application/json"
        ) else content

    def status(self) -> dict[str, Any]:
        """How far things are."""
        found: dict[str, Any] = self.ask("status")[1]
        return found

    def rest(self, seconds: float = PATIENCE) -> None:
        """Wait until the worker has new questions that follow from every answer, but not for longer."""
        end = time.monotonic() + seconds
        while self.status()["learning"] and time.monotonic() < end:
            time.sleep(0.02)

    def learned(self) -> None:
        """Wait until the weights follow from every answer."""
        while (status := self.status())["learned"] < status["revision"]:
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process."""
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE)


def linked(folder: Path) -> Path:
    """HeLa 01, seen from a temporary folder."""
    real = Path(os.environ["CLEW_DATA"]) / "Fluo-N2DL-HeLa"
    for name in ("01", "01_ST", "01_GT"):
        (folder / name).symlink_to(real / name)
    return folder / "01"


def simulated(folder: Path, frames: int, cells: int) -> Path:
    """A simulated movie, made if it is not there."""
    from clew.progress import ProgressBar
    from clew.tracking.formats.simulated import write_simulation
    from clew.tracking.simulate import Settings

    if not (folder / "01").is_dir():
        with ProgressBar(f"simulating {frames} frames of {cells} cells") as progress:
            write_simulation(folder, Settings(frames=frames, cells=cells), progress=progress)
    return folder / "01"


def load() -> str:
    """How busy the machine is."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


# latency

WATCH = """async () => {
    const { frameAt } = await import("/static/frames.js"), { pairAt } = await import("/static/pairs.js");
    const { state } = await import("/static/state.js");
    const box = document.getElementById("question");
    const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => resolve(performance.now());
        channel.port2.postMessage(0); // comes after the paint
    }));
    const until = async (condition, end) => {
        while (!condition()) {
            if (performance.now() > end) return null;
            await painted();
        }
        return painted();
    };
    const here = () => frameAt(state.frame) && frameAt(state.frame + 1) && pairAt(state.frame);
    const drawn = () => box.dataset.key && here() && state.framed;
    window.watched = { ready: (patience) => until(drawn, performance.now() + patience) };
    addEventListener("keydown", ({ key, timeStamp }) => {
        if (key !== "Enter") return;
        const [before, frame, at] = [box.dataset.key, state.frame, timeStamp];
        const version = Math.max(state.version ?? 0, pairAt(frame).version);
        const since = async (condition) => {
            const end = await until(condition, at + 20000);
            return end === null ? null : end - at;
        };
        const isNew = (t) => (pairAt(t)?.version ?? 0) > version;
        window.measured = {
            words: since(() => box.dataset.key && box.dataset.key !== before),
            picture: since(() => box.dataset.key !== before && drawn()),
            answered: since(() => isNew(frame)),
            shown: since(() => isNew(state.frame)),
        };
    }, true);
}"""
"""Instruments the page: what was painted when, in ms after the key. Predictions are new if their weights are."""


def latency(options: argparse.Namespace) -> None:
    """Keys in a real browser."""
    from playwright.sync_api import sync_playwright

    table = Table("movie", "what", "n", "median ms", "p95 ms", "longest ms", "bar ms", title=f"load {load()}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        movies = {}
        if "CLEW_DATA" in os.environ:
            (hela := Path(folder) / "hela").mkdir()
            movies["HeLa 01"] = linked(hela)
        movies["200 × 500"] = simulated(options.simulated or Path(folder) / "simulated", 200, 500)
        for name, movie in movies.items():
            if options.only and not name.startswith(options.only):
                continue
            served = Served(movie, Path(folder) / f"{name}.clewdb", "--no-cache")
            try:
                page = chromium.new_context(viewport={"width": 1280, "height": 800}).new_page()
                found = press_keys(page, served, options.answers, options.pause, options.quick)
                page.context.close()
            finally:
                served.stop()
            for what, (bar, values) in found.items():
                if not values:
                    continue
                known = np.array([PATIENCE * 1000 if value is None else value for value in values])
                figures = [f"{v:.0f}" for v in (np.median(known), np.percentile(known, 95), known.max())]
                table.add_row(name, what, str(len(known)), *figures, str(bar or ""))
            table.add_section()
            console.print(f"{name}: load {load()}")
        chromium.close()
    console.print(table)


def press_keys(
    page: Any, served: Served, answers: int, pause: float, quick: int
) -> dict[str, tuple[int | None, list[float]]]:
    """Answer by Enter: some in quick succession, some with a look at what was learned, some while browsing."""
    page.set_default_timeout(1000 * PATIENCE)
    served.rest()
    page.goto(served.address)
    page.wait_for_selector('#question:not([data-key=""])[data-key]')
    page.evaluate(WATCH)
    found: dict[str, tuple[int | None, list[float]]] = {
        f"next question, words (an answer each {pause:g} s)": (None, []),
        f"next question, drawn (an answer each {pause:g} s)": (100, []),
        "answer to new predictions, of the frames shown next": (2000, []),
        "answer to new predictions, of the frames answered": (2000, []),
        "answer to new predictions, browsing": (2000, []),
    }
    words, drawn, shown, answered, browsing = (values for _, values in found.values())
    for _ in range(answers):
        page.evaluate("watched.ready(20000)")
        page.wait_for_timeout(1000 * pause)
        page.keyboard.press("Enter")
        words.append(page.evaluate("measured.words"))
        drawn.append(page.evaluate("measured.picture"))
    for _ in range(quick):
        settle(page, served)
        page.keyboard.press("Enter")
        shown.append(page.evaluate("measured.shown"))
        answered.append(page.evaluate("measured.answered"))
    rng = np.random.default_rng(0)
    look = "([t, label]) => import('/static/asking.js').then((asking) => asking.browseTo(t, { side: 'a', label }))"
    for frame in rng.integers(0, served_frames(page) - 1, quick).tolist():
        events = served.ask(f"pair/{frame}")[1]["events"]
        open_ones = [event["sources"] for event in events if event["sources"] and not event["pinned"]]
        page.evaluate(look, [frame, open_ones[rng.integers(len(open_ones))][0]])
        settle(page, served)
        page.keyboard.press("Enter")
        browsing.append(page.evaluate("measured.answered"))
    return found


def served_frames(page: Any) -> int:
    """How many frames the movie has."""
    n: int = page.evaluate("import('/static/state.js').then(({ state }) => state.movie.n_frames)")
    return n


def settle(page: Any, served: Served) -> None:
    """Wait until all answers are learned from, and the page has heard of it."""
    served.learned()
    page.wait_for_timeout(500)
    page.evaluate("watched.ready(20000)")


# annotator


class Judge:
    """The task loss of weights on a whole movie, with and without its annotations."""

    def __init__(self, movie: Path, folder: Path) -> None:
        from clew.annotation.learner import Learner
        from clew.tracking.formats.ctc import open_truth
        from clew.tracking.measure import measure
        from clew.tracking.movie import open_movie
        from clew.tracking.truth import truth_annotations

        opened = open_movie(movie)
        self.truth = truth_annotations(open_truth(movie.parent / f"{movie.name}_GT/TRA"), opened)
        self.learner = Learner(measure(opened, cache=folder / "measured", n_jobs=2))
        self.folder = folder

    def losses(self, served: Served, said: list[tuple[int, Event, Any, Any]]) -> tuple[float, float]:
        """The loss of what the server's weights predict alone, and of what they predict with the answers pinned."""
        from clew.tracking.archive import load_tracker
        from clew.tracking.assignment import assign
        from clew.tracking.evaluate import task_loss
        from clew.tracking.prior import weights_by_name

        path = self.folder / f"{secrets.token_hex(4)}.clew"
        code, content = served.ask("export/weights")
        assert code == 200, content
        path.write_bytes(content)
        w = weights_by_name(load_tracker(path), self.learner.names)
        pins = Annotations.of(EventTable.of(said)) if said else Annotations.of(EventTable.empty())
        self.learner.annotate(pins)
        alone, pinned = [], []
        for frame in range(len(self.learner.pairs)):
            pair = self.learner.pair(frame)
            here = pair.annotated(pins[pins.events.frame == frame])
            for given, steps in (({}, alone), (here, pinned)):
                steps.append(
                    pair.candidates.table(pair.a, pair.b, assign(pair.candidates, pair.scores(w), given).chosen)
                )
        free, kept = (task_loss(self.truth, EventTable.join(steps)).total for steps in (alone, pinned))
        return free, kept


def suggested(served: Served, truth: Annotations, pace: float) -> Iterator[list[int]]:
    """Rows of the truth that answer the question at the head of the queue; it is asked again after each answer."""
    from clew.annotation.queries import Question, answer_from_truth

    unanswerable = set[str]()
    while True:
        served.rest(pace)
        for one in served.ask("questions?n=100")[1]["questions"]:
            cells = tuple(one["sources"]), tuple(one["targets"])
            rows = answer_from_truth(Question(one["frame"], EVENTS[one["event"]], *cells, 0.0, ""), truth)
            if len(rows) and str(one["frame"]) + str(cells) not in unanswerable:
                yield rows.tolist()
                break
            unanswerable.add(str(one["frame"]) + str(cells))
        else:
            if not served.status()["learning"]:
                return


def at_random(served: Served, truth: Annotations, pace: float, seed: int) -> Iterator[list[int]]:
    """All rows of the truth in random order; five for each time that the worker learns."""
    for n, row in enumerate(np.random.default_rng(seed).permutation(len(truth)).tolist()):
        if n % 5 == 0:
            served.rest(pace)
        yield [row]


def curve(movie: Path, folder: Path, options: argparse.Namespace, order: str) -> list[tuple[int, float, float]]:
    """Answers, loss of the weights alone, loss with pins."""
    (own := folder / order).mkdir()
    judge, weights = Judge(movie, own), []
    truth = judge.truth
    if options.blank:
        tracker = judge.learner.as_tracker()  # which knows the movie's features
        tracker.coef_ = np.zeros_like(tracker.coef_)
        tracker.save(own / "blank.clew")
        weights = ["--weights", str(own / "blank.clew")]
    served = Served(movie, own / "store.clewdb", "--no-cache", *weights)
    most, every = (options.answers, 25) if order == "suggested" else (options.random, 100)
    said: list[tuple[int, Event, Any, Any]] = []
    points = []
    try:
        served.rest()
        rows = (
            suggested(served, truth, options.pace)
            if order == "suggested"
            else at_random(served, truth, options.pace, options.seed)
        )
        answers, refused = 0, 0
        revision = served.status()["revision"]
        points.append((0, *judge.losses(served, said)))
        for many in rows:
            for frame, event, sources, targets in truth.events[np.array(many, dtype=np.intp)]:
                body = {"frame": frame, "event": str(event), "sources": list(sources), "targets": list(targets)}
                common = {"key": secrets.token_hex(8), "revision": revision, "happened": True, "replace": False}
                code, reply = served.ask("answers", {**body, **common})
                if code != 200:
                    refused += 1
                    continue
                said.append((frame, event, sources, targets))
                revision, answers = reply["revision"], answers + 1
                if answers % every == 0 or (order == "random" and answers in (25, 50, 150)):
                    served.rest()
                    points.append((answers, *judge.losses(served, said)))
                    free, kept = points[-1][1:]
                    console.print(
                        f"{order:>9} {answers:4d} answers: weights alone {free:.3%}, with pins {kept:.3%} "
                        f"({refused} refused, load {load()})"
                    )
            if answers >= most:
                break
    finally:
        served.stop()
    return points


def annotator(options: argparse.Namespace) -> None:
    """Loss against answers, for both orders."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        movie = linked(Path(folder))
        for order in options.orders:
            found[order] = curve(movie, Path(folder), options, order)
            if options.json:
                options.json.write_text(json.dumps(found))
    if options.plot:
        plot(options.plot, found, "from nothing" if options.blank else "from generic weights")
    for column, what in ((1, "weights alone"), (2, "with pins")):
        for order, points in found.items():
            console.print(f"{what}, {order}: " + "  ".join(f"{point[0]}: {point[column]:.2%}" for point in points))


def plot(path: Path, found: dict[str, list[tuple[int, float, float]]], title: str) -> None:
    """The curves as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=False, layout="constrained")
    for axes, column, what in zip(both, (1, 2), ("weights alone", "with the answers pinned"), strict=True):
        for (order, points), style in zip(found.items(), ("o-", "s--"), strict=False):
            answers, loss = zip(*[(point[0], 100 * point[column]) for point in points], strict=True)
            axes.plot(
                answers, loss, style, ms=4, label={"suggested": "suggested queue", "random": "random order"}[order]
            )
        axes.set(title=what, xlabel="answers", ylabel="task loss on HeLa 01 (%)")
        axes.grid(alpha=0.3)
        axes.set_ylim(0, 1.1 * max(100 * point[column] for points in found.values() for point in points))
    both[0].legend()
    figure.suptitle(f"A simulated annotator at the page, {title}")
    figure.savefig(path, dpi=130)


# kills

KILL_FRAMES = 20
"""Of a small movie of 40 cells, that opens quickly."""


def kills(options: argparse.Namespace) -> None:
    """SIGKILL at random moments; what was acknowledged must be there."""
    rng = np.random.default_rng(options.seed)
    acknowledged = set[str]()
    in_flight = 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        movie = simulated(Path(folder) / "small", KILL_FRAMES, 40)
        served = Served(movie, Path(folder) / "store.clewdb")
        for n in range(options.kills):
            console.print(f"kill {n + 1}: {len(acknowledged)} answers so far", end="\r")
            sent = answer_until_killed(served, rng, acknowledged, float(rng.uniform(0.0, options.seconds)))
            served.process.wait(timeout=PATIENCE)
            served.start()  # fails if the store does not open
            kept = history(served)
            assert acknowledged <= kept, f"lost: {acknowledged - kept}"
            extra = kept - acknowledged
            assert extra <= {sent}, f"never sent: {extra}"
            in_flight += len(extra)
            acknowledged |= extra
        served.stop()
    console.print(
        f"{options.kills} kills in {time.monotonic() - started:.0f} s: {len(acknowledged)} answers kept, none of the "
        f"acknowledged lost; {in_flight} were kept whose acknowledgement was cut off; load {load()}"
    )


def history(served: Served) -> set[str]:
    """The annotations that the server has, by name."""
    lines = served.ask("export/annotations.csv")[1].decode().splitlines()
    return {name_of(*line.split(",")[:4]) for line in lines[1:]}


def name_of(frame: Any, event: str, sources: str, targets: str) -> str:
    return f"{frame}:{event}:{sources.strip()}:{targets.strip()}"


def answer_until_killed(served: Served, rng: np.random.Generator, acknowledged: set[str], seconds: float) -> str:
    """Confirm predicted events at random as fast as it goes, until the kill so many seconds after the first pair came.

    Returns the answer that was under way in the end.
    """
    revision, name = served.status()["revision"], ""
    served.ask("pair/0")  # the first takes a moment, for which there would be nothing to lose
    threading.Timer(seconds, served.process.kill).start()
    try:
        while True:
            frame = int(rng.integers(0, KILL_FRAMES - 1))
            events = [one for one in served.ask(f"pair/{frame}")[1]["events"] if not one["pinned"]]
            if not events:
                continue
            one = events[rng.integers(len(events))]
            body = {"frame": frame, "event": one["event"], "sources": one["sources"], "targets": one["targets"]}
            name = name_of(frame, one["event"], *(" ".join(map(str, one[side])) for side in ("sources", "targets")))
            common = {"key": secrets.token_hex(8), "revision": revision, "happened": True, "replace": False}
            code, reply = served.ask("answers", {**body, **common})
            assert code == 200, reply
            revision = reply["revision"]
            acknowledged.add(name)
    except (OSError, http.client.HTTPException):
        return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("latency")
    one.set_defaults(run=latency)
    one.add_argument("--answers", type=int, default=40, help="answers for the time to the next question")
    one.add_argument("--quick", type=int, default=12, help="answers for the time to new predictions, each in two ways")
    one.add_argument("--pause", type=float, default=0.5, help="seconds that the person thinks")
    one.add_argument("--simulated", type=Path, help="where the simulated movie is or is to be made")
    one.add_argument("--only", default="", help="the beginning of a movie's name")
    two = commands.add_parser("annotator")
    two.set_defaults(run=annotator)
    two.add_argument("--answers", type=int, default=150)
    two.add_argument("--random", type=int, default=600)
    two.add_argument("--orders", nargs="+", default=["suggested", "random"])
    two.add_argument("--pace", type=float, default=1.0, help="the most that an answer waits for new questions, in s")
    two.add_argument("--blank", action="store_true", help="begin with no weights")
    two.add_argument("--seed", type=int, default=0)
    two.add_argument("--plot", type=Path)
    two.add_argument("--json", type=Path)
    three = commands.add_parser("kills")
    three.set_defaults(run=kills)
    three.add_argument("--kills", type=int, default=50)
    three.add_argument("--seconds", type=float, default=1.0, help="of a run of answers, at most, before the kill")
    three.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
