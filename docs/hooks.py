"""Pages of the site that are files of the repository's root: their links into docs/ become links beside them."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROOT_FILES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page before it is rendered."""
    source = ROOT_FILES.get(page.file.src_uri)
    return (
        markdown
        if source is None
        else (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
    )
