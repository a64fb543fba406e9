"""The past of a domain: its snapshots, and what is done with them. These are methods of `File`."""

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
"""Seconds for which a request waits: a connection without a byte for longer counts as broken."""
SNAPSHOT = re.compile(r"(.+)@[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A domain as it was at a `time`, in UTC: the user `author` has taken it.

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
    """An object that is different between two states of a domain: it was created, changed or deleted.

    `kind` is "group", "dataset" or "datatype"; `path` is None for an object to which no link leads. Of a dataset
    `chunks` counts those that are different, `elements` the elements in them where the server knows.

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
    """What was created, changed or deleted between two snapshots: an object or, with its scaled coordinates, a chunk.

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
    """What a file does with its snapshots."""

    connection: Connection

    if TYPE_CHECKING:

        def __init__(self, connection: Connection, record: Json) -> None: ...

        def refresh(self) -> None: ...

    def snapshot(self, message: str = "") -> Snapshot:
        """Keep the domain as it is now, and return the snapshot; nothing is copied, whatever the size.

        All that was written before is in it. `hsparse.open(address, snapshot=number)` reads it.

        >>> number = f.snapshot("as measured").number
        >>> X[:] = 0
        >>> hsparse.open(f"data{f.filename}", snapshot=number)["X"].to_numpy()[0]
        array([1., 0., 2.], dtype=float32)
        """
        return Snapshot._of(self.connection.json("POST", "/snapshots", {"message": message}))

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the domain, the oldest first.

        >>> for message in ("raw", "filtered"):
        ...     _ = f.snapshot(message)
        >>> [(one.number, one.message) for one in f.snapshots()]
        [(1, 'raw'), (2, 'filtered')]
        """
        return [Snapshot._of(one) for one in self.connection.json("GET", "/snapshots")["snapshots"]]

    def delete_snapshot(self, number: int) -> None:
        """Delete a snapshot, and what is kept for it alone.

        `MissingKey` if there is none, `Conflict` if a clone needs it.

        >>> f.delete_snapshot(f.snapshot().number)
        >>> f.snapshots()
        []
        """
        self.connection.json("DELETE", f"/snapshots/{checked(number)}")

    def restore(self, number: int) -> int:
        """Bring the domain back to what it was at a snapshot, and return how many stored objects that has changed.

        What was changed since the newest snapshot is lost. Open datasets again: they keep the extent that they had.

        >>> before = f.snapshot()
        >>> del f["X"]
        >>> f.restore(before.number) > 0, list(f)
        (True, ['X'])
        """
        changed: int = self.connection.json("POST", f"/snapshots/{checked(number)}/restore")["changed"]
        self.refresh()
        return changed

    def diff(self, first: int, second: int | None = None) -> list[Difference]:
        """Return what is different between two snapshots; without a second, between one and the domain as it is now.

        A chunk that was written in between counts, though it may be as before.

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
        """Yield what was changed from a snapshot to the newest one, 0 for all there is; then as snapshots are taken.

        It ends when none was taken for `wait` seconds. Who goes on later gives `until` of the last change as `since`.

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
        """Make a domain at the path `target` that has what a snapshot has, and return it; nothing is copied.

        Without a snapshot one is taken. Neither it nor its domain can be deleted while the clone needs it.

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
        """Copy what a clone still shares, and return how many objects that were: it needs the snapshot no more.

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
    """Return the number of a snapshot; `InvalidValue` for what is none."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidValue(f"{number!r} is not the number of a snapshot, which is 1, 2 and so on.")
    return number


def snapshot_domain(domain: str, number: int) -> str:
    """Return the path of the domain that a snapshot is read as."""
    return f"{domain}@{checked(number)}"


def remedy_for_missing(domain: str | None) -> str:
    """Return what to do about a domain that is not there, which may be a snapshot."""
    named = SNAPSHOT.fullmatch(domain or "")
    return f"snapshots() of {named[1]} lists its snapshots." if named else "mode='a' would create it."
