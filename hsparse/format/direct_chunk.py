"""A chunk's bytes as clients give them for direct storage (H5Dwrite_chunk, H5Dwrite_struct_chunk), checked first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_rows import MASK, SIZE, UNFILTERED, sections_of
from hsparse.format.filters import decode
from hsparse.format.kinds.dense_chunk import decode_dense
from hsparse.format.kinds.sparse_chunk import SparseChunk, open_sparse
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.structured.container import StoredChunk
from hsparse.format.structured.footer import seal
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.counted import split
from hsparse.model.variable_array import VariableArray

MOST_UNFILTERED = 512 * 1024 * 1024
"""Bytes of a section before its filters: what a client claims them to be is taken before it is known to be true."""
Dense = NDArray[Any] | VariableArray


@dataclass(frozen=True, slots=True, eq=False)
class GivenChunk:
    """What a chunk's bytes say, and the object that holds these very bytes; None: it has no place for them."""

    value: SparseChunk | Dense
    data: Buffer | None


def check_direct(
    spec: ChunkSpec, data: bytes, sections: NDArray[np.uint64], stop: tuple[int, ...]
) -> GivenChunk:
    """Return a given chunk; `sections: (k, 3)` as in `ChunkRows`, of a dense chunk the mask alone.

    `stop` are the dimensions of what lies inside the extent. `BadRequest` says what is wrong with the bytes.
    """
    count = len(spec.filters) if spec.sparse else 1
    if sections.shape != (count, 3) or int(sections[:, MASK].max()) >= 2**32:
        raise BadRequest(
            f"A chunk of {spec.dataset} has {count} sections, each with a filter mask of 32 bits."
        )
    try:
        if spec.sparse:
            return _sparse(spec, data, sections, stop)
        return _dense(spec, data, int(sections[0, MASK]))
    except Corrupt as error:
        raise BadRequest(f"The bytes are no chunk of {spec.dataset}: {error.message}") from error


def _sparse(spec: ChunkSpec, data: bytes, table: NDArray[np.uint64], stop: tuple[int, ...]) -> GivenChunk:
    sizes = table[:, SIZE].tolist()
    if sum(sizes) != len(data):
        raise BadRequest(f"The sections have {sizes} bytes, the body {len(data)}.")
    if int(table[:, UNFILTERED].max()) > MOST_UNFILTERED:
        raise TooLarge(
            f"A section of {int(table[:, UNFILTERED].max())} bytes unfiltered is too large to be written directly; the "
            f"limit is {MOST_UNFILTERED}: write values."
        )
    sections = sections_of(table)
    chunk = open_sparse(data, sections, spec.dims, spec.dtype, spec.filters)
    inside = Orthogonal.box(spec.dims, (0,) * len(spec.dims), stop)
    if not inside.is_all and not inside.contains(chunk.offsets).all():
        raise BadRequest(
            f"Section 0 (selection) has elements beyond the extent, which has {list(stop)} of the chunk."
        )
    view = memoryview(data)
    images = tuple(view[section.offset : section.offset + section.size] for section in sections)
    return GivenChunk(chunk, seal(StoredChunk(images, sections), len(chunk.offsets)))


def _dense(spec: ChunkSpec, data: bytes, mask: int) -> GivenChunk:
    pipeline = spec.filters[0]
    datatype = spec.datatype
    if not mask:
        if datatype.is_variable:
            return GivenChunk(decode_bare_vlen(data, spec.dims, datatype.element, pipeline), data)
        return GivenChunk(decode_dense(data, spec.dims, datatype.stored, pipeline), data)
    if datatype.is_variable:
        return GivenChunk(split(decode(pipeline, data, mask, None), datatype.element, spec.dims), None)
    size = math.prod(spec.dims) * datatype.stored.itemsize
    return GivenChunk(np.ndarray(spec.dims, datatype.stored, decode(pipeline, data, mask, size)), None)
