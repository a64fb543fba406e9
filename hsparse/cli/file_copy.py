"""A copy of a domain's file, to which references are to lead: whether it has the bytes that these are about.

Its size is compared, and some bytes of it all over: nearly any change of a file, also another layout, moves what is
behind it. Tests: tests/cli/test_domain_map.py.
"""

from __future__ import annotations

import http.client
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from hsparse.cli.terminal_text import terminal_text
from hsparse.client.files.domain_file import DomainFile
from hsparse.errors import Conflict

PIECES = 8
PIECE = 16 << 10
TIMEOUT = 30
"""Seconds without a byte."""


def check_copy(base: str, file: DomainFile, remedy: str) -> None:
    """Raise `Conflict`, with the remedy, if there is another file than this one at a path or a URL.

    Where nothing can be read, as yet or from here, that is said.
    """
    size, etag = file.state()
    step = max(1, (size - PIECE) // (PIECES - 1))
    for start in sorted({min(number * step, max(0, size - PIECE)) for number in range(PIECES)}):
        stop = min(start + PIECE, size)
        try:
            found, length = _read(base, start, stop)
        except (OSError, URLError, http.client.HTTPException, ValueError) as error:
            text = f"{base} is not checked: {error}. Every value is read wrongly there unless it is made so: {remedy}"
            print(terminal_text(text, sys.stderr), file=sys.stderr)
            return
        if length != size or found != file.read(start, stop, etag):
            raise Conflict(f"{base} is not the file of the map, which would lead to wrong values. {remedy}")


def _read(base: str, start: int, stop: int) -> tuple[bytes, int]:
    """Return the bytes from `start` to before `stop`, and the size of the whole."""
    parts = urlsplit(base)
    if parts.scheme in ("http", "https"):
        request = Request(base, headers={"Range": f"bytes={start}-{stop - 1}"})  # noqa: S310 - of HTTP alone
        with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status != 206 or not total.isdigit():
                raise ValueError("it is not sent in parts")
            return answer.read(), int(total)
    if parts.scheme not in ("", "file"):
        raise ValueError(f"hsparse does not read {parts.scheme}: URLs")
    with Path(unquote(parts.path) if parts.scheme else base).open("rb") as file:
        file.seek(start)
        return file.read(stop - start), file.seek(0, 2)
