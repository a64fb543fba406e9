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

COMPRESSORS = frozenset((1, 32001, 32004, 32015))
"""Deflate, Blosc, LZ4 and zstd."""
BITSHUFFLE = 32008
VERSION = 2
MOST = 1 << 30


def decode_frame(data: Buffer, pipeline: tuple[Filter, ...], most: int = MOST) -> Buffer | None:
    """Return the unfiltered chunk, of at most `most` bytes, when `data` is such a frame, else None.

    `Corrupt` when it begins like one and does not decode.
    """
    ids = {filter.id for filter in pipeline}
    if len(data) < 16 or not ids & COMPRESSORS or BITSHUFFLE in ids:
        return None
    # Version of the format and of the compressor's, flags, element size; u32 sizes of data, block, frame.
    version, size, frame = data[0], *struct.unpack_from("<I4xI", data, 4)
    if version != VERSION or frame != len(data) or size > most:
        return None
    try:
        return raw_codec.blosc_decode(data, size)
    except (RuntimeError, ValueError) as error:
        raise Corrupt(
            f"The Blosc frame of {len(data)} bytes, as of HSDS, does not decode: {error}."
        ) from error
