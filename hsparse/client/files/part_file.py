"""A file on a disk that has another name until it is complete, with one writer at a time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from hsparse.errors import Conflict, HsparseError, StoreFailed

if sys.platform != "win32":
    import fcntl

STATE = r"\d+-[\w-]+-[0-9a-f]{32}"
"""The etag of a domain's file."""


class PartFile:
    """The incomplete file `target` in the state `mark`; `file` is open for reading and writing.

    Entering raises `Conflict` if there is another writer. Errors of the disk are `StoreFailed`.
    """

    def __init__(self, target: Path, mark: str) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.{mark}.part")
        self.file: BinaryIO

    def __enter__(self) -> Self:
        with self._store_errors():
            self.file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
            if not _locked(self.file) or not self._is_there():
                self.file.close()
                raise Conflict(
                    f"{self.path} is written by another export: wait for it, or choose another file."
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if isinstance(error, OSError) and not isinstance(error, HsparseError):
            raise self._failed(error) from error

    def finish(self, *, replace: bool) -> None:
        """Give the file its final name; without `replace`, `Conflict` if that exists by now."""
        with self._store_errors():
            os.fsync(self.file.fileno())
            if replace:
                self.path.replace(self.target)
                return
            try:
                self.target.hardlink_to(self.path)
            except FileExistsError as error:
                raise Conflict(f"{self.target} was made meanwhile; add --force to replace it.") from error
            self.path.unlink()

    def remove_others(self) -> None:
        """Remove the files of other states without a writer."""
        pattern = re.compile(rf"{re.escape(self.target.name)}\.{STATE}\.part")
        for other in self.target.absolute().parent.iterdir():
            if pattern.fullmatch(other.name) and other.name != self.path.name:
                with suppress(OSError), other.open("rb") as file:
                    if _locked(file):
                        other.unlink()

    def _is_there(self) -> bool:
        """Say whether the file still has its name: a former writer may have finished it."""
        try:
            return os.path.samestat(os.fstat(self.file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreFailed:
        return StoreFailed(f"{self.target} cannot be written: {error.strerror}.")


def _locked(file: BinaryIO) -> bool:
    """Lock a file until it is closed; return False if it is locked."""
    if sys.platform == "win32":  # without such locks, two writers are not detected
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
