"""The specification of a dataset's chunks, from its record: all that a data node needs to decode and encode them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.chunk_statistics import statistic_columns
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import (
    filters_for_vlen,
    parse_filters,
    parse_hsds_filters,
    record_size,
)
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import chunk_key
from hsparse.model.initial_values import arange_values, fill_bytes, parse_initializer
from hsparse.model.layout import Json, chunk_dims, has_statistics, is_sparse, is_structured, stripes_of
from hsparse.model.short_text import TextCache
from hsparse.model.stripes import Stripes
from hsparse.model.vlen_array import VlenArray

CACHED_TEXT = 4 * 1024 * 1024
"""Characters of JSON whose specifications are remembered."""


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """A dataset's chunks: taken from its record by the service node, sent with every chunk message.

    `type` is the HDF5/JSON type item. `dims` are the chunk's dimensions in elements, `fill` is one
    element's bytes in the file type, in length-prefixed form where their number varies (empty: all zero).
    `filters` has one pipeline a section: one for a dense chunk, two for a sparse one (selection, fixed-size
    values), three for a structured one of a variable-length type, sparse or dense (with the heap).
    `generation` rises when a shrink of the dataset's extent begins, and when it is finished.
    `arange` gives unwritten elements values other than the fill value (`hsparse.model.initial_values`).
    `stripes` are the prefixes that the chunks are spread over, None where all are directly below the dataset's.
    With `statistics` chunks are stored with `hsparse.format.chunk_statistics`; older ones may have none.
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

    def key(self, scaled: Sequence[int]) -> str:
        """Return the key of a chunk's object, by which its owner is found, too."""
        return chunk_key(self.dataset, scaled, self.stripes)

    @property
    def datatype(self) -> Datatype:
        """The type of an element as it is stored."""
        return parse_type(self.type)

    @property
    def statistic_columns(self) -> tuple[str, ...]:
        """The columns that chunks are stored with statistics of, see `statistic_columns`."""
        return statistic_columns(self.dtype) if self.statistics else ()

    @property
    def structured(self) -> bool:
        """Say whether chunks are structured chunks: sparse ones are, and dense ones may be."""
        return self.sparse or len(self.filters) > 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of an element as it is stored."""
        return self.datatype.element_dtype

    @property
    def fill_value(self) -> NDArray[Any]:
        """The fill value of a fixed-size type, an array of no dimensions; `Unsupported` of another type."""
        dtype = self.dtype
        if dtype.hasobject:
            raise Unsupported("This is not supported for elements of variable length; read them as they are.")
        if not self.fill:
            return np.zeros((), dtype)
        return np.frombuffer(self.fill, np.uint8).view(dtype).reshape(())

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
    fixed = [
        chunk_dims(record),
        is_sparse(record),
        is_structured(record),
        is_file_backed(record),
        stripes_of(record),
        record["type"],
        properties.get("filters") or [],
        properties.get("initializer"),
        has_statistics(record),
    ]
    fill = {key: properties[key] for key in ("fillValue", "fillValue_encoding") if key in properties}
    text = json.dumps([*fixed, fill], separators=(",", ":"))
    return _SPECS(text, record["id"], record.get("generation", 0))


def _chunk_spec(text: str, id: str, generation: int) -> ChunkSpec:
    dims, sparse, structured, file_backed, count, item, filters, initializer, statistics, fill = json.loads(
        text
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
    )


_SPECS = TextCache(_chunk_spec, CACHED_TEXT, CACHED_TEXT // 8)
