"""How often the store is asked, counted over the whole stack: exactly the minimum."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.chunks import FIRST_WAVE, NEW_CHUNKS_STREAK
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.quotas.quotas import Quotas
from hsparse.quotas.settings import QuotaSettings
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import BINARY, Reply, RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

Calls = dict[str, int]
SETTINGS = ServiceSettings(min_chunk_size=1)
LAYOUTS: dict[str, dict[str, Any]] = {
    "sparse": {"class": "H5D_STRUCT_CHUNK", "dims": [10], "flags": ["H5D_SPARSE_DATA"]},
    "dense": {"class": "H5D_CHUNKED", "dims": [10]},
    "striped": {"class": "H5D_STRUCT_CHUNK", "dims": [10], "flags": ["H5D_SPARSE_DATA"], "stripes": 3},
    "variable": {"class": "H5D_CHUNKED", "dims": [10]},
}
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


@dataclass(slots=True)
class Asked:
    """Calls by method: of chunks (and listings), and of records."""

    chunks: Calls = field(default_factory=dict)
    records: Calls = field(default_factory=dict)


class Stack:
    """A service node, a data node and a store that counts; one dataset of 40 elements in chunks of 10."""

    def __init__(
        self,
        kind: Any = "H5T_STD_I32LE",
        domain: str = "/requests",
        settings: ServiceSettings = SETTINGS,
        added: tuple[Any, ...] = (),
    ) -> None:
        self.store = CountingStore(MemoryStore())
        self.dataset = ""
        self.kind = kind
        self.is_sparse = False
        self.domain = domain
        self.settings = settings
        self.added = added

    async def start(self, layout: dict[str, Any]) -> Stack:
        self.is_sparse = "flags" in layout
        await self.open()
        assert (await self._rest("PUT", "/", {})).status == 201
        self.dataset = await self.create([40], layout)
        return self

    async def create(self, shape: list[int], layout: dict[str, Any]) -> str:
        body = {"type": self.kind, "shape": shape, "maxdims": [0] * len(shape)}
        reply = await self._rest("POST", "/datasets", body | {"creationProperties": {"layout": layout}})
        assert reply.status == 201, reply
        return str(reply["id"])

    async def cold(self) -> None:
        """Start again, with empty caches."""
        await self.close()
        await self.open()
        await self.ask("GET", f"/datasets/{self.dataset}")  # the records, so that only chunks are cold
        await self.create([1], LAYOUTS["dense"])  # the first change of the domain has a price of its own

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Asked:
        """Send a request; return what the store was asked for it."""
        await self.reply(method, path, body, **options)
        asked = Asked(Counter(), Counter())
        for (call, key), count in self.store.keys.items():
            part = asked.records if key.endswith(".json") else asked.chunks
            part[call] += count
        return asked

    async def reply(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        self.store.reset()
        if isinstance(body, dict):
            options["headers"] = {"Content-Type": "application/json"}
        reply = await self._rest(method, path, body, **options)
        assert reply.status in (200, 201), reply
        return reply

    async def write(self, start: int, stop: int, **options: Any) -> Calls:
        """Write everything from `start` to `stop`."""
        values = np.arange(start, stop, dtype="<i4").tobytes()
        if self.kind == TEXT:  # numbers as text of 4 bytes
            values = b"".join(b"\4\0\0\0" + values[at : at + 4] for at in range(0, len(values), 4))
        path = f"/datasets/{self.dataset}/value"
        asked = await self.ask("PUT", path, values, select=f"[{start}:{stop}]", **options)
        assert asked.records == {}
        return asked.chunks

    async def read(self, start: int = 0, stop: int = 40, path: str = "value", **options: Any) -> Calls:
        url = f"/datasets/{self.dataset}/{path}"
        asked = await self.ask("GET", url, select=f"[{start}:{stop}]", accept=BINARY, **options)
        assert asked.records == {}
        return asked.chunks

    @property
    def quotas(self) -> Quotas:
        return self._rest.service.component(Quotas)

    async def close(self) -> None:
        await self._rest.close()
        await self._node.close()

    async def open(self) -> None:
        self._node = DataService(self.store, SystemClock())
        self._rest = RestClient(
            self._node,
            SystemClock(),
            Principal("admin", admin=True),
            settings=self.settings,
            added=self.added,
        )
        await self._rest.open()
        self._rest.domain = self.domain


@pytest.fixture(params=list(LAYOUTS))
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """A stack for each layout; the dataset `variable` is of text of variable length."""
    kind = TEXT if request.param == "variable" else "H5T_STD_I32LE"
    stack = await Stack(kind).start(LAYOUTS[request.param])
    yield stack
    await stack.close()


@pytest.fixture
async def sparse() -> AsyncIterator[Stack]:
    stack = await Stack().start(LAYOUTS["sparse"])
    yield stack
    await stack.close()


@pytest.fixture
def home_quota() -> int:
    return 0


@pytest.fixture
async def stack_of_home(home_quota: int) -> AsyncIterator[Stack]:
    """A stack whose domain is in a home folder."""
    settings, added = ServiceSettings(min_chunk_size=1), (QuotaSettings(home_quota=home_quota),)
    stack = Stack(domain="/home/admin/requests", settings=settings, added=added)
    await stack.start(LAYOUTS["dense"])
    yield stack
    await stack.close()


@pytest.mark.parametrize(("start", "stop", "chunks"), [(0, 40, 4), (0, 10, 1), (12, 13, 1), (9, 21, 3)])
async def test_a_read_of_k_chunks_makes_k_gets(stack: Stack, start: int, stop: int, chunks: int) -> None:
    await stack.write(0, 40)
    await stack.cold()
    assert await stack.read(start, stop) == {"get": chunks}
    assert await stack.read(start, stop) == {}
    assert await stack.read() == ({"get": 4 - chunks} if chunks < 4 else {})


@pytest.mark.parametrize("stack", ["sparse", "dense"], indirect=True)
async def test_a_query_gets_each_chunk_once_and_no_more_than_its_limit_needs(stack: Stack) -> None:
    await stack.write(0, 40)
    await stack.cold()
    assert await stack.read(query="_ >= 15") == {"get": 4}
    assert await stack.read(query="_ >= 15") == {}
    large = await stack.create([400], LAYOUTS["dense"])
    path = f"/datasets/{large}/value"
    await stack.ask("PUT", path, np.arange(400, dtype="<i4").tobytes())
    await stack.cold()
    await stack.ask("GET", f"/datasets/{large}")
    assert (await stack.ask("GET", path, query="_ >= 15", Limit=3)).chunks == {"get": FIRST_WAVE}


@pytest.mark.parametrize("stack", ["sparse", "dense"], indirect=True)
async def test_a_change_by_a_query_puts_what_it_changes(stack: Stack) -> None:
    await stack.write(0, 40)
    path = f"/datasets/{stack.dataset}/value"
    asked = await stack.ask("PUT", path, {"value": 70}, query="_ >= 15 & _ < 30")
    confirmed = {"get_range": 2}
    """Two chunks need no change: that their values in memory are current is looked up, see decision 1."""
    assert (asked.chunks, asked.records) == ({"put_if_match": 2} | confirmed, {})
    await stack.cold()
    asked = await stack.ask("PUT", path, {"value": 80}, query="_ == 70", Limit=2)
    assert asked.chunks == {"get": 4, "put_if_match": 1}
    assert (await stack.reply("GET", path, query="_ == 80"))["index"] == [15, 16]


async def test_while_new_chunks_are_written_the_next_ones_are_not_looked_for(sparse: Stack) -> None:
    dataset = await sparse.create([400], LAYOUTS["sparse"])

    async def write(chunk: int, value: int = 1) -> Calls:
        data, select = np.int32(value).tobytes(), f"[{10 * chunk + value}]"
        return (await sparse.ask("PUT", f"/datasets/{dataset}/value", data, select=select)).chunks

    looked_for = {"get": 1, "put_if_absent": 1}
    assert [await write(chunk) for chunk in range(NEW_CHUNKS_STREAK)] == [looked_for] * NEW_CHUNKS_STREAK
    assert await write(30) == await write(31) == {"put_if_absent": 1}
    await sparse.cold()
    for chunk in range(10, 10 + NEW_CHUNKS_STREAK):
        await write(chunk)
    guessed_wrong = {"put_if_absent": 1, "get": 1, "put_if_match": 1}
    assert await write(30, 2) == guessed_wrong
    assert await write(31, 2) == {"get": 1, "put_if_match": 1}
    read = await sparse.reply("GET", f"/datasets/{dataset}/value", select="[300:320]", accept=BINARY)
    assert np.flatnonzero(np.frombuffer(read.body, "<i4")).tolist() == [1, 2, 11, 12]


Read = Callable[[Stack], Awaitable[Calls]]
SPARSE_READS: dict[str, Read] = {
    "values": lambda stack: stack.read(sparse=1),
    "places": lambda stack: stack.read(path="defined"),
    "count": lambda stack: stack.read(path="defined", count_only=1),
}


@pytest.mark.parametrize("name", SPARSE_READS)
async def test_a_sparse_read_of_k_chunks_makes_k_gets_and_then_none(sparse: Stack, name: str) -> None:
    await sparse.write(3, 37)
    await sparse.cold()
    assert await SPARSE_READS[name](sparse) == {"get": 4}
    for again in SPARSE_READS.values():
        assert await again(sparse) == {}


async def test_points_are_read_with_one_get_a_chunk(stack: Stack) -> None:
    await stack.write(0, 40)
    await stack.cold()
    path = f"/datasets/{stack.dataset}/value"
    asked = await stack.ask("POST", path, {"points": [0, 39, 1, 38, 0]})
    assert (asked.chunks, asked.records) == ({"get": 2}, {})


async def test_of_many_chunks_only_those_that_exist_are_read(sparse: Stack) -> None:
    sparse.dataset = await sparse.create([3000], {**LAYOUTS["sparse"], "dims": [1]})
    await sparse.write(1500, 1503)
    await sparse.cold()
    # One call for the page with the three, one that ends the listing.
    assert await sparse.read(0, 3000) == {"list": 2, "get": 3}


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_a_new_chunk_written_whole_is_one_put(stack: Stack, cold: bool) -> None:
    if cold:
        await stack.cold()
    assert await stack.write(0, 40) == {"put_if_absent": 4}


WRITES: dict[str, list[tuple[str, int, int, Calls]]] = {
    "a known chunk": [("write", 0, 10, {"put_if_absent": 1}), ("write", 0, 10, {"put_if_match": 1})],
    "a part of a new chunk": [
        ("write", 2, 5, {"get": 1, "put_if_absent": 1}),
        ("write", 2, 5, {"put_if_match": 1}),
    ],
    "a chunk known to be absent": [("read", 0, 10, {"get": 1}), ("write", 2, 5, {"put_if_absent": 1})],
    "parts of unknown chunks": [
        ("write", 0, 40, {"put_if_absent": 4}),
        ("cold", 0, 0, {}),
        ("write", 5, 15, {"get": 2, "put_if_match": 2}),
    ],
    "whole chunks and parts": [("write", 5, 35, {"put_if_absent": 4, "get": 2})],
    "what was written is read": [("write", 0, 20, {"put_if_absent": 2}), ("read", 0, 20, {})],
    "absent chunks are looked for once": [
        ("write", 0, 10, {"put_if_absent": 1}),
        ("cold", 0, 0, {}),
        ("read", 0, 40, {"get": 4}),
        ("read", 0, 40, {}),
    ],
}


@pytest.mark.parametrize("name", WRITES)
async def test_writes_and_reads_after_each_other(stack: Stack, name: str) -> None:
    for what, start, stop, calls in WRITES[name]:
        if what == "cold":
            await stack.cold()
        else:
            assert await (stack.write if what == "write" else stack.read)(start, stop) == calls


async def test_an_unknown_chunk_written_whole_pays_for_the_condition(stack: Stack) -> None:
    """Whoever ignores what is there still must not lose what another writes at the same time."""
    await stack.write(0, 10)
    await stack.cold()
    assert await stack.write(0, 10) == {"put_if_absent": 1, "get_range": 1, "put_if_match": 1}
    assert stack.store.bytes_out == 1
    assert await stack.read(0, 10) == {}


async def test_dropping_fill_values_of_a_new_chunk_costs_a_look(sparse: Stack) -> None:
    """It is not known before whether anything is left to store."""
    assert await sparse.write(10, 20, drop_fill=1) == {"get": 1, "put_if_absent": 1}


async def test_erasing_is_a_partial_write(sparse: Stack) -> None:
    await sparse.write(0, 20)
    path = f"/datasets/{sparse.dataset}/value"
    assert (await sparse.ask("DELETE", path, select="[5:15]")).chunks == {"put_if_match": 2}
    await sparse.cold()
    assert (await sparse.ask("DELETE", path, select="[0:1]")).chunks == {"get": 1, "put_if_match": 1}


async def test_erasing_what_is_not_there_only_looks_whether_that_is_so(sparse: Stack) -> None:
    await sparse.write(0, 5)
    path = f"/datasets/{sparse.dataset}/value"
    assert (await sparse.ask("DELETE", path, select="[7:8]")).chunks == {"get_range": 1}
    await sparse.cold()
    assert (await sparse.ask("DELETE", path, select="[7:8]")).chunks == {"get": 1}


async def test_queries_about_chunks_read_footers_alone_and_once(stack: Stack) -> None:
    await stack.write(0, 40)
    await stack.cold()
    path = f"/datasets/{stack.dataset}/chunks"
    footers = {"get": 1, "get_range": 4} if stack.is_sparse else {}  # the get looks for a map
    assert (await stack.ask("GET", path)).chunks == {"list": 2} | footers
    assert (await stack.ask("GET", path, order="coord")).chunks == {"list": 2}
    assert (await stack.ask("GET", path, count_only=1)).chunks == {}, "listed by the request before"
    assert (await stack.ask("GET", f"{path}/selection")).chunks == {"list": 2}
    assert (await stack.ask("GET", f"{path}/2")).chunks == {"get_range": 1}


async def test_a_direct_read_is_one_get_and_a_direct_write_one_put(stack: Stack) -> None:
    await stack.write(0, 20)
    path = f"/datasets/{stack.dataset}/chunks"
    reply = await stack.reply("GET", f"{path}/1/value")
    assert stack.store.calls == {"get": 1}
    names = ("filter_mask", "section_size", "section_unfiltered_size")
    headers = {name: reply.headers.get(f"X-Hdf-{name.replace('_', '-')}") for name in names}
    options = {name: value for name, value in headers.items() if value is not None}
    for name, puts in (("1", {"put_if_match": 1}), ("2", {"put_if_absent": 1}), ("2", {"put_if_match": 1})):
        assert (await stack.ask("PUT", f"{path}/{name}/value", reply.body, **options)).chunks == puts
    await stack.cold()
    asked = await stack.ask("PUT", f"{path}/2/value", reply.body, **options)
    # As any write of a whole chunk that is not known; the record tells the dataset's generation.
    assert asked.chunks == {"put_if_absent": 1, "get_range": 1, "put_if_match": 1}
    assert await stack.read(20, 30) == {}


@pytest.mark.parametrize(
    ("count", "chunks"),
    [
        (10, {"put_if_absent": 1}),
        (4, {"put_if_absent": 1}),
        (20, {"put_if_absent": 2}),
        (23, {"put_if_absent": 3}),
    ],
)
async def test_an_append_puts_its_chunks_and_the_record(stack: Stack, count: int, chunks: Calls) -> None:
    """The record is put before the chunks, to reserve their place, and after them, to show it."""
    path = f"/datasets/{stack.dataset}/value"
    asked = await stack.ask("PUT", path, bytes(4 * count), append=count)
    assert (asked.chunks, asked.records) == (chunks, {"put_if_match": 2})


async def test_an_append_into_a_known_chunk_is_three_puts(stack: Stack) -> None:
    path = f"/datasets/{stack.dataset}/value"
    await stack.ask("PUT", path, bytes(4), append=1)
    asked = await stack.ask("PUT", path, bytes(4), append=1)
    assert (asked.chunks, asked.records) == ({"put_if_match": 1}, {"put_if_match": 2})


async def test_growing_puts_the_record(stack: Stack) -> None:
    asked = await stack.ask("PUT", f"/datasets/{stack.dataset}/shape", {"shape": [70]})
    assert (asked.chunks, asked.records) == ({}, {"put_if_match": 1})


async def test_shrinking_touches_what_it_cuts(stack: Stack) -> None:
    await stack.write(0, 40)
    asked = await stack.ask("PUT", f"/datasets/{stack.dataset}/shape", {"shape": [15]})
    # The record is put before and after the trim; two chunks lie outside, one is cut.
    assert asked.records == {"put_if_match": 2}
    assert asked.chunks == {"delete_if_match": 2, "put_if_match": 1}


async def test_a_record_is_read_once(stack: Stack) -> None:
    await stack.close()
    await stack.open()
    path = f"/datasets/{stack.dataset}"
    first = await stack.ask("GET", path)
    assert first.records == {"get": 2}  # the domain's and the dataset's
    for again in (path, f"{path}/shape", f"{path}/type", f"{path}/attributes"):
        asked = await stack.ask("GET", again)
        assert (asked.records, asked.chunks) == ({}, {})


async def test_an_attribute_write_is_one_put(stack: Stack) -> None:
    path = f"/datasets/{stack.dataset}/attributes"
    body = {"type": "H5T_STD_I32LE", "shape": [2], "value": [1, 2]}
    assert (await stack.ask("PUT", f"{path}/a", body)).records == {"put_if_match": 1}
    assert (await stack.ask("GET", f"{path}/a")).records == {}
    many = {"attributes": {f"a{number}": body for number in range(50)}}
    assert (await stack.ask("PUT", path, many)).records == {"put_if_match": 1}
    assert (await stack.ask("DELETE", f"{path}/a")).records == {"put_if_match": 1}


async def test_an_attribute_write_to_an_unknown_record_is_one_get_and_one_put(stack: Stack) -> None:
    await stack.close()
    await stack.open()
    body = {"type": "H5T_STD_I32LE", "value": 1}
    asked = await stack.ask("PUT", f"/datasets/{stack.dataset}/attributes/a", body)
    # A get of the domain's too; and the domain's first change on this node removes a summary of HSDS's.
    assert asked.records == {"get": 2, "delete": 1, "put_if_match": 1}
    assert (await stack.ask("PUT", f"/datasets/{stack.dataset}/attributes/b", body)).records == {
        "put_if_match": 1
    }


async def test_a_new_object_is_one_put(stack: Stack) -> None:
    asked = await stack.ask("POST", "/groups", {})
    assert (asked.records, asked.chunks) == ({"put_if_absent": 1}, {})


FOLDERS = ("home/.domain.json", "home/admin/.domain.json")


async def test_without_quotas_the_folders_above_are_read_once(stack_of_home: Stack) -> None:
    stack = stack_of_home
    await stack.close()
    await stack.open()
    await stack.reply("POST", "/groups", {})
    assert [stack.store.keys["get", folder] for folder in FOLDERS] == [1, 1]
    await stack.ask("GET", f"/datasets/{stack.dataset}")
    assert await stack.write(0, 40) == {"put_if_absent": 4}
    for folder in ("/home", "/home/admin"):
        stack.quotas.forget(folder)  # as after some seconds
    assert await stack.write(0, 40) == {"put_if_match": 4}


@pytest.mark.parametrize("home_quota", [10**6])
async def test_with_a_quota_a_write_costs_the_same_once_it_is_counted(stack_of_home: Stack) -> None:
    stack = stack_of_home
    assert (await stack.reply("GET", "/quota", domain="/home/admin"))["bytes"] == 10**6
    assert await stack.write(0, 40) == {"put_if_absent": 4}
    assert await stack.write(0, 40) == {"put_if_match": 4}
