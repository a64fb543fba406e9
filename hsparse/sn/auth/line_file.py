"""Text files with one entry on each line, such as the password file, that are read again after a change.

Empty lines, and lines that begin with `#`, are ignored, and kept when the file is edited. The text is UTF-8.

`TryLimit` limits the tries of each name within a period; successful tries do not count. `basic_credential` parses Basic
credentials (RFC 7617), for servers and for commands that they start as jobs.

This module imports no server packages, because commands use it where only the client is installed.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock, SystemClock
from hsparse.errors import BadRequest, Conflict, Misconfigured, Unauthenticated
from hsparse.sn.auth.file_in_place import is_bound, read_status, rewrite

log = logging.getLogger(__name__)

WARNING_SECONDS = 60.0
"""Seconds after which a warning is logged again if its cause persists."""
Signature: TypeAlias = tuple[int, int, int, int]
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class LineFormat(Generic[Entry]):
    """A kind of file: its name in messages (`noun`), how to create one (`remedy`), and the parser of a line (`read`).

    `read` returns an entry's unique name and the entry, or raises `BadRequest` with a message without secrets. If a
    `private` file is accessible to users other than its owner, a warning is logged.
    """

    noun: str
    remedy: str
    read: Callable[[str], tuple[str, Entry]]
    private: bool = True


class LineFile(Generic[Entry]):
    """The file of a `LineFormat` at `path`, and its current entries.

    If the file's link count is 0, the file was bind-mounted into a container and then replaced outside. The server does
    not see the new file, and logs a warning once a minute.
    """

    def __init__(self, path: Path, kind: LineFormat[Entry], clock: Clock | None = None) -> None:
        self.path = path
        self._kind = kind
        self._warnings = TryLimit(1, WARNING_SECONDS, 1, clock or SystemClock())
        self._signature: Signature | None = None
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._complaint = ""

    def served(self) -> Mapping[str, Entry]:
        """Return `entries()` for a request. An error is logged once; the raised `Misconfigured` hides its details."""
        try:
            return self.entries()
        except Misconfigured as error:
            if error.message != self._complaint:
                self._complaint = error.message
                log.error("%s", error.message)
            noun = self._kind.noun
            raise Misconfigured(f"The server's {noun} cannot be used; its log says why.") from error

    def entries(self) -> Mapping[str, Entry]:
        """Return a dict that maps each name to its entry; raise `Misconfigured` if the file is missing or invalid."""
        try:
            status = self.path.stat()
            if self._signature is None or _signature(status) != self._signature:
                self._load()
            # checked twice, because a rename may be under way
            if status.st_nlink == 0 and self.path.stat().st_nlink == 0:
                self._warn_of_replaced()
        except FileNotFoundError as error:
            raise Misconfigured(f"There is no {self._kind.noun} {self.path}; {self._kind.remedy}.") from error
        except OSError as error:
            raise Misconfigured(
                f"The {self._kind.noun} {self.path} cannot be read ({error.strerror}); "
                "make it readable by the user the server runs as."
            ) from error
        return self._entries

    def edit(self, change: Callable[[list[str]], None]) -> None:
        """Rewrite the file: `change` modifies the list of its lines. The file is created if it does not exist.

        Only one process can edit at a time. Raises `Conflict` while another edit is under way, and `Misconfigured` if
        the file is invalid or not writable.
        """
        path = self.path.resolve()
        fresh = path.with_name(path.name + ".new")

        def changed(data: bytes | None) -> bytes:
            lines = self._lines_of(data or b"")
            change(lines)
            return "".join(f"{line}\n" for line in lines).encode()

        try:
            rewrite(path, fresh, changed)
        except FileExistsError as error:
            raise Conflict(
                f"Another edit of {path} is under way; if there is none, remove {fresh} and try again."
            ) from error
        except OSError as error:
            raise Misconfigured(
                f"The {self._kind.noun} {path} cannot be written ({error.strerror}); run as its owner, "
                f"in a folder that owner may write to{_missing_folder(path)}."
            ) from error

    def _load(self) -> None:
        try:
            status, data = read_status(self.path)
        except BlockingIOError:
            if self._signature is None:
                raise
            return  # it is being written: the next request reads it
        if self._signature is None and is_bound(self.path):
            log.warning(
                "The %s %s is mounted as a single file: the server cannot see it being replaced. Mount its folder.",
                self._kind.noun,
                self.path,
            )
        self._entries = MappingProxyType(self._parse(data))
        self._signature = _signature(status)
        if self._kind.private and status.st_mode & 0o077:
            log.warning(
                "Users other than its owner can access the %s %s; chmod 600 it.", self._kind.noun, self.path
            )

    def _warn_of_replaced(self) -> None:
        if self._warnings.wait("replaced") == 0:
            self._warnings.count("replaced")
            log.warning(
                "The %s %s was replaced or deleted outside of this container, and this server still uses the old file: "
                "restart the server, and mount the folder of the file, not the file alone.",
                self._kind.noun,
                self.path,
            )

    def _parse(self, data: bytes) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for number, raw in enumerate(data.split(b"\n"), start=1):
            where = f"Line {number} of the {self._kind.noun} {self.path}"
            try:
                line = raw.removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise Misconfigured(f"{where} is not UTF-8; save the file as UTF-8.") from None
            if is_blank(line):
                continue
            try:
                name, entry = self._kind.read(line)
            except BadRequest as error:
                raise Misconfigured(f"{where}: {error.message}") from error
            if name in entries:
                raise Misconfigured(f"{where} names {name} a second time; remove one of the lines.")
            entries[name] = entry
        return entries

    def _lines_of(self, data: bytes) -> list[str]:
        """Check the file's data and return its lines."""
        self._parse(data)
        return (
            [line.removesuffix("\r") for line in data.decode().removesuffix("\n").split("\n")] if data else []
        )


def _missing_folder(path: Path) -> str:
    return "" if path.parent.is_dir() else f" (mkdir -p {path.parent})"


def is_blank(line: str) -> bool:
    """Return whether a line has no entry: the line is empty or a comment."""
    return not line.strip() or line.startswith("#")


def _signature(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class TryLimit:
    """A limit of `most` tries of each name within `seconds` of the first try; at most `names` names are remembered."""

    def __init__(self, most: int, seconds: float, names: int, clock: Clock) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._tries: BoundedCache[str, tuple[float, int]] = BoundedCache.of_entries(names)
        """The time of each name's first try, and the number of its tries."""

    def wait(self, name: str) -> float:
        """Return the seconds until `name` may try again, or 0 if `name` may try now."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        left = self._seconds - (now - start)
        return left if count >= self._most and left > 0 else 0.0

    def count(self, name: str) -> None:
        """Count a try of a name."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        if now - start >= self._seconds:
            start, count = now, 0
        self._tries.keep(name, (start, count + 1))

    def forgive(self, name: str) -> None:
        """Uncount one try of a name, because the try has succeeded."""
        start, count = self._tries.get(name, (0.0, 0))
        if count > 1:
            self._tries.keep(name, (start, count - 1))
        else:
            self._tries.forget(name)

    def forget(self, name: str) -> None:
        """Uncount all tries of a name."""
        self._tries.forget(name)


def basic_credential(text: str) -> tuple[str, str]:
    """Return a pair: the name and the password in a Basic credential. Raise `Unauthenticated` if it is malformed."""
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        # The cause would carry the credential.
        raise Unauthenticated("The Basic credential is not base64 of UTF-8 text (RFC 7617).") from None
    name, colon, password = decoded.partition(":")
    if not colon:
        raise Unauthenticated("The Basic credential has no colon between name and password (RFC 7617).")
    return name, password
