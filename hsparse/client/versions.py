"""Snapshots, changes and clones of a domain: the base class of `File` that has their methods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING, Self

from hsparse.client.connection import Connection, Json
from hsparse.client.errors import InvalidValue
from hsparse.clock import SystemClock

LONGEST_WAIT = 20.0
"""The longest wait of a request, in seconds; a connection that is silent for longer counts as broken."""
SNAPSHOT = re.compile(r"(.+)@[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A domain's state at a `time` (UTC); `author` is the user who took the snapshot.

    >>> snapshot = f.snapshot("before the filter")
    >>> snapshot.number, snapshot.author, snapshot.message
    (1, 'admin', 'before the filter')
    """

    number: int
    time: datetime
    author: str
    message: str

    @classmethod
    def _of(cls, record: Json) -> Self:
        time = datetime.fromtimestamp(record["time"], UTC)
        return cls(record["snapshot"], time, record["author"], record["message"])


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that differs between two states of a domain: it was created, changed or deleted.

    `kind` is "group", "dataset" or "datatype"; `path` is None for an unlinked object. For a dataset, `chunks` is the
    number of differing chunks and `elements` the number of elements in them, if the server knows it.

    >>> number = f.snapshot().number
    >>> X[0, 1] = 9
    >>> f.diff(number)[0].chunks
    1
    """

    kind: str
    path: str | None
    change: str
    id: str
    chunks: int = 0
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An object, or a chunk with its scaled coordinates, that was created, changed or deleted between two snapshots.

    `until` is the number of the later snapshot.

    >>> number = f.snapshot().number
    >>> X[3, 0] = 9
    >>> _ = f.snapshot()
    >>> [change.chunk for change in f.changes(since=number)]
    [(1, 0)]
    """

    id: str
    chunk: tuple[int, ...] | None
    change: str
    until: int


class Versions:
    """The methods of a file that concern its snapshots."""

    connection: Connection

    if TYPE_CHECKING:

        def __init__(self, connection: Connection, record: Json) -> None: ...

        def refresh(self) -> None: ...

    def snapshot(self, message: str = "") -> Snapshot:
        """Take a snapshot of the domain and return it; nothing is copied, whatever the size.

        The snapshot includes everything written before. `hsparse.open(address, snapshot=number)` reads it.

        >>> number = f.snapshot("as measured").number
        >>> X[:] = 0
        >>> hsparse.open(f"data{f.filename}", snapshot=number)["X"].to_numpy()[0]
        array([1., 0., 2.], dtype=float32)
        """
        return Snapshot._of(self.connection.json("POST", "/snapshots", {"message": message}))

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the domain, oldest first.

        >>> for message in ("raw", "filtered"):
        ...     _ = f.snapshot(message)
        >>> [(one.number, one.message) for one in f.snapshots()]
        [(1, 'raw'), (2, 'filtered')]
        """
        return [Snapshot._of(one) for one in self.connection.json("GET", "/snapshots")["snapshots"]]

    def delete_snapshot(self, number: int) -> None:
        """Delete a snapshot and the data kept only for it.

        Raises `MissingKey` if it does not exist, and `Conflict` if a clone needs it.

        >>> f.delete_snapshot(f.snapshot().number)
        >>> f.snapshots()
        []
        """
        self.connection.json("DELETE", f"/snapshots/{checked(number)}")

    def restore(self, number: int) -> int:
        """Restore the domain to a snapshot, and return the number of stored objects that changed.

        It needs the rights create, update and delete. The previous state is saved as a snapshot, the last of
        `snapshots()`. Reopen datasets that were open: their `shape` is the old one.

        >>> before = f.snapshot()
        >>> del f["X"]
        >>> f.restore(before.number) > 0, list(f)
        (True, ['X'])
        """
        changed: int = self.connection.json("POST", f"/snapshots/{checked(number)}/restore")["changed"]
        self.refresh()
        return changed

    def diff(self, first: int, second: int | None = None) -> list[Difference]:
        """Return the differences between two snapshots, or between one and the current state of the domain.

        A chunk that was rewritten counts as different even if its values are the same.

        >>> number = f.snapshot().number
        >>> X[0, 1] = 9
        >>> f.attrs["filtered"] = True
        >>> [(one.change, one.path) for one in f.diff(number)]
        [('changed', '/'), ('changed', '/X')]
        """
        to = None if second is None else checked(second)
        found = self.connection.json("GET", f"/snapshots/{checked(first)}/diff", to=to)
        return [
            Difference(
                kind, one["path"], one["change"], one["id"], one.get("chunks") or 0, one.get("elements")
            )
            for kind in ("group", "dataset", "datatype")
            for one in found.get(f"{kind}s", ())
        ]

    def changes(self, since: int = 0, wait: float = 0.0) -> Iterator[Change]:
        """Yield the changes after snapshot `since` (0: all) to the newest one, then changes of new snapshots.

        Iteration ends when no snapshot is taken for `wait` seconds. To continue, pass the last `until` as `since`.

        >>> first = f.snapshot().number
        >>> del f["X"]
        >>> second = f.snapshot().number
        >>> {(change.id == f.id, change.change, change.until == second) for change in f.changes(since=first)}
        {(True, 'changed', True)}
        """
        clock = SystemClock()
        end = clock.monotonic() + wait
        while True:
            left = max(0.0, min(end - clock.monotonic(), LONGEST_WAIT, self.connection.timeout / 2))
            page = self.connection.json("GET", "/changes", since=since, wait=ceil(left))
            until = page["until"]
            yield from _changes(page)
            while page["marker"] is not None:
                page = self.connection.json("GET", "/changes", since=since, marker=page["marker"])
                yield from _changes(page)
            if until > since:
                since, end = until, clock.monotonic() + wait
            elif clock.monotonic() >= end:
                return

    def clone(self, target: str, snapshot: int | None = None) -> Self:
        """Create a domain at the path `target` with the state of a snapshot, and return it; nothing is copied.

        Without `snapshot`, one is taken. The snapshot and its domain cannot be deleted while the clone needs them.

        >>> clone = f.clone("/home/admin/try.h5", f.snapshot().number)
        >>> clone["X"][0, 0] = 9
        >>> clone["X"][0, 0], X[0, 0]
        (np.float32(9.0), np.float32(1.0))
        >>> clone.materialize() > 0
        True
        """
        body: Json = {"target": target} | ({} if snapshot is None else {"snapshot": checked(snapshot)})
        made = self.connection.json("POST", "/clones", body)
        connection = self.connection.for_domain(made["domain"])
        connection.is_read_only = False
        return type(self)(connection, connection.json("GET", "/"))

    def materialize(self) -> int:
        """Copy the objects that this clone shares with a snapshot, which may then be deleted, and return their number.

        >>> clone = f.clone("/home/admin/own.h5")
        >>> clone.materialize() > 0, clone.materialize()
        (True, 0)
        >>> f.delete_snapshot(f.snapshots()[0].number)
        """
        copied: int = self.connection.json("POST", "/clones/materialize")["copied"]
        return copied


def _changes(page: Json) -> Iterator[Change]:
    for one in page["changes"]:
        chunk = None if one["chunk"] is None else tuple(map(int, one["chunk"].split("_")))
        yield Change(one["id"], chunk, one["change"], page["until"])


def checked(number: int) -> int:
    """Return a snapshot's number; raise `InvalidValue` unless it is a positive integer."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidValue(f"{number!r} is not the number of a snapshot, which is 1, 2 and so on.")
    return number


def snapshot_domain(domain: str, number: int) -> str:
    """Return the path under which a snapshot is read as a domain."""
    return f"{domain}@{checked(number)}"


def remedy_for_missing(domain: str | None) -> str:
    """Return the remedy for a missing domain, or a missing snapshot if the path names one."""
    named = SNAPSHOT.fullmatch(domain or "")
    return f"snapshots() of {named[1]} lists its snapshots." if named else "mode='a' would create it."
