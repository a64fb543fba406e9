"""The specification of a dataset's chunks, from its record: all that a data node needs to decode and encode them.

Statistics of a sparse chunk: of each column of numbers how many are NaN, the least, the greatest, and the sum.

A column is the element, if it is a number, or a field of a compound that is one: the first `MAX_COLUMNS` of them. They
are stored with the chunk, in its footer (`hsparse.format.structured.container`), so they are those of its elements.

A column has five words of 8 bytes: the number of NaN; the least and the greatest of the other numbers, and their sum
in two words, as `total` of `hsparse.format.reductions.partials` has it. Floats are doubles, integers have 64 bits. Of
no numbers at all the least is the greatest of the type, and the greatest the least. A number of NaN of `UNKNOWN` says
that a chunk has no statistics.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from operator import add, sub
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import chunk_of_key, chunk_prefix
from hsparse.model.initial_values import arange_values, fill_bytes, parse_initializer
from hsparse.model.layout import Json, chunk_dims, has_statistics, is_sparse, is_structured, stripes_of
from hsparse.model.short_text import TextCache
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray

Statistics: TypeAlias = NDArray[np.uint64]
"""Words: (columns, 5) of one chunk, (n, columns, 5) of several."""
MAX_COLUMNS = 4
"""So many fit into a footer of 256 bytes."""
WORDS = 5
NANS, LEAST, GREATEST, TOTAL = 0, 1, 2, slice(3, 5)
UNKNOWN = 2**64 - 1
FLOAT_WORDS, SIGNED_WORDS, UNSIGNED_WORDS = map(struct.Struct, ("<Q4d", "<QqqqQ", "<QQQqQ"))
SUMMED = ("greatest", "least", "total")
"""The columns of `Partials` that statistics have, besides the count."""


@lru_cache(maxsize=1024)
def statistic_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns that elements of `dtype` have statistics of; "" is the element itself."""
    names: Sequence[str] = dtype.names if dtype.names is not None else ("",)
    return tuple(name for name in names if _is_number(_column_type(dtype, name)))[:MAX_COLUMNS]


def statistics_bytes(values: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    """Return the statistics of a chunk's values as a footer has them."""
    columns = [values[name] if name else values for name in statistic_columns(dtype)]
    return b"".join(map(_column_words, columns))


def _column_words(column: NDArray[Any]) -> bytes:
    """Return the words of one column; plain calls of numpy, because most chunks are small."""
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
    """Return the statistics of chunks that have none."""
    words = np.zeros((count, columns, WORDS), np.uint64)
    words[..., NANS] = UNKNOWN
    return words


def is_known(words: Statistics) -> NDArray[np.bool_]:
    """Return which of some chunks, (n, columns, 5), have statistics."""
    if not words.shape[1]:
        return np.zeros(len(words), np.bool_)
    return np.asarray(words[:, 0, NANS] != UNKNOWN)


def extremes_of(words: Statistics, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest numbers of a column of `dtype` in some chunks, given its words, (n, 5)."""
    wide = _wide(dtype)
    native = dtype.newbyteorder("=")
    least, greatest = (np.ascontiguousarray(words[:, at]).view(wide) for at in (LEAST, GREATEST))
    return least.astype(native), greatest.astype(native)


def partials_of(
    words: Statistics, defined: NDArray[np.uint64], dtype: np.dtype[Any], columns: Sequence[str]
) -> Partials:
    """Return what the elements of each of some chunks reduce to, a place each; `words` (n, 5) are of one column.

    As in numpy a chunk with a NaN has that as sum, least and greatest number.
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
    """Return the type in which a number is stored."""
    return np.dtype({"f": "f8", "i": "i8"}.get(dtype.kind, "u8"))


CACHED_TEXT = 4 * 1024 * 1024
"""Characters of JSON whose specifications are remembered."""


def chunk_key(dataset: str, scaled: Sequence[int], stripes: Stripes | None = None) -> str:
    """Return the key of a chunk: `db/<uuid1>/d/<uuid2>/<i>_<j>_<k>`; of a scalar dataset's only one, `0`.

    Of a striped dataset `db/<uuid1>/d/<uuid2>/.stripe/<file number>/<i>_<j>_<k>`.
    """
    if stripes is None:
        return chunk_prefix(dataset) + chunk_name(scaled)
    return f"{chunk_prefix(dataset)}{stripes.folder(scaled)}{chunk_name(scaled)}"


def chunk_name(scaled: Sequence[int]) -> str:
    """Return the name of a chunk in its dataset, with which its key ends: `<i>_<j>_<k>`, of a scalar `0`."""
    return "_".join(map(str, scaled)) or "0"


@dataclass(frozen=True)
class ChunkSpec:
    """A dataset's chunks: taken from its record by the service node, sent with every chunk message.

    `type` is the HDF5/JSON type item. `dims` are the chunk's dimensions in elements, `fill` is one
    element's bytes in the file type, in length-prefixed form where their number varies (empty: all zero).
    `filters` has one pipeline a section: one for a dense chunk, two for a sparse one (selection, fixed-size
    values), three for a structured one of a variable-length type, sparse or dense (with the heap).
    `generation` rises when a shrink of the dataset's extent begins, and when it is finished.
    `arange` gives unwritten elements values other than the fill value (`hsparse.model.initial_values`).
    `stripes` are the prefixes that the chunks are spread over, None where all are directly below the dataset's.
    With `statistics` chunks are stored with `hsparse.format.chunk_spec`; older ones may have none.
    `base` is of a signed dataset: what is added to scaled coordinates, which count from the chunk of its first
    element, for those of the key. It has its own value in messages that were planned before the lower bound moved.
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
        """Return the key of a chunk's object, by which its owner is found, too."""
        return chunk_key(self.dataset, [*map(add, scaled, self.base)] if self.base else scaled, self.stripes)

    def scaled_of(self, key: str) -> tuple[int, ...] | None:
        """Return the scaled coordinates of the chunk of a key, negative below the base; None if it is not a chunk's."""
        scaled = chunk_of_key(key)
        return tuple(map(sub, scaled, self.base)) if self.base and scaled else scaled

    @cached_property
    def datatype(self) -> Datatype:
        """The type of an element as it is stored."""
        return parse_type(self.type)

    @cached_property
    def is_vlen(self) -> bool:
        """Whether elements have a variable length."""
        return self.datatype.is_vlen

    @property
    def statistic_columns(self) -> tuple[str, ...]:
        """The columns that chunks are stored with statistics of, see `statistic_columns`."""
        return statistic_columns(self.dtype) if self.statistics else ()

    @property
    def structured(self) -> bool:
        """Say whether chunks are structured chunks: sparse ones are, and dense ones may be."""
        return self.sparse or len(self.filters) > 1

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of an element as it is stored."""
        return self.datatype.element_dtype

    @cached_property
    def fill_value(self) -> NDArray[Any]:
        """The fill value of a fixed-size type, an array of no dimensions; `Unsupported` of another type."""
        dtype = self.dtype
        if dtype.hasobject:
            raise Unsupported("This is not supported for elements of variable length; read them as they are.")
        data = self.fill or bytes(dtype.itemsize)
        return np.frombuffer(data, np.uint8).view(dtype).reshape(())

    def fill_of(self, scaled: tuple[int, ...]) -> NDArray[Any]:
        """Return the values of unwritten elements of a chunk: an array of no dimensions, or of the chunk's."""
        if not self.arange:
            return self.fill_value
        (count,) = self.dims
        return arange_values(self.arange, scaled[0] * count, count, self.dtype)

    @property
    def computed_bytes(self) -> int:
        """How many bytes are computed for the values of a chunk that was never written."""
        return prod(self.dims) * self.dtype.itemsize if self.arange else 0

    @property
    def vlen_fill(self) -> VlenArray:
        """The fill value of a variable-length type, an array of no dimensions."""
        return VlenArray.of([self.fill or bytes(self.datatype.element.min_size)], ())


def chunk_spec(record: Json) -> ChunkSpec:
    """Return the specification of a dataset's chunks; `BadRequest` names what is wrong with the record."""
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
    return _SPECS(text, record["id"], record.get("generation", 0))


def _chunk_spec(text: str, id: str, generation: int) -> ChunkSpec:
    dims, sparse, structured, file_backed, count, item, filters, initializer, statistics, base, fill = (
        json.loads(text)
    )
    datatype = parse_type(item)
    chunk_bytes = prod(dims) * datatype.guessed_size
    if structured or file_backed:  # chunks in files have gone through HDF5's own filters
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


_SPECS = TextCache(_chunk_spec, CACHED_TEXT, CACHED_TEXT // 8)
