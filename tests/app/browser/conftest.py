"""A real browser, a real server, and a person at the page."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from clew.simulation.simulate import NucleiSettings
from clew.simulation.write import write_simulation

playwright = pytest.importorskip(
    "playwright.sync_api",
    reason="the tests of the page need playwright (clew-learn[test])",
)

PATIENCE = 120
"""Seconds that a busy machine has for anything."""
CHROMIUM = (
    os.environ.get("CLEW_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("google-chrome")
)
SIZE = {"width": 1280, "height": 800}
"""Of a window, unless a test has another one."""

Answer = tuple[int, str, tuple[int, ...], tuple[int, ...], bool]
"""Frame, event, sources, targets, and whether it happened."""


class Served:
    """`clew annotate` in a process of its own."""

    def __init__(self, movies: Sequence[Path], *options: str) -> None:
        self.movies = movies
        self.options = options
        self.port = free_port()
        self.state = Path(tempfile.mkdtemp(prefix="clew-state-"))
        self.start()

    def start(self) -> None:
        """Start, on the same port as before."""
        command = [sys.executable, "-m", "clew.cli", "annotate", *map(str, self.movies)]
        log = self.state / "stderr.txt"
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*command, "--no-browser", "--port", str(self.port), *self.options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "XDG_STATE_HOME": str(self.state)},
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("clew annotate: "):
                self.address = line.removeprefix("clew annotate: ").strip()
                return
        raise AssertionError(f"the server ended: {log.read_text()}")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """A request beside the browser."""
        base, token = self.address.split("/?token=")
        data = None if body is None else json.dumps(body).encode()
        headers = {"X-Clew-Token": token, "Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(base + path, data, headers), timeout=PATIENCE
        ) as reply:
            return json.load(reply)

    def forget_token(self) -> None:
        """Let the next start have another token."""
        (self.state / "clew/token").unlink()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process, kindly or not."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE)


class ServedHere(Served):
    """The same command in a thread of this process, with nothing that learns: it starts in no time."""

    def start(self) -> None:
        """Start, on the same port as before."""
        import typer

        from clew.app import launch, server
        from clew.cli import app
        from tests.app.conftest import IdleWorker

        lines = queue.SimpleQueue[str]()

        def make_server(*arguments: Any, **options: Any) -> Any:
            self.server = make(*arguments, make_worker=IdleWorker, **options)
            return self.server

        make = server.Server
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("XDG_STATE_HOME", str(self.state))
        self.patch.setattr(server, "Server", make_server)
        self.patch.setattr(launch, "SIGNALS", [])  # they are for main threads
        self.patch.setattr(typer, "echo", lambda text="", **_: lines.put(str(text)))
        command = ["annotate", *map(str, self.movies), "--no-browser"]
        command += ["--port", str(self.port), *self.options]
        self.thread = threading.Thread(
            target=app, args=(command,), kwargs={"standalone_mode": False}
        )
        self.thread.start()
        while not (line := lines.get(timeout=PATIENCE)).startswith("clew annotate: "):
            pass
        self.address = line.removeprefix("clew annotate: ").strip()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server."""
        self.server.end()
        self.server.stop()
        self.thread.join(PATIENCE)
        self.patch.undo()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Annotator:
    """A person at the page, with eyes (`asked`, `annotated`), fingers (`press`) and a mouse (`click_cell`, `click`)."""

    def __init__(self, page: Any) -> None:
        self.page, self.complaints = page, list[str]()
        page.set_default_timeout(1000 * PATIENCE)
        page.on(
            "console",
            lambda message: message.type == "error" and self._complain(message.text),
        )
        page.on("pageerror", lambda error: self._complain(str(error)))

    def _complain(self, text: str) -> None:
        if "net::ERR_" not in text and not any(
            code in text for code in ("400", "403", "409", "422", "503")
        ):
            self.complaints.append(
                text
            )  # those are the browser's way to log what the tests bring about

    def forget(self) -> None:
        """Leave the page as a new tab would be: nothing kept, no request held, the mouse away."""
        self.page.unroute_all(behavior="ignoreErrors")
        with contextlib.suppress(playwright.Error):  # it was never opened
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        # Of the same server: for another one, the browser would start a process.
        self.page.goto(urljoin(self.page.url, "/static/icon.svg"))
        self.page.set_viewport_size(SIZE)
        self.page.mouse.move(0, 0)

    def open(self, address: str) -> None:
        """Go to the page and wait for the first question."""
        self.page.goto(address)
        self.page.wait_for_selector('#question:not([data-key=""])[data-key]')
        self.settle()

    def settle(self) -> None:
        """Wait until the pictures and predictions of the present question are there."""
        self.until(
            "frameAt(state.frame) && frameAt(state.frame + 1) && pairAt(state.frame) && state.framed"
        )

    def until(self, condition: str) -> None:
        """Wait for something that the page's own modules know."""
        waiting = """async (patience) => {
            const main = document.querySelector("script[type=module]").src; // below a path, if another server has one
            const get = (name) => import(new URL(name, main).href);
            const { frameAt } = await get("frames.js"), { pairAt } = await get("pairs.js");
            const { state } = await get("state.js"), { isPrepared } = await get("asking.js");
            const end = performance.now() + 1000 * patience;
            while (!(CONDITION)) {
                if (performance.now() > end) throw new Error("waited in vain for CONDITION");
                await new Promise((resolve) => setTimeout(resolve, 20));
            }
        }"""
        self.page.evaluate(waiting.replace("CONDITION", condition), PATIENCE)

    def wait_until(self, condition: Callable[[], Any]) -> None:
        """Wait for something that the test knows, while the page goes on."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end
            self.page.wait_for_timeout(20)

    def saved(self) -> None:
        """Wait until the server has all answers."""
        self.until(
            "!state.waiting"
        )  # the words may be those of before the last key, which are drawn a little later
        playwright.expect(self.page.locator("#saved")).to_have_text(
            "all answers saved", timeout=1000 * PATIENCE
        )

    def until_annotated(self, n: int) -> None:
        """Wait for the number of annotated events."""
        playwright.expect(self.page.locator("#annotated")).to_have_text(
            str(n), timeout=1000 * PATIENCE
        )

    def asked(self) -> Answer | None:
        """The event in question."""
        key = self.page.get_attribute("#question", "data-key")
        if not key:
            return None
        frame, event, sources, targets = key.split(":")
        return int(frame), event, _labels(sources), _labels(targets), True

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def click(self, action: str) -> None:
        """Click a button with the mouse."""
        self.page.click(f"[data-action={action}]")

    def skip_to(self, event: str) -> Answer:
        """Skip questions until one of this kind is asked."""
        for _ in range(200):
            question = self.asked()
            if question is not None and question[1] == event:
                self.settle()
                return question
            if self.page.is_visible("#question p.action"):
                self.page.click(
                    "#question p.action"
                )  # all were skipped: once more from the start
            self.press("Space")
            self.page.wait_for_timeout(30)
        raise AssertionError(f"no question about: {event}")

    def look_at(self, frame: int, label: int) -> None:
        """Select a cell of the left frame in browsing."""
        look = "([t, label]) => import('/static/asking.js').then((asking) => asking.browseTo(t, { side: 'a', label }))"
        self.page.evaluate(look, [frame, label])
        self.settle()
        self.press("0")

    def click_cell(self, side: str, label: int) -> None:
        """Click a cell of the left ("a") or the right frame ("b")."""
        self.page.mouse.click(*self._place(side, label))

    def _place(self, side: str, label: int) -> tuple[float, float]:
        """A pixel of the cell near its middle, on the screen."""
        x, y = self.page.evaluate(
            """async ([side, label]) => {
                const { frameAt } = await import("/static/frames.js");
                const { panes, toScreen } = await import("/static/camera.js");
                const { state } = await import("/static/state.js");
                const { labels, width } = frameAt(state.frame + (side === "b" ? 1 : 0));
                const mine = [...labels.keys()].filter((i) => labels[i] === label);
                const at = mine.map((i) => [i % width, Math.floor(i / width)]);
                const mean = [0, 1].map((k) => at.reduce((sum, p) => sum + p[k], 0) / at.length);
                const far = (p) => (p[0] - mean[0]) ** 2 + (p[1] - mean[1]) ** 2;
                const [x, y] = at.reduce((best, p) => (far(p) < far(best) ? p : best));
                const box = document.getElementById("stage").getBoundingClientRect();
                const [sx, sy] = toScreen(panes[side === "a" ? 0 : 1], x + 0.5, y + 0.5);
                return [box.left + sx, box.top + sy];
            }""",
            [side, label],
        )
        return x, y

    def pair(self) -> dict[str, Any]:
        """What the page knows of the shown frames."""
        found: dict[str, Any] = self.page.evaluate(
            """async () => {
                const { pairAt } = await import("/static/pairs.js"), { state } = await import("/static/state.js");
                return pairAt(state.frame);
            }"""
        )
        return found

    def nearest(self, source: int, n: int) -> list[int]:
        """The cells of the right frame that are nearest to one of the left frame, nearest first."""
        pair = self.pair()
        (here,) = (cell for cell in pair["a"] if cell["id"] == source)
        away = {
            cell["id"]: (cell["x"] - here["x"]) ** 2 + (cell["y"] - here["y"]) ** 2
            for cell in pair["b"]
        }
        return sorted(away, key=lambda label: away[label])[:n]

    def export(self, folder: Path, kind: str = "annotations.csv") -> Path:
        """Download a file through the menu."""
        with self.page.expect_download() as download:
            if not self.page.is_visible("#exports"):
                self.click("export")
            self.page.click(f'[data-export="{kind}"]')
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def exported(self, folder: Path) -> set[Answer]:
        """The annotations as the CSV file has them."""
        return read_annotations(self.export(folder))


def read_annotations(path: Path) -> set[Answer]:
    """A file of annotations as a set of answers."""
    with path.open(newline="") as file:
        return {
            (
                int(row["frame"]),
                row["event"],
                _labels(row["sources"]),
                _labels(row["targets"]),
                row["happened"] == "yes",
            )
            for row in csv.DictReader(file)
        }


def _labels(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(label) for label in text.replace("+", " ").split()))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium without a window."""
    if CHROMIUM is None:
        how = "no Chromium here: run scripts/browser, which installs it, or name one in CLEW_CHROMIUM"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            how
        )  # where all must pass, none may be left out
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield launched
        launched.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """The browser, in which no page of a test outlives it: one that waits for a lost server keeps drawing."""
    shared = list(chromium.contexts)
    yield chromium
    for context in chromium.contexts:
        if context not in shared:
            context.close()


@pytest.fixture(scope="session")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated movie with divisions, whose name tries to be a script."""
    folder = tmp_path_factory.mktemp("movies") / "<script>alert(1)"
    write_simulation(folder, NucleiSettings(frames=14, cells=26, cycle=14, seed=5))
    return folder / "01"


@pytest.fixture(scope="session")
def solid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small movie in three dimensions."""
    folder = tmp_path_factory.mktemp("solid") / "solid"
    write_simulation(folder, NucleiSettings(frames=4, cells=8, dims=3, seed=2))
    return folder / "01"


@pytest.fixture(scope="session")
def served(movie: Path, solid: Path) -> Iterator[Served]:
    """One server for all tests: it takes seconds to start."""
    server = Served([movie, solid])
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tabs(chromium: Any) -> list[Annotator]:
    """Two tabs, which all tests share: a new one costs the browser more than most tests do."""
    return [open_tab(chromium) for _ in range(2)]


def open_tab(browser: Any, **options: Any) -> Annotator:
    """A person with a window of their own."""
    return Annotator(browser.new_context(**{"viewport": SIZE, **options}).new_page())


@pytest.fixture
def annotator(tabs: list[Annotator], served: Served) -> Iterator[Annotator]:
    """A person with the page open; whatever the browser complains of fails the test."""
    if (
        served.process.poll() is not None
    ):  # a test that ended it failed before it started it again
        served.start()
    undo_all(served)
    person = tabs[0]
    person.open(served.address)
    yield person
    leave(person)


@pytest.fixture
def another(tabs: list[Annotator], served: Served) -> Iterator[Annotator]:
    """A second person with the same movie open."""
    person = tabs[1]
    person.open(served.address)
    yield person
    person.forget()


def leave(person: Annotator) -> None:
    """Close the page of a person."""
    with contextlib.suppress(
        Exception
    ):  # an answer that is on its way arrives, unless the test cut it off
        playwright.expect(person.page.locator("#saved")).not_to_have_text(
            "saving …", timeout=3000
        )
    person.forget()
    complaints, person.complaints = person.complaints, []
    assert complaints == []


def undo_all(served: Served) -> None:
    """Take back every answer; one that was still on its way may come in between."""
    while (status := served.ask("/api/movies/0/status"))["can_undo"]:
        with contextlib.suppress(urllib.error.HTTPError):
            served.ask(
                "/api/movies/0/undo",
                {"key": secrets.token_hex(8), "revision": status["revision"]},
            )
