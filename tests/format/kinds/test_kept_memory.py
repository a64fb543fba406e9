"""What a read of a small part of a chunk returns keeps little memory: an answer has that of many chunks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import ChunkKind, Search
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import bind_query
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection, StridedSpan
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import text

DIMS = (64, 256)
COUNT = math.prod(DIMS)
WHOLE = Orthogonal.all(DIMS)
PLAIN: tuple[Filter, ...] = ()
NO_LIMIT = 2**63 - 1
MOST = 8192
"""Bytes that may be kept of a chunk of 128 KiB or more for one column of it."""
EVERY = StridedSpan.range(0, 64)
SMALL = {
    "a column": Orthogonal(DIMS, (EVERY, StridedSpan(5))),
    "every 16th column": Orthogonal(DIMS, (StridedSpan(0, 4, 16), StridedSpan(0, 16, 16))),
    "a row": Orthogonal(DIMS, (StridedSpan(3), StridedSpan.range(0, 256))),
    "one element": Orthogonal(DIMS, (StridedSpan(3), StridedSpan(9))),
    "a list of columns": Orthogonal(DIMS, (StridedSpan(3), np.array([1, 7, 9], np.uint64))),
}


def spec(vlen: bool, sparse: bool, *filters: tuple[Filter, ...]) -> ChunkSpec:
    if vlen:
        return ChunkSpec("d-1", text("H5T_VARIABLE"), DIMS, sparse, b"\0" * 4, filters)
    return ChunkSpec("d-1", "H5T_STD_I64LE", DIMS, sparse, b"\0" * 8, filters)


SPECS = {
    "dense": spec(False, False, PLAIN),
    "dense, filtered": spec(False, False, (Filter(1, (6,)),)),
    "sparse": spec(False, True, PLAIN, PLAIN),
    "dense vlen": spec(True, False, PLAIN),
    "sparse vlen": spec(True, True, PLAIN, PLAIN, PLAIN),
}
every_kind = pytest.mark.parametrize("about", SPECS.values(), ids=SPECS)
sparse_kinds = pytest.mark.parametrize("about", [SPECS["sparse"], SPECS["sparse vlen"]])
fixed_kinds = pytest.mark.parametrize("about", [SPECS["dense"], SPECS["sparse"]])


def kept(values: Any) -> int:
    """Return the bytes of memory that arrays keep, their own or those of what they are views of."""
    if isinstance(values, VlenArray):
        return kept(values.offsets) + kept(values.heap)
    found: NDArray[Any] = values
    while isinstance(found.base, np.ndarray):
        found = found.base
    return found.nbytes if found.base is None else memoryview(found.base).nbytes


def stored(about: ChunkSpec) -> tuple[ChunkKind[Any], Any]:
    """Return a chunk with all elements set, as it is read from the store."""
    kind: ChunkKind[Any] = kind_of(about)
    values: Any = np.arange(1, COUNT + 1, dtype="<i8").reshape(DIMS)
    if about.datatype.is_vlen:
        values = VlenArray.of([b"\x04\0\0\0%04x" % n for n in range(COUNT)], DIMS)
    chunk, _ = kind.write(ChunkSelection((0, 0), WHOLE, True), values, (), False)(None)
    return kind, kind.decode(bytes(kind.encode(chunk)))


@every_kind
@pytest.mark.parametrize("selection", SMALL.values(), ids=SMALL)
def test_a_read_keeps_what_was_selected(about: ChunkSpec, selection: Selection) -> None:
    kind, chunk = stored(about)
    values = kind.read(chunk, selection, (), NO_LIMIT)
    assert values is not None
    assert kept(values) <= MOST < kind.nbytes(chunk)


def test_a_read_of_generated_values_keeps_what_was_selected() -> None:
    about = ChunkSpec("d-1", "H5T_STD_I64LE", (COUNT,), False, b"\0" * 8, (PLAIN,), arange=(0.0, 1.0))
    kind: ChunkKind[Any] = kind_of(about)
    chunk = kind.missing((3,))
    values = kind.read(chunk, Orthogonal((COUNT,), (StridedSpan(0, COUNT // 2, 2),)), (), NO_LIMIT)
    assert isinstance(values, np.ndarray)
    assert values.tolist() == [3 * COUNT, 3 * COUNT + COUNT // 2]
    assert kept(values) <= MOST


def test_a_large_part_is_not_copied() -> None:
    kind, chunk = stored(SPECS["dense"])
    values = kind.read(chunk, Orthogonal(DIMS, (EVERY, StridedSpan.range(0, 200))), (), NO_LIMIT)
    assert np.shares_memory(values, chunk)


@sparse_kinds
@pytest.mark.parametrize("places_only", [True, False])
@pytest.mark.parametrize("selection", SMALL.values(), ids=SMALL)
def test_defined_elements_keep_what_was_selected(
    about: ChunkSpec, selection: Selection, places_only: bool
) -> None:
    kind, chunk = stored(about)
    found = kind.defined(chunk, selection, places_only, NO_LIMIT, False)
    assert found is not None
    assert not isinstance(found, int)
    assert kept(found.offsets) + kept(found.values) <= MOST


@sparse_kinds
def test_places_alone_keep_no_values(about: ChunkSpec) -> None:
    kind, chunk = stored(about)
    found = kind.defined(chunk, WHOLE, True, NO_LIMIT, False)
    assert found is not None
    assert not isinstance(found, int)
    assert kept(found.values) <= MOST


@fixed_kinds
@pytest.mark.parametrize("places_only", [True, False])
def test_a_query_keeps_what_its_limit_lets_through(about: ChunkSpec, places_only: bool) -> None:
    kind, chunk = stored(about)
    query = bind_query("_ > 0", about.dtype)
    found = kind.find(chunk, WHOLE, Search(query, limit=3, places_only=places_only))
    assert found.positions.tolist() == [0, 1, 2]
    assert kept(found.positions) + kept(found.values) <= MOST
    found = kind.find(chunk, WHOLE, Search(query, places_only=True))
    assert len(found.positions) == COUNT
    assert kept(found.values) <= MOST
