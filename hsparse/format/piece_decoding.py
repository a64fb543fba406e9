"""Decode the pieces of file-backed chunks; `hsparse.format.file_backed` has their locations.

Clients describe the filters of a file incompletely: they give no filter masks, and h5pyd's hsload omits fletcher32 and
the compression of bitshuffle. If a piece does not decode as described, this module tries other pipelines that
libhdf5 may have used: without filters that did not shrink the piece, with a checksum, and with other compressions.
Sizes and checksums must match exactly, so the first pipeline that decodes the piece is the right pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter, Pipeline
from hsparse.format.filters.pipeline import LEFT_OUT_BY_CLIENTS, codec_of, undo_filters


def decode_piece(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipeline: Pipeline, mask: int = 0
) -> NDArray[Any]:
    """Return the elements of a piece in the shape `dims`; without filters, the result is a view of `data`.

    `mask` is the filter mask, or 0 if it is unknown. Raises `Corrupt` if no pipeline decodes to exactly these elements.
    """
    expected = math.prod(dims) * dtype.itemsize
    reason = ""  # the first error's message; keeping the error would form a reference cycle with this frame
    for filters, skipped in _ways(pipeline, mask, len(data) >= expected):
        try:
            return np.ndarray(dims, dtype, undo_filters(filters, data, skipped, expected))
        except Corrupt as error:
            reason = reason or error.message
    raise Corrupt(reason)


def pipeline_of(data: Buffer, size: int, pipeline: Pipeline, mask: int = 0) -> Pipeline:
    """Return the filters that decode a piece to `size` bytes of elements: `pipeline`, or a variant of `pipeline`.

    Raises `Corrupt` if no pipeline decodes the piece.
    """
    reason = ""
    ways = list(_ways(pipeline, mask, len(data) >= size))
    # Try pipelines with a checksum at the end first: decompressors may ignore the checksum's bytes.
    with_checksum = [(*pipeline, checksum) for checksum in LEFT_OUT_BY_CLIENTS]
    for filters, skipped in sorted(ways, key=lambda way: way[0] not in with_checksum):
        try:
            undo_filters(filters, data, skipped, size)
            return filters
        except Corrupt as error:
            reason = reason or error.message
    raise Corrupt(reason)


def _ways(pipeline: Pipeline, mask: int, long: bool) -> Iterator[tuple[Pipeline, int]]:
    """Yield pairs of a pipeline and a mask to try; `long` says that the piece is not smaller than its elements."""
    for filters in _described_and_others(pipeline):
        yield from _masked(filters, mask, long)


def _described_and_others(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield the described pipeline, and then pipelines with other client data that its filters may have in the file."""
    yield pipeline
    for place, filter in enumerate(pipeline):
        for values in codec_of(filter).other_values(filter.values):
            yield (*pipeline[:place], Filter(filter.id, values), *pipeline[place + 1 :])


def _masked(pipeline: Pipeline, mask: int, long: bool) -> Iterator[tuple[Pipeline, int]]:
    masks = [mask]
    declined = sum(1 << place for place, filter in enumerate(pipeline) if codec_of(filter).declines)
    if declined and not mask:
        # A piece that is not smaller suggests that filters which decline to lengthen data were skipped.
        masks = [declined, mask] if long else [mask, declined]
    for skipped in masks:
        yield pipeline, skipped
    for added in LEFT_OUT_BY_CLIENTS:
        if added.id in (filter.id for filter in pipeline):
            continue
        for skipped in masks:
            for place in reversed(range(len(pipeline) + 1)):
                low = skipped & ((1 << place) - 1)
                yield (*pipeline[:place], added, *pipeline[place:]), low | (skipped >> place) << (place + 1)
