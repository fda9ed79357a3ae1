"""Refuse files over 1 MB in a commit: a repository never forgets them."""

import sys
from pathlib import Path

LIMIT = 2**20

large = [
    f"{name}: {Path(name).stat().st_size / LIMIT:.1f} MB"
    for name in sys.argv[1:]
    if Path(name).stat().st_size > LIMIT
]
if large:
    sys.exit("over 1 MB, expected smaller files: " + "; ".join(large))
