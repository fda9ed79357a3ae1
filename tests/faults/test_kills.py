"""Kills, Ctrl-C and full disks at random moments, a few of each; benchmarks/faults.py does a thousand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks/faults.py"


@pytest.mark.skipif(sys.platform == "win32", reason="the commands run in forks, which this system has not")
def test_what_is_left_is_old_or_new_or_nothing():
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--kills", "16", "--seed", "3", "--json"],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == 16
    assert not [state for state in counts if "BAD" in state], done.stdout
    assert done.returncode == 0
    states = {key.split(" | ")[2] for key in counts}
    assert states <= {"old result whole", "new result whole", "nothing"}
    assert "old result whole" in states  # some were cut short
