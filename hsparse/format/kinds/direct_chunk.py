"""Chunks that a client encoded itself (H5Dwrite_chunk, H5Dwrite_struct_chunk), checked before they are stored."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.chunk_rows import MASK, SIZE, UNFILTERED, sections_of
from hsparse.format.chunk_statistics import statistics_of
from hsparse.format.kinds.chunk_kind import ChunkKind, DirectWrite
from hsparse.format.kinds.sparse_chunk import SparseChunk
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.structured.container import Section, StoredChunk
from hsparse.format.structured.footer import seal

V = TypeVar("V")
MAX_UNFILTERED = 512 * 1024 * 1024
"""The most unfiltered bytes of a section: memory of the size that a client claims is taken before it is checked."""


def open_direct_chunk(
    kind: ChunkKind[V],
    data: bytes,
    sections: NDArray[np.uint64],
    scaled: tuple[int, ...],
    stop: tuple[int, ...],
) -> DirectWrite[V]:
    """Decode and check a client's bytes.

    `sections: (k, 3)` are as in `ChunkRows`, of a dense chunk the mask alone. `stop` are the dimensions of
    the part inside the extent. `BadRequest` says what is wrong with the bytes.
    """
    spec = kind.spec
    count = len(spec.filters) if spec.sparse else 1
    if sections.shape != (count, 3) or int(sections[:, MASK].max()) >= 2**32:
        raise BadRequest(
            f"A chunk of {spec.dataset} has {count} sections, each with a filter mask of 32 bits."
        )
    try:
        return kind.open_direct(data, sections, scaled, stop)
    except Corrupt as error:
        raise BadRequest(f"The bytes are no chunk of {spec.dataset}: {error.message}") from error


def checked_sections(data: bytes, table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return the sections that a client claims; `BadRequest` or `TooLarge` where they are impossible."""
    sizes = table[:, SIZE].tolist()
    if sum(sizes) != len(data):
        raise BadRequest(f"The sections have {sizes} bytes, the body {len(data)}.")
    if int(table[:, UNFILTERED].max()) > MAX_UNFILTERED:
        raise TooLarge(
            f"A section of {int(table[:, UNFILTERED].max())} bytes unfiltered is too large to be written directly; "
            f"the limit is {MAX_UNFILTERED}: write values."
        )
    return sections_of(table)


def sealed(
    chunk: SparseChunk,
    data: bytes,
    table: NDArray[np.uint64],
    stop: tuple[int, ...],
    *,
    statistics: bool = False,
) -> DirectWrite[SparseChunk]:
    """Return a directly written chunk with its object; `BadRequest` for elements at or beyond `stop`."""
    kept = Orthogonal.box(chunk.dims, (0,) * len(chunk.dims), stop)
    if not kept.is_all and not kept.contains(chunk.offsets).all():
        raise BadRequest(
            f"Section 0 (selection) has elements beyond the extent, which has {list(stop)} of the chunk."
        )
    sections, view = sections_of(table), memoryview(data)
    images = tuple(view[section.offset : section.offset + section.size] for section in sections)
    words = statistics_of(chunk.values, chunk.values.dtype) if statistics else np.zeros(0, np.uint64)
    return DirectWrite(
        chunk, seal(StoredChunk(images, sections), len(chunk.offsets), words.astype("<u8").tobytes())
    )
