"""The filters that a dense chunk's object is stored through: what creation properties ask for, as HSDS reads it.

HSDS undoes at most one compressor and one byte shuffle, whatever a dataset's filters are. Compressors but deflate
it knows only inside a Blosc frame, and there the frame says what was shuffled. So everything is put into such a
pipeline, which is still one that an HDF5 file could have: deflate after shuffle, or Blosc (32001).

Dense chunks as HSDS compresses them: one Blosc 1 frame, whichever compressor the pipeline names.

HSDS gives the compressor to Blosc, shuffling within, instead of applying HDF5's filters one by one. No other
compressed form begins like such a frame, so what HSDS wrote is told from what the pipeline's filters write.
HSDS writes no checksum, also where the pipeline has fletcher32: then the frame is all there is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from hsparse.errors import Corrupt
from hsparse.format import raw_codec
from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import (
    BITSHUFFLE,
    BLOSC,
    COMPRESSORS,
    DEFLATE,
    FLETCHER32,
    LZ4,
    LZF,
    NBIT,
    SCALEOFFSET,
    SHUFFLE,
    ZSTD,
    parse_filters,
)

IDLE = {
    "nbit": NBIT,
    "H5Z_FILTER_NBIT": NBIT,
    "scaleoffset": SCALEOFFSET,
    "H5Z_FILTER_SCALEOFFSET": SCALEOFFSET,
    NBIT: NBIT,
    SCALEOFFSET: SCALEOFFSET,
}
"""Filters that are kept in the properties and do nothing, as in HSDS: they would change values, or save bits."""

BYTES, BITS = 1, 2
"""What Blosc shuffles."""
DEFAULT_LEVEL = 5
MAX_ELEMENT = 255
"""Bytes of the largest element that Blosc shuffles."""
Pipeline = tuple[Filter, ...]


def parse_hsds_filters(items: Sequence[Any], element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the stored pipeline of `creationProperties.filters`; raises what `parse_filters` does.

    Sizes are in bytes, of an element and of a chunk with all elements.
    """

    def parse(some: Any) -> Pipeline:
        kept = [item for item in some if _idle(item) is None] if isinstance(some, list) else some
        return parse_filters(kept, element_size, sparse=False, chunk_bytes=chunk_bytes)[0]

    pipeline = parse(items)
    idle = [_idle(item) for item in items]
    if SCALEOFFSET in idle and _compressor(parse(list(items)[: idle.index(SCALEOFFSET)])) is None:
        # HSDS takes it for the compressor, of which it applies the first.
        pipeline = tuple(filter for filter in pipeline if filter.id == SHUFFLE)
    return hsds_pipeline(pipeline, element_size, chunk_bytes)


def hsds_pipeline(pipeline: Pipeline, element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the pipeline that takes the place of `pipeline`.

    The first compressor counts. Shuffling comes before it, or goes into Blosc. A checksum comes last, over what is
    stored, and only there is a compressor: HSDS expects anything else bare. Bits are shuffled for a compressor
    alone, since on their own they save nothing. Bitshuffle that compresses by itself, which HSDS has no form for,
    stays as it is, with all the pipeline.
    """
    ids = [filter.id for filter in pipeline]
    if any(filter.id == BITSHUFFLE and any(filter.values[4:5]) for filter in pipeline):
        return pipeline
    compressor = _compressor(pipeline)
    byte_shuffle = tuple(filter for filter in pipeline if filter.id == SHUFFLE)[:1]
    if compressor is None:
        return byte_shuffle
    checksum = tuple(filter for filter in pipeline if filter.id == FLETCHER32)[:1]
    if compressor.id == DEFLATE and BITSHUFFLE not in ids:
        return (*byte_shuffle, compressor, *checksum)
    shuffle = BITS if BITSHUFFLE in ids else BYTES if byte_shuffle else 0
    return (_blosc(compressor, shuffle, element_size, chunk_bytes), *checksum)


def _compressor(pipeline: Pipeline) -> Filter | None:
    return next((filter for filter in pipeline if filter.id in _LEVELS), None)


def _blosc(compressor: Filter, shuffle: int, element_size: int, chunk_bytes: int) -> Filter:
    if compressor.id == BLOSC:
        values = compressor.values
        return Filter(BLOSC, (*values[:5], shuffle or values[5], *values[6:]))
    size = element_size if element_size <= MAX_ELEMENT else 1
    name, level = _LEVELS[compressor.id]
    asked = compressor.values[0] if compressor.id in (DEFLATE, ZSTD) else DEFAULT_LEVEL
    return Filter(BLOSC, (2, 2, size, chunk_bytes, level(asked), shuffle, COMPRESSORS.index(name)))


def _same(level: int) -> int:
    return level


def _of_zstd(level: int) -> int:
    """Return Blosc's level for one of zstd's: n stands for 2n-1, 9 for the highest, and 0 would be none."""
    return 9 if level >= 18 else (level + 1) // 2 if level else 2


_LEVELS = {
    DEFLATE: ("zlib", _same),
    LZF: ("blosclz", _same),
    BLOSC: ("", _same),
    LZ4: ("lz4", _same),
    ZSTD: ("zstd", _of_zstd),
}
"""Compressors: their name in Blosc, and what becomes of their level."""


def _idle(item: Any) -> int | None:
    key = item
    if isinstance(item, dict):
        key = item.get("class", "H5Z_FILTER_USER")
        if key == "H5Z_FILTER_USER":
            key = item.get("id", item.get("name"))
    return IDLE.get(key) if isinstance(key, str | int) else None


FRAME_BLOSC = 32001
FRAME_COMPRESSORS = frozenset((1, FRAME_BLOSC, 32004, 32015))
"""Deflate, Blosc, LZ4 and zstd."""
FRAME_BITSHUFFLE = 32008
VERSION = 2
MOST = 1 << 30


def decode_hsds_frame(data: Buffer, pipeline: tuple[Filter, ...], most: int = MOST) -> Buffer | None:
    """Return the unfiltered chunk, of at most `most` bytes, when `data` is such a frame, else None.

    `Corrupt` when it begins like one and does not decode.
    """
    size = _frame_size(data, pipeline)
    if size is None or size > most:
        return None
    try:
        return raw_codec.blosc_decode(data, size)
    except (RuntimeError, ValueError) as error:
        raise Corrupt(
            f"The Blosc frame of {len(data)} bytes, as of HSDS, does not decode: {error}."
        ) from error


def is_hsds_frame(data: Buffer, pipeline: tuple[Filter, ...]) -> bool:
    """Say whether `data` is such a frame where an HDF5 library, given the pipeline, would not expect one."""
    alone = len(pipeline) == 1 and pipeline[0].id == FRAME_BLOSC
    return not alone and _frame_size(data, pipeline) is not None


def _frame_size(data: Buffer, pipeline: tuple[Filter, ...]) -> int | None:
    """Return how many bytes a frame says it unfolds to, None for what is no frame."""
    ids = {filter.id for filter in pipeline}
    if len(data) < 16 or not ids & FRAME_COMPRESSORS or FRAME_BITSHUFFLE in ids:
        return None
    # Version of the format and of the compressor's, flags, element size; u32 sizes of data, block, frame.
    version, size, frame = data[0], *struct.unpack_from("<I4xI", data, 4)
    return size if version == VERSION and frame == len(data) else None
