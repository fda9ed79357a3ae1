"""Print a BLAS kernel that this machine can run and does not use by itself, for OPENBLAS_CORETYPE.

Sums are taken in another order by each kernel; tests that pass with one only would fail on somebody's processor.
"""

import platform
import sys

import numpy as np  # noqa: F401  # loads the BLAS that is asked about
from threadpoolctl import threadpool_info

if platform.machine().lower() not in ("x86_64", "amd64"):
    sys.exit("no second kernel: OpenBLAS chooses among kernels on x86 only")
own = {
    library.get("architecture")
    for library in threadpool_info()
    if library["internal_api"] == "openblas"
}
if not own:
    sys.exit("no second kernel: NumPy does not use OpenBLAS here")
# Haswell needs AVX2, which SkylakeX and newer have; Zen runs Haswell's kernels under another name
print("Prescott" if own & {"Haswell", "Zen"} else "Haswell")
