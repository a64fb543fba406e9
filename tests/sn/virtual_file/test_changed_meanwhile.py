"""A file or a map that is answered whole has all values of one state, whatever is changed while it is made.

A change runs at the k-th message to the data node, or call of the store, of a request, for k at even distances.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

import aiohttp
import h5py
import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.membership.ownership import SOLE
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from hsparse.storage.object_store import Buffer
from hsparse.versions.wrapping import with_versions
from hsparse.wire.message import DataNode, Message
from tests.support.endurance import repeats
from tests.support.rest_client import Reply, RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")
DOMAIN, SOURCE, CLONE = "/home/admin/file", "/home/admin/source", "/home/admin/clone"
DENSE = {"class": "H5D_CHUNKED", "dims": [10]}
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [10], "flags": ["H5D_SPARSE_DATA"]}
MOST_CALLS = 30
"""The most calls of a case before which something is changed; changes that follow each other have other calls."""
REFUSED = (404, 409, 410, 412, 503)
FOREIGN = "is not in the domain"
"""A 400 says so of the id of an object whose domain was replaced by another one at its path."""
Change = Callable[["Served"], Awaitable[object]]


@dataclass
class Moment:
    """The k-th call of a reader, before which a change is made; without `change` calls are counted alone.

    All who read an object at the same time share one call of the store. If the change reads what the k-th call brings,
    it goes on beside the reader from there.
    """

    at: int = -1
    change: Callable[[], Awaitable[object]] | None = None
    calls: int = 0
    reading: bool = False
    is_waited_for: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether somebody waits for a call of another since the change began."""
    changing: asyncio.Future[object] | None = None

    async def come(self) -> None:
        if not self.reading:
            return
        if self.calls == self.at and self.change is not None:
            self.reading = False
            self.is_waited_for.clear()
            self.changing = asyncio.ensure_future(self.change())
            waited_for = asyncio.ensure_future(self.is_waited_for.wait())
            try:
                await asyncio.wait({self.changing, waited_for}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waited_for.cancel()
                self.reading = True
        self.calls += 1

    @contextmanager
    def noted_wait(self) -> Iterator[None]:
        self.is_waited_for.set()
        yield

    async def changed(self) -> None:
        """Wait until the change is made, if it has begun."""
        if self.changing is not None:
            await self.changing


class InterruptedNode:
    """A `DataNode` whose messages are moments."""

    def __init__(self, node: DataNode, moment: Moment) -> None:
        self._node, self._moment = node, moment

    async def send(self, message: Message[R]) -> R:
        await self._moment.come()
        return await self._node.send(message)


class InterruptedStore(StoreWrapper):
    """A store whose calls are moments, and where a deletion of objects ends after `most` of them until `go_on`."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(MemoryStore(page_size=3))
        self.moment = moment
        self.most: int | None = None
        self.stopped, self.go_on = asyncio.Event(), asyncio.Event()

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        await self.moment.come()
        if self.most is not None and method == "delete_if_match" and key.startswith("db/"):
            if self.most == 0:
                self.stopped.set()
                await self.go_on.wait()
            else:
                self.most -= 1
        return await call(data)


class Served:
    """A domain with a dataset of each kind, virtual ones of another domain, a snapshot and a clone."""

    def __init__(
        self, reader: RestClient, other: RestClient, store: InterruptedStore, node: DataService
    ) -> None:
        self.reader, self.other, self.store, self.node = reader, other, store, node
        self.ids: dict[str, str] = {}

    async def done(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        reply = await self.other(method, path, body, **options)
        assert reply.status in (200, 201), (method, path, reply.status, reply.body)
        return reply

    async def create(self, name: str, layout: Any, kind: str = "H5T_STD_I32LE", **more: Any) -> str:
        root = (await self.done("GET", "/", **more))["root"]
        body: dict[str, Any] = {"type": kind, "shape": [30], "creationProperties": {"layout": layout}}
        if layout["class"] != "H5D_VIRTUAL":
            body["maxdims"] = [0]
        made = await self.done("POST", "/datasets", body | {"link": {"id": root, "name": name}}, **more)
        return str(made["id"])

    async def write(self, id: str, values: Any, **more: Any) -> None:
        await self.done("PUT", f"/datasets/{id}/value", {"value": np.asarray(values).tolist()}, **more)

    async def fill(self, **more: Any) -> None:
        for name, layout in (("dense", DENSE), ("sparse", SPARSE)):
            self.ids[name] = await self.create(name, layout, **more)
            await self.write(self.ids[name], np.arange(1, 31), **more)


@asynccontextmanager
async def served(moment: Moment) -> AsyncIterator[Served]:
    store, clock = InterruptedStore(moment), SystemClock()
    versioned, ownership = with_versions(store, SOLE, clock)
    node = DataService(versioned, clock, ownership=ownership)
    settings = ServiceSettings(single_user=None, min_chunk_size=1, page_size=64)
    admin = Principal("admin", admin=True)
    reader = await RestClient(InterruptedNode(node, moment), clock, admin, settings=settings).open()
    other = await RestClient(node, clock, admin, settings=settings).open()
    reader.domain = other.domain = DOMAIN
    one = Served(reader, other, store, node)
    try:
        for domain in (DOMAIN, SOURCE):
            await one.done("PUT", "/", domain=domain)
        source = await one.create("source", DENSE, domain=SOURCE)
        await one.write(source, np.arange(1, 31), domain=SOURCE)
        await one.fill()
        mapping = {"file": SOURCE, "dataset": "/source"}
        await one.create("virtual", {"class": "H5D_VIRTUAL", "mappings": [mapping]})
        await one.done("POST", "/snapshots", {})
        await one.done("POST", "/clones", {"target": CLONE, "snapshot": 1})
        await one.write(one.ids["dense"], np.arange(101, 131))
        yield one
    finally:
        store.most = None
        store.go_on.set()
        await reader.close()
        await other.close()
        await node.close()


# --- what is changed --------------------------------------------------------------------------------------


def deletion(domain: str, most: int | None) -> Change:
    """Return the deletion of a domain, which stops after so many objects while the file is read."""

    async def delete(one: Served) -> None:
        if most is None:
            await one.done("DELETE", "/", domain=domain, wait=10)
            return
        if domain == DOMAIN:
            await one.done("DELETE", "/", domain=CLONE, wait=10)
        one.store.most = most
        await one.done("DELETE", "/", domain=domain)
        await one.store.stopped.wait()

    return delete


async def delete_dataset(one: Served) -> None:
    await one.done("DELETE", f"/datasets/{one.ids['dense']}")


async def delete_link(one: Served) -> None:
    root = (await one.done("GET", "/"))["root"]
    await one.done("DELETE", f"/groups/{root}/links/sparse")


async def shrink(one: Served) -> None:
    for id in one.ids.values():
        await one.done("PUT", f"/datasets/{id}/shape", {"shape": [5]})


async def shrink_one(one: Served) -> None:
    await one.done("PUT", f"/datasets/{one.ids['sparse']}/shape", {"shape": [5]})


async def overwrite(one: Served) -> None:
    await one.done(
        "PUT", f"/datasets/{one.ids['dense']}/value", {"start": [0], "stop": [10], "value": [7] * 10}
    )


async def replace(one: Served) -> None:
    """As mode "w" does."""
    await one.done("DELETE", "/", domain=CLONE, wait=10)
    await one.done("DELETE", "/", wait=10)
    await one.done("PUT", "/")
    await one.fill()


async def restore(one: Served) -> None:
    await one.done("POST", "/snapshots/1/restore", {})


CHANGES: dict[str, Change] = {
    **{f"deleted after {most}": deletion(DOMAIN, most) for most in (0, 1, 3, 8)},
    "source deleted after 3": deletion(SOURCE, 3),
    "clone deleted after 1": deletion(CLONE, 1),
    "clone deleted": deletion(CLONE, None),
    "dataset deleted": delete_dataset,
    "link deleted": delete_link,
    "shrunk": shrink_one,
    "overwritten": overwrite,
    "replaced": replace,
    "restored": restore,
}

# --- who reads --------------------------------------------------------------------------------------------


class Refused(Exception):
    """The request was answered with an error, or the answer was broken off."""


async def answered(one: Served, path: str, domain: str | None = None, **options: Any) -> Reply:
    try:
        reply = await one.reader("GET", path, domain=domain, **options)
    except aiohttp.ClientError as error:
        raise Refused(str(error)) from error
    if reply.status in REFUSED or (reply.status == 400 and FOREIGN in reply["error"]["message"]):
        raise Refused(str(reply.body))
    assert reply.status in (200, 206), (reply.status, reply.body)
    return reply


def content(data: bytes) -> dict[str, Any]:
    with h5py.File(io.BytesIO(data)) as file:
        return {name: file[name][:].tolist() for name in file if isinstance(file[name], h5py.Dataset)}


def whole(path: str, **options: Any) -> Callable[[Served], Awaitable[Any]]:
    async def read(one: Served) -> Any:
        return content((await answered(one, f"/files{path}", **options)).body)

    return read


async def by_ranges(one: Served) -> Any:
    """As a download does that was cut short, and an export to S3."""
    first = await answered(one, f"/files{DOMAIN}", headers={"Range": "bytes=0-99"})
    size, etag = int(first.headers["Content-Range"].rpartition("/")[2]), first.headers["ETag"]
    parts = [first.body]
    for start in range(100, size, 2048):
        headers = {"Range": f"bytes={start}-{min(size, start + 2048) - 1}", "If-Match": etag}
        parts.append((await answered(one, f"/files{DOMAIN}", headers=headers)).body)
    return content(b"".join(parts))


def map_of(**options: Any) -> Callable[[Served], Awaitable[Any]]:
    async def read(one: Served) -> Any:
        """Return which chunks each dataset has, as those of other states have other etags."""
        reply = await answered(one, "/map", DOMAIN, **options)
        if "format" in options:
            return sorted(name for name in reply["refs"] if name[-1].isdigit())
        datasets = reply["datasets"].items()
        return {name: sorted(tuple(row["scaled"]) for row in one.get("chunks", ())) for name, one in datasets}

    return read


async def dataset_map(one: Served) -> Any:
    reply = await answered(one, f"/datasets/{one.ids['dense']}/map", DOMAIN)
    return sorted(tuple(row["scaled"]) for row in reply["chunks"])


def values_of(domain: str, kind: str = "dense", **options: Any) -> Callable[[Served], Awaitable[Any]]:
    """Return a reader of values that the data node confirms or loads."""

    async def read(one: Served) -> Any:
        one.node.invalidate(lambda name: False)
        reply = await answered(one, f"/datasets/{one.ids[kind]}/value", domain, **options)
        return reply["value"]

    return read


READERS: dict[str, Callable[[Served], Awaitable[Any]]] = {
    "file": whole(DOMAIN, virtual="copied"),
    "stock": whole(DOMAIN, layout="stock"),
    "ranges": by_ranges,
    "snapshot": whole(f"{DOMAIN}@1"),
    "clone": whole(CLONE),
    "map": map_of(),
    "kerchunk": map_of(format="kerchunk"),
    "dataset map": dataset_map,
    "values": values_of(DOMAIN),
    "sparse values": values_of(DOMAIN, "sparse"),
    "query": values_of(DOMAIN, query="_ > 3"),
    "snapshot values": values_of(f"{DOMAIN}@1"),
    "clone values": values_of(CLONE),
    "sparse clone values": values_of(CLONE, "sparse"),
}


EACH_CHUNK = ("values", "sparse values", "query")
"""Readers of the domain itself that have each chunk as it is when it is read."""
OF_VALUES = ("overwritten", "restored")
"""Changes after which such a reader may have old and new values."""


async def state(read: Callable[[Served], Awaitable[Any]], change: Change | None = None) -> tuple[Any, int]:
    """Return what is read of the domain before or after a change, None for nothing; and how many calls that takes."""
    moment = Moment()
    async with served(moment) as one:
        if change is not None:
            await change(one)
        moment.reading = True
        try:
            return await read(one), moment.calls
        except Refused:
            return None, moment.calls


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("reader", "changed"),
    [pair for pair in product(READERS, CHANGES) if pair[0] not in EACH_CHUNK or pair[1] not in OF_VALUES],
)
async def test_a_whole_answer_has_all_values_of_one_state(
    reader: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, change = READERS[reader], CHANGES[changed]
    before, calls = await state(read)
    after, _ = await state(read, change)
    assert before is not None
    wrong = {}
    step = -(-calls // repeats(MOST_CALLS, short=6))
    for at in range(list(CHANGES).index(changed) % step, calls, step):
        moment = Moment(at)
        monkeypatch.setattr("hsparse.dn.cached_object.measured_wait", moment.noted_wait)
        async with served(moment) as one:
            moment.change = lambda one=one: change(one)
            moment.reading = True
            try:
                found = await read(one)
            except Refused:
                continue
            finally:
                moment.reading = False
                await moment.changed()
        if found not in (before, after):
            wrong[at] = found
    assert not wrong, (calls, wrong)
