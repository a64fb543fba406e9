"""Chunk specifications (all that a data node needs to decode and encode a dataset's chunks), and chunk statistics.

The statistics of a sparse chunk are, per column, the number of NaN and the minimum, maximum and sum of the other
numbers. A column is the element itself if it is a number, or a number field of a compound; the first `MAX_COLUMNS`
fields have statistics. The statistics are stored in the chunk's footer (`hsparse.format.structured.container`) and are
updated with the elements.

The statistics of a column are five words of 8 bytes: the number of NaN, the minimum, the maximum, and the sum in two
words, encoded as `total` in `hsparse.format.reductions.partials`. Floats are stored as doubles, integers in 64 bits.
Of no numbers, the minimum is the type's greatest number and the maximum is its least. In a chunk without statistics,
the number of NaN is `UNKNOWN`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import add, sub
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import remember
from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import (
    filters_for_vlen,
    parse_filters,
    parse_hsds_filters,
    record_size,
)
from hsparse.format.reductions.partials import LIMB, LOW, Partials, extremes, split_integers
from hsparse.model.dataspace import lower_of
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.element import dtype_bytes, element_bytes
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import chunk_of_key, chunk_prefix
from hsparse.model.initial_values import arange_values, fill_bytes, parse_initializer
from hsparse.model.layout import Json, chunk_dims, has_statistics, is_sparse, is_structured, stripes_of
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray

Statistics: TypeAlias = NDArray[np.uint64]
"""The words of one chunk, (columns, 5), or of n chunks, (n, columns, 5)."""
MAX_COLUMNS = 4
"""The most columns with statistics: more would not fit into a footer of 256 bytes."""
WORDS = 5
NANS, LEAST, GREATEST, TOTAL = 0, 1, 2, slice(3, 5)
UNKNOWN = 2**64 - 1
FLOAT_WORDS, SIGNED_WORDS, UNSIGNED_WORDS = map(struct.Struct, ("<Q4d", "<QqqqQ", "<QQQqQ"))
SUMMED = ("greatest", "least", "total")
"""The columns of `Partials` that statistics provide, besides `count`."""


@remember(1024 * 1024, lambda names, dtype: dtype_bytes(dtype))
def statistic_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns with statistics for elements of `dtype`; the name "" is the element itself."""
    names: Sequence[str] = dtype.names if dtype.names is not None else ("",)
    return tuple(name for name in names if _is_number(_column_type(dtype, name)))[:MAX_COLUMNS]


def statistics_bytes(values: NDArray[Any], columns: Sequence[str]) -> bytes:
    """Return the statistics of a chunk's `values` for these columns, encoded as in the footer."""
    return b"".join([_column_words(values[name] if name else values) for name in columns])


def _column_words(column: NDArray[Any]) -> bytes:
    """Return the encoded words of one column, with few calls of numpy, because most chunks are small."""
    if column.dtype.kind == "f":
        doubles = column.astype(np.float64)
        nans = int(np.count_nonzero(np.isnan(doubles)))
        doubles = doubles[~np.isnan(doubles)] if nans else doubles
        if not doubles.size:
            return FLOAT_WORDS.pack(nans, np.inf, -np.inf, 0.0, 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            return FLOAT_WORDS.pack(nans, doubles.min(), doubles.max(), doubles.sum(), 0.0)
    words = SIGNED_WORDS if column.dtype.kind == "i" else UNSIGNED_WORDS
    if not column.size:
        least, greatest = extremes(column.dtype)
        return words.pack(0, greatest, least, 0, 0)
    if column.dtype.itemsize < 8:
        total = int(column.sum(dtype=np.int64))
    else:
        high, low = split_integers(column)
        total = (int(high.sum()) << LIMB) + int(low.sum())
    return words.pack(0, int(column.min()), int(column.max()), total >> LIMB, total & LOW)


def unknown_statistics(count: int, columns: int) -> Statistics:
    """Return the words, (count, columns, 5), that mark `count` chunks as having no statistics."""
    words = np.zeros((count, columns, WORDS), np.uint64)
    words[..., NANS] = UNKNOWN
    return words


def is_known(words: Statistics) -> NDArray[np.bool_]:
    """Return a mask, (n,), of the chunks that have statistics, given their words (n, columns, 5)."""
    if not words.shape[1]:
        return np.zeros(len(words), np.bool_)
    return np.asarray(words[:, 0, NANS] != UNKNOWN)


def extremes_of(words: Statistics, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the minima and maxima, (n,) each, of a column of `dtype` in n chunks, given its words (n, 5)."""
    wide = _wide(dtype)
    native = dtype.newbyteorder("=")
    least, greatest = (np.ascontiguousarray(words[:, at]).view(wide) for at in (LEAST, GREATEST))
    return least.astype(native), greatest.astype(native)


def partials_of(
    words: Statistics, defined: NDArray[np.uint64], dtype: np.dtype[Any], columns: Sequence[str]
) -> Partials:
    """Return the partial results of n chunks, one entry per chunk, given the words (n, 5) of one column.

    As in numpy, sum, minimum and maximum of a chunk with a NaN are NaN.
    """
    found = Partials.empty(len(words), dtype, columns)
    found.count[:] = defined
    if found.total.size:
        total = np.ascontiguousarray(words[:, TOTAL].T)
        found.total[:] = total.view(found.total.dtype)
    least, greatest = extremes_of(words, dtype)
    if len(found.least):
        found.least[:] = least
    if len(found.greatest):
        found.greatest[:] = greatest
    if dtype.kind == "f":
        missing = words[:, NANS] > 0
        for column in (found.total[0], found.least, found.greatest):
            if len(column):
                column[missing] = np.nan
    return found


def _column_type(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    return dtype[name] if name else dtype


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.subdtype is None and dtype.kind in "biuf" and dtype.itemsize <= 8


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the 8-byte dtype in which numbers of `dtype` are stored in words."""
    return np.dtype({"f": "f8", "i": "i8"}.get(dtype.kind, "u8"))


CACHE_BYTES = 32 * 1024 * 1024
"""Bytes of memory for cached specifications."""
RECORD_BYTES = 10
"""Estimated bytes of memory of a specification per character of its JSON, without its type and fill value."""


def chunk_key(dataset: str, scaled: Sequence[int], stripes: Stripes | None = None) -> str:
    """Return a chunk's key, `db/<uuid1>/d/<uuid2>/[.stripe/<file number>/]<i>_<j>_<k>`; a scalar's ends in `0`."""
    if stripes is None:
        return chunk_prefix(dataset) + chunk_name(scaled)
    return f"{chunk_prefix(dataset)}{stripes.folder(scaled)}{chunk_name(scaled)}"


def chunk_name(scaled: Sequence[int]) -> str:
    """Return the last component of a chunk's key: `<i>_<j>_<k>`, or `0` for a scalar dataset."""
    return "_".join(map(str, scaled)) or "0"


@dataclass(frozen=True)
class ChunkSpec:
    """The specification of a dataset's chunks, which service nodes derive from its record and send to data nodes.

    `type` is the HDF5/JSON type item. `dims` are the dimensions of a chunk in elements. `fill` has the bytes of the
    fill value, length-prefixed for a variable-length type (empty: all zero). `filters` has one pipeline per section:
    one for a dense chunk, two for a sparse chunk (selection, fixed-size values), three for a structured chunk, sparse
    or dense, of a variable-length type (with the heap). `generation` increases when a shrink of the extent begins and
    when it ends. `arange` is the initializer of unwritten elements, or empty (`hsparse.model.initial_values`).
    `stripes` is None without striping. With `statistics`, chunks are stored with statistics; chunks stored earlier may
    lack them. `base` is empty unless the dataset is signed: scaled coordinates count from the chunk of its first
    element, and adding `base` gives the coordinates in the key. A message planned before the lower bound moved still
    has the earlier `base`.
    """

    dataset: str
    type: Any
    dims: tuple[int, ...]
    sparse: bool
    fill: bytes
    filters: tuple[tuple[Filter, ...], ...]
    generation: int = 0
    arange: tuple[float, ...] = ()
    stripes: Stripes | None = None
    statistics: bool = False
    base: tuple[int, ...] = ()

    def key(self, scaled: Sequence[int]) -> str:
        """Return the key of a chunk's object, which also determines the chunk's owner."""
        return chunk_key(self.dataset, [*map(add, scaled, self.base)] if self.base else scaled, self.stripes)

    def scaled_of(self, key: str) -> tuple[int, ...] | None:
        """Return the scaled coordinates (negative below `base`) of the chunk at `key`, or None for other keys."""
        scaled = chunk_of_key(key)
        return tuple(map(sub, scaled, self.base)) if self.base and scaled else scaled

    @cached_property
    def datatype(self) -> Datatype:
        """The datatype of stored elements."""
        return parse_type(self.type)

    @cached_property
    def is_vlen(self) -> bool:
        """Whether elements are of a variable-length type."""
        return self.datatype.is_vlen

    @cached_property
    def statistic_columns(self) -> tuple[str, ...]:
        """The names of the columns with statistics, or `()` without statistics; see `statistic_columns`."""
        return statistic_columns(self.dtype) if self.statistics else ()

    @property
    def structured(self) -> bool:
        """Whether chunks are structured chunks: sparse chunks always are, dense chunks may be."""
        return self.sparse or len(self.filters) > 1

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of stored elements; array types are opaque, see `Datatype.element_dtype`."""
        return self.datatype.element_dtype

    @cached_property
    def fill_value(self) -> NDArray[Any]:
        """The fill value of a fixed-size type, an array of shape (); raises `Unsupported` for other types."""
        dtype = self.dtype
        if dtype.hasobject:
            raise Unsupported("Variable-length elements do not support this operation: read the values.")
        data = self.fill or bytes(dtype.itemsize)
        return np.frombuffer(data, np.uint8).view(dtype).reshape(())

    def fill_of(self, scaled: tuple[int, ...]) -> NDArray[Any]:
        """Return the value of unwritten elements, shape (), or all values of a chunk with an arange initializer."""
        if not self.arange:
            return self.fill_value
        (count,) = self.dims
        return arange_values(self.arange, scaled[0] * count, count, self.dtype)

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory of the type and the fill value, which exists both as bytes and as an array."""
        return 2 * max(len(self.fill), self.datatype.element.min_size) + element_bytes(self.datatype.element)

    @property
    def computed_bytes(self) -> int:
        """The number of bytes that `fill_of` computes for a chunk, 0 if the dataset has no arange initializer."""
        return prod(self.dims) * self.dtype.itemsize if self.arange else 0

    @property
    def vlen_fill(self) -> VlenArray:
        """The fill value of a variable-length type, a `VlenArray` of shape ()."""
        return VlenArray.of([self.fill or bytes(self.datatype.element.min_size)], ())


def chunk_spec(record: Json) -> ChunkSpec:
    """Return the specification of a dataset's chunks, derived from its record; raise `BadRequest` if it is invalid."""
    properties = record.get("creationProperties") or {}
    dims, lower = chunk_dims(record), lower_of(record["shape"])
    fixed = [
        dims,
        is_sparse(record),
        is_structured(record),
        is_file_backed(record),
        stripes_of(record),
        record["type"],
        properties.get("filters") or [],
        properties.get("initializer"),
        has_statistics(record),
        [place // dim for place, dim in zip(lower, dims, strict=False)],
    ]
    fill = {key: properties[key] for key in ("fillValue", "fillValue_encoding") if key in properties}
    text = json.dumps([*fixed, fill], separators=(",", ":"))
    return _chunk_spec(text, record["id"], record.get("generation", 0))


@remember(CACHE_BYTES, lambda spec, text, *_: RECORD_BYTES * len(text) + spec.nbytes)
def _chunk_spec(text: str, id: str, generation: int) -> ChunkSpec:
    dims, sparse, structured, file_backed, count, item, filters, initializer, statistics, base, fill = (
        json.loads(text)
    )
    datatype = parse_type(item)
    chunk_bytes = prod(dims) * datatype.guessed_size
    if structured or file_backed:  # chunks in files use HDF5's filters
        pipelines = parse_filters(
            filters,
            datatype.element.file_size,
            sparse=sparse,
            chunk_bytes=chunk_bytes,
            record_size=record_size(dims),
            heap=structured and datatype.is_vlen,
        )
    else:
        pipelines = (parse_hsds_filters(filters, datatype.guessed_size, chunk_bytes),)
        if datatype.is_vlen:
            pipelines = tuple(filters_for_vlen(pipeline) for pipeline in pipelines)
    arange = parse_initializer(initializer, len(dims), datatype.element, sparse=sparse)
    stripes = Stripes.of(count)
    return ChunkSpec(
        id,
        item,
        tuple(dims),
        sparse,
        fill_bytes(fill, datatype),
        pipelines,
        generation,
        arange,
        stripes,
        statistics,
        tuple(base),
    )
