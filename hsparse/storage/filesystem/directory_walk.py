"""Walking the directories of a posix store in key order, and sweeping temporary files of killed processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

from hsparse.storage.filesystem.object_file import TEMPORARY, file_status
from hsparse.storage.object_store import RESERVED, is_key

STALE_NS = 3600 * 1_000_000_000
"""Age at which a temporary file is swept. A put takes seconds, and retries when its file was swept."""

Item: TypeAlias = tuple[str, os.stat_result | None]
"""A key and its file's status, or a common prefix and None."""


def walk(root: str, prefix: str, delimiter: bool, start_after: str) -> Iterator[Item]:
    """Yield the objects below the directory `root`, as `ObjectStore.list` orders and selects them.

    Only the names in the directories above the current key are in memory. Objects that appear or disappear
    during the walk may be missed; all others are yielded once.
    """
    base = prefix.rpartition("/")[0]
    if base and not is_key(base):
        return
    at = f"{base}/" if base else ""
    yield from _walk(root, at, prefix, delimiter, start_after)


def _walk(root: str, at: str, prefix: str, delimiter: bool, start_after: str) -> Iterator[Item]:
    for key in sorted(at + name for name in _names(f"{root}/{at}")):
        if not key.startswith(prefix):
            continue
        if not key.endswith("/"):
            if key > start_after and (status := file_status(f"{root}/{key}")) is not None:
                yield key, status
        elif delimiter:
            if key > start_after and _holds_object(f"{root}/{key}"):
                yield key, None
        elif key > start_after or start_after.startswith(key):
            yield from _walk(root, key, prefix, delimiter, start_after)


def _names(directory: str) -> Iterator[str]:
    """Yield the names in a directory that are parts of keys; those of directories end in `/`.

    With that `/`, names sort as the keys below them do: `a.b` before `a/b`.
    """
    try:
        scan = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    with scan:
        for entry in scan:
            if entry.name.startswith(TEMPORARY):
                _sweep_file(entry.path)
            elif entry.name.isprintable() and not entry.name.startswith(RESERVED):
                yield f"{entry.name}/" if entry.is_dir() else entry.name


def _holds_object(directory: str) -> bool:
    """Tell whether any object is below `directory`: one that a put has just created, or left, may be empty."""
    below = []
    for name in _names(directory):
        if not name.endswith("/"):
            return True
        below.append(name)
    return any(_holds_object(directory + name) for name in below)


def sweep(root: str) -> int:
    """Remove the stale temporary files everywhere below `root`; return how many."""
    swept = 0
    for directory, _, names in os.walk(root):
        swept += sum(_sweep_file(f"{directory}/{name}") for name in names if name.startswith(TEMPORARY))
    return swept


def _sweep_file(path: str) -> bool:
    status = file_status(path)
    if status is None or time.time_ns() - status.st_mtime_ns < STALE_NS:
        return False
    with suppress(FileNotFoundError):  # another sweeps too
        os.unlink(path)  # noqa: PTH108
    return True
