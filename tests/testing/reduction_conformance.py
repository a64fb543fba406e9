"""Conformance tests of a `DataNode` for reductions, over a fixture `node` on an empty store.

A test module of an implementation provides the fixture and imports all tests of this and the other conformance
modules by `*`. Tests must not be overridden.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.plan.chunk_plan import ChunkSelection, plan
from hsparse.format.plan.grid import Grid
from hsparse.format.reductions.partials import Partials
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.points import Orthogonal, StridedSpan
from hsparse.model.vlen_array import VlenArray
from hsparse.wire.chunk_message import EraseChunks, ReduceChunks, WriteChunks
from hsparse.wire.message import DataNode
from tests.testing.chunk_conformance import DIMS, spec
from tests.testing.vlen_conformance import DIMS as VLEN_DIMS
from tests.testing.vlen_conformance import about as vlen_spec

EXTENT = (15, 21)
GRID = Grid(EXTENT, DIMS)
COLUMNS = ("greatest", "least", "nonzero", "squares", "total")
REDUCED = (
    Orthogonal.all(EXTENT),
    Orthogonal(EXTENT, (StridedSpan.range(3, 14), StridedSpan(1, 4, 5))),
    Orthogonal(EXTENT, (np.array([0, 2, 7, 13], np.uint64), StridedSpan.range(0, 21))),
)


def message(
    about: ChunkSpec, selection: Orthogonal, reduction: Reduction, codes: NDArray[np.int32] | None = None
) -> ReduceChunks:
    planned = plan(selection, GRID)
    parts = tuple(ChunkSelection(chunk.scaled, chunk.selection, chunk.full) for chunk in planned)
    return ReduceChunks(about, parts, np.array([chunk.origin for chunk in planned]), reduction, codes)


async def filled(node: DataNode, about: ChunkSpec) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Write and erase elements in some chunks; return the values and the mask of defined (dense: stored) elements."""
    rng = np.random.default_rng(3)
    values, there = np.zeros(EXTENT), np.zeros(EXTENT, np.bool_)
    some = Orthogonal(EXTENT, (StridedSpan.range(2, 12), StridedSpan.range(1, 15)))
    values[2:12, 1:15] = rng.integers(-9, 9, (10, 14))
    there[2:12, 1:15] = True
    for chunk in plan(some, GRID):
        part = ChunkSelection(chunk.scaled, chunk.selection)
        await node.send(WriteChunks(about, (part,), (values[2:12, 1:15][chunk.place],)))
    if about.sparse:
        for chunk in plan(Orthogonal.box(EXTENT, (4, 4), (9, 9)), GRID):
            await node.send(EraseChunks(about, (ChunkSelection(chunk.scaled, chunk.selection),)))
        there[4:9, 4:9] = values[4:9, 4:9] = 0
        return values, there
    stored = np.zeros(EXTENT, np.bool_)
    for chunk in plan(some, GRID):
        box = tuple(slice(i * dim, (i + 1) * dim) for i, dim in zip(chunk.scaled, DIMS, strict=True))
        stored[box] = True
    return values, stored


def spread(found: Partials, places: int) -> Partials:
    """Scatter partial results into arrays with all `places` places of the result."""
    whole = Partials.empty(places, found.least.dtype, COLUMNS)
    whole.merge(found)
    return whole


@pytest.mark.parametrize("sparse", [True, False])
async def test_reductions_are_those_of_numpy(node: DataNode, sparse: bool) -> None:
    about = spec(sparse=sparse)
    values, there = await filled(node, about)
    for selection in REDUCED:
        some, mask = values[selection.index()], there[selection.index()]
        for axes in ((0,), (1,), (0, 1)):
            reduction = Reduction(selection.shape, axes, COLUMNS)
            found = spread(await node.send(message(about, selection, reduction)), reduction.places)
            assert found.count.tolist() == mask.sum(axis=axes).reshape(-1).tolist()
            assert found.sums().tolist() == some.sum(axis=axes).reshape(-1).tolist()
            assert found.nonzero.tolist() == (some != 0).sum(axis=axes).reshape(-1).tolist()
            least = some.min(axis=axes, where=mask, initial=np.inf)
            assert found.least.tolist() == least.reshape(-1).tolist()
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = some.sum(axis=axes, keepdims=True) / mask.sum(axis=axes, keepdims=True)
            squares = ((some - mean) ** 2).sum(axis=axes, where=mask)
            np.testing.assert_allclose(found.squares, squares.reshape(-1), atol=1e-9)


@pytest.mark.parametrize("sparse", [True, False])
async def test_reductions_by_groups(node: DataNode, sparse: bool) -> None:
    about = spec(sparse=sparse)
    values, _ = await filled(node, about)
    codes = np.array([0, 2, -1, 1, 0] * 3, np.int32)
    selection = REDUCED[0]
    reduction = Reduction(EXTENT, (0,), COLUMNS, grouped=0, groups=3)
    found = spread(await node.send(message(about, selection, reduction, codes)), reduction.places)
    wanted = np.stack([values[codes == group].sum(axis=0) for group in range(3)])
    assert found.sums().reshape(3, 21).tolist() == wanted.tolist()


async def test_each_chunk_is_reduced_at_one_time(node: DataNode) -> None:
    about, selection = spec(sparse=True), Orthogonal.all(DIMS)
    part = ChunkSelection((0, 0), selection)
    reduction = Reduction(DIMS, (0, 1), ("total",))
    ask = ReduceChunks(about, (part,), np.zeros((1, 2), np.int64), reduction)

    async def write() -> None:
        for value in range(1, 20):
            await node.send(WriteChunks(about, (part,), (np.full(DIMS, float(value)),)))

    async def reduce() -> None:
        for _ in range(20):
            found = await node.send(ask)
            count = int(found.count.sum())
            assert count in (0, selection.size)
            assert not count or float(found.sums()[0]) % selection.size == 0

    await asyncio.gather(write(), reduce())


@pytest.mark.parametrize("sparse", [True, False])
async def test_only_counts_of_elements_of_any_length(node: DataNode, sparse: bool) -> None:
    about = vlen_spec(sparse=sparse)
    selection = Orthogonal.box(VLEN_DIMS, (1, 0), (3, 5))
    write = ChunkSelection((0, 0), Orthogonal.box(VLEN_DIMS, (0, 1), (2, 3)))
    await node.send(WriteChunks(about, (write,), (VlenArray.of([b"\1\0\0\0a"]),)))
    part, origin = ChunkSelection((0, 0), selection), np.zeros((1, 2), np.int64)
    found = await node.send(ReduceChunks(about, (part,), origin, Reduction((2, 5), (0,), ())))
    assert found.count.sum() == (2 if sparse else 10)
    with pytest.raises(Unsupported):
        await node.send(ReduceChunks(about, (part,), origin, Reduction((2, 5), (0,), ("total",))))
