"""Puts of small objects through a write-ahead log: one fdatasync makes a batch durable, then the files are written.

An existing file whose blocks suffice is written in place. Otherwise a temporary file is written before the log append
and renamed after it. The files are not synced before the checkpoint: if a crash loses them, a recovery restores them
from the log.

A file has the sticky bit while it is written in place. A process that finds the bit waits for the key's lock,
which the writer holds. If the bit is still set then, the writer has died or its disk has failed; the latest
record of the key in any log has the bytes.

The date of a record becomes the high-water mark of its lock before the record is logged. Later puts and deletes of
the key therefore have later dates, even if the record's file is never written.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from hsparse.errors import HsparseError, StoreFailed
from hsparse.storage.filesystem.object_file import (
    HalfWritten,
    check_condition,
    is_half_written,
    new_temporary,
    open_file,
    translate_os_error,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import (
    RootDirectory,
    directory_conflict,
    high_water_mark,
    raise_high_water_mark,
)
from hsparse.storage.wal.deletion_markers import remove_old_deletion_markers, write_deletion_marker
from hsparse.storage.wal.recovery import repair, repairing
from hsparse.storage.wal.write_ahead_log import (
    NotLoggable,
    PreparedPut,
    Put,
    WriteAheadLog,
    open_for_writing,
)

logger = logging.getLogger(__name__)

BLOCK_BYTES = 512
"""The unit of `st_blocks`, in bytes."""
ODD_NS = 1_234_567_891_234_567_891


class WalWriter:
    """Writer of puts through write-ahead logs of this process. All methods block; only one thread may call them."""

    def __init__(self, root: RootDirectory, name: str) -> None:
        self._root = root
        self._name = name
        self._log: WriteAheadLog | None = None
        self._keys: set[str] = set()
        self._locks: dict[int, int] = {}
        self._checkpointer = ThreadPoolExecutor(1, thread_name_prefix="wal-checkpoint")
        self._checkpointing: Future[WriteAheadLog | None] | None = None
        self._supports_logging: bool | None = None
        self._tail_unknown = False
        """Whether an append has failed. Some of its records may be stored, so nothing may be appended after them."""

    @property
    def idle(self) -> bool:
        """Whether the log is empty."""
        return not self._keys

    def put(self, puts: Sequence[Put]) -> list[str | HsparseError]:
        """Carry out puts, keeping the order of puts of one key; return each put's new etag or error, in order."""
        self._log = self._log or self._new_log()
        results: dict[int, str | HsparseError] = {}
        waiting = dict(enumerate(puts))
        while waiting:
            first = {put.key: number for number, put in reversed(waiting.items())}
            now = {number: waiting.pop(number) for number in sorted(first.values())}
            results |= self._put_distinct(now)
        return [results[number] for number in range(len(puts))]

    def checkpoint(self) -> None:
        """Start a checkpoint: a thread syncs the logged files, then resets the log; puts continue in another log."""
        if (old := self._log) is None:
            return
        self._log = self._checkpointed() or self._new_log()
        keys, self._keys, self._tail_unknown = self._keys, set(), False
        self._checkpointing = self._checkpointer.submit(self._sync_and_reset, old, keys)

    def close(self) -> None:
        """Sync all files, then remove the logs."""
        self.checkpoint()
        for log in (self._checkpointed(), self._log):
            if log is not None:
                log.remove()
        self._checkpointer.shutdown()
        for lock in self._locks.values():
            os.close(lock)

    def _new_log(self) -> WriteAheadLog | None:
        """Return a new log, or None if no log can be created; puts then use renames."""
        try:
            if self._supports_logging is None:
                self._supports_logging = _keeps_times(self._root)
            return WriteAheadLog(self._root) if self._supports_logging else None
        except OSError:
            logger.exception("No write-ahead log can be created in %s.", self._root.internal)
            return None

    def _put_distinct(self, puts: dict[int, Put]) -> dict[int, str | HsparseError]:
        results: dict[int, str | HsparseError] = {}
        prepared: dict[int, PreparedPut] = {}
        with ExitStack() as stack:
            for number, put in self._locked(puts, stack).items():
                try:
                    prepared[number] = self._prepare(put, stack)
                except HsparseError as error:
                    results[number] = error
                except (NotLoggable, HalfWritten, OSError):
                    continue
                except Exception:  # must fail this put only: other puts share the batch
                    logger.exception("The put of %r cannot be logged.", put.key)
            results |= self._commit(prepared)
        if self._log is not None and (self._tail_unknown or self._log.full):
            self.checkpoint()  # blocks, so not under a lock
        for number in puts.keys() - results.keys():  # a remaining error is reported by the rename
            results[number] = self._put_by_rename(puts[number])
        return results

    def _locked(self, puts: dict[int, Put], stack: ExitStack) -> dict[int, Put]:
        """Take the locks of these puts until the stack is closed; return the puts, or {} if a lock fails.

        The locks are taken in ascending order, so that two processes cannot deadlock.
        """
        try:
            for number in sorted({self._root.lock_number(put.key) for put in puts.values()}):
                if number not in self._locks:
                    self._locks[number] = self._root.open_lock(number)
                fcntl.flock(self._locks[number], fcntl.LOCK_EX)
                stack.callback(fcntl.flock, self._locks[number], fcntl.LOCK_UN)
        except OSError:
            return {}
        return puts

    def _prepare(self, put: Put, stack: ExitStack) -> PreparedPut:
        if self._log is None:
            raise NotLoggable
        path = f"{self._root.path}/{put.key}"
        file = open_for_writing(path)
        if file is None:
            check_condition(put.condition, put.etag, put.key, None)
            return self._prepare_temporary(put, path, self._date(put, self._log.started), stack)
        stack.callback(os.close, file)
        status = os.fstat(file)
        if is_half_written(status):
            raise HalfWritten
        check_condition(put.condition, put.etag, put.key, status)
        if status.st_nlink != 1 or status.st_uid != os.geteuid():
            raise NotLoggable  # a rename leaves the other hard link alone and needs no right to the file
        date = self._date(put, max(status.st_mtime_ns + 1, self._log.started))
        if len(put.data) > status.st_blocks * BLOCK_BYTES:
            return self._prepare_temporary(put, path, date, stack)
        return PreparedPut(put, path, file, date, None)

    def _prepare_temporary(self, put: Put, path: str, date: int, stack: ExitStack) -> PreparedPut:
        directory = path.rpartition("/")[0]
        try:
            file, temporary = new_temporary(directory)
        except FileNotFoundError:
            self._root.make_directories(put.key, durable=False)
            file, temporary = new_temporary(directory)
        stack.callback(os.close, file)
        prepared = PreparedPut(put, path, file, date, temporary)
        try:
            write_all(file, put.data)
            os.utime(file, ns=(date, date))
        except BaseException:
            prepared.abandon()
            raise
        return prepared

    def _commit(self, prepared: dict[int, PreparedPut]) -> dict[int, str | HsparseError]:
        """Append the prepared puts to the log, then to the files; return a dict of put numbers to etags or errors."""
        if not prepared or self._log is None:
            return {}
        try:
            self._log.append([one.record for one in prepared.values()])
        except Exception as error:  # noqa: BLE001 - must fail these puts only
            for one in prepared.values():
                one.abandon()
            self._tail_unknown = True
            return {number: self._failure(error, one.put.key) for number, one in prepared.items()}
        results: dict[int, str | HsparseError] = {}
        for number, one in prepared.items():
            self._keys.add(one.put.key)
            try:
                results[number] = one.apply()
            except Exception as error:  # noqa: BLE001
                results[number] = self._fail(one, error)
        return results

    def _fail(self, one: PreparedPut, error: Exception) -> HsparseError:
        """Return the error of a logged put that could not be applied."""
        one.abandon()
        if not isinstance(error, IsADirectoryError):
            return self._failure(error, one.put.key)
        try:
            write_deletion_marker(self._root, one.put.key, one.date)  # a recovery must not apply it either
        except OSError as other:
            return translate_os_error(other, one.put.key, self._name)
        return directory_conflict(one.put.key)

    def _failure(self, error: Exception, key: str) -> HsparseError:
        """Translate the exception of a put, so that it does not end the process and fail other puts."""
        if isinstance(error, HsparseError):
            return error
        if isinstance(error, OSError):
            return translate_os_error(error, key, self._name)
        logger.error("The put of %r has failed.", key, exc_info=error)
        return StoreFailed(
            f"The store {self._name!r} failed on {key!r} ({error!r:.200}); see the server's log."
        )

    def _put_by_rename(self, put: Put) -> str | HsparseError:
        try:
            return repairing(
                self._root,
                put.key,
                lambda: put_by_rename(self._root, put.key, put.data, put.condition, put.etag),
            )
        except Exception as error:  # noqa: BLE001
            return self._failure(error, put.key)

    def _date(self, put: Put, floor: int) -> int:
        """Return a time of at least `floor` for a put's record, and raise the high-water mark to this time.

        Later puts and deletions of the key then have a later time, even if the record is never applied.
        """
        lock = self._locks[self._root.lock_number(put.key)]
        now = self._root.now_ns()
        date = max(now, floor, high_water_mark(lock, now) + 1)
        raise_high_water_mark(lock, date)
        return date

    def _checkpointed(self) -> WriteAheadLog | None:
        """Wait for the running checkpoint and return its log, or None if no checkpoint runs or it failed."""
        running, self._checkpointing = self._checkpointing, None
        return running.result() if running is not None else None

    def _sync_and_reset(self, full: WriteAheadLog, keys: set[str]) -> WriteAheadLog | None:
        """Sync the files of these keys and reset the log; return the log, or None on failure. Runs in a thread."""
        try:
            for key in keys:
                _sync_file(self._root, key)
            self._root.sync_all_directories(key.rpartition("/")[0] for key in keys)
            full.reset()
            remove_old_deletion_markers(self._root)
        except Exception:
            # The log's records stay safe until a recovery applies them, at the next start of any process. The error,
            # such as a lack of memory, must not reach the puts that wait for the log, because they are durable.
            logger.exception("The write-ahead log %s cannot be checkpointed.", full.path)
            full.release()
            return None
        return full


def _sync_file(root: RootDirectory, key: str) -> None:
    try:
        file = open_file(f"{root.path}/{key}")
    except (FileNotFoundError, NotADirectoryError):
        return  # deleted since
    try:
        if is_half_written(os.fstat(file)):
            repair(root, key)  # a failed put left it half written, and the log still has the record
        root.sync(file)
    finally:
        os.close(file)


def _keeps_times(root: RootDirectory) -> bool:
    """Tell whether the file system stores modification times to the nanosecond."""
    file, path = new_temporary(root.internal)
    try:
        os.utime(file, ns=(ODD_NS, ODD_NS))
        return os.fstat(file).st_mtime_ns == ODD_NS
    finally:
        os.close(file)
        unlink_if_exists(path)
