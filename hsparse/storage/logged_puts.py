"""Puts of small objects through a log: many made durable by one sync, their files written after it.

A file that is there and has room is written in place; else a temporary file is made before the log is written
and renamed after. Neither is synced until the log is emptied: what a crash takes of them, a recovery finds in the log.

While a file is written in place it carries the sticky bit. Whoever meets the bit waits for the key's lock, which
its writer holds; where the bit is still there then, the writer has died, and its log has the bytes.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress

from hsparse.errors import HsparseError
from hsparse.storage.deletions import forget_deletions
from hsparse.storage.posix_failure import failure
from hsparse.storage.posix_file import (
    HalfWritten,
    is_half_written,
    new_temporary,
    unlink,
    write_all,
)
from hsparse.storage.posix_put import put_by_rename
from hsparse.storage.posix_root import PosixRoot, in_the_way, passed
from hsparse.storage.prepared_put import PreparedPut, Put, Unlogged, open_object
from hsparse.storage.put_condition import check_condition
from hsparse.storage.put_log import PutLog

logger = logging.getLogger(__name__)

BLOCK = 512
"""What `st_blocks` counts in."""
ODD_NS = 1_234_567_891_234_567_891


class LoggedPuts:
    """Puts through logs of this process. All methods block; one thread calls them."""

    def __init__(self, root: PosixRoot, name: str) -> None:
        self._root = root
        self._name = name
        self._log: PutLog | None = None
        self._keys: set[str] = set()
        self._locks: dict[int, int] = {}
        self._emptier = ThreadPoolExecutor(1, thread_name_prefix="put-log")
        self._emptying: Future[PutLog | None] | None = None
        self._can_log = _keeps_times(root)

    @property
    def idle(self) -> bool:
        """Whether no put is in the log."""
        return not self._keys

    def put(self, puts: Sequence[Put]) -> list[str | HsparseError]:
        """Put objects, in this order where keys repeat; return for each its new etag or its error."""
        self._log = self._log or self._new_log()
        results: dict[int, str | HsparseError] = {}
        waiting = dict(enumerate(puts))
        while waiting:
            first = {put.key: number for number, put in reversed(waiting.items())}
            now = {number: waiting.pop(number) for number in sorted(first.values())}
            results |= self._put_distinct(now)
        return [results[number] for number in range(len(puts))]

    def empty(self) -> None:
        """Begin to sync the files of the log so that it can be emptied; puts go on in another log."""
        if (old := self._log) is None:
            return
        keys, self._keys = self._keys, set()
        self._log = self._emptied() or self._new_log()
        self._emptying = self._emptier.submit(self._empty, old, keys)

    def close(self) -> None:
        """Sync all files and remove the logs."""
        self.empty()
        for log in (self._emptied(), self._log):
            if log is not None:
                log.remove()
        self._emptier.shutdown()
        for lock in self._locks.values():
            os.close(lock)

    def _new_log(self) -> PutLog | None:
        """Return a new log; None where there can be none, for then puts go by renames."""
        if not self._can_log:
            return None
        try:
            return PutLog(self._root)
        except OSError:
            logger.exception("No log of puts can be made in %s.", self._root.own)
            return None

    def _put_distinct(self, puts: dict[int, Put]) -> dict[int, str | HsparseError]:
        results: dict[int, str | HsparseError] = {}
        prepared: dict[int, PreparedPut] = {}
        others: list[int] = []
        with ExitStack() as stack:
            self._lock({self._root.lock_number(put.key) for put in puts.values()}, stack)
            for number, put in puts.items():
                try:
                    prepared[number] = self._prepare(put, stack)
                except HsparseError as error:
                    results[number] = error
                except (Unlogged, HalfWritten, OSError):
                    others.append(number)  # which tells what is wrong, if anything still is
            results |= self._commit(prepared)
        for number in others:
            results[number] = self._put_by_rename(puts[number])
        return results

    def _lock(self, numbers: set[int], stack: ExitStack) -> None:
        """Take locks until the stack is left; in order, so that no two processes wait for each other."""
        for number in sorted(numbers):
            if number not in self._locks:
                self._locks[number] = self._root.open_lock(number)
            fcntl.flock(self._locks[number], fcntl.LOCK_EX)
            stack.callback(fcntl.flock, self._locks[number], fcntl.LOCK_UN)

    def _prepare(self, put: Put, stack: ExitStack) -> PreparedPut:
        if self._log is None:
            raise Unlogged
        path = f"{self._root.path}/{put.key}"
        file = open_object(path)
        if file is None:
            check_condition(put.condition, put.etag, put.key, None)
            floor = max(passed(self._lock_of(put.key)), self._log.started - 1)
            return self._prepare_temporary(put, path, floor, stack)
        stack.callback(os.close, file)
        status = os.fstat(file)
        if is_half_written(status):
            raise HalfWritten
        check_condition(put.condition, put.etag, put.key, status)
        if status.st_nlink != 1 or status.st_uid != os.geteuid():
            raise Unlogged  # a rename leaves the other name its object, and needs no right to the file
        floor = max(status.st_mtime_ns, self._log.started - 1)
        if len(put.data) > status.st_blocks * BLOCK:
            return self._prepare_temporary(put, path, floor, stack)
        return PreparedPut(put, path, file, self._date(floor), None)

    def _prepare_temporary(self, put: Put, path: str, floor: int, stack: ExitStack) -> PreparedPut:
        directory = path.rpartition("/")[0]
        try:
            file, temporary = new_temporary(directory)
        except FileNotFoundError:
            self._root.make_directories(put.key, durable=False)
            file, temporary = new_temporary(directory)
        stack.callback(os.close, file)
        prepared = PreparedPut(put, path, file, self._date(floor), temporary)
        try:
            write_all(file, put.data)
            os.utime(file, ns=(prepared.date, prepared.date))
        except OSError:
            prepared.abandon()
            raise
        return prepared

    def _commit(self, prepared: dict[int, PreparedPut]) -> dict[int, str | HsparseError]:
        """Log what is prepared, then bring the files to it."""
        if not prepared or self._log is None:
            return {}
        try:
            self._log.append([one.record for one in prepared.values()])
        except OSError as error:
            for one in prepared.values():
                one.abandon()
            self.empty()  # what of these records has reached the disk is not known: none may follow them
            return {number: failure(error, one.put.key, self._name) for number, one in prepared.items()}
        results: dict[int, str | HsparseError] = {}
        for number, one in prepared.items():
            self._keys.add(one.put.key)
            try:
                results[number] = one.apply()
            except IsADirectoryError:
                one.abandon()
                results[number] = in_the_way(one.put.key)
            except OSError as error:
                results[number] = failure(error, one.put.key, self._name)
        if self._log.full:
            self.empty()
        return results

    def _put_by_rename(self, put: Put) -> str | HsparseError:
        try:
            return put_by_rename(self._root, put.key, put.data, put.condition, put.etag)
        except HsparseError as error:
            return error
        except OSError as error:
            return failure(error, put.key, self._name)

    def _lock_of(self, key: str) -> int:
        return self._locks[self._root.lock_number(key)]

    def _date(self, floor: int) -> int:
        """Return a modification time after `floor`."""
        return max(self._root.now_ns(), floor + 1)

    def _emptied(self) -> PutLog | None:
        """Wait for the log that is being emptied, if one is; None too where that failed."""
        emptying, self._emptying = self._emptying, None
        return emptying.result() if emptying is not None else None

    def _empty(self, full: PutLog, keys: set[str]) -> PutLog | None:
        """Sync the files of these keys, then empty the log; in a thread."""
        try:
            for key in keys:
                _sync_file(self._root, key)
            for directory in {key.rpartition("/")[0] for key in keys}:
                with suppress(FileNotFoundError):  # pruned: nothing in it was left
                    self._root.make_directories(f"{directory}/")
                    self._root.sync_directory(f"{self._root.path}/{directory}")
            full.empty()
            forget_deletions(self._root)
        except (OSError, HsparseError):
            # What it holds is safe there until the next start puts it again.
            logger.exception("The log %s cannot be emptied.", full.path)
            return None
        return full


def _sync_file(root: PosixRoot, key: str) -> None:
    try:
        file = os.open(f"{root.path}/{key}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return  # deleted since
    try:
        root.sync(file)
    finally:
        os.close(file)


def _keeps_times(root: PosixRoot) -> bool:
    """Tell whether the file system keeps modification times to the nanosecond."""
    file, path = new_temporary(root.own)
    try:
        os.utime(file, ns=(ODD_NS, ODD_NS))
        return os.fstat(file).st_mtime_ns == ODD_NS
    finally:
        os.close(file)
        unlink(path)
