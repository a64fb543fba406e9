"""The base class of `File` that has the methods for snapshots, changes and clones of a domain."""

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
"""The maximum time, in seconds, that a request waits at the server: a connection may break if it is silent longer."""
SNAPSHOT = re.compile(r"(.+)@[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: the state of a domain at a `time` (UTC); `author` is the user who took the snapshot.

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
    """An object that differs between two states of a domain; `change` is "created", "changed" or "deleted".

    `kind` is "group", "dataset" or "datatype"; `path` is None if no link leads to it. For a dataset, `chunks` is
    the number of different chunks, and `elements` is the number of elements in these chunks, or None if unknown.

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
    """A change of an object, or of the chunk with the scaled coordinates `chunk`, between two snapshots.

    `change` is "created", "changed" or "deleted"; `until` is the number of the later snapshot.

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
    """The methods of a file for its snapshots, changes and clones."""

    connection: Connection

    if TYPE_CHECKING:

        def __init__(self, connection: Connection, record: Json) -> None: ...

        def refresh(self) -> None: ...

    def snapshot(self, message: str = "") -> Snapshot:
        """Take a snapshot of the domain and return the snapshot; no data are copied.

        The snapshot includes all earlier writes. `hsparse.open(address, snapshot=number)` opens the snapshot.

        >>> number = f.snapshot("as measured").number
        >>> X[:] = 0
        >>> hsparse.open(f"data{f.filename}", snapshot=number)["X"].to_numpy()[0]
        array([1., 0., 2.], dtype=float32)
        """
        return Snapshot._of(self.connection.json("POST", "/snapshots", {"message": message}))

    def snapshots(self) -> list[Snapshot]:
        """Return a list of the snapshots of the domain, in the order of their numbers.

        >>> for message in ("raw", "filtered"):
        ...     _ = f.snapshot(message)
        >>> [(one.number, one.message) for one in f.snapshots()]
        [(1, 'raw'), (2, 'filtered')]
        """
        return [Snapshot._of(one) for one in self.connection.json("GET", "/snapshots")["snapshots"]]

    def delete_snapshot(self, number: int) -> None:
        """Delete a snapshot and the data that only this snapshot needs.

        Raises `MissingKey` if the snapshot does not exist, and `Conflict` if a clone needs the snapshot.

        >>> f.delete_snapshot(f.snapshot().number)
        >>> f.snapshots()
        []
        """
        self.connection.json("DELETE", f"/snapshots/{checked(number)}")

    def restore(self, number: int) -> int:
        """Restore the domain to the state of a snapshot, and return the number of stored objects that changed.

        The user needs the rights create, update and delete. The state before the restore is saved as a new snapshot,
        the last of `snapshots()`. Open datasets still have the old `shape`: open these datasets again.

        >>> before = f.snapshot()
        >>> del f["X"]
        >>> f.restore(before.number) > 0, list(f)
        (True, ['X'])
        """
        changed: int = self.connection.json("POST", f"/snapshots/{checked(number)}/restore")["changed"]
        self.refresh()
        return changed

    def diff(self, first: int, second: int | None = None) -> list[Difference]:
        """Return the differences between two snapshots or, without `second`, between a snapshot and the current state.

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
        """Yield the changes from snapshot `since` (0: from the start) to the newest snapshot, then of new snapshots.

        The iteration ends if no snapshot is taken for `wait` seconds. To continue, pass the last `until` as `since`.

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
        """Create a domain at the path `target` with the state of a snapshot, and return its file; no data are copied.

        Without `snapshot`, take a new snapshot. While the clone needs a snapshot, it and its domain cannot be deleted.

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
        """Copy all objects that this clone shares with a snapshot; return their number. The clone is then independent.

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
    """Return the number of a snapshot unchanged; raise `InvalidValue` if the number is not a positive integer."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidValue(f"{number!r} is not the number of a snapshot: give a positive integer.")
    return number


def snapshot_domain(domain: str, number: int) -> str:
    """Return the path that names a snapshot of a domain, such as `/home/ann/x.h5@3`."""
    return f"{domain}@{checked(number)}"


def remedy_for_missing(domain: str | None) -> str:
    """Return the remedy that the error for a missing domain, or for a missing snapshot, ends with."""
    named = SNAPSHOT.fullmatch(domain or "")
    return f"snapshots() of {named[1]} lists its snapshots." if named else "mode='a' would create it."
