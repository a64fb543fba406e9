"""Entries that record the servers of a root directory: a second server is refused unless both are data nodes.

A second server would not see the writes of the first. Only data nodes of one cluster may share a directory. Each server
has an entry, a file in `.hsparse/servers` that stays locked while the server's process lives. The entry is JSON:
`command`, `pid`, `host` and `shared` (whether the server is a member of a cluster).

The lock is a `flock` of the open file: programs that the process starts do not inherit it, and it ends with the
process, however the process ends. Write-ahead logs use the same lock. All functions block.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from hsparse.errors import Misconfigured
from hsparse.storage.filesystem.object_file import DIRECTORY_MODE, FILE_MODE, unlink_if_exists, write_all
from hsparse.storage.filesystem.root_directory import RootDirectory, unusable_directory


def create_process_file(folder: str) -> tuple[int, str]:
    """Create an empty file that this process keeps locked in `folder`; return a pair: its descriptor and its path.

    Closing the descriptor ends the lock.
    """
    while True:
        path = f"{folder}/{token_hex(8)}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, path
        except OSError:
            os.close(file)  # the next check removes the file as that of a dead process
            raise
        os.close(file)  # another process removed the file as a dead process's before it was locked


def open_file_of_dead_process(path: str) -> int | None:
    """Open and lock the file of a dead process; return None if its process lives, or if the file is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


class ServedAlready(Misconfigured):
    """Another process serves the directory; `command`, `pid` and `host` come from its entry."""

    def __init__(self, path: str, about: dict[str, Any]) -> None:
        self.pid = about.get("pid", "?")
        self.host = about.get("host", "an unknown host")
        self.command = about.get("command", "of another version")
        super().__init__(
            f"The directory {path!r} is served already, by process {self.pid} on {self.host} ({self.command}); stop "
            "that process or name another --root: only data nodes, `hsparse dn`, share a directory."
        )


@contextmanager
def serving_root(root: RootDirectory, command: str, *, shared: bool = False) -> Iterator[None]:
    """Hold an entry of this process in a root directory during the context; create the root if needed; blocks.

    Raises `ServedAlready` if another process serves the root, unless both are `shared`.
    """
    try:
        root.make()
        file, path = _enter(root, command, shared)
    except OSError as error:
        raise unusable_directory(root.path, error) from error
    try:
        yield
    finally:
        unlink_if_exists(path)
        os.close(file)


def _enter(root: RootDirectory, command: str, shared: bool) -> tuple[int, str]:
    """Create an entry of this process; return a pair: its open and locked descriptor, and its path."""
    folder = Path(root.internal, "servers")
    folder.mkdir(DIRECTORY_MODE, exist_ok=True)
    with root.exclusive("starting"):  # so that of two servers that start at once, the second sees the first
        for path in sorted(folder.iterdir()):
            _check_entry(root, path, shared)
        file, entry = create_process_file(str(folder))
        about = {"command": command, "pid": os.getpid(), "host": socket.gethostname(), "shared": shared}
        try:
            write_all(file, json.dumps(about).encode())
        except OSError:
            unlink_if_exists(entry)
            os.close(file)
            raise
    return file, entry


def _check_entry(root: RootDirectory, path: Path, shared: bool) -> None:
    """Remove a dead process's entry; raise `ServedAlready` for a live process, unless both processes are shared."""
    if (dead := open_file_of_dead_process(str(path))) is not None:
        unlink_if_exists(str(path))
        os.close(dead)
        return
    try:
        about = _parse(path.read_bytes())
    except FileNotFoundError:
        return  # that server has stopped
    if shared and about.get("shared"):
        return
    raise ServedAlready(root.path, about)


def _parse(data: bytes) -> dict[str, Any]:
    """Return the content of an entry, or an empty dict if the entry is not a JSON object."""
    try:
        about = json.loads(data)
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}
