"""What an installation weighs: packages, megabytes and import times of clew without and with its extras.

Run it with `python benchmarks/installation.py`; it needs uv and the package index. Each line is an environment of
its own, made in a temporary folder from the same lock file; imports are timed, in processor time, in new processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLATIONS = {
    "clew": "import clew; clew.StructuredSVM",
    "clew[plot]": "import clew; clew.StructuredSVM",
    "clew[tracking]": "import clew; clew.Tracker",
    "clew[page]": "import clew.app.launch",
    "clew[all]": "import clew.app.launch",
}


def main() -> None:
    """Print a row for each installation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    print("| installation | packages | MB | imported | CPU s (median; least to most) |")
    print("| --- | ---: | ---: | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, code in INSTALLATIONS.items():
            python = install(Path(folder) / name.replace("[", "-").strip("]"), name)
            sites = Path(
                run(python, "import site; print(site.getsitepackages()[0])").strip()
            )
            size = sum(
                path.stat().st_size
                for path in sites.rglob("*")
                if path.is_file() and path.suffix != ".pyc"
            )
            packages = sum(1 for _ in sites.glob("*.dist-info"))
            run(
                python, code
            )  # once for the bytecode, which an installation by pip has made already
            taken = sorted(float(run(python, timed(code))) for _ in range(repeats))
            what = code.removeprefix("import clew; ")
            spread = (
                f"{statistics.median(taken):.2f}; {taken[0]:.2f} to {taken[-1]:.2f}"
            )
            print(
                f"| `{name}` | {packages} | {size / 1e6:.0f} | `{what}` | {spread} |",
                flush=True,
            )


def install(folder: Path, name: str) -> str:
    """A new environment with clew from this checkout; its interpreter."""
    uv = [sys.executable, "-m", "uv"]
    subprocess.run(
        [*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True
    )
    python = folder / (
        "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    )
    lock = ["--constraint", str(ROOT / "requirements-dev.lock")]
    what = f"{ROOT}{name.removeprefix('clew')}"
    subprocess.run(
        [*uv, "pip", "install", "--quiet", "--python", str(python), *lock, what],
        check=True,
    )
    return str(python)


def timed(code: str) -> str:
    return f"import time; began = time.process_time()\n{code}\nprint(time.process_time() - began)"


def run(python: str, code: str) -> str:
    # bytecode is kept even where this environment forbids it: without it, an import takes more than twice as long
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    return subprocess.run(
        [python, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout


if __name__ == "__main__":
    main()
