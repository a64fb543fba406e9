"""Conformance of the kinds of chunk: each does through `ChunkKind` what a dict of offsets does; given chunks."""

from __future__ import annotations

import math
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import packed_type
from hsparse.format.filters import pipeline
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds import dense_vlen, vlen_chunk
from hsparse.format.kinds.chunk_kind import (
    MAX_UNFILTERED,
    ChunkChange,
    ChunkKind,
    DefinedElements,
    DirectWrite,
    FoundElements,
    Search,
    open_direct_chunk,
)
from hsparse.format.kinds.dense import encode_dense
from hsparse.format.kinds.registry import KINDS, kind_of
from hsparse.format.kinds.sparse import SparseChunk, encode_sparse
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import Query, bind_query
from hsparse.format.reductions.reduction import Reduction
from hsparse.format.selections.extent import strides
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Boxes, Points, Selection, StridedSpan, ascending
from hsparse.format.structured.container import unseal
from hsparse.model.json_values import Values
from hsparse.model.vlen_array import VlenArray
from tests.format.selection_strategies import iterate, selections
from tests.model.type_strategies import text
from tests.testing.sparse_model import element_bytes

Row: TypeAlias = tuple[int, str]
"""An element of the type, a number and a text."""
Fields: TypeAlias = tuple[str, ...]

DIMS = (3, 4)
SCALED = (5, 7)
WHOLE = Orthogonal.all(DIMS)
FILL: Row = (3, "ab")
NAMES: Fields = ("n", "t")
NO_LIMIT = 2**63 - 1
PLAIN: tuple[Filter, ...] = ()
DEFLATE = (Filter(1, (6,)),)


def compound(length: int | str) -> Any:
    fields = [{"name": "n", "type": "H5T_STD_I32LE"}, {"name": "t", "type": text(length)}]
    return {"class": "H5T_COMPOUND", "fields": fields}


def spec(vlen: bool, sparse: bool, *filters: tuple[Filter, ...], dims: tuple[int, ...] = DIMS) -> ChunkSpec:
    item = compound("H5T_VARIABLE" if vlen else 2)
    return ChunkSpec("d-1", item, dims, sparse, as_bytes(vlen, FILL, NAMES), filters)


def as_bytes(vlen: bool, row: Row, fields: Fields) -> bytes:
    """Return the bytes of an element with only these fields."""
    word = row[1].encode()
    parts = {
        "n": struct.pack("<i", row[0]),
        "t": struct.pack("<I", len(word)) + word if vlen else word.ljust(2, b"\0"),
    }
    return b"".join(parts[name] for name in fields)


SPECS = {
    "dense": spec(False, False, DEFLATE),
    "sparse": spec(False, True, DEFLATE, PLAIN),
    "dense vlen": spec(True, False, DEFLATE),
    "dense vlen, structured": spec(True, False, PLAIN, DEFLATE, DEFLATE),
    "sparse vlen": spec(True, True, PLAIN, DEFLATE, PLAIN),
}
ROWS = st.tuples(st.integers(0, 5), st.sampled_from(["", "a", "ab", "ba"]))
FIELDS = st.sampled_from([(), ("n",), ("t",), ("t", "n")])

every_kind = pytest.mark.parametrize("about", SPECS.values(), ids=SPECS)


class Subject:
    """A chunk of a kind beside its model: the defined elements by their offsets."""

    def __init__(self, about: ChunkSpec) -> None:
        self.spec = about
        self.vlen = about.datatype.is_vlen
        self.kind: ChunkKind[Any] = kind_of(about)
        self.chunk: Any = None
        self.model: dict[int, Row] = {}

    def rows(self, selection: Selection) -> list[Row]:
        return [self.model.get(offset, FILL) for offset in offsets_of(selection)]

    def bytes_of(self, rows: Iterable[Row], fields: Fields = ()) -> list[bytes]:
        return [as_bytes(self.vlen, row, fields or NAMES) for row in rows]

    def values(self, rows: Sequence[Row], shape: tuple[int, ...], fields: Fields = ()) -> Values:
        elements = self.bytes_of(rows, fields)
        if self.vlen:
            return VlenArray.of(elements, shape)
        dtype = packed_type(self.spec.dtype, fields)
        return np.frombuffer(b"".join(elements), np.uint8).view(dtype).reshape(shape)

    def apply(self, change: Any) -> Any:
        """Apply a change twice, as after another writer's put; commit it; return its result."""
        before = None if self.chunk is None else bytes(self.kind.encode(self.chunk))
        change(self.chunk)
        chunk, result = change(self.chunk)
        if before is not None:
            assert bytes(self.kind.encode(self.chunk)) == before, "a committed chunk is not modified"
        self.chunk = chunk
        self.check()
        return result

    def check(self) -> None:
        """Compare the chunk, and what its object decodes to, with the model."""
        if self.chunk is None:
            assert not self.model
            return
        data = bytes(self.kind.encode(self.chunk))
        for chunk in (self.chunk, self.kind.decode(data)):
            assert self.all_read(chunk) == self.bytes_of(self.rows(WHOLE))
            if self.spec.sparse:
                assert self.kind.count(chunk, WHOLE) == len(self.model)
            assert self.kind.nbytes(chunk) > 0 or not self.model

    def all_read(self, chunk: Any) -> list[bytes]:
        values = self.kind.read(chunk, WHOLE, (), NO_LIMIT)
        assert not isinstance(values, int)
        return self.bytes_of([FILL] * 12) if values is None else element_bytes(values)


def offsets_of(selection: Selection) -> list[int]:
    steps = strides(DIMS)
    return [sum(i * step for i, step in zip(coord, steps, strict=True)) for coord in iterate(selection)]


def chunk_selection(selection: Selection) -> ChunkSelection:
    return ChunkSelection(SCALED, selection, len(set(offsets_of(selection))) == math.prod(DIMS))


@st.composite
def subjects(draw: st.DrawFn, about: ChunkSpec) -> Subject:
    """Return a chunk after some changes, each compared with the model."""
    subject = Subject(about)
    steps = [write_step, trim_step] + [erase_step] * about.sparse
    for _ in range(draw(st.integers(0, 4))):
        draw(st.sampled_from(steps))(draw, subject)
    return subject


def write_step(draw: st.DrawFn, subject: Subject) -> None:
    selection = draw(selections(DIMS))
    one_for_all = draw(st.booleans())
    rows = draw(st.lists(ROWS, min_size=(n := 1 if one_for_all else selection.size), max_size=n))
    fields = draw(FIELDS)
    drop_fill = subject.spec.sparse and not fields and draw(st.booleans())
    values = subject.values(rows, (1,) if one_for_all else selection.shape, fields)
    at = chunk_selection(selection)
    change = subject.kind.write(at, values, fields, drop_fill)
    if at.full and not fields and not drop_fill and subject.kind.replaces(at, values):
        blind, _ = change(None)
        assert bytes(subject.kind.encode(blind)) == bytes(subject.kind.encode(change(subject.chunk)[0]))
    for offset, row in zip(offsets_of(selection), rows * (selection.size if one_for_all else 1), strict=True):
        if not (drop_fill and row == FILL):
            old = dict(zip(NAMES, subject.model.get(offset, FILL), strict=True))
            new = old | {name: row[NAMES.index(name)] for name in fields or NAMES}
            subject.model[offset] = (int(new["n"]), str(new["t"]))
    assert subject.apply(change) is None


def erase_step(draw: st.DrawFn, subject: Subject) -> None:
    selection = draw(selections(DIMS))
    for offset in offsets_of(selection):
        subject.model.pop(offset, None)
    assert subject.apply(subject.kind.erase(selection)) is None


def trim_step(draw: st.DrawFn, subject: Subject) -> None:
    stop = tuple(draw(st.integers(1, dim)) for dim in DIMS)
    start = draw(st.one_of(st.just(()), st.tuples(*(st.integers(0, end) for end in stop))))
    inside = set(offsets_of(Orthogonal.box(DIMS, start or (0, 0), stop)))
    subject.model = {offset: row for offset, row in subject.model.items() if offset in inside}
    assert subject.apply(subject.kind.trim(SCALED, stop, start)) is None


def test_every_kind_is_here() -> None:
    assert {(one.sparse, one.datatype.is_vlen) for one in SPECS.values()} == set(KINDS)


@pytest.mark.endurance
@every_kind
@given(data=st.data())
def test_what_is_changed_is_read(about: ChunkSpec, data: st.DataObject) -> None:
    subject = data.draw(subjects(about))
    selection, fields = data.draw(selections(DIMS)), data.draw(FIELDS)
    limit = data.draw(st.sampled_from([0, 20, 60, NO_LIMIT]))
    if subject.chunk is None:
        return
    found = subject.kind.read(subject.chunk, selection, fields, limit)
    rows = subject.rows(selection)
    if found is None:
        assert set(rows) <= {FILL}
        return
    expected = subject.bytes_of(rows, fields)
    nbytes = sum(map(len, expected))
    if subject.vlen and nbytes > limit:
        assert found == nbytes
        return
    assert not isinstance(found, int)
    assert found.shape == selection.shape
    assert element_bytes(found) == expected
    assert subject.kind.answer_bytes(found) == nbytes
    assert subject.kind.read_work(subject.chunk, selection, fields) >= 0


@pytest.mark.endurance
@every_kind
@given(data=st.data())
def test_defined_elements_are_told_and_counted(about: ChunkSpec, data: st.DataObject) -> None:
    subject = data.draw(subjects(about))
    selection = data.draw(selections(DIMS))
    places_only, alone = data.draw(st.booleans()), data.draw(st.booleans())
    limit = data.draw(st.sampled_from([0, 20, 60, NO_LIMIT]))
    if subject.chunk is None:
        return
    if not about.sparse:
        for ask in (
            lambda: subject.kind.count(subject.chunk, selection),
            lambda: subject.kind.defined(subject.chunk, selection, places_only, limit, alone),
            lambda: subject.kind.erase(selection),
        ):
            with pytest.raises(BadRequest, match="is not sparse"):
                ask()
        return
    expected = sorted(set(offsets_of(selection)) & set(subject.model))
    assert subject.kind.count(subject.chunk, selection) == len(expected)
    found = subject.kind.defined(subject.chunk, selection, places_only, limit, alone)
    if not expected:
        assert found is None
        return
    elements = subject.bytes_of(subject.model[offset] for offset in expected)
    nbytes = 4 * len(expected) + sum(map(len, elements))
    if subject.vlen and not places_only and nbytes > limit and not (alone and len(expected) == 1):
        assert found == nbytes
        return
    assert isinstance(found, DefinedElements)
    assert (found.offsets.dtype, found.offsets.tolist()) == (np.uint32, expected)
    assert element_bytes(found.values) == ([] if places_only else elements)
    work = subject.kind.defined_work(subject.chunk, selection)
    assert 0 <= work <= subject.kind.nbytes(subject.chunk)
    assert work or found.offsets is subject.chunk.offsets, "what is no work is there"


def test_all_that_is_defined_is_read_without_work() -> None:
    kind: ChunkKind[Any] = kind_of(SPECS["sparse"])
    values = np.frombuffer(as_bytes(False, (1, "a"), NAMES), kind.spec.dtype)
    part = ChunkSelection(SCALED, Orthogonal(DIMS, (StridedSpan(1), StridedSpan.range(0, 2))))
    chunk, _ = kind.write(part, values, (), False)(None)
    assert kind.defined_work(chunk, WHOLE) == 0
    assert 0 < kind.defined_work(chunk, part.selection) <= kind.nbytes(chunk)


@pytest.mark.endurance
@every_kind
@given(data=st.data())
def test_queries_find_and_update(about: ChunkSpec, data: st.DataObject) -> None:
    subject = data.draw(subjects(about))
    drawn = data.draw(selections(DIMS))
    selection = drawn if isinstance(drawn, Boxes) else ascending(drawn)
    fields, limit, places_only = data.draw(FIELDS), data.draw(st.integers(0, 3)), data.draw(st.booleans())
    if subject.vlen:
        with pytest.raises(Unsupported):
            subject.kind.find(subject.chunk, selection, None)  # type: ignore[arg-type]
        with pytest.raises(Unsupported):
            subject.kind.update(chunk_selection(selection), None, np.zeros(1))  # type: ignore[arg-type]
        return
    query = bind_query(f"n > {data.draw(st.integers(-1, 5))}", about.dtype)
    rows = subject.rows(selection)
    places = [place for place, row in enumerate(rows) if row[0] > int(query.text[4:])]

    def check(found: FoundElements, places: list[int], expected: list[bytes]) -> None:
        assert (found.positions.dtype, found.positions.tolist()) == (np.uint32, places)
        assert element_bytes(found.values) == expected

    if subject.chunk is not None:
        some = places[: limit or None]
        elements = [] if places_only else subject.bytes_of((rows[place] for place in some), fields)
        found = subject.kind.find(subject.chunk, selection, Search(query, limit, fields, places_only))
        check(found, some, elements)
    new = data.draw(ROWS)
    update = subject.kind.update(
        chunk_selection(selection), Search(query, fields=fields), subject.values([new], (1,), fields)
    )
    offsets = offsets_of(selection)
    for place in places:
        row = [new[i] if not fields or name in fields else rows[place][i] for i, name in enumerate(NAMES)]
        subject.model[offsets[place]] = (int(row[0]), str(row[1]))
    found = subject.apply(update)
    check(found, places, subject.bytes_of(subject.model[offsets[place]] for place in places))


@pytest.mark.endurance
@every_kind
@given(data=st.data())
def test_a_damaged_object_is_corrupt(about: ChunkSpec, data: st.DataObject) -> None:
    subject = Subject(about)
    rows = data.draw(st.lists(ROWS, min_size=12, max_size=12))
    change = subject.kind.write(chunk_selection(WHOLE), subject.values(rows, DIMS), (), False)
    stored = bytes(subject.kind.encode(change(None)[0]))
    with pytest.raises(Corrupt):
        subject.kind.decode(stored[: data.draw(st.integers(0, len(stored) - 1))])


@pytest.mark.endurance
@every_kind
@given(selection=selections(DIMS))
def test_bounds_are_not_exceeded(about: ChunkSpec, selection: Selection) -> None:
    subject = Subject(about)
    values = subject.values([(1, "a")] * selection.size, selection.shape)
    chunk, _ = subject.kind.write(chunk_selection(selection), values, (), False)(None)
    assert about.sparse or subject.kind.load_bound(selection) >= subject.kind.nbytes(chunk)
    if chunk is not None:
        assert subject.kind.change_bound(selection) >= subject.kind.nbytes(chunk) - 4  # offsets have n + 1
    assert subject.kind.direct_bound(np.array([[9, 60, 0]] * 3, np.uint64)) >= 0


def dense_list(*ends: int) -> NDArray[np.uint64]:
    """Return the coordinates of every second place below `ends` in each dimension, (n, rank) uint64."""
    return np.stack(
        np.meshgrid(*(np.arange(0, end, 2, np.uint64) for end in ends), indexing="ij"), -1
    ).reshape(-1, len(ends))


LARGE = (600, 500)
SCATTERED: dict[str, Selection] = {
    "all": Orthogonal.all(LARGE),
    "columns": Orthogonal(LARGE, (StridedSpan.range(0, 600), StridedSpan.range(3, 300))),
    "one column": Orthogonal((200_000, 2), (StridedSpan.range(0, 200_000), StridedSpan.range(1, 2))),
    "steps": Orthogonal(LARGE, (StridedSpan(0, 2, 300), StridedSpan(0, 2, 250))),
    "steps of blocks": Orthogonal(LARGE, (StridedSpan(0, 2, 300), StridedSpan(0, 4, 125, 2))),
    "points": Points(LARGE, dense_list(*LARGE)[::-1]),
    "boxes": Boxes(LARGE, dense_list(*LARGE), dense_list(*LARGE) + np.uint64(1)),
}


@pytest.mark.parametrize("filters", [(PLAIN, PLAIN), (DEFLATE, DEFLATE)], ids=["plain", "deflate"])
@pytest.mark.parametrize("item", ["H5T_STD_I8LE", "H5T_IEEE_F64LE"])
@pytest.mark.parametrize("name", SCATTERED)
def test_a_change_takes_no_more_memory_than_its_bound(name: str, item: str, filters: Any) -> None:
    selection = SCATTERED[name]
    kind = kind_of(ChunkSpec("d-1", item, selection.extent, True, b"", filters))
    one = np.ones(1, kind.spec.dtype)
    tracemalloc.start()
    try:
        chunk, _ = kind.write(ChunkSelection((0, 0), selection), one, (), False)(None)
        kind.encode(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.1 * kind.change_bound(selection)


def peak_of(function: Callable[[], Any]) -> tuple[int, Any]:
    """Return the most memory that a call takes, in bytes, and its result."""
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


VARIANCE = ("total", "squares", "least")
REDUCTIONS = {
    "to one": Reduction(LARGE, (0, 1), VARIANCE),
    "rows": Reduction(LARGE, (1,), VARIANCE),
    "columns": Reduction(LARGE, (0,), VARIANCE),
    "groups": Reduction(LARGE, (0, 1), VARIANCE, grouped=0, groups=3),
}
NUMBERS = ["H5T_STD_I8LE", "H5T_STD_U64LE", "H5T_IEEE_F64LE"]


def large_kind(
    item: Any, extent: tuple[int, ...], filters: Any, *, sparse: bool, vlen: bool = False
) -> ChunkKind[Any]:
    sections = 1 if not sparse else 3 if vlen else 2
    return kind_of(ChunkSpec("d-1", item, extent, sparse, b"", (filters,) * sections))


@pytest.mark.parametrize("filters", [PLAIN, DEFLATE], ids=["plain", "deflate"])
@pytest.mark.parametrize("item", [*NUMBERS, text("H5T_VARIABLE")], ids=str)
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", ["all", "one column", "steps", "points"])
def test_a_chunk_takes_no_more_memory_than_is_reserved(
    name: str, sparse: bool, item: Any, filters: Any
) -> None:
    selection, vlen = SCATTERED[name], item not in NUMBERS
    kind = large_kind(item, selection.extent, filters, sparse=sparse, vlen=vlen)
    one = VlenArray.of([b"\x03\0\0\0abc"]) if vlen else np.ones(1, kind.spec.dtype)
    chunk, _ = kind.write(ChunkSelection((0, 0), selection), one, (), False)(None)
    peak, data = peak_of(lambda: bytes(kind.encode(chunk)))
    assert peak <= 1.1 * kind.encode_bound(chunk)
    peak, _ = peak_of(lambda: kind.decode(data))
    assert peak <= 1.1 * kind.decode_bound(data)


@pytest.mark.parametrize("item", NUMBERS)
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", ["all", "steps"])
@pytest.mark.parametrize("reduction", REDUCTIONS.values(), ids=REDUCTIONS)
def test_a_reduction_takes_no_more_memory_than_is_reserved(
    reduction: Reduction, name: str, sparse: bool, item: str
) -> None:
    kind = large_kind(item, LARGE, PLAIN, sparse=sparse)
    chunk, _ = kind.write(ChunkSelection((0, 0), SCATTERED[name]), np.ones(1, kind.spec.dtype), (), False)(
        None
    )
    selection = Orthogonal.all(LARGE)
    codes = np.zeros(LARGE[0], np.int64) if reduction.groups else None
    peak, found = peak_of(lambda: kind.reduce(chunk, selection, reduction, codes))
    assert peak <= 1.1 * (kind.reduce_bound(chunk, selection) + found.nbytes)


@every_kind
def test_a_chunk_never_written_is_the_fill_value(about: ChunkSpec) -> None:
    kind = kind_of(about)
    assert kind.missing(SCALED) is None
    assert kind.trim(SCALED, (1, 1))(None) == (None, None)
    if about.sparse:
        assert kind.erase(WHOLE)(None) == (None, None)


@pytest.mark.parametrize("sparse", [True, False])
def test_a_chunk_that_would_be_too_large_is_refused(sparse: bool) -> None:
    subject = Subject(spec(True, sparse, PLAIN, PLAIN, PLAIN, dims=(2**16,)))
    at = ChunkSelection((0,), Orthogonal.all((2**16,)), full=True)
    values = subject.values([(1, "x" * 2**12)], (1,))
    assert not subject.kind.replaces(at, values)
    with pytest.raises(TooLarge, match="make the dataset's chunks smaller"):
        subject.kind.write(at, values, (), False)(None)
    assert subject.kind.replaces(at, subject.values([(1, "x")], (1,)))


@pytest.mark.parametrize("name", ["sparse", "sparse vlen"])
@pytest.mark.parametrize("fields", [("n",), ("t", "n")])
def test_some_fields_cannot_be_written_with_drop_fill(name: str, fields: Fields) -> None:
    subject = Subject(SPECS[name])
    values = subject.values([FILL], (1,), fields)
    with pytest.raises(BadRequest, match="drop_fill needs whole elements: leave out fields"):
        subject.kind.write(chunk_selection(WHOLE), values, fields, True)


VAST_DIMS = (2**16, 2**16 - 1)


def vast_spec(*, sparse: bool, dims: tuple[int, ...] = VAST_DIMS, fill: bytes = b"") -> ChunkSpec:
    return ChunkSpec("d-1", "H5T_STD_I32LE", dims, sparse, fill, ((), ()))


def update(about: ChunkSpec, query: Query, selection: Selection) -> ChunkChange[Any, FoundElements]:
    at = ChunkSelection((0,) * len(about.dims), selection)
    return kind_of(about).update(at, Search(query), np.array(9, "<i4"))


def chunk() -> SparseChunk:
    offsets = np.array([3, 70_000, 2**32 - 2**16 - 1], np.uint32)
    return SparseChunk(VAST_DIMS, offsets, np.array([5, 6, 7], "<i4"))


def test_of_a_vast_sparse_chunk_only_what_is_defined_is_looked_at() -> None:
    about, value = vast_spec(sparse=True), chunk()
    query = bind_query("_ > 5", about.dtype)
    found = kind_of(about).find(value, WHOLE, Search(query))
    assert found.positions.tolist() == [70_000, 2**32 - 2**16 - 1]
    assert found.values.tolist() == [6, 7]
    changed, found = update(about, query, WHOLE)(value)
    assert isinstance(changed, SparseChunk)
    assert changed.values.tolist() == [5, 9, 9]
    assert value.values.tolist() == [5, 6, 7], "what is committed stays"
    assert found.values.tolist() == [9, 9]


DIRECT_DIMS = (6, 7)
PIPELINES: list[tuple[tuple[Filter, ...], ...]] = [
    ((), ()),
    ((Filter(2, (4,)), Filter(1, (2,))), (Filter(32015, (3,)),)),
    ((Filter(3, ()),), (Filter(2, (4,)), Filter(1, (6,)), Filter(3, ()))),
]


def direct_spec(sparse: bool, filters: tuple[tuple[Filter, ...], ...]) -> ChunkSpec:
    return ChunkSpec(
        "d-00000000-00000001-0000-000000-000001", "H5T_STD_I32LE", DIRECT_DIMS, sparse, b"", filters
    )


def check_direct(about: ChunkSpec, data: bytes, table: np.ndarray, stop: tuple[int, ...]) -> DirectWrite[Any]:
    return open_direct_chunk(kind_of(about), data, table, (0, 0), stop)


def image(chunk: SparseChunk, filters: Any) -> tuple[bytes, bytes, np.ndarray]:
    """Return an object, the chunk's bytes in it, and the table of its sections."""
    data = encode_sparse(chunk, filters)
    content, footer = unseal(data)
    table = [[one.size, one.unfiltered, one.mask] for one in footer.sections]
    return data, bytes(content), np.array(table, np.uint64)


@given(st.sets(st.integers(0, 41)), st.sampled_from(PIPELINES))
def test_a_structured_chunk_becomes_the_same_object(offsets: set[int], filters: Any) -> None:
    columns = np.array(sorted(offsets), np.uint32)
    chunk = SparseChunk(DIRECT_DIMS, columns, columns.astype("<i4"))
    data, content, table = image(chunk, filters)
    given_chunk = check_direct(direct_spec(True, filters), content, table, DIRECT_DIMS)
    assert given_chunk.data == data
    assert isinstance(given_chunk.chunk, SparseChunk)
    assert given_chunk.chunk.offsets.tolist() == columns.tolist()
    assert given_chunk.chunk.values.tolist() == columns.tolist()


@given(st.sets(st.integers(0, 41), min_size=1), st.integers(1, 6), st.integers(1, 7))
def test_elements_beyond_the_extent_are_refused(offsets: set[int], rows: int, columns: int) -> None:
    found = np.array(sorted(offsets), np.uint32)
    _, content, table = image(SparseChunk(DIRECT_DIMS, found, found.astype("<i4")), PIPELINES[0])
    inside = all(offset // 7 < rows and offset % 7 < columns for offset in offsets)
    if inside:
        check_direct(direct_spec(True, PIPELINES[0]), content, table, (rows, columns))
    else:
        with pytest.raises(BadRequest, match="beyond the extent"):
            check_direct(direct_spec(True, PIPELINES[0]), content, table, (rows, columns))


@given(st.binary(max_size=300), st.lists(st.integers(0, 200), min_size=6, max_size=6))
def test_any_bytes_are_a_chunk_or_refused(data: bytes, numbers: list[int]) -> None:
    table = np.array(numbers, np.uint64).reshape(2, 3)
    table[1, 0] = max(0, len(data) - int(table[0, 0]))
    for filters in PIPELINES:
        with pytest.raises(BadRequest):
            check_direct(direct_spec(True, filters), data, table, DIRECT_DIMS)


def test_dense_bytes_are_kept_as_they_are() -> None:
    values = np.arange(42, dtype="<i4").reshape(DIRECT_DIMS)
    pipeline = (Filter(2, (4,)), Filter(1, (6,)))
    data = bytes(encode_dense(values, pipeline))
    found = check_direct(
        direct_spec(False, (pipeline,)), data, np.array([[len(data), 0, 0]], np.uint64), DIRECT_DIMS
    )
    assert found.data == data
    assert np.array_equal(found.chunk, values)


@pytest.mark.parametrize("mask", [0, 1, 2])
@pytest.mark.parametrize("pipeline", [(Filter(2, (4,)), Filter(1, (6,))), (Filter(1, (6,)), Filter(3, ()))])
def test_dense_elements_beyond_the_extent_are_refused(pipeline: tuple[Filter, ...], mask: int) -> None:
    """Also where a filter decodes to an array that may be modified, as shuffle does."""
    values = np.arange(42, dtype="<i4").reshape(DIRECT_DIMS)
    used = tuple(one for place, one in enumerate(pipeline) if not mask >> place & 1)
    data = bytes(encode_dense(values, used))
    table = np.array([[len(data), 0, mask]], np.uint64)
    with pytest.raises(BadRequest, match="beyond the extent"):
        check_direct(direct_spec(False, (pipeline,)), data, table, (6, 5))
    found = check_direct(direct_spec(False, (pipeline,)), data, table, DIRECT_DIMS)
    assert np.array_equal(found.chunk, values)
    assert not found.chunk.flags.writeable, "it is committed, and may not be changed in place"


def test_sizes_that_nobody_could_check_are_refused() -> None:
    table = np.array([[1, 1, 0], [1, MAX_UNFILTERED + 1, 0]], np.uint64)
    with pytest.raises(TooLarge):
        check_direct(direct_spec(True, PIPELINES[0]), b"xy", table, DIRECT_DIMS)
    with pytest.raises(BadRequest, match="sections"):
        check_direct(direct_spec(True, PIPELINES[0]), b"xy", table[:1], DIRECT_DIMS)


@pytest.mark.parametrize("mask", [0, 1])
def test_text_that_inflates_beyond_the_limit_is_refused_before_it_is_whole(
    monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    """A body of 1 MB may claim one element of 1 GiB; a chunk of variable-length elements has at most 128 MiB."""
    limit = 1 << 20
    monkeypatch.setattr(dense_vlen, "MAX_CHUNK_BYTES", limit)
    asked: list[int | None] = []
    undo = pipeline.undo_filters

    def noted(*arguments: Any) -> Any:
        asked.append(arguments[4])
        return undo(*arguments)

    monkeypatch.setattr(dense_vlen, "undo_filters", noted)
    monkeypatch.setattr(vlen_chunk, "undo_filters", noted)
    filters = (Filter(2, (1,)), Filter(1, (1,)))
    kind = kind_of(ChunkSpec("d-1", text("H5T_VARIABLE"), (1,), False, b"", (filters,)))
    bomb = zlib.compress((2 * limit).to_bytes(4, "little") + bytes(2 * limit))
    with pytest.raises(BadRequest, match=r"at most|decode"):
        open_direct_chunk(kind, bomb, np.array([[0, 0, mask]], np.uint64), (0,), (1,))
    assert asked == [limit]
    assert kind.direct_bound(np.zeros((1, 3), np.uint64)) >= limit
