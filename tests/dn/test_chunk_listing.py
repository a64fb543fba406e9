"""Chunks as a listing has them, against the names that were put."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.chunk_index import listed_chunks
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.selection import Orthogonal
from hsparse.model.ids import chunk_key, chunk_prefix, map_key, storage_key
from hsparse.storage.memory import MemoryStore

DATASET = "d-00000000-00000001-0000-000000-000001"
GRID = Grid((120, 30), (10, 10))
NAMES = [f"{i}_{j}" for i, j in itertools.product(range(14), range(5))]
OTHERS = ["x", "1", "1_2_3", "01_2", "1_02", "-1_2", "1_2x", "1_", "_", "9" * 30 + "_0", "1_2/3", "²_1"]


def inside(name: str) -> bool:
    return all(int(part) < count for part, count in zip(name.split("_"), GRID.counts, strict=True))


async def filled(names: set[str], page_size: int) -> MemoryStore:
    store = MemoryStore(page_size=page_size)
    for key in (storage_key(DATASET), map_key(DATASET), chunk_prefix(DATASET)[:-1] + "2/0_0"):
        await store.put(key, b"{}")
    for name in names:
        await store.put(chunk_prefix(DATASET) + name, name.encode())
    return store


@given(
    st.sets(st.sampled_from([*NAMES, *OTHERS])),
    st.integers(1, 9),
    st.one_of(st.none(), st.tuples(st.integers(0, 11), st.integers(0, 2))),
)
async def test_chunks_of_the_grid_come_in_order_of_keys_behind_the_marker(
    names: set[str], page_size: int, after: tuple[int, int] | None
) -> None:
    store = await filled(names, page_size)
    expected = sorted(name for name in names if name in NAMES and inside(name))
    if after is not None:
        marker = chunk_key(DATASET, after).rpartition("/")[2]
        expected = [name for name in expected if name > marker]
    found = []
    async for rows in listed_chunks(store, DATASET, GRID, None, after or ()):
        assert 0 < len(rows) <= page_size
        for scaled, size, etag in zip(rows.scaled.tolist(), rows.size.tolist(), rows.etags, strict=True):
            name = "_".join(map(str, scaled))
            stored = await store.get(chunk_prefix(DATASET) + name)
            assert (size, etag) == (stored.size, stored.etag)
            found.append(name)
    assert found == expected


async def test_a_selection_chooses() -> None:
    store = await filled(set(NAMES), 7)
    box = Orthogonal.box(GRID.extent, (15, 12), (31, 19))
    found = [
        tuple(scaled)
        async for rows in listed_chunks(store, DATASET, GRID, box)
        for scaled in rows.scaled.tolist()
    ]
    assert found == [(1, 1), (2, 1), (3, 1)]


async def test_the_chunk_of_a_scalar() -> None:
    store = await filled({"0", "1"}, 5)
    (rows,) = [rows async for rows in listed_chunks(store, DATASET, Grid((), ()), None)]
    assert rows.scaled.shape == (1, 0)
    assert rows.scaled.dtype == np.uint64
