"""Queries over whole datasets against numpy, and what queries and reductions leave out by statistics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.clock import SystemClock
from hsparse.dn.chunks import FIRST_WAVE
from hsparse.dn.service import DataService
from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.extent import unravel
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.model.acl import Principal
from hsparse.model.ids import new_id, new_root_id
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.chunk_fanout import MANY_CHUNKS, ChunkFanout
from hsparse.sn.values.element_query import FixedQuery
from hsparse.wire.chunk_message import FindElements
from tests.format.selection_strategies import extents, points, selections
from tests.sn.dataset_kinds import F32, F64, I16, I32, chunked, compound, sparse
from tests.sn.value_client import BINARY, create, put
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient, answered
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

CLOCK = SystemClock()
PAGE = 256
"""Bytes: nothing here is found in one page."""
KIND = compound(a=I16, b=F32)
ROW = np.dtype([("a", "<i2"), ("b", "<f4")])


class Log:
    """A data node that notes the messages it is sent."""

    def __init__(self, node: DataService) -> None:
        self.node = node
        self.finds: list[FindElements] = []

    async def send(self, message: Any) -> Any:
        if isinstance(message, FindElements):
            self.finds.append(message)
        return await self.node.send(message)

    async def close(self) -> None:
        await self.node.close()


def dataset(
    extent: tuple[int, ...], chunk: tuple[int, ...], *, sparse: bool, fill: float = 0
) -> StoredDataset:
    layout: dict[str, Any] = chunked(*chunk)
    if sparse:
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": list(chunk), "flags": ["H5D_SPARSE_DATA"]}
    root = new_root_id(CLOCK)
    record = {
        "id": new_id("datasets", root, CLOCK),
        "root": root,
        "type": KIND,
        "shape": {"class": "H5S_SIMPLE", "dims": list(extent)},
        "layout": layout,
        "creationProperties": {"layout": layout, "fillValue": [fill, fill]},
    }
    return StoredDataset.of(record)


class LoggedOwners(Owners):
    """Owners whose data nodes log what they are sent."""

    def __init__(self, nodes: dict[str, Log]) -> None:
        super().__init__(FixedNodes(dict(nodes)))
        self.nodes = nodes


@asynccontextmanager
async def owners(store: Any = None) -> AsyncIterator[LoggedOwners]:
    shared = store or MemoryStore()
    nodes = {name: Log(DataService(shared, CLOCK)) for name in ("dn-001", "dn-002")}
    yield LoggedOwners(nodes)
    for node in nodes.values():
        await node.close()


async def fill_in(chunks: ChunkFanout, about: StoredDataset, coords: NDArray[np.uint64]) -> NDArray[Any]:
    """Write numbered elements at these places, and return the whole dataset as numpy would have it."""
    model = np.full(about.extent, about.fill, ROW)
    values = np.zeros(len(coords), ROW)
    values["a"] = np.arange(len(coords)) % 5
    values["b"] = np.arange(len(coords))
    if len(coords):
        await chunks.write(Points(about.extent, coords), values)
        model[tuple(coords.T.astype(int))] = values
    return model


def matches(model: NDArray[Any], selection: Selection, mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return the coordinates of what is selected and in the mask, each once, in row-major order."""
    chosen = np.zeros(model.shape, bool)
    chosen[tuple(selection.coords().T.astype(int))] = True
    return np.argwhere(chosen & mask).astype(np.uint64)


QUERIES = {
    "a > 2": lambda rows: rows["a"] > 2,
    "a <= 2": lambda rows: rows["a"] <= 2,
    "a == 1 | b > 3": lambda rows: (rows["a"] == 1) | (rows["b"] > 3),
}


@st.composite
def cases(draw: st.DrawFn) -> Any:
    extent = draw(extents())
    chunk = tuple(draw(st.integers(1, length)) for length in extent)
    places = draw(points(extent)).coordinates
    selection = draw(selections(extent))
    fill = draw(st.sampled_from([0, 3]))
    return dataset(extent, chunk, sparse=draw(st.booleans()), fill=fill), np.unique(places, axis=0), selection


@settings(max_examples=60)
@given(cases(), st.sampled_from(list(QUERIES)), st.integers(0, 8))
def test_what_is_found_is_what_numpy_finds(case: Any, text: str, limit: int) -> None:
    about, places, selection = case

    async def check() -> None:
        async with owners() as nodes:
            chunks = ChunkFanout(nodes, about)
            model = await fill_in(chunks, about, places)
            expected = matches(model, selection, QUERIES[text](model))
            expected = expected[:limit] if limit else expected
            found = await collect(FixedQuery(about, chunks, text, PAGE, limit), selection)
            np.testing.assert_array_equal(found[0], expected)
            np.testing.assert_array_equal(found[1], model[tuple(expected.T.astype(int))])
            some = await collect(FixedQuery(about, chunks, text, PAGE, limit), selection, ("b",))
            np.testing.assert_array_equal(some[1]["b"], found[1]["b"])

            everything = matches(model, selection, QUERIES[text](model))
            value = np.array((9.5,), [("b", "<f4")])
            offsets, rows = await FixedQuery(about, chunks, text, PAGE).update(selection, value, ("b",))
            np.testing.assert_array_equal(unravel(offsets, about.extent), everything)
            model["b"][tuple(everything.T.astype(int))] = 9.5
            np.testing.assert_array_equal(rows, model[tuple(everything.T.astype(int))])
            np.testing.assert_array_equal(await chunks.read(Orthogonal.all(about.extent)), model)

    asyncio.run(check())


async def collect(query: FixedQuery, selection: Selection, fields: tuple[str, ...] = ()) -> Any:
    pieces = [piece async for piece in query.find(selection, fields)]
    dtype = pieces[0][1].dtype if pieces else np.dtype([(name, ROW[name]) for name in fields] or ROW)
    offsets = np.concatenate([piece[0] for piece in pieces] or [np.zeros(0, np.uint64)])
    return unravel(offsets, selection.extent), np.concatenate(
        [piece[1] for piece in pieces] or [np.zeros(0, dtype)]
    )


@pytest.mark.parametrize("extent", [(20_000,), (3000, 40)])
@pytest.mark.parametrize("fill", [0, 3])
async def test_many_chunks_of_which_few_are_stored(extent: tuple[int, ...], fill: int) -> None:
    about = dataset(extent, (4, 8)[: len(extent)], sparse=True, fill=fill)
    rng = np.random.default_rng(0)
    places = np.unique(np.stack([rng.integers(0, n, 200) for n in extent], 1), axis=0).astype(np.uint64)
    store = CountingStore(MemoryStore())
    async with owners(store) as nodes:
        model = await fill_in(ChunkFanout(nodes, about), about, places)
        assert about.grid.size > 2 * MANY_CHUNKS
        whole = Orthogonal.all(about.extent)
        for text in QUERIES:
            for node in nodes.nodes.values():
                node.finds.clear()
            query = FixedQuery(about, ChunkFanout(nodes, about), text, 4096)
            coords, rows = await collect(query, whole)
            np.testing.assert_array_equal(coords, matches(model, whole, QUERIES[text](model)))
            np.testing.assert_array_equal(rows, model[tuple(coords.T.astype(int))])
            asked = [
                part.scaled
                for node in nodes.nodes.values()
                for find in node.finds
                for part in find.selections
            ]
            stored = {tuple(scaled) for scaled in (places // np.array(about.spec.dims, np.uint64)).tolist()}
            assert set(asked) <= stored, "chunks that are not there are not asked for"


async def test_a_band_of_chunks_larger_than_a_page() -> None:
    about = dataset((64, 512), (64, 4), sparse=True)
    async with owners() as nodes:
        every = np.argwhere(np.ones((64, 512)))[::3].astype(np.uint64)
        model = await fill_in(ChunkFanout(nodes, about), about, every)
        extent = (64 * MANY_CHUNKS, 512)  # the same chunks, among so many that they are listed
        wide = dataset(extent, (64, 4), sparse=True)
        wide = StoredDataset(about.id, about.record, extent, about.spec, wide.grid, about.dtype, about.arrays)
        coords, rows = await collect(
            FixedQuery(wide, ChunkFanout(nodes, wide), "a > 2", PAGE), Orthogonal.all(extent)
        )
        np.testing.assert_array_equal(coords, np.argwhere(model["a"] > 2))
        np.testing.assert_array_equal(rows, model[model["a"] > 2])


@pytest.mark.parametrize("sparse", [True, False])
async def test_a_page_has_room_for_all_coordinates(sparse: bool) -> None:
    extent = (1,) * 7 + (4000,)
    about, size = dataset(extent, (1,) * 7 + (500,), sparse=sparse), 1 << 12
    async with owners() as nodes:
        query = FixedQuery(about, ChunkFanout(nodes, about), "a == 0", size)
        pages = [offsets async for offsets, _ in query.find(Orthogonal.all(extent))]
    assert sum(map(len, pages)) == 4000
    assert max(map(len, pages)) * (ROW.itemsize + 8 * len(extent)) <= size


async def test_a_limit_stops_early() -> None:
    about = dataset((100_000,), (1000,), sparse=False)
    store = CountingStore(MemoryStore())
    async with owners(store) as nodes:
        chunks = ChunkFanout(nodes, about)
        values = np.zeros(100_000, ROW)
        values["b"] = np.arange(100_000)
        await chunks.write(Orthogonal.all(about.extent), values)
    store.reset()
    async with owners(store) as nodes:
        query = FixedQuery(about, ChunkFanout(nodes, about), "b >= 10", 1 << 20, limit=5)
        coords, _ = await collect(query, Orthogonal.all(about.extent))
        assert coords[:, 0].tolist() == [10, 11, 12, 13, 14]
        assert store.gets <= 2 * FIRST_WAVE


async def test_one_message_an_owner_and_page() -> None:
    about = dataset((1000,), (10,), sparse=False)
    async with owners() as nodes:
        await collect(
            FixedQuery(about, ChunkFanout(nodes, about), "a >= 0", 1 << 20), Orthogonal.all((1000,))
        )
        assert [len(node.finds) for node in nodes.nodes.values()] == [1, 1]


async def test_what_cannot_be_asked() -> None:
    scalar = dataset((), (), sparse=False)
    async with owners() as nodes:
        with pytest.raises(BadRequest, match="scalar"):
            FixedQuery(scalar, ChunkFanout(nodes, scalar), "a > 1", PAGE)
        vast = dataset((2**40,), (1,), sparse=True)
        with pytest.raises(TooLarge):
            await FixedQuery(vast, ChunkFanout(nodes, vast), "a == 0", PAGE).update(
                Orthogonal.all(vast.extent), np.zeros((), ROW), ()
            )


CHUNKS, LENGTH = 400, 10
SIZE = CHUNKS * LENGTH


@asynccontextmanager
async def opened(store: CountingStore) -> AsyncIterator[RestClient]:
    """Yield a client of a server with an empty cache."""
    clock = SystemClock()
    node = DataService(store, clock)
    settings = ServiceSettings(min_chunk_size=1)
    client = await RestClient(node, clock, Principal("admin", admin=True), settings=settings).open()
    client.domain = "/home/admin/statistics.h5"
    try:
        yield client
    finally:
        await client.close()
        await node.close()


def chunk_gets(store: CountingStore) -> int:
    """Return how many chunk objects were read whole."""
    return sum(
        count
        for (method, key), count in store.keys.items()
        if method == "get" and key.rpartition("/")[2].isdigit()
    )


async def filled(client: RestClient, values: np.ndarray, kind: str = F64, **properties: object) -> str:
    assert (await client("PUT", "/", {})).status == 201
    path = await create(client, [SIZE], kind, layout=sparse(LENGTH), **properties)
    await put(client, path, values.tobytes())
    return path


async def found(client: RestClient, path: str, query: str) -> list[int]:
    reply = await answered(client("GET", f"{path}/value", query=query))
    return list(reply["index"])


async def test_a_query_reads_the_chunks_that_may_answer(store: CountingStore) -> None:
    values = np.random.default_rng(1).permutation(SIZE // 40).repeat(40) + np.linspace(0, 0.5, SIZE)
    values[7] = np.nan
    async with opened(store) as client:
        path = await filled(client, values)
    for query, mask in {
        "_ > 98.9": values > 98.9,
        "_ >= 50 and _ < 51": (values >= 50) & (values < 51),
        "_ in (3.25, 1000)": np.isin(values, [3.25, 1000]),
        "_.is_null() or _ < 1": np.isnan(values) | (values < 1),
    }.items():
        async with opened(store) as client:
            store.reset()
            # The fill value, 0, answers one of the queries: then undefined elements would, too, and all is read.
            wanted = len(set((np.flatnonzero(mask) // LENGTH).tolist()))
            assert await found(client, path, query) == np.flatnonzero(mask).tolist()
            assert chunk_gets(store) == (CHUNKS if "_ < 1" in query else wanted)


async def test_chunks_without_statistics_are_read(store: CountingStore) -> None:
    values = np.arange(SIZE, dtype="<i4")
    async with opened(store) as client:
        path = await filled(client, values, I32, chunkStatistics=False)
    async with opened(store) as client:
        store.reset()
        assert await found(client, path, f"_ == {SIZE - 1}") == [SIZE - 1]
        assert chunk_gets(store) == CHUNKS
        reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip")
        assert reply["value"]["sum"] == int(values.sum())
    async with opened(store) as client:
        reply = await client(
            "POST", "/datasets", {"type": I32, "shape": [9], "creationProperties": {"chunkStatistics": "no"}}
        )
        assert reply.status == 400


async def test_erased_and_changed_chunks_have_new_statistics(store: CountingStore) -> None:
    values = np.arange(1, SIZE + 1, dtype="<f8")
    async with opened(store) as client:
        path = await filled(client, values)
        assert await found(client, path, f"_ > {SIZE - 2}") == [SIZE - 2, SIZE - 1]
        await put(client, path, np.array([1e6]).tobytes(), select="[3:4]")
        await client("DELETE", f"{path}/value", select=f"[{SIZE - LENGTH}:{SIZE}]")
        assert await found(client, path, f"_ > {SIZE - 2}") == [3]
        assert await found(client, path, f"_ >= {SIZE - LENGTH}") == [3, SIZE - LENGTH - 1]


async def test_whole_chunks_are_reduced_without_being_read(store: CountingStore) -> None:
    values = np.random.default_rng(3).standard_normal(SIZE)
    async with opened(store) as client:
        path = await filled(client, values)
        await client("DELETE", f"{path}/value", select="[100:105]")
    there = np.ones(SIZE, np.bool_)
    there[100:105] = False
    async with opened(store) as client:
        store.reset()
        ops = {"op": "sum,mean,min,max,count", "undefined": "skip"}
        reply = await client("GET", f"{path}/reduce", **ops)
        assert chunk_gets(store) == 0
        some = values[there]
        assert reply["value"]["count"] == len(some)
        assert (reply["value"]["min"], reply["value"]["max"]) == (some.min(), some.max())
        assert abs(reply["value"]["sum"] - some.sum()) < 1e-11
        reply = await client("GET", f"{path}/reduce", select=f"[5:{SIZE - 3}]", **ops)
        assert chunk_gets(store) == 2
        assert reply["value"]["mean"] == pytest.approx(values[5:-3][there[5:-3]].mean(), abs=1e-14)
        await put(client, path, np.array([np.nan]).tobytes(), select="[9:10]")
        reply = await client("GET", f"{path}/reduce", accept=BINARY, **ops)
        found = np.frombuffer(reply.body, "<f8")
        assert np.isnan(found[:4]).all()


@pytest.mark.endurance
async def test_queries_during_writes_miss_nothing(store: CountingStore) -> None:
    """Values only grow: what was written before a query is found by it, and what it finds was written by its end."""
    rng = np.random.default_rng(4)
    size, rounds = 70 * LENGTH, repeats(1000, short=40)
    model = np.ones(size, "<i4")
    is_done = False
    async with opened(store) as client:
        assert (await client("PUT", "/", {})).status == 201
        path = await create(client, [size], I32, layout=sparse(LENGTH))
        await put(client, path, model.tobytes())
        begun = model.copy()

        async def write() -> None:
            while not is_done:
                place, value = int(rng.integers(size)), int(rng.integers(1, 50))
                begun[place] += value
                body = {"points": [place], "value": [int(begun[place])]}
                await put(client, path, body)
                model[place] = begun[place]

        async def ask() -> None:
            for _ in range(rounds):
                least = int(rng.integers(2, 60))
                before = set(np.flatnonzero(model >= least).tolist())
                answer = set(await found(client, path, f"_ >= {least}"))
                assert before <= answer
                assert answer <= set(np.flatnonzero(begun >= least).tolist())

        writer = asyncio.create_task(write())
        await asyncio.gather(*(ask() for _ in range(4)))
        is_done = True
        await writer


@pytest.mark.endurance
@pytest.mark.parametrize("layout", [sparse(1, LENGTH), chunked(1, LENGTH)])
@pytest.mark.parametrize("statistics", [True, False])
async def test_reductions_during_writes_see_each_chunk_at_one_moment(
    store: CountingStore, layout: dict[str, Any], *, statistics: bool
) -> None:
    """A row is a chunk, whose elements are written together: all have one number, and numbers only grow."""
    rng = np.random.default_rng(5)
    rows, rounds, is_done = 60, repeats(100, short=10), False
    written, begun = np.zeros(rows, "<i4"), np.zeros(rows, "<i4")
    async with opened(store) as client:
        assert (await client("PUT", "/", {})).status == 201
        path = await create(client, [rows, LENGTH], I32, layout=layout, chunkStatistics=statistics)

        async def write() -> None:
            while not is_done:
                row = int(rng.integers(rows))
                begun[row] += 1
                body = np.full(LENGTH, begun[row], "<i4").tobytes()
                await put(client, path, body, select=f"[{row},:]")
                written[row] = begun[row]

        async def ask() -> None:
            for _ in range(rounds):
                before = written.copy()
                ops = {"op": "min,max,sum,nnz", "axis": 1, "undefined": "fill"}
                value = (await client("GET", f"{path}/reduce", **ops))["value"]
                least, total, nonzero = (np.array(value[name]) for name in ("min", "sum", "nnz"))
                assert least.tolist() == value["max"]
                assert (total == LENGTH * least).all()
                assert (nonzero == np.where(least > 0, LENGTH, 0)).all()
                assert ((before <= least) & (least <= begun)).all()

        writer = asyncio.create_task(write())
        await asyncio.gather(*(ask() for _ in range(4)))
        is_done = True
        await writer
    assert written.max() > 0
