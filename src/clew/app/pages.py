"""The page's own files. They are listed once; a request can name one of the list, and never reaches the disk itself."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response

from clew.app.security import refusal

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
"""Those that some machines have wrong or not at all."""


@dataclass(frozen=True)
class Pages:
    """The files of a folder that may be seen, by their names with slashes."""

    files: dict[str, Path]

    @classmethod
    def of(cls, folder: Path = STATIC) -> Pages:
        """List a folder; what is hidden and links that lead out are left out."""
        root = folder.resolve()
        return cls(
            {
                path.relative_to(folder).as_posix(): path
                for path in sorted(folder.rglob("*"))
                if path.is_file()
                and path.resolve().is_relative_to(root)
                and not any(part.startswith(".") for part in path.relative_to(folder).parts)
            }
        )

    def serve(self, name: str) -> Response:
        """A file of the list; it is read anew each time, so that a changed page is seen on reloading."""
        path = self.files.get(name)
        if path is None:
            return refusal(404, "there is no such file")
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return Response(path.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
