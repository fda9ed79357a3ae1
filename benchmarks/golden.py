"""Golden runs: accuracy, CPU seconds and memory of clew, stored and compared.

    CLEW_DATA=… python benchmarks/golden.py run --python .venv/bin/python --out new.json
    python benchmarks/golden.py compare benchmarks/golden.json new.json
    python benchmarks/golden.py show benchmarks/golden.json
    CLEW_DATA=… python benchmarks/golden.py alternate --old PYTHON --new PYTHON

`run` measures every case that the file does not hold yet; `--only 'track/hela/*'`
picks cases and `--list` names them. Only the commands of the `clew` executable beside
the interpreter and clew's public Python names are used, so that one script measures
any version. Cases:

- `track/MOVIE/generic`: clew track and clew evaluate with generic weights;
- `track/MOVIE/learned-N`: clew train on a quarter of the true events, drawn at random
  with the seed N, then track and evaluate. Pm02 and the worm take long and have one draw;
- `fit/NAME`: the fits of golden_fits.py;
- `compile/MODEL`: CPU seconds that a first fit spends on compilation;
- `paper/quick`: the quick edition of the paper's experiments with its claims;
- `page/MOVIE`: latency of the annotation page, by golden_page.py.

`@default` at the end of a name: no limit on threads; otherwise one thread. CPU seconds
are user + system time of a command and its children. A command that compiled kernels is
run again, and the second run counts. Latency is in milliseconds on the clock and
depends on the load of the machine, which is stored beside it. CPU seconds
depend on it too, by up to 1.4 times. Where they look worse, measure both versions in
turns with `alternate --repeats 3 --only CASE`; the least seconds of each are compared.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import golden_compare
import golden_tables
import numpy as np

HERE = Path(__file__).resolve().parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
FRACTION = 0.25
TIME_LIMIT = 900.0
"""Seconds on the clock after which a command is killed."""
FIT_CPU_LIMIT = 90
"""CPU seconds after which a fit is killed."""

Figures = dict[str, Any]


class Command(NamedTuple):
    """A finished command."""

    output: str
    """Empty if the command reached the limit of CPU seconds."""
    cpu: float
    """User + system seconds of the process and its children."""
    rss: float
    """Peak resident memory of the largest process, in MB."""


@dataclass(frozen=True)
class Movie:
    """A movie of CLEW_DATA with its true lineage."""

    inputs: tuple[str, ...]
    """Arguments of clew track; paths are relative to CLEW_DATA."""
    truth: str
    n_draws: int = 3
    make_tables: Callable[[Path, Path], None] | None = None
    """Write points.csv and tracks.csv, from CLEW_DATA into a folder."""


def ctc_movie(folder: str) -> Movie:
    """A sequence 01 with images, in the layout of the Cell Tracking Challenge."""
    return Movie((f"{folder}/01",), f"{folder}/01_GT/TRA")


def mask_movie(truth: str) -> Movie:
    """A movie without images, whose masks are those of the truth."""
    return Movie(("--labels", truth), truth)


MOVIES = {
    "hela": ctc_movie("Fluo-N2DL-HeLa"),
    "sim1": ctc_movie("Fluo-N2DH-SIM+"),
    "sim2": mask_movie("Fluo-N2DH-SIM+/02_GT/TRA"),
    "psc": ctc_movie("PhC-C2DL-PSC"),
    "bacteria": ctc_movie("bacteria"),
    "dic": ctc_movie("DIC-C2DH-HeLa"),
    "u373": ctc_movie("PhC-C2DH-U373"),
    "epidermis": mask_movie("epidermis/01_GT/TRA"),
    "c2c12": Movie(("c2c12/points.csv",), "c2c12/tracks.csv"),
    "c2c12-fifth": Movie(
        ("points.csv",), "tracks.csv", make_tables=golden_tables.every_fifth_frame
    ),
    "pm02": Movie(("ascidian/Pm02-points.csv",), "ascidian/Pm02-tracks.csv", 1),
    "pm03": Movie(("ascidian/Pm03-points.csv",), "ascidian/Pm03-tracks.csv"),
    "worm": Movie(
        ("points.csv",), "tracks.csv", 1, make_tables=golden_tables.convert_worm
    ),
}
DEFAULT_THREADS = ("bacteria", "hela")
"""Movies that are also tracked without a limit on threads."""
PAGE_MOVIE = "hela"
FITS = (
    "letters_full",
    "letters_partial",
    "letters_partial_auto",
    "text_1000_full",
    "text_1000_quarter",
    "text_4000_full",
    "text_4000_quarter",
    "words_30",
    "words_5",
    "sequences_40",
    "assignment_200",
    "multiclass_300",
    "crf_200",
)
MODELS = ("chain", "tree", "graph", "multiclass", "crf")


@dataclass(frozen=True)
class Bench:
    """What is measured, and where scratch files go."""

    python: Path
    data: Path
    work: Path
    checkout: Path
    """Root of the checkout, for the experiments of the paper."""
    repeats: int = 1
    """Runs of each command; the least CPU seconds count."""
    one_thread: bool = True

    @property
    def clew(self) -> list[str]:
        """The command clew of the interpreter's environment."""
        return [str(self.python.parent / "clew")]

    @property
    def jobs(self) -> list[str]:
        """Options of commands for the number of processes."""
        return ["-j", "1"] if self.one_thread else []

    def run(self, command: Sequence[str], cpu_limit: int | None = None) -> Command:
        """Run a command, again if it compiled kernels; return the run of least CPU."""
        kernels = self.work / "kernels"
        environment = self.make_environment(kernels)
        n_kernels = count_files(kernels)
        finished = run_command(command, environment, cpu_limit)
        if count_files(kernels) > n_kernels:
            finished = run_command(command, environment, cpu_limit)
        for _ in range(self.repeats - 1):
            repeated = run_command(command, environment, cpu_limit)
            finished = min(finished, repeated, key=lambda run: run.cpu)
        return finished

    def make_environment(self, kernels: Path) -> dict[str, str]:
        """Environment variables of commands."""
        environment = dict(os.environ)
        for name in THREAD_VARIABLES:
            environment.pop(name, None)
        if self.one_thread:
            environment |= dict.fromkeys(THREAD_VARIABLES, "1")
        environment |= {
            "CLEW_DATA": str(self.data),
            "NUMBA_CACHE_DIR": str(kernels),
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": str(self.checkout),
        }
        return environment


def count_files(folder: Path) -> int:
    """Number of files in a folder and its subfolders."""
    return sum(path.is_file() for path in folder.rglob("*"))


def run_command(
    command: Sequence[str],
    environment: dict[str, str],
    cpu_limit: int | None = None,
) -> Command:
    """Run a command; raise RuntimeError if it fails or takes too long.

    A command that reaches the limit of CPU seconds ends without output.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            list(command),
            stdout=output,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        if cpu_limit is not None:
            limits = (cpu_limit, cpu_limit + 5)
            resource.prlimit(process.pid, resource.RLIMIT_CPU, limits)
        timer = threading.Timer(TIME_LIMIT, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        is_over_limit = process.returncode == -signal.SIGXCPU
        if process.returncode and not is_over_limit:
            message = errors.read()[-2000:]
            raise RuntimeError(f"{command} ended by {process.returncode}: {message}")
        return Command(
            "" if is_over_limit else output.read(),
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )


def measure_tracking(
    bench: Bench, folder: Path, name: str, draw: int | None
) -> Figures:
    """Track a movie and evaluate the result, with generic or learned weights."""
    movie = MOVIES[name]
    home = bench.data
    if movie.make_tables is not None:
        movie.make_tables(bench.data, folder)
        home = folder
    inputs = [
        part if part.startswith("--") else str(home / part) for part in movie.inputs
    ]
    truth = home / movie.truth
    result = folder / "result"
    commands: dict[str, Command] = {}
    weights: list[str] = []
    figures: Figures = {}
    if draw is not None:
        events = list_true_events(bench, truth, folder)
        annotations = folder / f"quarter-{draw}.csv"
        drawn = draw_events(events, np.random.default_rng(draw))
        write_annotations(annotations, drawn)
        figures["annotated"] = len(drawn)
        figures["annotations_digest"] = digest(map(str, drawn))
        weights = ["-w", str(folder / "weights.clew")]
        learn = [*inputs, "-a", str(annotations), "-o", weights[1], "--no-cache"]
        commands["train"] = bench.run([*bench.clew, "train", *learn, *bench.jobs])
    track = [*inputs, *weights, "-o", str(result), "--no-cache"]
    commands["track"] = bench.run([*bench.clew, "track", *track, *bench.jobs])
    figures |= read_events(result / "events.csv")
    evaluate = [str(result), "-t", str(truth), "--json"]
    commands["evaluate"] = bench.run([*bench.clew, "evaluate", *evaluate])
    figures |= read_evaluation(json.loads(commands["evaluate"].output))
    for command, finished in commands.items():
        figures[f"{command}_cpu"] = finished.cpu
        figures[f"{command}_rss"] = finished.rss
    figures["cpu"] = sum(finished.cpu for finished in commands.values())
    figures["rss"] = max(finished.rss for finished in commands.values())
    return figures


def read_evaluation(found: dict[str, Any]) -> Figures:
    """The figures of clew evaluate --json that are kept."""
    loss = found["task_loss"]
    return {
        "true_events": loss["annotated"],
        "missed": loss["missed"],
        "missed_percent": 100 * loss["total"],
        "missed_by_kind": {
            kind: counts["missed"] for kind, counts in loss["events"].items()
        },
        "aogm": found["aogm"]["total"],
        "tra": found["aogm"]["score"],
        "division_f1": found["divisions"]["0"]["f1"],
    }


def read_events(path: Path) -> Figures:
    """Number of events by kind, a digest, and how many are expected to be wrong."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [f"{r['frame']},{r['event']},{r['sources']},{r['targets']}" for r in rows]
    return {
        "events": dict(sorted(Counter(row["event"] for row in rows).items())),
        "digest": digest(sorted(lines)),
        "expected_wrong": sum(1 - float(row["probability"]) for row in rows),
    }


def digest(lines: Any) -> str:
    """The first 16 hexadecimal digits of the lines' SHA-256."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def list_true_events(bench: Bench, truth: Path, folder: Path) -> list[tuple[str, ...]]:
    """All true events of a movie: frame, kind, sources, targets."""
    if truth.suffix == ".csv":
        return golden_tables.list_events(truth)
    path = folder / "all.csv"
    sample = [str(truth), "--fraction", "1", "-o", str(path)]
    bench.run([*bench.clew, "sample", *sample])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("frame", "event", "sources", "targets")
    return sorted(tuple(row[key] for key in keys) for row in rows)


def draw_events(
    events: list[tuple[str, ...]], rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """Draw a quarter of the events of each kind, at least one."""
    drawn = []
    for kind in sorted({event[1] for event in events}):
        members = [event for event in events if event[1] == kind]
        n_drawn = max(1, round(FRACTION * len(members)))
        rows = rng.choice(len(members), n_drawn, replace=False)
        drawn += [members[row] for row in sorted(rows.tolist())]
    return drawn


def write_annotations(path: Path, events: list[tuple[str, ...]]) -> None:
    """Write events as annotations."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["frame", "event", "sources", "targets", "happened"])
        writer.writerows([*event, "yes"] for event in events)


def measure_fit(bench: Bench, _: Path, name: str) -> Figures:
    """Run one of the fits in a process of its own."""
    command = [str(bench.python), str(HERE / "golden_fits.py"), name]
    finished = bench.run(command, FIT_CPU_LIMIT)
    return read_fit(finished)


def measure_compilation(bench: Bench, folder: Path, model: str) -> Figures:
    """Fit a model with an empty cache of kernels."""
    command = [str(bench.python), str(HERE / "golden_fits.py"), f"compile_{model}"]
    environment = bench.make_environment(folder)
    return read_fit(run_command(command, environment))


def read_fit(finished: Command) -> Figures:
    """The figures that golden_fits.py printed; not converged if it was killed."""
    figures: Figures = {"converged": False, "is_over_limit": True}
    if finished.output:
        figures = json.loads(finished.output.splitlines()[-1])
    return {**figures, "cpu": finished.cpu, "rss": finished.rss}


def measure_paper(bench: Bench, folder: Path) -> Figures:
    """Run the quick edition of the paper's experiments."""
    output = folder / "paper"
    command = [*bench.clew, "reproduce"]
    if (bench.checkout / "paper/__main__.py").exists():
        command = [str(bench.python), "-m", "paper"]
    options = ["--quick", "-o", str(output), *bench.jobs]
    finished = bench.run([*command, *options])
    claims = json.loads((output / "results.json").read_text())["claims"]
    return {
        "claims": [[c["claim"], c["holds"], c["figures"]] for c in claims],
        "claims_held": sum(bool(claim["holds"]) for claim in claims),
        "cpu": finished.cpu,
        "rss": finished.rss,
    }


def measure_page(bench: Bench, folder: Path) -> Figures:
    """Answer questions of the page over HTTP."""
    import golden_page

    movie = MOVIES[PAGE_MOVIE]
    events = list_true_events(bench, bench.data / movie.truth, folder)
    options = ["--store", str(folder / "answers.clewdb"), "--no-browser", "--no-cache"]
    command = [*bench.clew, "annotate", str(bench.data / movie.inputs[0]), *options]
    command += ["--port", "0"]
    kernels = bench.work / "kernels"
    environment = bench.make_environment(kernels)
    n_kernels = -1
    while count_files(kernels) > n_kernels:
        n_kernels = count_files(kernels)
        for path in folder.glob("answers.clewdb*"):
            path.unlink()
        figures = golden_page.measure_latency(command, environment, events)
    return figures


class Case(NamedTuple):
    """What is measured, and whether on one thread."""

    measure: Callable[[Bench, Path], Figures]
    """Measure with a folder for scratch files."""
    one_thread: bool = True


def list_cases() -> dict[str, Case]:
    """All cases by name."""
    cases: dict[str, Case] = {}
    for name, movie in MOVIES.items():
        generic = partial(measure_tracking, name=name, draw=None)
        cases[f"track/{name}/generic"] = Case(generic)
        for draw in range(movie.n_draws):
            learned = partial(measure_tracking, name=name, draw=draw)
            cases[f"track/{name}/learned-{draw}"] = Case(learned)
    for name in DEFAULT_THREADS:
        generic = partial(measure_tracking, name=name, draw=None)
        cases[f"track/{name}/generic@default"] = Case(generic, one_thread=False)
    for model in MODELS:
        compilation = partial(measure_compilation, model=model)
        cases[f"compile/{model}"] = Case(compilation)
    for name in FITS:
        fit = partial(measure_fit, name=name)
        cases[f"fit/{name}"] = Case(fit)
        cases[f"fit/{name}@default"] = Case(fit, one_thread=False)
    cases[f"page/{PAGE_MOVIE}"] = Case(measure_page)
    cases["paper/quick"] = Case(measure_paper)
    return cases


def find_checkout(python: Path) -> Path:
    """The root of the checkout whose clew an interpreter imports."""
    code = "import clew, pathlib; print(pathlib.Path(clew.__file__).parents[2])"
    command = [str(python), "-P", "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def find_commit(checkout: Path) -> str:
    """The commit of a checkout; empty if it is none."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def load(path: Path) -> dict[str, Figures]:
    """The records of a file; none if it does not exist."""
    if not path.exists():
        return {}
    records: dict[str, Figures] = json.loads(path.read_text())
    return records


def store(path: Path, records: dict[str, Figures]) -> None:
    """Write all records as JSON with rounded numbers."""
    rounded = json.loads(
        json.dumps(records), parse_float=lambda text: float(f"{float(text):.6g}")
    )
    lines = [
        f"{json.dumps(name)}: {json.dumps(rounded[name], ensure_ascii=False)}"
        for name in sorted(rounded)
    ]
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    temporary.replace(path)


def select_cases(options: argparse.Namespace) -> dict[str, Case]:
    """The cases that the options --only and --threads pick."""
    cases = list_cases()
    if options.only:
        cases = {
            name: case
            for name, case in cases.items()
            if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)
        }
    if options.threads:
        wants_one = options.threads == "one"
        cases = {
            name: case for name, case in cases.items() if case.one_thread == wants_one
        }
    return cases


def open_bench(interpreter: str, repeats: int) -> Bench:
    """Find the checkout of an interpreter, and make its folder of scratch files."""
    # absolute, not resolved: the interpreter of a virtual environment is a link
    python = Path(interpreter).absolute()
    data = Path(os.environ["CLEW_DATA"]).resolve()
    suffix = digest([str(python)])[:8]
    work = Path(tempfile.gettempdir()) / f"clew-golden-{suffix}"
    work.mkdir(parents=True, exist_ok=True)
    return Bench(python, data, work, find_checkout(python), repeats)


def measure_case(bench: Bench, name: str, case: Case) -> Figures:
    """Measure a case and print its figures."""
    start = time.monotonic()
    bench = replace(bench, one_thread=case.one_thread)
    try:
        with tempfile.TemporaryDirectory(dir=bench.work) as folder:
            figures = case.measure(bench, Path(folder))
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        figures = {"error": str(error)[-600:]}
    figures["commit"] = find_commit(bench.checkout)
    figures["load"] = os.getloadavg()[0]
    seconds = time.monotonic() - start
    line = golden_compare.describe(figures)
    print(f"{name}: {line} ({seconds:.0f} s on the clock)", flush=True)
    return figures


def run(options: argparse.Namespace) -> None:
    """Measure the cases that are not stored yet."""
    cases = select_cases(options)
    if options.list:
        print("\n".join(cases))
        return
    bench = open_bench(options.python, options.repeats)
    for name, case in cases.items():
        # read anew each time: another process may have stored cases
        if name in load(options.out) and not options.again:
            continue
        figures = measure_case(bench, name, case)
        store(options.out, {**load(options.out), name: figures})
    if options.against:
        golden_compare.compare(options.against, options.out)


def alternate(options: argparse.Namespace) -> None:
    """Measure cases with two interpreters in turns, and compare the least times."""
    old = open_bench(options.old, 1)
    new = open_bench(options.new, 1)
    paths = {old: old.work / "alternate.json", new: new.work / "alternate.json"}
    records: dict[Bench, dict[str, Figures]] = {old: {}, new: {}}
    for name, case in select_cases(options).items():
        for _ in range(options.repeats):
            for bench, path in paths.items():
                figures = measure_case(bench, name, case)
                stored = records[bench].get(name, figures)
                records[bench][name] = keep_least(stored, figures)
                store(path, records[bench])
    golden_compare.compare(paths[old], paths[new])


def keep_least(stored: Figures, figures: Figures) -> Figures:
    """The newer figures with the lesser of both times."""
    times = [
        name for name in figures if name.endswith(("cpu", "_ms")) and name in stored
    ]
    return figures | {name: min(stored[name], figures[name]) for name in times}


def main() -> None:
    """Read the arguments and run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    selection = argparse.ArgumentParser(add_help=False)
    selection.add_argument("--only", nargs="+", metavar="PATTERN", help="cases")
    selection.add_argument("--threads", choices=("one", "default"), help="cases")
    selection.add_argument(
        "--repeats", type=int, default=1, help="runs of each command"
    )
    runner = commands.add_parser("run", parents=[selection], help="measure")
    runner.add_argument("--python", default=sys.executable, help="its clew is measured")
    runner.add_argument("--out", type=Path, default=Path("golden-new.json"))
    runner.add_argument("--again", action="store_true", help="measure stored cases too")
    runner.add_argument("--list", action="store_true", help="print names of cases")
    runner.add_argument("--against", type=Path, help="compare with this file then")
    runner.set_defaults(call=run)
    turns = commands.add_parser(
        "alternate", parents=[selection], help="measure two versions in turns"
    )
    turns.add_argument("--old", required=True, metavar="PYTHON", help="interpreter")
    turns.add_argument("--new", required=True, metavar="PYTHON", help="interpreter")
    turns.set_defaults(call=alternate)
    comparison = commands.add_parser("compare", help="print two files side by side")
    comparison.add_argument("old", type=Path)
    comparison.add_argument("new", type=Path)
    comparison.set_defaults(call=lambda o: golden_compare.compare(o.old, o.new))
    table = commands.add_parser("show", help="print one file")
    table.add_argument("file", type=Path)
    table.set_defaults(call=lambda o: golden_compare.show(o.file))
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
