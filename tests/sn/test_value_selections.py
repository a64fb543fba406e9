"""Any `select` string, read and written over HTTP, against numpy's own indexing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.support.endurance import repeats

SHAPE = (13, 9, 11)
CHUNK = (5, 4, 11)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A `select` string, and the numpy index of the same elements, in the same shape, or of a flat list."""

    select: str
    index: Any
    paired: bool


@st.composite
def selects(draw: st.DrawFn) -> Drawn:
    """Draw an index, a slice with a step or a list for each dimension; two lists or more are paired."""
    pieces, axes, lists = [], [], 0
    length = draw(st.integers(1, 6))
    for extent in SHAPE:
        kind = draw(st.sampled_from(["index", "slice", "list", "all"]))
        if kind == "index":
            start = draw(st.integers(0, extent - 1))
            pieces.append(str(start))
            axes.append(np.array([start]))
        elif kind == "slice":
            start, stop = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
            step = draw(st.integers(1, extent))
            pieces.append(f"{start}:{stop}" + (f":{step}" if step > 1 or draw(st.booleans()) else ""))
            axes.append(np.arange(start, stop, step))
        elif kind == "list":
            items = draw(st.lists(st.integers(0, extent - 1), min_size=length, max_size=length))
            pieces.append(f"[{','.join(map(str, items))}]")
            axes.append(np.array(items))
            lists += 1
        else:
            pieces.append(":")
            axes.append(np.arange(extent))
    listed = [piece.startswith("[") for piece in pieces]
    return Drawn(f"[{','.join(pieces)}]", index_of(axes, listed), lists > 1)


def index_of(axes: list[np.ndarray], listed: list[bool]) -> Any:
    """Return the index arrays of a product of axes in which the listed ones go together, at the first's place."""
    together = [dim for dim, is_list in enumerate(listed) if is_list]
    kept = [dim for dim in range(len(axes)) if dim not in together[1:]]
    arrays = []
    for dim, axis in enumerate(axes):
        place = kept.index(together[0] if dim in together else dim)
        arrays.append(axis.reshape((-1,) + (1,) * (len(kept) - place - 1)))
    return np.broadcast_arrays(*arrays)


@pytest.mark.endurance
@settings(max_examples=repeats(60, short=20))
@given(st.lists(selects(), min_size=1, max_size=4), st.booleans())
def test_what_is_selected_is_what_numpy_selects(drawn: list[Drawn], dense: bool) -> None:
    async def check() -> None:
        async with value_client() as client:
            layout = {"class": "H5D_CHUNKED", "dims": list(CHUNK)} if dense else sparse(*CHUNK)
            path = await create(client, list(SHAPE), "H5T_STD_I32LE", fillValue=-1, layout=layout)
            model = np.full(SHAPE, -1, "<i4")
            for number, one in enumerate(drawn, 1):
                index = tuple(one.index)
                shape = model[index].shape
                values = (np.arange(model[index].size, dtype="<i4") + 10_000 * number).reshape(shape)
                reply = await client("PUT", f"{path}/value", values.tobytes(), select=one.select)
                assert reply.status == 200, reply.body
                flat = model.reshape(-1)
                places = np.ravel_multi_index(index, SHAPE).ravel()
                flat[places] = values.ravel()  # of an element given twice the last wins
                got = await read(client, path, "<i4", shape, select=one.select)
                np.testing.assert_array_equal(got, model[index])
                json = await client("GET", f"{path}/value", select=one.select)
                assert json["value"] == model[index].tolist()
                posted = await client("POST", f"{path}/value", {"select": one.select}, accept=BINARY)
                assert posted.body == model[index].tobytes()
                points = np.stack([axis.ravel() for axis in index], 1).astype("<u8")
                binary = await client("POST", f"{path}/value", points.tobytes(), accept=BINARY)
                assert binary.body == model[index].tobytes()
                listed = await client("POST", f"{path}/value", {"points": points.tolist()})
                assert listed["value"] == model[index].ravel().tolist()
                one_for_all = await client("PUT", f"{path}/value", {"value": -number}, select=one.select)
                assert one_for_all.status == 200
                flat[places] = -number
            np.testing.assert_array_equal(await read(client, path, "<i4", SHAPE), model)

    asyncio.run(check())


async def test_points_that_have_not_the_rank() -> None:
    async with value_client() as client:
        scalar = await create(client, "H5S_SCALAR", "H5T_STD_I32LE")
        flat = await create(client, [2, 2], "H5T_STD_I32LE")
        for path, points in (
            (scalar, []),
            (scalar, [0]),
            (scalar, 0),
            (scalar, [[0]]),
            (flat, 0),
            (flat, [1]),
        ):
            reply = await client("POST", f"{path}/value", {"points": points})
            assert reply.status == 400, reply.body
        assert (await client("POST", f"{scalar}/value", {"points": [[]]}))["value"] == [0]
