"""A few hundred fuzzed files and calls, always the same ones; `make fuzz` goes on for as long as it is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..helpers.effort import sweep

BENCHMARK = Path(__file__).parents[2] / "benchmarks/fuzz.py"


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="fuzzing needs limits of time and memory that this system has not",
)
@sweep(20, 1000)
def test_answers_or_a_clew_error(tmp_path, n):
    done = subprocess.run(
        [
            sys.executable,
            BENCHMARK,
            "--cases",
            str(n),
            "--seconds",
            "800",
            "--seed",
            "7",
            "--corpus",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
    assert "api" in done.stdout
    assert "zarr" in done.stdout
