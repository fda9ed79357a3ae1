"""Compiled functions with other versions of Numba."""

import subprocess
import sys

SCRIPT = """
from numba.core import cpu, options

for kind in (options.DefaultOptions, *cpu.CPUTargetOptions.__mro__):
    if "_nrt" in vars(kind):
        del kind._nrt

import numpy as np

from clew.utils.kernels import kernel


@kernel
def add(values):
    total = 0.0
    for value in values:
        total += value
    return total


print(add(np.arange(4.0)))
"""


def test_option_that_is_not_public_may_go(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.stdout == "6.0\n", done.stderr
