"""Deletes of a posix store: of one object, or of many objects that become durable together.

Under the lock of the key, the deletion marker is made durable before the file is removed. The removal is durable once
the file's directory has been synced or, if the directory was pruned, the nearest remaining directory above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from hsparse.errors import PreconditionFailed
from hsparse.storage.filesystem.object_file import (
    Condition,
    check_condition,
    file_etag,
    file_status,
    is_half_written,
    object_status,
    open_directory,
    unlink_if_exists,
)
from hsparse.storage.filesystem.root_directory import (
    RootDirectory,
    high_water_mark,
    raise_high_water_mark,
)
from hsparse.storage.object_store import Entry
from hsparse.storage.wal.deletion_markers import write_deletion_marker, write_deletion_markers
from hsparse.storage.wal.recovery import repairing
from hsparse.storage.wal.write_ahead_log import log_paths, started_durably

LOCKED_AT_ONCE = 128
"""Approximate number of files removed under one set of locks. Puts under the same locks wait about 10 ms."""


def delete_file(root: RootDirectory, key: str, condition: Condition = Condition.NONE, etag: str = "") -> None:
    """Delete an object durably, blocking the thread; raise `PreconditionFailed` when the condition does not hold."""
    repairing(root, key, lambda: _delete_once(root, key, condition, etag))


def _delete_once(root: RootDirectory, key: str, condition: Condition, etag: str) -> None:
    parent, _, name = key.rpartition("/")
    try:
        directory = open_directory(f"{root.path}/{parent}")
    except (FileNotFoundError, NotADirectoryError):
        with root.locked(key) as lock:
            write_deletion_marker(root, key, high_water_mark(lock, root.now_ns()))
        return
    try:
        with root.locked(key) as lock:
            current = object_status(directory, name)
            if current is not None:
                check_condition(condition, etag, key, current)
            # Even without a file, a log may have a record: its process may have been killed before it created the file.
            mark = high_water_mark(lock, root.now_ns())
            latest = max(current.st_mtime_ns if current else 0, mark)
            write_deletion_marker(root, key, latest)
            if current is None:
                return
            raise_high_water_mark(lock, latest)
            unlink_if_exists(name, directory)
        root.sync(directory)
    finally:
        os.close(directory)
    prune(root, {parent})


def delete_files(root: RootDirectory, entries: Sequence[Entry]) -> list[bool]:
    """Delete the files durably, as `ObjectStore.delete_all`; blocks the thread.

    On failure, the removals so far are also made durable, if the file system still allows it.
    """
    removal = _Removal(root, entries)
    try:
        for numbers in removal.batches():
            removal.remove(numbers)
    finally:
        for directory in prune(root, removal.directories):
            root.sync_directories(f"{directory}/" if directory else "")
    for i in removal.half_written:
        try:
            delete_file(root, entries[i].key, Condition.MATCH, entries[i].etag)
        except PreconditionFailed:
            continue
        removal.deleted[i] = True
    return removal.deleted


class _Removal:
    """The removal of the files of `entries`, and its progress.

    `directories` are the directories of the removed files, relative to the root. `half_written` are the indices of
    entries that were skipped, because a repair of their half-written files takes the locks that are held here.
    """

    def __init__(self, root: RootDirectory, entries: Sequence[Entry]) -> None:
        self._root = root
        self._entries = entries
        self._by_lock: dict[int, list[int]] = {}
        for i, entry in enumerate(entries):
            self._by_lock.setdefault(root.lock_number(entry.key), []).append(i)
        self._began: dict[str, int] = {}
        self._gone: set[int] = set()
        self.deleted = [False] * len(entries)
        self.directories: set[str] = set()
        self.half_written: list[int] = []

    def batches(self) -> Iterator[list[int]]:
        """Yield groups of lock numbers, in ascending order; the locks of a group are held at the same time."""
        batch: list[int] = []
        size = 0
        for number in sorted(self._by_lock):
            batch.append(number)
            size += len(self._by_lock[number])
            if size >= LOCKED_AT_ONCE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def remove(self, numbers: list[int]) -> None:
        """Remove the files of the entries under these locks that still have their listed etags."""
        markers: dict[str, int] = {}
        chosen: list[int] = []
        with ExitStack() as stack:
            # Ascending order, so that two processes cannot deadlock.
            locks = {number: stack.enter_context(self._root.locked_number(number)) for number in numbers}
            floor = self._log_floor()
            for number, lock in locks.items():
                dates = self._look(number, lock)
                chosen += dates
                if floor is not None:
                    markers |= {self._entries[i].key: date for i, date in dates.items() if date >= floor}
            if markers:
                write_deletion_markers(self._root, markers)
            for i in chosen:
                key = self._entries[i].key
                self.directories.add(key.rpartition("/")[0])
                if i not in self._gone:
                    unlink_if_exists(f"{self._root.path}/{key}")
                self.deleted[i] = True

    def _look(self, number: int, lock: int) -> dict[int, int]:
        """Return a dict that maps the index of each entry to delete under a lock to its records' latest time (ns).

        Entries whose file is gone are included. Raises the high-water mark to the times of the files.
        """
        top = highest = high_water_mark(lock, self._root.now_ns())
        dates: dict[int, int] = {}
        for i in self._by_lock[number]:
            status = file_status(f"{self._root.path}/{self._entries[i].key}")
            if status is None:
                # A log may have a record: its process may have been killed before it created the file.
                dates[i] = top
                self._gone.add(i)
            elif is_half_written(status):
                self.half_written.append(i)
            elif file_etag(status) == self._entries[i].etag:
                dates[i] = max(status.st_mtime_ns, top)
                highest = max(highest, status.st_mtime_ns)
        if highest > top:
            raise_high_water_mark(lock, highest)
        return dates

    def _log_floor(self) -> int | None:
        """Return the time before which no log has a record, or None if there is no log.

        Each log is read once: a later reset of the log only raises its start time.
        """
        for path in log_paths(self._root):
            if path not in self._began and (began := started_durably(path)) is not None:
                self._began[path] = began
        return min(self._began.values(), default=None)


def prune(root: RootDirectory, directories: set[str]) -> set[str]:
    """Remove empty directories and their empty parents; return the nearest remaining directory for each of them.

    A directory that a put has entered holds the put's temporary file and stays.
    """
    waiting, staying = set(directories), set[str]()
    while waiting:
        depth = max(directory.count("/") for directory in waiting)
        for directory in [one for one in waiting if one.count("/") == depth]:
            waiting.remove(directory)
            if directory and _removed(f"{root.path}/{directory}"):
                waiting.add(directory.rpartition("/")[0])
            else:
                staying.add(directory)
    return staying


def _removed(path: str) -> bool:
    """Try to remove a directory; return True if it is gone."""
    try:
        os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError:  # not empty; an empty directory that stays does no harm
        return False
    return True
