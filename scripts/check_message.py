"""Refuse a commit message without a body: the subject says what, the body says why."""

import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text(encoding="utf-8")
lines = [
    line
    for line in text.split("\n# ---", 1)[0].splitlines()
    if not line.startswith("#")
]
if lines and lines[0].startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
    sys.exit(0)
if len(lines) < 3 or lines[1].strip() or not any(line.strip() for line in lines[2:]):
    sys.exit("expected a subject, an empty line, and a body that says why")
