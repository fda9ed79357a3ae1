"""Keys in headless Chromium: how long until the next question stands there, and until predictions are new."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from page_server import CHROMIUM, PATIENCE, Served, console, linked, load, simulated
from rich.table import Table

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

    table = Table(
        "movie",
        "what",
        "n",
        "median ms",
        "p95 ms",
        "longest ms",
        "bar ms",
        title=f"load {load()}",
    )
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        movies = {}
        if "CLEW_DATA" in os.environ:
            (hela := Path(folder) / "hela").mkdir()
            movies["HeLa 01"] = linked(hela)
        movies["200 × 500"] = simulated(
            options.simulated or Path(folder) / "simulated", 200, 500
        )
        for name, movie in movies.items():
            if options.only and not name.startswith(options.only):
                continue
            served = Served(movie, Path(folder) / f"{name}.clewdb", "--no-cache")
            try:
                page = chromium.new_context(
                    viewport={"width": 1280, "height": 800}
                ).new_page()
                found = press_keys(
                    page, served, options.answers, options.pause, options.quick
                )
                page.context.close()
            finally:
                served.stop()
            for what, (bar, values) in found.items():
                if not values:
                    continue
                known = np.array(
                    [PATIENCE * 1000 if value is None else value for value in values]
                )
                figures = [
                    f"{v:.0f}"
                    for v in (np.median(known), np.percentile(known, 95), known.max())
                ]
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
        "export of weights right after an answer": (5000, []),
        "answer to the end of learning": (None, []),
    }
    words, drawn, shown, answered, browsing, exports, ends = (
        values for _, values in found.values()
    )
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
        open_ones = [
            event["sources"]
            for event in events
            if event["sources"] and not event["pinned"]
        ]
        page.evaluate(look, [frame, open_ones[rng.integers(len(open_ones))][0]])
        settle(page, served)
        page.keyboard.press("Enter")
        browsing.append(page.evaluate("measured.answered"))
    page.keyboard.press("q")
    for _ in range(min(quick, 4)):
        page.evaluate("watched.ready(20000)")
        page.keyboard.press("Enter")
        page.evaluate("measured.words")
        begin = time.monotonic()
        served.ask("export/weights")
        exports.append(1000 * (time.monotonic() - begin))
        served.rest()
        ends.append(1000 * (time.monotonic() - begin))
    return found


def served_frames(page: Any) -> int:
    """How many frames the movie has."""
    n: int = page.evaluate(
        "import('/static/state.js').then(({ state }) => state.movie.n_frames)"
    )
    return n


def settle(page: Any, served: Served) -> None:
    """Wait until all answers are learned from, and the page has heard of it."""
    served.learned()
    page.wait_for_timeout(500)
    page.evaluate("watched.ready(20000)")
