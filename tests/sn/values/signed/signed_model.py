"""Random programs of a signed dataset against a dict of signed places."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyarrow import ipc

from hsparse.sn.values.media.arrow import ArrowWriter
from tests.sn.value_client import ARROW, BINARY, sparse
from tests.support.rest_client import Reply, RestClient

CHUNK = (4, 3)
FILL = -1
UNLIMITED = "H5S_UNLIMITED"
LAYOUTS: dict[str, dict[str, Any]] = {
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
            "type": "H5T_STD_I64LE",
            "shape": [high - low for low, high in zip(self.lower, self.upper, strict=True)],
            "maxdims": [0, 0],
            "lower": self.lower,
            "minlower": [UNLIMITED, UNLIMITED],
            "creationProperties": {"layout": LAYOUTS[self.layout], "fillValue": FILL},
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
        changes = [
            self.write,
            self.write_points,
            self.append,
            self.append,
            self.extend,
            self.shrink,
            self.window,
        ]
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
        shifted = await self.client("GET", f"{self.path}/value", accept=BINARY)
        assert shifted.body == whole.body
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
