"""Dense chunks through filters as HSDS reads and writes them.

HSDS undoes at most one compressor and one byte shuffle, whatever a dataset's filters are. Compressors but deflate
it knows only inside a Blosc frame, and there the frame says what was shuffled. So hsparse puts everything into such
a pipeline, which is still one that an HDF5 file could have: deflate after shuffle, or Blosc (32001).

What HSDS itself writes is one Blosc 1 frame, whichever compressor the pipeline names: HSDS gives the compressor to
Blosc, shuffling within, instead of applying HDF5's filters one by one. No other compressed form begins like such a
frame, so what HSDS wrote is told from what the pipeline's filters write. HSDS writes no checksum, also where the
pipeline has fletcher32: then the frame is all there is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from hsparse.errors import Corrupt
from hsparse.format import raw_codec
from hsparse.format.buffer import Buffer
from hsparse.format.filters.compressors import Blosc
from hsparse.format.filters.definition import DataSizes, Filter, FilterDefinition, Pipeline
from hsparse.format.filters.filters_json import filter_key, parse_filters
from hsparse.format.filters.table import BY_ID, DEFINITIONS, find

COMPRESSORS = frozenset(one.id for one in DEFINITIONS if one.hsds_compressor)
BIT_SHUFFLES = frozenset(one.id for one in DEFINITIONS if one.shuffles_bits)
BYTES, BITS = 1, 2
"""What Blosc shuffles."""
FRAME_VERSION = 2
MAX_CHUNK = 1 << 30
"""Bytes that a chunk in a frame may have where its size is not known."""


def parse_hsds_filters(items: Sequence[Any], element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the stored pipeline of `creationProperties.filters`; raises what `parse_filters` does.

    Sizes are in bytes, of an element and of a chunk with all elements. Filters that HSDS keeps in the properties
    and does not apply are not applied here either: they would change values, or save bits.
    """

    def parse(some: Any) -> Pipeline:
        applied = [item for item in some if not _kept(item)] if isinstance(some, list) else some
        return parse_filters(applied, element_size, sparse=False, chunk_bytes=chunk_bytes)[0]

    pipeline = parse(items)
    for place, item in enumerate(items):
        kept = _kept(item)
        if kept is not None and kept.hsds_takes_for_compressor:
            # HSDS applies the first compressor, and that is this one unless another stands before it.
            if _compressor(parse(list(items)[:place])) is None:
                pipeline = tuple(filter for filter in pipeline if BY_ID[filter.id].shuffles_bytes)
            break
    return hsds_pipeline(pipeline, element_size, chunk_bytes)


def hsds_pipeline(pipeline: Pipeline, element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the pipeline that takes the place of `pipeline`.

    The first compressor counts. Shuffling comes before it, or goes into Blosc. A checksum comes last, over what is
    stored, and only where there is a compressor: HSDS expects anything else bare. Bits are shuffled for a
    compressor alone, since on their own they save nothing. A pipeline with a filter that HSDS has no form for
    (bitshuffle that compresses by itself) stays as it is.
    """
    if not all(BY_ID[filter.id].hsds_undoes(filter.values) for filter in pipeline):
        return pipeline
    compressor = _compressor(pipeline)
    byte_shuffle = tuple(filter for filter in pipeline if BY_ID[filter.id].shuffles_bytes)[:1]
    if compressor is None:
        return byte_shuffle
    checksum = tuple(filter for filter in pipeline if BY_ID[filter.id].is_checksum)[:1]
    bits = any(filter.id in BIT_SHUFFLES for filter in pipeline)
    definition = BY_ID[compressor.id]
    if definition.hsds_applies and not bits:
        return (*byte_shuffle, compressor, *checksum)
    shuffle = BITS if bits else BYTES if byte_shuffle else 0
    sizes = DataSizes(element_size, chunk_bytes)
    return (definition.as_blosc(compressor.values, shuffle, sizes), *checksum)


def decode_hsds_frame(data: Buffer, pipeline: Pipeline, most: int = MAX_CHUNK) -> Buffer | None:
    """Return the unfiltered chunk, of at most `most` bytes, when `data` is a frame that HSDS wrote, else None.

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


def is_hsds_frame(data: Buffer, pipeline: Pipeline) -> bool:
    """Say whether `data` is such a frame where an HDF5 library, given the pipeline, would not expect one."""
    alone = len(pipeline) == 1 and pipeline[0].id == Blosc.id
    return not alone and _frame_size(data, pipeline) is not None


def _compressor(pipeline: Pipeline) -> Filter | None:
    return next((filter for filter in pipeline if BY_ID[filter.id].is_compressor), None)


def _kept(item: Any) -> FilterDefinition | None:
    """Return the filter that an item names if it is kept in the properties alone."""
    definition = find(filter_key(item))
    return definition if definition is not None and definition.hsds_keeps else None


def _frame_size(data: Buffer, pipeline: Pipeline) -> int | None:
    """Return the decoded size of a frame in bytes, None where it is not a frame."""
    ids = {filter.id for filter in pipeline}
    if len(data) < 16 or not ids & COMPRESSORS or ids & BIT_SHUFFLES:
        return None
    # Version of the format and of the compressor's, flags, element size; u32 sizes of data, block, frame.
    version, size, frame = data[0], *struct.unpack_from("<I4xI", data, 4)
    return size if version == FRAME_VERSION and frame == len(data) else None
