"""On-disk cache of parsed files, so that a server does not parse the files again after a restart.

An entry holds the metadata of one file in one state. Several servers may share the directory. Entries that are damaged
or from another version of hsparse are ignored, and so are errors of reading or writing the directory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import msgpack

from hsparse import __version__
from hsparse.clock import Clock
from hsparse.setting import MIB

FORMAT = "5"
"""Version of the entries' content; increase it whenever the records that are built from a file change."""
SUFFIX = ".hsparse-file"
MAX_ENTRY_BYTES = 64 * MIB
"""Most bytes of one entry."""
DIGEST = sha256().digest_size
SETTLED_SECONDS = 2.0
"""Seconds after a file's change until any further change certainly gets another timestamp."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The cache entry of a file in one state."""

    files: KeptFiles
    identity: tuple[str, ...]

    def get(self) -> Any:
        """Return the content of the entry, or None if there is no valid entry."""
        return self.files.get(self.identity)

    def put(self, content: Any) -> None:
        """Write the content of the entry; do nothing if it cannot be written."""
        self.files.put(self.identity, content)


class KeptFiles:
    """Cache entries in `directory`; beyond `most` bytes in total, the least recently used entries are removed."""

    def __init__(self, directory: Path, clock: Clock, most: int = 1024 * MIB) -> None:
        self._directory = directory
        self._clock = clock
        self._most = most
        self._size: int | None = None
        """Bytes of all entries when last counted, plus the bytes put since, or None before the first count."""
        self._lock = Lock()

    def of(self, modified: float, *identity: str) -> KeptFile | None:
        """Return the entry of a file's state, or None if the file was modified less than `SETTLED_SECONDS` ago."""
        return (
            None
            if modified > self._clock.now() - SETTLED_SECONDS
            else KeptFile(self, (str(modified), *identity))
        )

    def get(self, identity: Sequence[str]) -> Any:
        """Return the cached content for a file's state, or None if there is no valid entry."""
        path, salt = self._place(identity)
        try:
            data = path.read_bytes() if path.stat().st_size <= MAX_ENTRY_BYTES else b""
            found = data[DIGEST:]
            if not data or sha256(salt + found).digest() != data[:DIGEST]:
                return None
            with suppress(OSError):
                os.utime(path)
            return msgpack.unpackb(found, strict_map_key=False)
        except (OSError, ValueError, msgpack.UnpackException):
            return None

    def put(self, identity: Sequence[str], content: Any) -> None:
        """Cache content for a file's state; do nothing if the content is too large or cannot be written."""
        path, salt = self._place(identity)
        try:
            found = msgpack.packb(content)
        except (TypeError, ValueError, OverflowError):
            return  # msgpack cannot represent it
        if len(found) > min(MAX_ENTRY_BYTES - DIGEST, self._most):
            return
        with suppress(OSError):
            self._directory.mkdir(0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(SUFFIX, ".new-", self._directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(sha256(salt + found).digest() + found)
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._grow(DIGEST + len(found))

    def _place(self, identity: Sequence[str]) -> tuple[Path, bytes]:
        """Return a pair: the path of a file's entry, and the salt that is hashed before the entry's bytes."""
        salt = "\0".join((__version__, FORMAT, *identity)).encode(errors="surrogateescape")
        return self._directory / f"{sha256(salt).hexdigest()}{SUFFIX}", salt

    def _grow(self, size: int) -> None:
        """Add the bytes of a new entry; beyond the limit, remove the oldest entries until 3/4 of the limit is used."""
        with self._lock:
            if self._size is not None and self._size + size <= self._most:
                self._size += size
                return
            entries = []
            for path in self._directory.glob(f"*{SUFFIX}"):
                with suppress(OSError):
                    status = path.stat()
                    entries.append((status.st_mtime, status.st_size, path))
            self._size = sum(size for _, size, _ in entries)
            if self._size <= self._most:
                return
            for _, size, path in sorted(entries):
                if self._size <= self._most * 3 // 4:
                    break
                with suppress(OSError):
                    path.unlink()
                    self._size -= size
