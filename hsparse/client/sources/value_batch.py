"""Read the values of many datasets: few requests for all small datasets, concurrent direct reads for large datasets.

A request is `POST /datasets/values`. A large dataset is read as a single dataset is, by its `ChosenElements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import BINARY, Connection, Json
from hsparse.client.indexing.places import has_lower_bounds, places_param
from hsparse.client.memory_limit import check_total, element_bytes
from hsparse.client.object_records import home_of
from hsparse.client.progress import Progress, read_answer, show_read
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.element_room import values_of
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.http_elements import arrow_elements
from hsparse.client.sparse.compressed_rows import CompressedRows
from hsparse.client.sparse.sparse_result import fills_with_zero
from hsparse.client.types.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import Conflict, Corrupt
from hsparse.format.arrow_stream import stream_batches
from hsparse.format.selections.points import Orthogonal
from hsparse.format.selections.select_syntax import parse_select
from hsparse.model.dataspace import is_extensible

LENGTH = Struct("<Q")
BATCH_BYTES = 64 << 20
"""The approximate maximum size of an answer with several datasets, in bytes."""
MOST_DATASETS = 5_000
LARGE_BYTES = 32 << 20
"""Reads of at least this many bytes, counted as dense values, use direct reads unless `direct` is False."""
MAX_THREADS = 4
INDEX_BYTES = 8
"""The approximate bytes of an element's coordinates in memory."""
SPARSE_DIVISOR = 8
"""One in this many elements of a sparse dataset is assumed to be defined."""
Axis: TypeAlias = "NDArray[np.intp] | None"
"""Ascending indices along a dimension, without repeats, or None for all indices."""


@dataclass(frozen=True, eq=False)
class DatasetRead:
    """An orthogonal read of the dataset of a `record`, at the indices `axes` along its leading dimensions.

    If `sparse`, only the defined elements are read.
    """

    record: Json
    axes: tuple[Axis, ...] = ()
    sparse: bool = False

    @property
    def extent(self) -> tuple[int, ...]:
        return shape_of(self.record["shape"]) or ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(
            length if axis is None else len(axis)
            for length, axis in zip(self.extent, self._axes(), strict=True)
        )

    @property
    def type(self) -> Hdf5Type:
        return Hdf5Type.parse(self.record["type"])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.wire

    @property
    def nbytes(self) -> int:
        """The bytes of the values as a dense array; an estimate for vlen elements."""
        return prod(self.shape) * element_bytes(self.dtype)

    @property
    def most_bytes(self) -> int:
        """The maximum size of the result in bytes, which a sparse result has if all elements are defined."""
        return prod(self.shape) * self.each if self.sparse else self.nbytes

    @property
    def each(self) -> int:
        """The bytes of a defined element in memory: its value and its coordinates."""
        return self.dtype.itemsize + INDEX_BYTES

    @property
    def select(self) -> str | None:
        """The `select` string of the read, or None for all elements."""
        extent = self.extent
        is_all = all(axis is None for axis in self._axes()) and places_param(extent) is None
        if is_all and not is_extensible(self.record["shape"]):
            return None  # an extensible dataset may have grown
        return f"[{','.join(map(_text_of, self._axes(), extent))}]"

    def locate(self, elements: Elements) -> Elements:
        """Return elements of the dataset with their coordinates converted to coordinates in the result."""
        columns = (
            column if axis is None else np.searchsorted(axis, column)
            for column, axis in zip(elements.columns, self._axes(), strict=True)
        )
        return Elements(tuple(columns), elements.values)

    def _axes(self) -> tuple[Axis, ...]:
        return (*self.axes, *(None,) * len(self.extent))[: len(self.extent)]


def _text_of(axis: Axis, length: int) -> str:
    """Return the `select` text of indices: a slice if they are consecutive, else a list."""
    if axis is None:
        return f"0:{length}"
    first, last = int(axis[0]), int(axis[-1]) + 1
    return f"{first}:{last}" if last - first == len(axis) else f"[{','.join(map(str, axis.tolist()))}]"


Found: TypeAlias = "NDArray[Any] | Elements | CompressedRows"


def read_datasets(
    connection: Connection, reads: Sequence[DatasetRead], progress: Progress = False
) -> list[Found]:
    """Return the values of each read: a writeable array, or the defined elements for a sparse read.

    Defined elements are `Elements` or `CompressedRows`. If progress is shown, large sparse reads are counted first.

    Raise `Conflict` if the extent of a dataset differs from its record, and `ResultTooLarge` if the results would take
    more than `connection.max_bytes`. Elements of sparse datasets are counted only if all could exceed the limit.
    """
    wanted = [read for read in reads if prod(read.shape)]
    _check_memory(connection, wanted)
    batches = list(_batches(connection, wanted))
    found: dict[int, Found] = {}
    most = sum(read.most_bytes for read in wanted)
    with show_read(
        progress,
        str(connection.domain),
        most,
        lambda: sum(_expected_bytes(connection, one) for one in wanted),
    ):
        if len(batches) == 1:
            found |= _read(connection, batches[0])
        elif batches:
            with ThreadPoolExecutor(MAX_THREADS, "hsparse-values") as pool:
                # each in its own copy of the context, which has the progress bar
                parts = [pool.submit(copy_context().run, _read, connection, batch) for batch in batches]
                for part in parts:
                    found |= part.result()
    return [found[id(read)] if id(read) in found else _nothing(read) for read in reads]


def _check_memory(connection: Connection, reads: Sequence[DatasetRead]) -> None:
    total = sum(read.most_bytes for read in reads)
    for read in sorted(reads, key=lambda read: read.most_bytes, reverse=True):
        if total <= connection.max_bytes:
            return
        if read.sparse:
            total += _count(connection, read) * read.each - read.most_bytes
    remedy = (
        "choose rows and columns by query, take them in parts by its iter, or all by to_anndata(lazy=True)"
    )
    check_total(total, connection.max_bytes, "This would take", remedy)


def _count(connection: Connection, read: DatasetRead) -> int:
    """Return the number of defined elements of a read, by one request."""
    body = {"select": read.select or "[...]", "orthogonal": True}
    connection = home_of(connection, read.record)
    path, places = f"/datasets/{read.record['id']}/defined", places_param(read.extent)
    return int(connection.json("POST", path, body, count_only=1, places=places)["count"])


def _expected_bytes(connection: Connection, read: DatasetRead) -> int:
    """Return the approximate number of bytes that a read receives."""
    if not read.sparse:
        return read.nbytes
    if read.nbytes < LARGE_BYTES:
        return read.nbytes // SPARSE_DIVISOR
    itemsize = read.dtype.itemsize
    return _count(connection, read) * (itemsize if _is_direct(connection, read) else itemsize + INDEX_BYTES)


def _batches(connection: Connection, reads: Sequence[DatasetRead]) -> Iterator[list[DatasetRead]]:
    batch: list[DatasetRead] = []
    total = 0
    for read in reads:
        size = read.nbytes // SPARSE_DIVISOR if read.sparse else read.nbytes
        if _is_direct(connection, read):
            yield [read]
            continue
        is_full = batch and (total + size > BATCH_BYTES or len(batch) == MOST_DATASETS)
        if is_full or (batch and _home_of(read) != _home_of(batch[0])):
            yield batch
            batch, total = [], 0
        batch.append(read)
        total += size
    if batch:
        yield batch


def _home_of(read: DatasetRead) -> tuple[str | None, str | None]:
    """Return a pair: the dataset's domain (None if no external link led to it), and the request parameter `places`."""
    return read.record["domain"] if "h5path" in read.record else None, places_param(read.extent)


def _read(connection: Connection, batch: list[DatasetRead]) -> dict[int, Found]:
    """Return a dict that maps the `id()` of each read of a batch, from one domain, to its values."""
    connection = home_of(connection, batch[0].record)
    if _is_direct(connection, batch[0]):
        return {id(batch[0]): _read_directly(connection, batch[0])}
    groups = []
    for (select, sparse), members in groupby(batch, lambda read: (read.select, read.sparse)):
        ids = [read.record["id"] for read in members]
        groups.append({"ids": ids, "select": select, "orthogonal": True, "sparse": sparse})
    places = places_param(batch[0].extent)
    parts = answer_parts(connection.repeated(lambda: _ask(connection, groups, places)))
    return {
        id(read): _elements(read, part) if read.sparse else _values(read, part)
        for read, part in zip(batch, parts, strict=True)
    }


def _ask(connection: Connection, groups: list[Json], places: str | None) -> bytes:
    body = {"reads": groups}
    with connection.stream("POST", "/datasets/values", BINARY, body, places=places) as answer:
        return read_answer(answer)


def _is_direct(connection: Connection, read: DatasetRead) -> bool:
    """Return whether a read is large, and may be read directly from the store by `ChosenElements`."""
    is_large = read.nbytes >= LARGE_BYTES and not read.dtype.hasobject
    return connection.direct is not False and is_large and not has_lower_bounds(read.record)


def _read_directly(connection: Connection, read: DatasetRead) -> Found:
    source = ChosenElements(connection, read.record, read.dtype)
    selection = parse_select(read.select, read.extent, orthogonal=True)
    if read.sparse:
        if isinstance(selection, Orthogonal) and len(read.extent) == 2 and fills_with_zero(read.dtype, 0):
            rows = source.compressed_rows(selection)
            if rows is not None:
                return rows
        return read.locate(source.defined_elements(selection))
    return np.require(read.type.unpack(source.dense_values(selection)), requirements="W")


def answer_parts(data: bytes) -> Iterator[list[memoryview]]:
    """Yield the blocks of bytes of each dataset in an answer; raise `Corrupt` if the answer is truncated."""
    view, at = memoryview(data), 0
    blocks: list[memoryview] = []
    while at < len(view):
        (size,) = LENGTH.unpack_from(view, at)
        at += LENGTH.size + size
        if at > len(view):
            raise Corrupt("The answer with the values of several datasets ends too early: ask again.")
        if size:
            blocks.append(view[at - size : at])
        else:
            yield blocks
            blocks = []


def _values(read: DatasetRead, blocks: list[memoryview]) -> NDArray[Any]:
    kind = read.type
    data = bytearray().join(blocks)
    if not kind.is_vlen and len(data) != read.nbytes:
        raise Conflict(f"The extent of {read.record['id']} is not {list(read.extent)} any more: read again.")
    return kind.decode(data, read.shape)


def _elements(read: DatasetRead, blocks: list[memoryview]) -> Elements:
    stream = BytesIO(b"".join(blocks))
    parts = [_nothing(read)]
    for _, columns in stream_batches(stream.read):
        parts.append(arrow_elements(values_of(columns), len(read.extent), read.dtype))
    found = Elements.concatenate(parts)
    if not found.fit(read.extent):
        raise Conflict(f"The extent of {read.record['id']} is not {list(read.extent)} any more: read again.")
    return read.locate(found)


def _nothing(read: DatasetRead) -> Any:
    if read.sparse:
        return Elements((np.zeros(0, np.uint32),) * len(read.extent), np.zeros(0, read.dtype))
    return read.type.unpack(np.zeros(read.shape, read.dtype))
