"""The values of many datasets by few requests: small ones together, large ones side by side.

The requests are `POST /datasets/values`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from math import prod
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.client.connection import Connection, Json
from hsparse.client.elements import Elements
from hsparse.client.hdf5_type import Hdf5Type, shape_of
from hsparse.errors import Conflict, Corrupt
from hsparse.format.structured.region import decode_region

LENGTH = Struct("<Q")
BATCH_BYTES = 64 << 20
"""About how much one answer has, unless it is of a single dataset."""
MOST_DATASETS = 5_000
THREADS = 4
TEXT_BYTES = 32
"""The guess for an element of variable length."""
Axis: TypeAlias = "NDArray[np.intp] | None"
"""Ascending indices along a dimension without repeats; None for all."""


@dataclass(frozen=True, eq=False)
class DatasetRead:
    """A read of the dataset of a `record`: of the product of indices along its first dimensions.

    With `sparse` only the defined elements are read.
    """

    record: Json
    axes: tuple[Axis, ...] = ()
    sparse: bool = False

    @property
    def extent(self) -> tuple[int, ...]:
        return shape_of(self.record["shape"]) or ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is read."""
        lengths = [None if axis is None else len(axis) for axis in self._axes()]
        return tuple(
            whole if some is None else some for whole, some in zip(self.extent, lengths, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """About the bytes of the answer."""
        kind = Hdf5Type.parse(self.record["type"])
        size = TEXT_BYTES if kind.is_vlen else kind.dtype.itemsize
        return prod(self.sent_shape) * size // (4 if self.sparse else 1)

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """The shape of what the server sends: of several lists all but one are sent as the range they span."""
        return tuple(len(range(*_span(one))) if isinstance(one, slice) else len(one) for one in self._sent())

    @property
    def select(self) -> str | None:
        """The selection as the server takes it; None for all."""
        parts = []
        for one, length in zip(self._sent(), self.extent, strict=True):
            if isinstance(one, slice):
                first, last = _span(one)
                parts.append(":" if (first, last) == (0, length) else f"{first}:{last}")
            else:
                parts.append(f"[{','.join(map(str, one.tolist()))}]")
        return None if all(part == ":" for part in parts) else f"[{','.join(parts)}]"

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what is read of what was sent, of `sent_shape`."""
        for dim, (sent, axis) in enumerate(zip(self._sent(), self._axes(), strict=True)):
            if axis is not None and isinstance(sent, slice) and len(axis) != values.shape[dim]:
                values = np.take(values, axis - sent.start, dim)
        return values

    def locate(self, elements: Elements) -> Elements:
        """Return those of the sent elements that are read, at their places in the result."""
        columns, values = list(elements.columns), elements.values
        for dim, axis in enumerate(self._axes()):
            if axis is None:
                continue
            places = np.searchsorted(axis, columns[dim])
            inside = places < len(axis)
            inside[inside] = axis[places[inside]] == columns[dim][inside]
            columns[dim] = places
            if not inside.all():
                columns, values = [column[inside] for column in columns], values[inside]
        return Elements(tuple(columns), values)

    def _axes(self) -> tuple[Axis, ...]:
        return (*self.axes, *(None,) * len(self.extent))[: len(self.extent)]

    def _sent(self) -> list[slice | NDArray[np.intp]]:
        """Return what is sent of each dimension: a range, or for one of them a list, since lists are paired."""
        spans = [
            slice(0, length)
            if axis is None
            else slice(int(axis[0]), int(axis[-1]) + 1)
            if len(axis)
            else slice(0, 0)
            for axis, length in zip(self._axes(), self.extent, strict=True)
        ]
        sent: list[slice | NDArray[np.intp]] = [*spans]
        portions = [
            1.0 if axis is None or not len(axis) else len(axis) / (span.stop - span.start)
            for axis, span in zip(self._axes(), spans, strict=True)
        ]
        dim = int(np.argmin(portions)) if portions else 0
        axis = self._axes()[dim] if portions else None
        if axis is not None and portions[dim] < 1:
            sent[dim] = axis
        return sent


Found: TypeAlias = "NDArray[Any] | Elements"


def read_datasets(connection: Connection, reads: Sequence[DatasetRead]) -> list[Found]:
    """Return the values of each read, an array of its shape that may be written to; of sparse ones `Elements`.

    `Conflict` if the extent of a dataset is not that of its record any more.
    """
    wanted = [read for read in reads if prod(read.sent_shape)]
    batches = list(_batches(wanted))
    found: dict[int, Found] = {}
    if len(batches) == 1:
        found |= _read(connection, batches[0])
    elif batches:
        with ThreadPoolExecutor(THREADS, "hsparse-values") as pool:
            for part in pool.map(lambda batch: _read(connection, batch), batches):
                found |= part
    return [found[id(read)] if id(read) in found else _nothing(read) for read in reads]


def _batches(reads: Sequence[DatasetRead]) -> Iterator[list[DatasetRead]]:
    batch: list[DatasetRead] = []
    total = 0
    for read in reads:
        if batch and (total + read.nbytes > BATCH_BYTES or len(batch) == MOST_DATASETS):
            yield batch
            batch, total = [], 0
        batch.append(read)
        total += read.nbytes
    if batch:
        yield batch


def _read(connection: Connection, batch: list[DatasetRead]) -> dict[int, Found]:
    """Return the values of each read by its `id()`."""
    groups = []
    for (select, sparse), members in groupby(batch, lambda read: (read.select, read.sparse)):
        groups.append({"ids": [read.record["id"] for read in members], "select": select, "sparse": sparse})
    parts = _parts(connection.binary("POST", "/datasets/values", {"reads": groups}))
    return {
        id(read): _elements(read, part) if read.sparse else _values(read, part)
        for read, part in zip(batch, parts, strict=True)
    }


def _parts(data: bytes) -> Iterator[list[memoryview]]:
    """Yield the blocks of each part of an answer."""
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
    kind = Hdf5Type.parse(read.record["type"])
    data = bytearray().join(blocks)
    shape = read.sent_shape
    if not kind.is_vlen and len(data) != prod(shape) * kind.dtype.itemsize:
        raise Conflict(f"The extent of {read.record['id']} is not {list(read.extent)} any more; read again.")
    return read.take(kind.decode(data, shape))


def _elements(read: DatasetRead, blocks: list[memoryview]) -> Elements:
    dtype = Hdf5Type.parse(read.record["type"]).dtype
    parts = [_nothing(read)]
    for block in blocks:
        selection, values = decode_region(block, dtype)
        parts.append(Elements(tuple(selection.coords().T), values))
    return read.locate(Elements.concatenate(parts))


def _nothing(read: DatasetRead) -> Any:
    dtype = Hdf5Type.parse(read.record["type"]).dtype
    if read.sparse:
        return Elements((np.zeros(0, np.uint64),) * len(read.extent), np.zeros(0, dtype))
    return np.zeros(read.shape, dtype)


def _span(one: slice) -> tuple[int, int]:
    return one.start, one.stop
