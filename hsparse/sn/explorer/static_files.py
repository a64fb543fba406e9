"""The built files of the explorer, as the package has them: compressed, with names that change with their content."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from hsparse.errors import NotFound

PAGE = "index.html"
DOCS = "docs.html"
SIGN_IN = "sign-in.html"
NAMED = frozenset({PAGE, DOCS, SIGN_IN, "licences.txt", "sources.txt"})
"""Files whose names stay when their content changes; the digest of the sources is among them."""
SUFFIX = ".gz"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A built file: its media type, its bytes as gzip, and their etag."""

    media: str
    compressed: bytes
    etag: str

    def body(self) -> bytes:
        """Return the bytes of the file, for clients that do not accept gzip."""
        return gzip.decompress(self.compressed)


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files by name. The package has all of them; they are about a megabyte."""
    found = {}
    for entry in (files("hsparse.sn.explorer") / "static").iterdir():
        name = entry.name.removesuffix(SUFFIX)
        media = TYPES.get("." + name.rpartition(".")[2])
        if entry.name.endswith(SUFFIX) and media is not None:
            data = entry.read_bytes()
            found[name] = StaticFile(media, data, sha256(data).hexdigest()[:32])
    return found


def static_file(name: str) -> StaticFile:
    """Return a file; `NotFound` if the explorer has none of that name, as after an update of the server."""
    found = static_files().get(name)
    if found is None:
        raise NotFound(f"The explorer has no file {name[:80]!r}: load the page / again.")
    return found
