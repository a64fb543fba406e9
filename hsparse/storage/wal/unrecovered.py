"""Reading write-ahead logs in a read-only store, which cannot recover logs or repair files.

The store takes no lock, so it cannot tell the logs of live and of dead processes apart. A live process applies
its records at once; a record that stays unapplied waits for a recovery.
"""

from __future__ import annotations

import time
from pathlib import Path

from hsparse.errors import Misconfigured
from hsparse.storage.filesystem.object_file import file_status, is_half_written
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import Entry, is_key
from hsparse.storage.wal.deletion_markers import DeletionMarkers
from hsparse.storage.wal.write_ahead_log import LogRecord, latest_record, logged_records

MAX_CHECKS = 20
CHECK_SECONDS = 0.1
"""Seconds between two checks of the logs; a live process applies its records faster than this."""


def check_recovered(root: RootDirectory) -> None:
    """Raise `Misconfigured` if the latest state of an object is only in a write-ahead log; blocks the thread."""
    waiting = _unapplied(root)
    for _ in range(MAX_CHECKS):
        if not waiting:
            return
        time.sleep(CHECK_SECONDS)
        waiting &= _unapplied(root)
    raise Misconfigured(
        f"The last server of {root.path!r} crashed: {len(waiting)} objects, such as {min(waiting)[0]!r}, are only in "
        "its write-ahead log. Start a server once without --read-only: it applies the log."
    )


def logged_state(root: RootDirectory, key: str) -> tuple[Entry, bytes] | None:
    """Return a half-written file's entry and bytes from its log record, or None if it is complete or not logged."""
    record = latest_record(root, key)
    status = file_status(f"{root.path}/{key}")
    if record is None or status is None or not is_half_written(status):
        return None
    size = len(record.data)
    etag = f"{record.date:x}-{size:x}-{status.st_ino:x}"
    return Entry(key, size, etag, record.date / 1e9), bytes(record.data)


def _unapplied(root: RootDirectory) -> set[tuple[str, int]]:
    """Return the pairs of key and date of logged puts that have not been applied to their files."""
    latest: dict[str, LogRecord] = {}
    for record in logged_records(root):
        if is_key(record.key) and record.date >= latest.get(record.key, record).date:
            latest[record.key] = record
    markers = DeletionMarkers(root)
    return {(key, one.date) for key, one in latest.items() if not _is_applied(root, one, markers)}


def _is_applied(root: RootDirectory, record: LogRecord, markers: DeletionMarkers) -> bool:
    path = Path(root.path, record.key)
    status = file_status(str(path))
    if status is None:
        return path.is_dir() or markers.cover(record.key, record.date)
    if is_half_written(status) or status.st_mtime_ns != record.date:
        return is_half_written(status) or status.st_mtime_ns > record.date
    try:
        return path.read_bytes() == record.data
    except FileNotFoundError:  # deleted meanwhile
        return True
