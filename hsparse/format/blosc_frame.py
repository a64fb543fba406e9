"""Dense chunks as HSDS compresses them: one Blosc 1 frame, whichever compressor the pipeline names.

HSDS gives the compressor to Blosc, shuffling within, instead of applying HDF5's filters one by one. No other
compressed form begins like such a frame, so what HSDS wrote is told from what the pipeline's filters write.
HSDS writes no checksum, also where the pipeline has fletcher32: then the frame is all there is.
"""

from __future__ import annotations

import struct

from hsparse.errors import Corrupt
from hsparse.format import raw_codec
from hsparse.format.buffer import Buffer
from hsparse.model.filter import Filter

BLOSC = 32001
COMPRESSORS = frozenset((1, BLOSC, 32004, 32015))
"""Deflate, Blosc, LZ4 and zstd."""
BITSHUFFLE = 32008
VERSION = 2
MOST = 1 << 30


def decode_frame(data: Buffer, pipeline: tuple[Filter, ...], most: int = MOST) -> Buffer | None:
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


def is_frame(data: Buffer, pipeline: tuple[Filter, ...]) -> bool:
    """Say whether `data` is such a frame where an HDF5 library, given the pipeline, would not expect one."""
    alone = len(pipeline) == 1 and pipeline[0].id == BLOSC
    return not alone and _frame_size(data, pipeline) is not None


def _frame_size(data: Buffer, pipeline: tuple[Filter, ...]) -> int | None:
    """Return how many bytes a frame says it unfolds to, None for what is no frame."""
    ids = {filter.id for filter in pipeline}
    if len(data) < 16 or not ids & COMPRESSORS or BITSHUFFLE in ids:
        return None
    # Version of the format and of the compressor's, flags, element size; u32 sizes of data, block, frame.
    version, size, frame = data[0], *struct.unpack_from("<I4xI", data, 4)
    return size if version == VERSION and frame == len(data) else None
