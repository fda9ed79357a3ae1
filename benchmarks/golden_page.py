"""Latency of the annotation page, measured over HTTP with the requests of the page."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

N_ANSWERS = 25
PATIENCE = 60.0
"""Seconds after which a request or a wait fails."""
PAUSE = 0.01


class Client:
    """One connection to `clew annotate`, which runs in a process of its own."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        address = self.wait_for_address()
        base, self.token = address.split("/?token=")
        host = base.removeprefix("http://")
        self.connection = http.client.HTTPConnection(host, timeout=PATIENCE)

    def wait_for_address(self) -> str:
        """Read the page's address from the output."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "/?token=" in line:
                # a full pipe would stop the server
                reader = threading.Thread(target=self.process.stdout.read, daemon=True)
                reader.start()
                return line[line.index("http://") :].strip()
        raise RuntimeError(f"the page did not start: {''.join(lines)[-1000:]}")

    def request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request about the movie; return the JSON of the reply."""
        headers = {"X-Clew-Token": self.token, "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        content = None if body is None else json.dumps(body)
        self.connection.request(method, f"/api/movies/0/{path}", content, headers)
        reply = self.connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {text[:300]!r}")
        return json.loads(text)

    def wait_until_learned(self) -> None:
        """Wait until the server has learned from all answers and is idle."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            status = self.request("status")
            if not status["learning"] and status["learned"] >= status["revision"]:
                return
            time.sleep(PAUSE)
        raise RuntimeError("the server is still learning")

    def stop(self) -> tuple[float, float]:
        """End the server; return its CPU seconds and peak memory in MB."""
        self.connection.close()
        self.process.send_signal(signal.SIGINT)
        timer = threading.Timer(PATIENCE, os.killpg, (self.process.pid, signal.SIGKILL))
        timer.start()
        _, status, usage = os.wait4(self.process.pid, 0)
        timer.cancel()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_latency(
    command: Sequence[str],
    environment: dict[str, str],
    events: list[tuple[str, ...]],
) -> dict[str, Any]:
    """Answer questions from true events; return latencies in ms, CPU and memory.

    The next question counts from an answer to the reply with another question; new
    predictions from an answer to those of the frame by weights that include it.
    """
    truth = set(events)
    load = os.getloadavg()[0]
    start = time.monotonic()
    client = Client(command, environment)
    try:
        wait_until_open(client)
        startup = time.monotonic() - start
        client.wait_until_learned()
        next_question = []
        predictions = []
        for _ in range(N_ANSWERS):
            question = client.request("questions?n=5")["questions"][0]
            seconds = answer(client, question, truth)
            next_question.append(seconds[0])
            predictions.append(seconds[1])
            client.wait_until_learned()
    finally:
        cpu, rss = client.stop()
    return {
        "answers": N_ANSWERS,
        "startup_s": startup,
        "next_ms": 1000 * float(np.median(next_question)),
        "next_p95_ms": 1000 * float(np.percentile(next_question, 95)),
        "predictions_ms": 1000 * float(np.median(predictions)),
        "predictions_p95_ms": 1000 * float(np.percentile(predictions, 95)),
        "cpu": cpu,
        "rss": rss,
        "load_before": load,
    }


def wait_until_open(client: Client) -> None:
    """Wait until the movie is open and there are questions."""
    end = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < end:
        try:
            if client.request("questions?n=1")["questions"]:
                return
        except RuntimeError:
            pass  # 503 while the movie is opened
        time.sleep(0.1)
    raise RuntimeError("the page has no questions")


def answer(
    client: Client, question: dict[str, Any], truth: set[tuple[str, ...]]
) -> tuple[float, float]:
    """Answer a question; return seconds to the next one and to new predictions."""
    frame = question["frame"]
    cells = {name: question[name] for name in ("event", "sources", "targets")}
    sources = " ".join(map(str, question["sources"]))
    targets = " ".join(map(str, question["targets"]))
    happened = (str(frame), question["event"], sources, targets) in truth
    version = client.request(f"pair/{frame}")["version"]
    revision = client.request("status")["revision"]
    body = {
        **cells,
        "frame": frame,
        "happened": happened,
        "replace": False,
        "key": secrets.token_hex(8),
        "revision": revision,
        "asked": cells,
    }
    start = time.monotonic()
    client.request("answers", body)
    while is_same(question, client.request("questions?n=5")["questions"]):
        check_patience(start)
    next_question = time.monotonic() - start
    while client.request(f"pair/{frame}")["version"] <= version:
        check_patience(start)
    return next_question, time.monotonic() - start


def is_same(question: dict[str, Any], questions: list[dict[str, Any]]) -> bool:
    """Whether the first question is still the one that was answered."""
    if not questions:
        return True
    keys = ("frame", "event", "sources", "targets")
    return all(question[key] == questions[0][key] for key in keys)


def check_patience(start: float) -> None:
    """Raise if too much time has passed; otherwise pause."""
    if time.monotonic() - start > PATIENCE:
        raise RuntimeError("no reply to an answer")
    time.sleep(PAUSE)
