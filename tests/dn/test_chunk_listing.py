"""Chunks as a listing has them, against the names that were put."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.chunk_index import listed_chunks
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Orthogonal
from hsparse.model.ids import chunk_prefix, map_key, storage_key
from hsparse.model.stripes import Stripes
from tests.testing.memory_store import MemoryStore

DATASET = "d-00000000-00000001-0000-000000-000001"
PREFIX = chunk_prefix(DATASET)
GRID = Grid((120, 30), (10, 10))
PLAIN = ChunkSpec(DATASET, "H5T_STD_I32LE", (10, 10), False, b"", ((),))
STRIPED = replace(PLAIN, stripes=Stripes(3))
SIGNED = replace(PLAIN, base=(-3, -1))
NAMES = {
    spec: {spec.key(scaled).removeprefix(PREFIX): scaled for scaled in itertools.product(range(14), range(5))}
    for spec in (PLAIN, STRIPED, SIGNED)
}
OTHERS = ["x", "1", "1_2_3", "01_2", "1_02", "-1_2", "1_2x", "1_", "_", "9" * 30 + "_0", "1_2/3", "²_1"]
OTHERS += [
    ".stripe/3/0_0",
    ".stripe/1/0_1",
    ".stripe/1_2/3",
    ".stripe/1/00_0",
    ".stripe/x",
    ".stripe/2/1/0_1",
]


async def filled(names: set[str], page_size: int) -> MemoryStore:
    store = MemoryStore(page_size=page_size)
    for key in (storage_key(DATASET), map_key(DATASET), PREFIX[:-1] + "2/0_0"):
        await store.put(key, b"{}")
    for name in names:
        await store.put(PREFIX + name, name.encode())
    return store


@pytest.mark.parametrize("spec", [PLAIN, STRIPED, SIGNED], ids=["plain", "striped", "signed"])
@given(
    names=st.sets(st.sampled_from([*NAMES[PLAIN], *NAMES[STRIPED], *NAMES[SIGNED], *OTHERS])),
    page_size=st.integers(1, 9),
    after=st.one_of(st.none(), st.tuples(st.integers(0, 11), st.integers(0, 2))),
)
async def test_chunks_of_the_grid_come_in_order_of_keys_behind_the_marker(
    spec: ChunkSpec, names: set[str], page_size: int, after: tuple[int, int] | None
) -> None:
    store = await filled(names, page_size)
    expected = sorted(name for name in names if GRID.holds(NAMES[spec].get(name, (99, 99))))
    if after is not None:
        expected = [name for name in expected if PREFIX + name > spec.key(after)]
    found = []
    async for rows in listed_chunks(store, spec, GRID, None, after or ()):
        assert 0 < len(rows) <= page_size
        for scaled, size, etag in zip(rows.scaled.tolist(), rows.size.tolist(), rows.etags, strict=True):
            stored = await store.get(spec.key(scaled))
            assert (size, etag) == (stored.size, stored.etag)
            found.append(spec.key(scaled).removeprefix(PREFIX))
    assert found == expected


async def test_a_selection_chooses() -> None:
    store = await filled({*NAMES[PLAIN]}, 7)
    box = Orthogonal.box(GRID.extent, (15, 12), (31, 19))
    found = [
        tuple(scaled)
        async for rows in listed_chunks(store, PLAIN, GRID, box)
        for scaled in rows.scaled.tolist()
    ]
    assert found == [(1, 1), (2, 1), (3, 1)]


async def test_the_chunk_of_a_scalar() -> None:
    store = await filled({"0", "1"}, 5)
    (rows,) = [rows async for rows in listed_chunks(store, replace(PLAIN, dims=()), Grid((), ()), None)]
    assert rows.scaled.shape == (1, 0)
    assert rows.scaled.dtype == np.uint64
