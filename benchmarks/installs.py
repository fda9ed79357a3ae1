"""The wheel in empty environments: does it work, what does it weigh, how fast is it?

`python benchmarks/installs.py` builds wheel and sdist, checks what is in them, and
installs the wheel into a new environment for each Python that is there and each extra.
In each environment it runs the package check, the example of the README, `clew demo`,
small and with all compilation, and `clew --help`, and prints megabytes, CPU seconds and
the heaviest packages. Without the extra that it needs, `clew demo` must name it. It
needs uv and the package index. Pythons that are not there are resolved from wheels only.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = (
    "",
    "plot",
    "tracking",
    "page",
    "parquet",
    "hdf5",
    "evaluate",
    "dask",
    "napari",
    "spacy",
    "tracksdata",
    "all",
)
WITH_TRACKING = ("tracking", "page", "napari", "tracksdata", "all")
N_HEAVIEST = 4
"""Packages that are named for each environment."""
FIELDS = (
    "Author",
    "Classifier",
    "License-Expression",
    "Project-URL",
    "Requires-Python",
    "Summary",
)
"""Metadata that a package index shows."""
UV = (sys.executable, "-m", "uv", "--no-config")
"""Without the settings of this checkout, as users run it."""


def main() -> None:
    """Print a table of environments, and one of Pythons that were resolved only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="or paths")
    parser.add_argument("--extras", nargs="+", default=EXTRAS, help="'' for none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder) / "dist")
        metadata = check_wheel(wheel)
        known = {"", *metadata.get_all("Provides-Extra", [])}
        extras = [extra for extra in options.extras if extra in known]
        print(
            "| Python | extra | packages | MB | --help s | import s | demo s "
            "| heaviest (MB) |"
        )
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
        missing = []
        for version in options.pythons:
            python = find_python(version)
            if python is None:
                missing.append(version)
                continue
            for extra in extras:
                place = Path(tempfile.mkdtemp(dir=folder))
                print(try_install(python, wheel, extra, place), flush=True)
        for version in missing:
            print(f"\nPython {version} is not here: {resolve(wheel, version)}")


def build(folder: Path) -> Path:
    """Build sdist and wheel as `make dist` does, and return the wheel."""
    run([*UV, "build", "--quiet", "--out-dir", str(folder), str(ROOT)])
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB, {len(names)} files")
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_wheel(wheel: Path) -> Message:
    """Refuse a wheel with tests, without types or with incomplete metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(path).decode())
    roots = {name.split("/")[0].split("-")[0] for name in names}
    assert roots == {"clew", "clew_learn"}, roots
    assert not [name for name in names if re.search(r"tests?/|test_|benchmark", name)]
    assert "clew/py.typed" in names
    absent = [field for field in FIELDS if not metadata.get(field)]
    assert not absent, f"the metadata lack {', '.join(absent)}"
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files\n")
    return metadata


def find_python(version: str) -> str | None:
    """Return an interpreter of a version; None if none is installed."""
    if Path(version).is_file():
        return version
    options = ["--no-project", "--no-python-downloads"]
    answer = subprocess.run(
        [*UV, "python", "find", *options, version], capture_output=True, text=True
    )
    return answer.stdout.strip() or None


def try_install(python: str, wheel: Path, extra: str, folder: Path) -> str:
    """Install the wheel with one extra, use it, and return a row of the table."""
    run([*UV, "venv", "--quiet", "--clear", "--python", python, str(folder)])
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
    own = str(scripts / "python")
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    target = ["--quiet", "--python", own]
    run([*UV, "pip", "install", *target, what])
    run([*UV, "pip", "check", "--quiet", "--python", own])
    run([own, "-c", read_example(extra)], cwd=folder)
    sites = Path(run([own, "-c", "import site; print(site.getsitepackages()[0])"]))
    sizes = {path.name: weigh(path) for path in sites.iterdir()}
    heaviest = sorted(sizes, key=lambda name: -sizes[name])[:N_HEAVIEST]
    help_seconds = measure([str(scripts / "clew"), "--help"])
    import_seconds = measure([own, "-c", "import clew"])
    demo = run_demo(str(scripts / "clew"), extra, folder)
    row = (
        run([own, "-c", "import platform; print(platform.python_version())"]),
        f"`{extra}`" if extra else "none",
        sum(name.endswith(".dist-info") for name in sizes),
        f"{sum(sizes.values()) / 1e6:.0f}",
        f"{help_seconds:.2f}",
        f"{import_seconds:.2f}",
        "–" if demo is None else f"{demo:.0f}",
        ", ".join(f"{name} {sizes[name] / 1e6:.0f}" for name in heaviest),
    )
    return f"| {' | '.join(map(str, row))} |"


def run_demo(clew: str, extra: str, folder: Path) -> float | None:
    """Return the CPU seconds of a small `clew demo`; None if it names its extra."""
    command = [clew, "demo", "-o", str(folder / "demo"), "--frames", "6"]
    command += ["--cells", "12", "--fraction", "0.5"]
    if extra in WITH_TRACKING:
        return measure(command, n_runs=1)
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 2, answer.stderr
    assert "pip install 'clew-learn[tracking]'" in answer.stderr, answer.stderr
    return None


def resolve(wheel: Path, version: str) -> str:
    """Say whether wheels of all packages exist for a Python that is not installed."""
    options = ["--quiet", "--no-config", "--only-binary", ":all:"]
    answer = subprocess.run(
        [*UV, "pip", "compile", *options, "--python-version", version, "-"],
        input=f"clew-learn[all] @ {wheel.as_uri()}",
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        return f"no wheels: {' '.join(answer.stderr.split())[:300]}"
    n_packages = len(re.findall(r"^[\w.-]+(?:==| @)", answer.stdout, re.MULTILINE))
    return f"wheels of all {n_packages} packages of the extra `all` exist"


def read_example(extra: str) -> str:
    """Return the Python example of the README that runs with an extra."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    is_core = extra not in WITH_TRACKING
    return next(block for block in blocks if not is_core or "tracking" not in block)


def weigh(path: Path) -> int:
    """Return the bytes of a file or folder without bytecode."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(
        file.stat().st_size
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    )


def measure(command: list[str], n_runs: int = 3) -> float:
    """Return the least CPU seconds of a command."""
    seconds = []
    for _ in range(n_runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = after.ru_utime - before.ru_utime
        seconds.append(user + after.ru_stime - before.ru_stime)
    return min(seconds)


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run a command and return what it prints; bytecode is written and used."""
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PYTHONPATH", None)
    answer = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True
    )
    if answer.returncode:
        sys.exit(f"{' '.join(command)[:200]}\n{answer.stdout}{answer.stderr}")
    return answer.stdout.strip()


if __name__ == "__main__":
    main()
