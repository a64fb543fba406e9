"""The chunks of a matrix's arrays in a file that compresses them: values by deflate, indices by shuffle and deflate."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.codec_library import Buffer
from hsparse.format.filters.filters_json import parse_filters
from hsparse.format.filters.pipeline import apply_filters
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.plan.matrix_bands import MatrixColumn, MatrixPart
from hsparse.format.hdf5.plan.planned_chunks import ChunkForm, ChunkRegion, PlannedChunks, Uint64Column

ENTRIES = 1 << 16
"""The most entries of a chunk."""
VALUE_FILTERS = [{"id": 1, "level": 1}]
INDEX_FILTERS = [{"id": 2}, *VALUE_FILTERS]
"""Shuffle and deflate, which every library has."""
# MB/s and ratio of 65 536 elements on one core, of values and indices of pbmc68k_reduced:
#             level 1           level 1, shuffle   level 4           level 4, shuffle
#   values    300, 4.74         151, 2.17          125, 5.03         41, 2.40
#   indices   139, 3.71         98, 5.92           80, 4.77          178, 6.30
# Few values are different, and whole ones repeat, which shuffle hides.


def index_item(column: MatrixColumn) -> str:
    """Return the type of indices and pointers."""
    return "H5T_STD_I32LE" if column.bands.index.itemsize == 4 else "H5T_STD_I64LE"


def column_spec(column: MatrixColumn) -> ChunkSpec:
    """Return the specification of the chunks of an array that has entries."""
    spec, dims = column.bands.spec, (min(column.entries, ENTRIES),)
    item: Any = spec.datatype.item if column.part is MatrixPart.VALUES else index_item(column)
    nbytes = prod(dims) * column.width
    filters = VALUE_FILTERS if column.part is MatrixPart.VALUES else INDEX_FILTERS
    (pipeline,) = parse_filters(filters, column.width, sparse=False, chunk_bytes=nbytes)
    # A filter that may be skipped would need a mask for each chunk.
    pipeline = tuple(replace(one, optional=False) for one in pipeline)
    return ChunkSpec(spec.dataset, item, dims, False, b"", (pipeline,))


def column_region(key: Key, column: MatrixColumn, sizes: Uint64Column) -> ChunkRegion:
    """Return the chunks of an array, `sizes: (n,)` in bytes, in the file's piece `key`."""
    count = len(sizes)
    none = np.zeros(count, np.uint64)
    chunks = PlannedChunks(
        np.arange(count, dtype=np.uint64).reshape(count, 1),
        none,
        sizes,
        np.zeros((count, 0, 3), np.uint64),
        none,
        np.ones(count, np.bool_),
    )
    return ChunkRegion.of(key, column_spec(column), ChunkForm.COMPRESSED, chunks)


def encode_column_chunk(spec: ChunkSpec, data: Buffer) -> Buffer:
    """Return a chunk of entries as the file has it; one with fewer entries is filled up with zeros."""
    missing = prod(spec.dims) * spec.dtype.itemsize - len(data)
    encoded, _ = apply_filters(spec.filters[0], bytes(data) + bytes(missing) if missing else data)
    return encoded
