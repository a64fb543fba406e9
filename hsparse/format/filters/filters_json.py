"""Filters in a dataset's creation properties: parsing to pipelines, conversion to JSON, and compatibility with HSDS.

Client values are the values that libhdf5 stores after a filter's `set_local` has added those of datatype and chunk.
An HDF5 file can therefore contain the pipeline unchanged.

HSDS decodes at most one compressor and one byte shuffle, regardless of a dataset's filters. It decodes compressors
other than deflate only in a Blosc frame, which also says what was shuffled. hsparse therefore converts pipelines to one
of these two forms, which HDF5 files can have as well: deflate after shuffle, or Blosc (32001).

HSDS always writes one Blosc 1 frame, regardless of the compressor in the pipeline: it gives the compressor to Blosc,
which also shuffles, instead of applying HDF5's filters one by one. No other compressed form begins like such a frame,
so hsparse can recognize objects that HSDS wrote. HSDS never writes a checksum after the frame, even if the pipeline has
fletcher32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from hsparse.errors import BadRequest, Corrupt
from hsparse.format import codec_library as raw_codec
from hsparse.format.buffer import Buffer
from hsparse.format.filters.codecs import Blosc
from hsparse.format.filters.definition import (
    DataSizes,
    Filter,
    FilterDefinition,
    FilterRequest,
    Json,
    Pipeline,
)
from hsparse.format.filters.pipeline import BY_ID, DEFINITIONS, default_pipeline, find, requestable
from hsparse.model.short_text import short_repr

SECTIONS = ("H5_SECTION_SELECTION", "H5_SECTION_FIXED", "H5_SECTION_VL")
MAX_FILTERS = 32
MAX_ELEMENT = 256
"""The most bytes of a point in section 0 (selection): 32 coordinates of 8 bytes."""
USER = "H5Z_FILTER_USER"


def parse_filters(
    items: Sequence[Any],
    element_size: int,
    *,
    sparse: bool,
    chunk_bytes: int,
    record_size: int = 1,
    heap: bool = False,
) -> tuple[tuple[Filter, ...], ...]:
    """Return one pipeline per section: one for a dense layout, two for a sparse layout (selection, fixed-size values).

    With `heap` there is a third pipeline, for the heap; the pipeline of the selection is then empty if the layout is
    dense. `items` are `creationProperties.filters`: objects, ids or names. `element_size` and `chunk_bytes` are the
    bytes of an element and of a full chunk. In section 0 the element size is the `element_size` of an item or
    `record_size` (see the function `record_size`). If `items` is empty, the selection and the heap references of a
    structured chunk are compressed; the filter `none` prevents that. Raises `BadRequest` for invalid items, and
    `Unsupported` for filters that are not available.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise BadRequest(f"filters must be a list, not {short_repr(items)}.")
    sizes = tuple(DataSizes(size, chunk_bytes) for size in (record_size, element_size, 1))
    if not sparse and not heap:
        return (_dense_pipeline(items, sizes[1]),)
    there = tuple(number for number, has in enumerate((sparse, True, heap)) if has)
    pipelines: tuple[list[Filter], ...] = ([], [], [])
    if not items:
        for number in there[: len(there) - 1]:  # the sections of offsets and references, not of values
            pipelines[number].extend(default_pipeline(sizes[number].element))
    for item in items:
        definition, request = _parse(item)
        for number in _sections_of(item, request.name, there):
            if definition.id:
                size = (request.element_size if number == 0 else None) or sizes[number].element
                pipelines[number].append(definition.requested(request, DataSizes(size, chunk_bytes)))
    for pipeline in pipelines:
        _check_length(pipeline)
    found = tuple(tuple(pipeline) for pipeline in pipelines)
    return (*found[:2], filters_for_vlen(found[2])) if heap else found[:2]


def filters_for_vlen(pipeline: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """Return a pipeline without shuffling filters, which need elements of fixed size.

    HSDS also omits these filters for variable-length elements.
    """
    return tuple(
        filter
        for filter in pipeline
        if not (BY_ID[filter.id].shuffles_bytes or BY_ID[filter.id].shuffles_bits)
    )


def record_size(dims: Sequence[int]) -> int:
    """Return the bytes of a point in the encoded selection of a chunk of `dims`: rank times the coordinate width.

    In a chunk of up to 65535 elements the width is 2 bytes. In a larger chunk the number of points may need 4 bytes.
    The function then assumes 4, which suits large selections, and is also the size of a block of 2-byte coordinates.
    """
    # Bytes after shuffle with element size s and deflate 6, for chunks of 1024 x 1024 (lcls: 16 x 512 x 512), r = rank:
    #                                        raw   s = 2r    s = 4r    s = 8r
    #   10 % random, points of 4 bytes   838 928  193 946   111 434   120 449
    #   5 % random, points of 2 bytes    209 774   59 220    63 963    69 780
    #   1 % random, points of 2 bytes     42 006   15 235    16 883    18 003
    #   lcls, 304 runs of 5 to 10          3 727    1 495     1 225     1 268
    #   one run a row, 1024 rows           8 255    3 465     3 391     3 457
    return max(len(dims), 1) * (2 if math.prod(dims) <= 0xFFFF else 4)


def filters_to_json(items: list[Any]) -> list[Any]:
    """Return requested filters as in responses and records: objects with class, id and name.

    Unknown items are returned unchanged.
    """
    return [_to_json(item) for item in items]


def creation_property(filter: Filter, section: int | None = None) -> Json:
    """Return a filter as an entry of `creationProperties.filters`, with the name of its `section` if given."""
    definition = BY_ID.get(filter.id)
    if definition is None:
        item: Json = {"id": filter.id, "parameters": list(filter.values)}
    else:
        item = definition.creation_property(filter.values)
    return item if section is None else item | {"section": SECTIONS[section]}


def filter_key(item: Any) -> Any:
    """Return the class, name or id with which an item of `creationProperties.filters` names its filter."""
    if not isinstance(item, dict):
        return item
    key = item.get("class", USER)
    return item.get("id", item.get("name")) if key == USER else key


def _to_json(item: Any) -> Any:
    definition = find(filter_key(item) if item else item)
    if definition is None or not definition.api_names:
        return item
    name = item if item in definition.api_names else definition.api_names[0]
    rest = {key: value for key, value in item.items() if key != "class"} if isinstance(item, dict) else {}
    return {"class": definition.hdf5_class, "id": definition.id, "name": name} | rest


def _dense_pipeline(items: Sequence[Any], sizes: DataSizes) -> tuple[Filter, ...]:
    pipeline: list[Filter] = []
    for item in items:
        definition, request = _parse(item)
        if isinstance(item, dict) and "section" in item:
            raise BadRequest(f"The filter {request.name} has a section, which only sparse layouts have.")
        if definition.whole_elements and not all(BY_ID[filter.id].shuffles_bytes for filter in pipeline):
            # A dense chunk cannot record that the filter was skipped.
            raise BadRequest(
                f"The filter {definition.name} must come before filters that change the size of data."
            )
        if definition.id:
            pipeline.append(definition.requested(request, sizes))
    _check_length(pipeline)
    return tuple(pipeline)


def _check_length(pipeline: Sequence[Filter]) -> None:
    if len(pipeline) > MAX_FILTERS:
        raise BadRequest(f"A pipeline has {len(pipeline)} filters; the limit is {MAX_FILTERS}.")


def _sections_of(item: Any, name: str, there: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of the sections to which an item applies, or all sections `there` if it names no section."""
    section = item.get("section") if isinstance(item, dict) else None
    if section is None:
        return there
    if section not in SECTIONS:
        raise BadRequest(
            f"The filter {name} names the section {short_repr(section)}; use one of {', '.join(SECTIONS)}."
        )
    number = SECTIONS.index(section)
    if number not in there:
        what = "data of fixed size" if number == 2 else "a dense layout"
        raise BadRequest(f"The filter {name} names {section}; {what} has no such section: name another.")
    return (number,)


def _parse(item: Any) -> tuple[FilterDefinition, FilterRequest]:
    """Return a pair: the filter that an item requests, and its parameters; raise `BadRequest` or `Unsupported`."""
    key = filter_key(item)
    definition = requestable(key)
    if not isinstance(item, dict):
        return definition, FilterRequest(str(item), None, ())
    if "id" in item and item["id"] != definition.id:
        raise BadRequest(f"The filter {key} has id {definition.id}, not {short_repr(item['id'])}.")
    size = item.get("element_size")
    if size is not None and (
        not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MAX_ELEMENT
    ):
        raise BadRequest(
            f"The element size of the filter {key} must be 1 to {MAX_ELEMENT}, not {short_repr(size)}."
        )
    return definition, FilterRequest(str(key), _level(item, key), _parameters(item, key), size)


def _level(item: dict[str, Any], name: Any) -> int | None:
    level = item.get("level")
    if level is not None and (not isinstance(level, int) or isinstance(level, bool)):
        raise BadRequest(f"The level of the filter {name} must be an integer, not {short_repr(level)}.")
    return level


def _parameters(item: dict[str, Any], name: Any) -> tuple[int, ...]:
    """Return the client values in an item; raise `BadRequest` unless they are unsigned 32-bit numbers."""
    given = item.get("parameters")
    given = [] if given is None else given
    given = [given] if isinstance(given, int) else given
    if not isinstance(given, list) or not all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 for value in given
    ):
        raise BadRequest(
            f"The parameters of the filter {name} must be a list of 32-bit numbers, not {short_repr(given)}."
        )
    return tuple(given)


COMPRESSORS = frozenset(one.id for one in DEFINITIONS if one.hsds_compressor)
BIT_SHUFFLES = frozenset(one.id for one in DEFINITIONS if one.shuffles_bits)
BYTES, BITS = 1, 2
"""Blosc's codes for shuffling bytes and bits."""
FRAME_VERSION = 2
MAX_CHUNK = 1 << 30
"""The most bytes of a chunk in a frame if the chunk's size is unknown."""


def parse_hsds_filters(items: Sequence[Any], element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the stored pipeline as `parse_filters` does, without nbit and scaleoffset, which HSDS never applies."""

    def parse(some: Any) -> Pipeline:
        applied = [item for item in some if not _kept(item)] if isinstance(some, list) else some
        return parse_filters(applied, element_size, sparse=False, chunk_bytes=chunk_bytes)[0]

    pipeline = parse(items)
    for place, item in enumerate(items):
        kept = _kept(item)
        if kept is not None and kept.hsds_takes_for_compressor:
            # HSDS applies only the first compressor, which is this filter unless a compressor precedes it.
            if _compressor(parse(list(items)[:place])) is None:
                pipeline = tuple(filter for filter in pipeline if BY_ID[filter.id].shuffles_bytes)
            break
    return hsds_pipeline(pipeline, element_size, chunk_bytes)


def hsds_pipeline(pipeline: Pipeline, element_size: int, chunk_bytes: int) -> Pipeline:
    """Return the pipeline that replaces `pipeline` in a form that HSDS can decode.

    The result has only the first compressor, and the shuffle before it or in Blosc. A checksum comes last, and only
    after a compressor, because HSDS expects none after uncompressed data. Bits are shuffled only for a compressor,
    because bitshuffle alone saves nothing. A pipeline with a filter that HSDS cannot decode (bitshuffle with its own
    compression) is returned unchanged.
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
    """Return the unfiltered chunk, of at most `most` bytes, if `data` is a frame that HSDS wrote, or else None.

    Raises `Corrupt` if `data` has the header of a frame but does not decode.
    """
    size = _frame_size(data, pipeline)
    if size is None or size > most:
        return None
    try:
        return raw_codec.blosc_decode(data, size)
    except (RuntimeError, ValueError) as error:
        raise Corrupt(
            f"The Blosc frame of {len(data)} bytes, written by HSDS, does not decode: {error}."
        ) from error


def is_hsds_frame(data: Buffer, pipeline: Pipeline) -> bool:
    """Return whether `data` is a frame that HSDS wrote and that an HDF5 library could not decode with the pipeline."""
    alone = len(pipeline) == 1 and pipeline[0].id == Blosc.id
    return not alone and _frame_size(data, pipeline) is not None


def _compressor(pipeline: Pipeline) -> Filter | None:
    return next((filter for filter in pipeline if BY_ID[filter.id].is_compressor), None)


def _kept(item: Any) -> FilterDefinition | None:
    """Return an item's filter if the filter is stored in the properties but never applied, or else None."""
    definition = find(filter_key(item))
    return definition if definition is not None and definition.hsds_keeps else None


def _frame_size(data: Buffer, pipeline: Pipeline) -> int | None:
    """Return the decoded size in bytes if `data` is a frame that HSDS wrote, or else None."""
    ids = {filter.id for filter in pipeline}
    if len(data) < 16 or not ids & COMPRESSORS or ids & BIT_SHUFFLES:
        return None
    # The header: versions of the format and the compressor, flags, element size; u32 sizes of data, block, frame.
    version, size, frame = data[0], *struct.unpack_from("<I4xI", data, 4)
    return size if version == FRAME_VERSION and frame == len(data) else None
