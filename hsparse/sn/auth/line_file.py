"""A text file with one entry on each line, such as the password file: read again after a change, replaced by an edit.

Empty lines, and lines that begin with `#`, are kept and ignored. The text is UTF-8.

A limit of tries in a time, for each name; what succeeded is forgiven.

Basic credentials (RFC 7617), as servers and the commands that they start as jobs read them.

A module of its own because commands use it where only the client is installed.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from hsparse.clock import Clock
from hsparse.errors import BadRequest, Conflict, Misconfigured, Unauthenticated

log = logging.getLogger(__name__)

Signature: TypeAlias = tuple[int, int, int, int]
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class LineFormat(Generic[Entry]):
    """A kind of file: its name in messages, the command that creates one, and the parser of a line.

    `read` returns an entry and its unique name; `BadRequest` names the error, without secrets. If a `private` file is
    readable by others than its owner, a warning is logged.
    """

    noun: str
    remedy: str
    read: Callable[[str], tuple[str, Entry]]
    private: bool = True


class LineFile(Generic[Entry]):
    """Such a file at `path`, and its current entries."""

    def __init__(self, path: Path, kind: LineFormat[Entry]) -> None:
        self.path = path
        self._kind = kind
        self._signature: Signature | None = None
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._complaint = ""

    def served(self) -> Mapping[str, Entry]:
        """Return all entries as `entries` does, for a request.

        An error in the file is logged once, for the operator, and not sent to clients.
        """
        try:
            return self.entries()
        except Misconfigured as error:
            if error.message != self._complaint:
                self._complaint = error.message
                log.error("%s", error.message)
            noun = self._kind.noun
            raise Misconfigured(f"The server's {noun} cannot be used; its log says why.") from error

    def entries(self) -> Mapping[str, Entry]:
        """Return all entries of the current file, by name; this costs one `stat` if it has not changed.

        `Misconfigured` if the file does not exist or cannot be read, and for the first wrong line.
        """
        noun = self._kind.noun
        try:
            if self._signature is None or _signature(self.path.stat()) != self._signature:
                self._load()
        except FileNotFoundError as error:
            raise Misconfigured(f"There is no {noun} {self.path}; {self._kind.remedy}.") from error
        except OSError as error:
            raise Misconfigured(
                f"The {noun} {self.path} cannot be read ({error.strerror}); "
                "make it readable by the user the server runs as."
            ) from error
        return self._entries

    def edit(self, change: Callable[[list[str]], None]) -> None:
        """Replace the file, atomically, by one with `change` applied to its lines. Create it if it does not exist.

        The new file is also the lock: only the process that created it edits. `Conflict` while another edit is under
        way, `Misconfigured` if the file is wrong or not writable.
        """
        path = self.path.resolve()
        fresh = path.with_name(path.name + ".new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise Conflict(
                f"Another edit of {path} is under way; if there is none, remove {fresh} and try again."
            ) from error
        except OSError as error:
            raise self._unwritable(path, error) from error
        try:
            with os.fdopen(descriptor, "wb") as file:
                lines = self._lines_of(path, file.fileno())
                change(lines)
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException as error:
            fresh.unlink()
            if isinstance(error, OSError):
                raise self._unwritable(path, error) from error
            raise
        try:
            _sync_folder(path.parent)
        except OSError as error:
            raise self._unwritable(path, error) from error

    def _load(self) -> None:
        with self.path.open("rb") as file:
            # Taken before reading: a later change has another signature.
            status = os.fstat(file.fileno())
            data = file.read()
        self._entries = MappingProxyType(self._parse(data))
        self._signature = _signature(status)
        if self._kind.private and status.st_mode & 0o077:
            log.warning(
                "The %s %s is open to others than its owner; chmod 600 it.", self._kind.noun, self.path
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

    def _lines_of(self, path: Path, successor: int) -> list[str]:
        """Return the checked lines of the file; give the open file `successor` its owner."""
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read()
        except FileNotFoundError:
            return []
        self._parse(data)
        # An edit by root must not lock out the user the server runs as.
        mine = os.fstat(successor)
        if (status.st_uid, status.st_gid) != (mine.st_uid, mine.st_gid):
            os.fchown(successor, status.st_uid, status.st_gid)
        return (
            [line.removesuffix("\r") for line in data.decode().removesuffix("\n").split("\n")] if data else []
        )

    def _unwritable(self, path: Path, error: OSError) -> Misconfigured:
        return Misconfigured(
            f"The {self._kind.noun} {path} cannot be written ({error.strerror}); run as its owner, "
            "in a folder that owner may write to."
        )


def is_blank(line: str) -> bool:
    """Say whether a line has no entry."""
    return not line.strip() or line.startswith("#")


def _signature(status: os.stat_result) -> Signature:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class TryLimit:
    """At most `most` tries of a name within `seconds` of its first one, for at most `names` names."""

    def __init__(self, most: int, seconds: float, names: int, clock: Clock) -> None:
        self._most = most
        self._seconds = seconds
        self._names = names
        self._clock = clock
        self._tries: OrderedDict[str, tuple[float, int]] = OrderedDict()  # name -> start, count; oldest first

    def wait(self, name: str) -> float:
        """Return the seconds until `name` may try again, 0 for at once."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        left = self._seconds - (now - start)
        return left if count >= self._most and left > 0 else 0.0

    def count(self, name: str) -> None:
        """Count a try."""
        now = self._clock.monotonic()
        start, count = self._tries.get(name, (now, 0))
        if now - start >= self._seconds:
            del self._tries[name]
            start, count = now, 0
        self._tries[name] = (start, count + 1)
        while len(self._tries) > self._names:
            self._tries.popitem(last=False)

    def forgive(self, name: str) -> None:
        """Take one try back, which has succeeded."""
        start, count = self._tries.get(name, (0.0, 0))
        if count > 1:
            self._tries[name] = (start, count - 1)
        else:
            self._tries.pop(name, None)

    def forget(self, name: str) -> None:
        """Take all tries of a name back."""
        self._tries.pop(name, None)


def basic_credential(text: str) -> tuple[str, str]:
    """Return the name and password of a Basic credential; `Unauthenticated` when it is none."""
    try:
        decoded = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        # The cause would carry the credential.
        raise Unauthenticated("The Basic credential is not base64 of UTF-8 text (RFC 7617).") from None
    name, colon, password = decoded.partition(":")
    if not colon:
        raise Unauthenticated("The Basic credential has no colon between name and password (RFC 7617).")
    return name, password
