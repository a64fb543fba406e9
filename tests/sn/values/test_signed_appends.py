"""Appends at both ends of a dataset: whole, by many, at a cost of their own; and random programs against a dict."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pyarrow import ipc

from hsparse.sn.records import dataset
from hsparse.sn.values import append as module
from hsparse.sn.values.media.arrow import ArrowWriter
from hsparse.storage.object_store import current_etag
from hsparse.wire.record_message import BeginAppend
from tests.sn.dataset_kinds import I64, sparse
from tests.sn.value_client import ARROW, BINARY, defined_count, put, value_client
from tests.support.rest_client import Reply, RestClient, answered
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

COLUMNS = 3
UNLIMITED = "H5S_UNLIMITED"
LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"class": "H5D_CHUNKED", "dims": [4, COLUMNS], "enlarge": False},
    "sparse": sparse(4, COLUMNS),
}


async def create(client: RestClient, layout: str | dict[str, Any], rows: int = 0, lower: int = 0) -> str:
    body = {
        "type": I64,
        "shape": [rows, COLUMNS],
        "maxdims": [UNLIMITED, COLUMNS],
        "lower": [lower, 0],
        "minlower": [UNLIMITED, 0],
        "creationProperties": {"layout": LAYOUTS[layout] if isinstance(layout, str) else layout},
    }
    made = await answered(client("POST", "/datasets", body), 201)
    return f"/datasets/{made['id']}"


async def append(client: RestClient, path: str, rows: np.ndarray, side: str, *, binary: bool = False) -> str:
    query = {"append": len(rows), "append_side": side, "places": "signed"}
    body = rows.astype("<i8").tobytes() if binary else {"value": rows.tolist()}
    reply = await put(client, path, body, **query)
    return str(reply["selection"])


async def rows_of(client: RestClient, path: str, select: str | None = None) -> np.ndarray:
    reply = await client("GET", f"{path}/value", accept=BINARY, places="signed", select=select or "")
    assert reply.status == 200, reply.body
    return np.frombuffer(reply.body, "<i8").reshape(-1, COLUMNS)


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=2) as made:
        yield made


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_many_append_at_both_ends(
    request: pytest.FixtureRequest, client: RestClient, layout: str
) -> None:
    """Each append is whole and where its answer says; no row is seen before its values are."""
    frames: int = request.config.getoption("--frames")
    path = await create(client, layout)
    numbers, places, done = iter(range(1, frames + 1)), dict[str, int](), asyncio.Event()

    async def write(side: str) -> None:
        for number in numbers:
            rows = np.full((1 + number % 3, COLUMNS), number)
            rows[:, 0] += 1_000_000 * np.arange(len(rows))
            place = await append(client, path, rows, side, binary=number % 2 == 0)
            assert place.startswith("[-") == (side == "lower")
            places[place] = number

    async def poll() -> None:
        while not done.is_set():
            assert (await rows_of(client, path) > 0).all(), "a row is seen that is not written"

    polls = [asyncio.create_task(poll()) for _ in range(2)]
    await asyncio.gather(*(write(side) for side in ("lower", "upper") * 8))
    done.set()
    await asyncio.gather(*polls)
    assert sorted(places.values()) == list(range(1, frames + 1))
    for select, number in list(places.items()):
        rows = await rows_of(client, path, select)
        assert rows[:, 0].tolist() == [number + 1_000_000 * i for i in range(1 + number % 3)]
        assert (rows[:, 1:] == number).all()
    shape = (await client("GET", f"{path}/shape"))["shape"]
    assert shape["dims"][0] == sum(1 + number % 3 for number in range(1, frames + 1))
    assert shape["lower"][0] < 0 < shape["lower"][0] + shape["dims"][0]


async def test_the_end_that_has_died_holds_up_only_its_own(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXPIRY_CHECK_SECONDS", -1.0)
    path = await create(client, "sparse", 5)
    id = path.rpartition("/")[2]
    dead = BeginAppend(id, "dead", (4, COLUMNS), 0, 60.0, below=True, lower=(0, 0))
    (await client.service.owners.apply(dead)).unwrap()
    assert await append(client, path, np.ones((2, COLUMNS), int), "upper") == "[5:7,:]"
    (await client.service.owners.apply(BeginAppend(id, "late", (1, COLUMNS), 0, -1.0))).unwrap()
    assert await append(client, path, np.ones((1, COLUMNS), int), "lower") == "[-1:0,:]"
    assert await defined_count(client, path) == 3 * COLUMNS


async def test_new_chunks_below_are_not_looked_for(store: CountingStore) -> None:
    async with value_client(store) as client:
        path = await create(client, "sparse", 3)
        store.reset()
        for _ in range(3):
            await append(client, path, np.ones((8, COLUMNS), int), "lower")
    assert (store.calls["get"], store.calls["put_if_absent"]) == (0, 6)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_cost_does_not_depend_on_the_size(layout: str) -> None:
    """Extending downwards, appending a row there and reading it take the same requests at any number of chunks."""
    counted = set()
    for chunks in (10, 1_000, 100_000):
        memory = MemoryStore()
        store = CountingStore(memory)
        async with value_client(store) as client:
            path = await create(client, layout, 4 * chunks, lower=-2)
            row = np.arange(COLUMNS)[None]
            await put(client, path, row.tobytes(), select="[0:1,:]")
            keys = [entry.key async for page in memory.list("db/") for entry in page.entries]
            (key,) = [key for key in keys if key.endswith("/-1_0")]
            data = (await memory.get(key)).data
            for number in range(chunks):
                await memory.put(f"{key.removesuffix('-1_0')}{number}_0", data)
            calls = []
            for number in range(2):
                store.reset()
                body = {"extend": 1, "dim": 0, "side": "lower"}
                assert (await client("PUT", f"{path}/shape", body)).status == 201
                await append(client, path, row + 1, "lower")
                first = -4 - 2 * number
                found = await rows_of(client, path, f"[{first}:{first + 1},:]")
                assert found.tolist() == (row + 1).tolist()
                calls.append(tuple(sorted(store.calls.items())))
            counted.add(tuple(calls))
    assert len(counted) == 1, counted
    assert not any(name == "list" for calls in counted for call in calls for name, _ in call)


class Requests(CountingStore):
    """Counts what S3 would be asked: the last page of a listing says that it is the last."""

    async def around(self, method: str, *rest: Any) -> Any:
        result = await super().around(method, *rest)
        self.calls[method] -= result is None and method == "list"
        return result


async def shrunk(layout: str, rows: int) -> tuple[list[Any], int]:
    """Return the requests of a dataset with so many rows of chunks that shrinks and rolls, and the most listings."""
    memory = MemoryStore()
    store = Requests(memory)
    calls, listings = list[Any](), list[int]()
    async with value_client(store) as client:
        path = await create(client, LAYOUTS[layout] | {"dims": [4, 1]}, 4 * rows + 2, lower=-2)
        await put(client, path, bytes(8 * COLUMNS), select="[0:1,:]")
        names = [entry.key async for page in memory.list("db/") for entry in page.entries]
        (first,) = [name for name in names if name.endswith("/-1_0")]
        prefix, data = first.removesuffix("-1_0"), (await memory.get(first)).data
        chunks = [(row, column) for row in range(rows + 2) for column in range(COLUMNS)]
        for row, column in chunks[: -2 * COLUMNS]:
            await memory.put(f"{prefix}{row}_{column}", data)

        async def ask(what: Awaitable[Any], left: range) -> None:
            store.reset()
            await what
            listings.append(store.calls.pop("list", 0))
            calls.append(tuple(sorted(store.calls.items())))
            for row, column in chunks[: 3 * COLUMNS] + chunks[-3 * COLUMNS :]:
                there = await current_etag(memory, f"{prefix}{row}_{column}") is not None
                assert there == (row in left), (row, left)

        def moved(**bounds: list[int]) -> Awaitable[Any]:
            return client("PUT", f"{path}/shape", bounds, places="signed")

        await ask(moved(lower=[0, 0]), range(rows))
        await ask(moved(lower=[3, 0]), range(rows))
        await ask(moved(lower=[5, 0]), range(1, rows))
        await ask(moved(shape=[4 * (rows - 1) - 5, COLUMNS]), range(1, rows - 1))
        for number in range(2):
            new = append(client, path, np.ones((4, COLUMNS), int), "upper")
            await ask(new, range(1 + number, rows + number))
            await ask(moved(lower=[8 + 4 * number, 0]), range(2 + number, rows + number))
    return calls, max(listings)


@pytest.mark.parametrize("most", [1_000, 100_000])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lists", [False, True])
async def test_a_shrink_costs_what_it_drops(
    monkeypatch: pytest.MonkeyPatch, lists: bool, layout: str, most: int
) -> None:
    """A row of chunks at either end, or a part of one, takes the same requests at any number of chunks.

    So does a window that rolls: rows are appended, and as many dropped. Where chunks are listed, these are few.
    """
    monkeypatch.setattr(dataset, "MOST_ASKED", 0 if lists else 100)
    calls, listings = await shrunk(layout, 4)
    assert listings == lists
    of_many, listings = await shrunk(layout, most // COLUMNS)
    assert of_many == calls
    assert listings <= 3 * lists


CHUNK = (4, 3)
FILL = -1
PROGRAM_LAYOUTS: dict[str, dict[str, Any]] = {
    "sparse": sparse(*CHUNK),
    "dense": {"class": "H5D_CHUNKED", "dims": list(CHUNK), "enlarge": False},
    "striped": sparse(*CHUNK) | {"stripes": 3},
}
Place = tuple[int, int]


@dataclass
class SignedModel:
    """A dataset of two dimensions, and what it should have."""

    client: RestClient
    layout: str
    path: str = ""
    lower: list[int] = field(default_factory=lambda: [-2, -1])
    upper: list[int] = field(default_factory=lambda: [3, 4])
    values: dict[Place, int] = field(default_factory=dict)

    async def create(self) -> SignedModel:
        body = {
            "type": I64,
            "shape": [high - low for low, high in zip(self.lower, self.upper, strict=True)],
            "maxdims": [0, 0],
            "lower": self.lower,
            "minlower": [UNLIMITED, UNLIMITED],
            "creationProperties": {"layout": PROGRAM_LAYOUTS[self.layout], "fillValue": FILL},
        }
        made = await self.client("POST", "/datasets", body)
        assert made.status == 201, made.body
        self.path = f"/datasets/{made['id']}"
        return self

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200, **query: Any) -> Reply:
        reply = await self.client(method, f"{self.path}{path}", body, places="signed", **query)
        assert reply.status == status, reply.body
        return reply

    # --- changes ------------------------------------------------------------------------------------

    async def step(self, rng: np.random.Generator) -> None:
        """Make a random change of both."""
        changes = [self.write, self.write_points, self.append, self.append, self.extend]
        changes += [self.shrink, self.window]
        if self.layout != "dense":
            changes += [self.erase, self.write_arrow]
        await changes[rng.integers(len(changes))](rng)

    def box(self, rng: np.random.Generator) -> tuple[range, range] | None:
        axes = []
        for low, high in zip(self.lower, self.upper, strict=True):
            if high == low:
                return None
            start = int(rng.integers(low, high))
            axes.append(range(start, int(rng.integers(start, high)) + 1, int(rng.integers(1, 3))))
        return axes[0], axes[1]

    def points(self, rng: np.random.Generator) -> list[Place]:
        if any(high == low for low, high in zip(self.lower, self.upper, strict=True)):
            return []
        count = int(rng.integers(1, 6))
        columns = [
            rng.integers(low, high, count).tolist() for low, high in zip(self.lower, self.upper, strict=True)
        ]
        return list(dict.fromkeys(zip(*columns, strict=True)))

    async def write(self, rng: np.random.Generator) -> None:
        if (box := self.box(rng)) is None:
            return
        values = rng.integers(0, 100, (len(box[0]), len(box[1])))
        if rng.integers(2):
            await self.ask("PUT", "/value", {"value": values.tolist()}, select=select_of(*box))
        else:
            await self.ask("PUT", "/value", values.astype("<i8").tobytes(), select=select_of(*box))
        for i, row in enumerate(box[0]):
            for j, column in enumerate(box[1]):
                self.values[row, column] = int(values[i, j])

    async def write_points(self, rng: np.random.Generator) -> None:
        points = self.points(rng)
        values = rng.integers(0, 100, len(points)).tolist()
        await self.ask("PUT", "/value", {"points": points, "value": values})
        self.values.update(zip(points, values, strict=True))

    async def write_arrow(self, rng: np.random.Generator) -> None:
        points = self.points(rng)
        values = rng.integers(0, 100, len(points))
        await self.ask("PUT", "/value", arrow_of(points, values), headers=ARROW)
        self.values.update(zip(points, values.tolist(), strict=True))

    async def erase(self, rng: np.random.Generator) -> None:
        if (box := self.box(rng)) is None:
            return
        await self.ask("DELETE", "/value", select=select_of(*box))
        for row in box[0]:
            for column in box[1]:
                self.values.pop((row, column), None)

    async def append(self, rng: np.random.Generator) -> None:
        dim, below, count = int(rng.integers(2)), bool(rng.integers(2)), int(rng.integers(1, 7))
        shape = [high - low for low, high in zip(self.lower, self.upper, strict=True)]
        shape[dim] = count
        values = rng.integers(0, 100, shape)
        body = {"append": count, "append_dim": dim, "append_side": "lower" if below else "upper"}
        reply = await self.ask("PUT", "/value", body | {"value": values.tolist()})
        start = self.grow(dim, below, count)
        assert reply["selection"] == selected(dim, start, count)
        corner = list(self.lower)
        corner[dim] = start
        for (i, j), value in np.ndenumerate(values):
            self.values[corner[0] + i, corner[1] + j] = int(value)

    def grow(self, dim: int, below: bool, count: int) -> int:
        """Move a bound outwards; return the first new place."""
        if below:
            self.lower[dim] -= count
            return self.lower[dim]
        self.upper[dim] += count
        return self.upper[dim] - count

    async def extend(self, rng: np.random.Generator) -> None:
        dim, below, count = int(rng.integers(2)), bool(rng.integers(2)), int(rng.integers(1, 9))
        body = {"extend": count, "dim": dim, "side": "lower" if below else "upper"}
        reply = await self.ask("PUT", "/shape", body, status=201)
        assert reply["selection"] == selected(dim, self.grow(dim, below, count), count)

    async def shrink(self, rng: np.random.Generator) -> None:
        dim = int(rng.integers(2))
        by = int(rng.integers(0, self.upper[dim] - self.lower[dim] + 1))
        if rng.integers(2):
            self.lower[dim] += by
            await self.ask("PUT", "/shape", {"lower": self.lower}, status=201)
        else:
            self.upper[dim] -= by
            await self.ask("PUT", "/shape", {"shape": self.shape}, status=201)
        self.drop()

    async def window(self, rng: np.random.Generator) -> None:
        """Move both bounds of a dimension."""
        dim, by, more = int(rng.integers(2)), int(rng.integers(-5, 6)), int(rng.integers(0, 3))
        self.lower[dim] += by
        self.upper[dim] = max(self.lower[dim], self.upper[dim] + more)
        await self.ask("PUT", "/shape", {"lower": self.lower, "shape": self.shape}, status=201)
        self.drop()

    def drop(self) -> None:
        self.values = {place: value for place, value in self.values.items() if self.holds(place)}

    def holds(self, place: Place) -> bool:
        return all(low <= at < high for low, at, high in zip(self.lower, place, self.upper, strict=True))

    @property
    def shape(self) -> list[int]:
        return [high - low for low, high in zip(self.lower, self.upper, strict=True)]

    # --- what is there ------------------------------------------------------------------------------

    @property
    def array(self) -> np.ndarray:
        found = np.full(self.shape, FILL, np.int64)
        for (row, column), value in self.values.items():
            found[row - self.lower[0], column - self.lower[1]] = value
        return found

    async def check(self, rng: np.random.Generator) -> None:
        """Compare every kind of read with the model."""
        shape = (await self.ask("GET", "/shape"))["shape"]
        assert (shape["dims"], shape["lower"]) == (self.shape, self.lower)
        whole = await self.ask("GET", "/value", accept=BINARY)
        np.testing.assert_array_equal(np.frombuffer(whole.body, "<i8").reshape(self.shape), self.array)
        assert (await self.client("GET", f"{self.path}/value", accept=BINARY)).body == whole.body
        if (box := self.box(rng)) is not None:
            await self.check_box(*box)
        if points := self.points(rng):
            found = await self.ask("POST", "/value", {"points": points})
            assert found["value"] == [self.values.get(place, FILL) for place in points]
            packed = np.array(points, "<i8").tobytes()
            found = await self.ask("POST", "/value", packed, accept=BINARY)
            assert np.frombuffer(found.body, "<i8").tolist() == [self.values.get(at, FILL) for at in points]
        await self.check_query(rng)
        await self.check_chunks()

    async def check_box(self, rows: range, columns: range) -> None:
        select = select_of(rows, columns)
        index = np.ix_([row - self.lower[0] for row in rows], [column - self.lower[1] for column in columns])
        found = await self.ask("GET", "/value", select=select)
        assert found["value"] == self.array[index].tolist()
        zero = select_of(
            *(
                range(axis.start - low, axis.stop - low, axis.step)
                for axis, low in zip((rows, columns), self.lower, strict=True)
            )
        )
        assert (await self.client("GET", f"{self.path}/value", select=zero))["value"] == found["value"]
        total = await self.ask("GET", "/reduce", op="sum", select=select, undefined="fill")
        assert total["value"]["sum"] == self.array[index].sum()
        if self.layout == "dense":
            return
        inside = {at: value for at, value in self.values.items() if at[0] in rows and at[1] in columns}
        assert (await self.ask("GET", "/defined", select=select, count_only=1))["count"] == len(inside)
        assert places_of((await self.ask("GET", "/defined", select=select))["selection"]) == set(inside)
        moved = (await self.client("GET", f"{self.path}/defined", select=zero))["selection"]
        assert places_of(moved) == {(i - self.lower[0], j - self.lower[1]) for i, j in inside}
        listed = await self.ask("GET", "/value", select=select, sparse=1)
        assert places_of(listed["selection"]) == set(inside)
        table = await self.ask("GET", "/value", select=select, sparse=1, accept=ARROW["Content-Type"])
        columns_found = ipc.open_stream(io.BytesIO(table.body)).read_all().to_pydict()
        found_places = zip(columns_found["dim_0"], columns_found["dim_1"], strict=True)
        assert dict(zip(found_places, columns_found["value"], strict=True)) == inside
        if rows.step == columns.step == 1:
            counts = (await self.ask("GET", "/density", select=select, bin="2,2"))["count"]
            assert np.sum(counts) == len(inside)

    async def check_query(self, rng: np.random.Generator) -> None:
        limit = int(rng.integers(0, 100))
        found = await self.ask("GET", "/value", query=f"_ > {limit}")
        expected = sorted(at for at, value in self.values.items() if value > limit)
        assert [tuple(at) for at in found["index"]] == expected
        assert found["value"] == [self.values[at] for at in expected]

    async def check_chunks(self) -> None:
        listed = (await self.ask("GET", "/chunks"))["chunks"]
        names = {tuple(row["scaled"]) for row in listed}
        needed = {(row // CHUNK[0], column // CHUNK[1]) for row, column in self.values}
        assert (
            needed <= names
            if self.layout == "dense"
            else needed == {tuple(row["scaled"]) for row in listed if row["defined"]}
        )
        for row in listed:
            assert row["offset"] == [i * dim for i, dim in zip(row["scaled"], CHUNK, strict=True)]
            assert row["key"].endswith("/" + "_".join(map(str, row["scaled"])))
        if self.layout != "dense":
            assert sum(row["defined"] for row in listed) == len(self.values)


def select_of(*axes: range) -> str:
    return f"[{','.join(f'{axis.start}:{axis.stop}:{axis.step}' for axis in axes)}]"


def selected(dim: int, start: int, count: int) -> str:
    axes = [":", ":"]
    axes[dim] = f"{start}:{start + count}"
    return f"[{','.join(axes)}]"


def arrow_of(points: list[Place], values: np.ndarray) -> bytes:
    coords = np.array(points, np.int64).reshape(len(points), 2)
    writer = ArrowWriter((-1, -1), np.dtype("<i8"))
    return writer.batch(list(coords.T), values.astype("<i8")) + writer.end()


def places_of(selection: dict[str, Any]) -> set[Place]:
    if selection["class"] == "H5S_SEL_NONE":
        return set()
    assert selection["class"] == "H5S_SEL_POINTS", selection
    return {(row, column) for row, column in selection["coordinates"]}


async def run_program(client: RestClient, layout: str, seed: int, steps: int) -> None:
    """Run a random program, and compare after each change."""
    rng = np.random.default_rng(seed)
    model = await SignedModel(client, layout).create()
    for _ in range(steps):
        await model.step(rng)
        await model.check(rng)
    await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("layout", PROGRAM_LAYOUTS)
async def test_a_program(client: RestClient, monkeypatch: pytest.MonkeyPatch, layout: str, seed: int) -> None:
    monkeypatch.setattr(dataset, "FIRST_KEYS", 1 + seed % 3)  # what is dropped is sought in several pages
    monkeypatch.setattr(dataset, "MOST_ASKED", (0, 0, 3, 100)[seed % 4])
    monkeypatch.setattr(dataset, "MOST_SOUGHT", (3, 100)[seed % 2])
    await run_program(client, layout, seed, 30)
