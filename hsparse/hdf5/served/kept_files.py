"""What is known of files that were opened, in a directory of the machine: the next start does not parse them again.

An entry is of one file in one state. Several servers may share the directory. What is damaged, of another file or of
another version of hsparse is as nothing; so is a directory that cannot be read or written.
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

FORMAT = "3"
"""The form of what entries have: another number whenever other records are made of a file."""
SUFFIX = ".hsparse-file"
LARGEST = 64 * MIB
"""Bytes of the largest entry."""
DIGEST = sha256().digest_size
SETTLED = 2.0
"""Seconds after which a change of a file has another time for sure."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The entry of a file in a state."""

    files: KeptFiles
    identity: tuple[str, ...]

    def get(self) -> Any:
        """Return what was put, None if nothing was."""
        return self.files.get(self.identity)

    def put(self, content: Any) -> None:
        """Keep what is known of the file, if that can be."""
        self.files.put(self.identity, content)


class KeptFiles:
    """Entries in `directory`, up to `most` bytes; those that were not used for longest go first."""

    def __init__(self, directory: Path, clock: Clock, most: int = 1024 * MIB) -> None:
        self._directory = directory
        self._clock = clock
        self._most = most
        self._size: int | None = None
        """Bytes of all entries when they were last counted, and of those that were put since."""
        self._lock = Lock()

    def of(self, modified: float, *identity: str) -> KeptFile | None:
        """Return the entry of a file in a state, None if it was modified so lately that it may have another one now."""
        return None if modified > self._clock.now() - SETTLED else KeptFile(self, (str(modified), *identity))

    def get(self, identity: Sequence[str]) -> Any:
        """Return what was put for a file in a state, None if nothing was."""
        path, salt = self._place(identity)
        try:
            data = path.read_bytes() if path.stat().st_size <= LARGEST else b""
            found = data[DIGEST:]
            if not data or sha256(salt + found).digest() != data[:DIGEST]:
                return None
            with suppress(OSError):
                os.utime(path)
            return msgpack.unpackb(found, strict_map_key=False)
        except (OSError, ValueError, msgpack.UnpackException):
            return None

    def put(self, identity: Sequence[str], content: Any) -> None:
        """Keep what is known of a file in a state, if that can be."""
        path, salt = self._place(identity)
        try:
            found = msgpack.packb(content)
        except (TypeError, ValueError, OverflowError):
            return  # it has what msgpack does not
        if len(found) > min(LARGEST - DIGEST, self._most):
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
        """Return where the entry of a file is, and what the digest of its bytes begins with."""
        salt = "\0".join((__version__, FORMAT, *identity)).encode(errors="surrogateescape")
        return self._directory / f"{sha256(salt).hexdigest()}{SUFFIX}", salt

    def _grow(self, size: int) -> None:
        """Count bytes that were put; remove the entries that were not used for longest once there are too many."""
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
