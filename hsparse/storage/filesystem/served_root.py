"""Who serves a root directory: a server that would not see what another one writes there is refused.

Each server has an entry, a file in `.hsparse/servers` that is locked as long as the server's process lives
(`hsparse.storage.filesystem.process_file`). Data nodes of one cluster share the directory. The entry holds JSON:
`command`, `pid`, `host` and `shared`, whether it is of a member of a cluster.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hsparse.errors import Misconfigured
from hsparse.storage.filesystem.object_file import DIRECTORY_MODE, unlink_if_exists, write_all
from hsparse.storage.filesystem.process_file import create_process_file, open_file_of_dead_process
from hsparse.storage.filesystem.root_directory import RootDirectory, unusable_directory


class ServedAlready(Misconfigured):
    """Another process serves the directory; `command`, `pid` and `host` are those of its entry."""

    def __init__(self, path: str, about: dict[str, Any]) -> None:
        self.pid = about.get("pid", "?")
        self.host = about.get("host", "an unknown host")
        self.command = about.get("command", "of another version")
        super().__init__(
            f"The directory {path!r} is served already, by process {self.pid} on {self.host} ({self.command}); stop "
            "that one or name another --root: only data nodes, `hsparse dn`, share a directory."
        )


@contextmanager
def serving_root(root: RootDirectory, command: str, *, shared: bool = False) -> Iterator[None]:
    """Serve a root directory, which is created if need be, while the context lasts; blocks.

    `ServedAlready` names the process that serves it already, unless both are `shared`.
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
    """Return a new entry of this process, open and locked, and its path."""
    folder = Path(root.internal, "servers")
    folder.mkdir(DIRECTORY_MODE, exist_ok=True)
    with root.exclusive("starting"):  # two servers that start at once see each other's entries
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
    """Remove the entry of a dead process; raise `Misconfigured` for a live one of another cluster."""
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
    """Return the content of an entry, nothing for one of an unknown form."""
    try:
        about = json.loads(data)
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}
