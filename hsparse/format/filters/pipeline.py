"""Filter pipelines (encoding and decoding exactly as libhdf5 and its plugins do), and the table of filter definitions.

If an optional filter fails, or HDF5 skips it because its output is not smaller, the filter's bit is set in the filter
mask (H5.format.html, IV.A.2.l "Filter Pipeline Message").

The table has the definitions by id and by name, and lists derived from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.filters.codecs import COMPRESSORS, Deflate
from hsparse.format.filters.definition import Filter, FilterDefinition
from hsparse.format.filters.transforms import TRANSFORMS, Shuffle
from hsparse.model.short_text import short_repr

DEFINITIONS: tuple[FilterDefinition, ...] = (*COMPRESSORS, *TRANSFORMS)
BY_ID = {definition.id: definition for definition in sorted(DEFINITIONS, key=lambda one: one.id)}
BY_NAME = {name: definition for definition in DEFINITIONS for name in definition.names}
CODECS = {id: definition for id, definition in BY_ID.items() if definition.has_codec}
"""The filters that can encode and decode data, by id."""
ADVERTISED = tuple(
    name
    for names in zip_longest(*(one.api_names for one in DEFINITIONS if one.hsds_compressor))
    for name in names
    if name is not None
)
"""The names of compressors in responses to HSDS's clients: the first name of each, then the second names."""
LEFT_OUT_BY_CLIENTS = tuple(Filter(one.id) for one in DEFINITIONS if one.left_out_by_clients)
"""Filters that a file's pipeline may have even if the client's description of the pipeline omits them."""
REGISTERED = {
    305: "LZO",
    307: "bzip2",
    32002: "MAFISC",
    32006: "APAX",
    32007: "CBF",
    32009: "SPDP",
    32010: "LPC-Rice",
    32011: "CCSDS-123",
    32012: "JPEG-LS",
    32013: "zfp",
    32014: "fpzip",
    32016: "B3D",
    32017: "SZ",
    32018: "FCIDECOMP",
    32019: "JPEG",
    32020: "VBZ",
    32021: "FAPEC",
    32022: "BitGroom",
    32023: "Granular BitRound",
    32024: "SZ3",
    32025: "Delta-Rice",
    32026: "Blosc2",
    32027: "FLAC",
    32028: "SPERR",
    32029: "TERSE/PROLIX",
    32030: "FFMPEG",
}
"""Other filters that are registered with The HDF Group; hsparse knows only their names."""
DEFAULT_LEVEL = 2
"""The deflate level of section 0 of sparse datasets that are created without filters.

Measured with the records of 1 million random points, 8.0 MB: level 1 gives 860 kB in 35 ms, level 2 823 kB in 20 ms,
level 4 827 kB in 20 ms, level 6 790 kB in 28 ms. Decoding takes 6 ms at any level.
"""


def default_pipeline(element_size: int) -> tuple[Filter, ...]:
    """Return the filters that selections and heap references get if a dataset is created without filters."""
    return Filter(Shuffle.id, (element_size,)), Filter(Deflate.id, (DEFAULT_LEVEL,))


def find(key: Any) -> FilterDefinition | None:
    """Return the filter with this HDF5/JSON class, name or id, or None if it is unknown."""
    if isinstance(key, str):
        return BY_NAME.get(key)
    return BY_ID.get(key) if isinstance(key, int) and not isinstance(key, bool) else None


def requestable(key: Any) -> FilterDefinition:
    """Return the filter that a client requests by `key`; raise `BadRequest` or `Unsupported` if it cannot be used."""
    definition = find(key)
    if definition is None:
        raise BadRequest(f"The filter {short_repr(key)} is unknown; {_working()}.")
    if not definition.available:
        raise Unsupported(f"The filter {definition.name} is not available; {_working()}.")
    return definition


def codec_of(filter: Filter) -> FilterDefinition:
    """Return the definition of a pipeline's filter; raise `Unsupported` if it is not in `CODECS`."""
    try:
        return CODECS[filter.id]
    except KeyError:
        names = _names(CODECS.values())
        raise Unsupported(
            f"The filter {filter_name(filter.id)} is not available; use one of {', '.join(names)}."
        ) from None


def filter_name(id: int) -> str:
    """Return a filter's name and id for a message, or only the id if the filter is not registered."""
    name = BY_ID[id].name if id in BY_ID else REGISTERED.get(id)
    return f"with id {id}" if name is None else f"{name} (id {id})"


def _working() -> str:
    *names, last = _names(one for one in BY_ID.values() if one.available and one.id)
    return f"{', '.join(names)} and {last} work"


def _names(definitions: Iterable[FilterDefinition]) -> list[str]:
    return [definition.name for definition in definitions]


UNKNOWN_LIMIT = 1 << 30
"""The limit of unfiltered data whose size is unknown, in bytes."""


def apply_filters(pipeline: tuple[Filter, ...], data: Buffer) -> tuple[Buffer, int]:
    """Return a pair: the encoded data and the filter mask; raise `BadRequest` if a mandatory filter fails."""
    mask = 0
    if not len(data):
        return data, mask
    for place, filter in enumerate(pipeline):
        codec = CODECS.get(filter.id) or codec_of(filter)
        try:
            output = codec.encode(filter.values, data)
        except (RuntimeError, ValueError) as error:
            if not filter.optional:
                raise BadRequest(
                    f"The filter {codec.name} cannot encode {len(data)} bytes: {error}."
                ) from error
            mask |= 1 << place
            continue
        if codec.declines and filter.optional and len(output) >= len(data):
            mask |= 1 << place
        else:
            data = output
    return data, mask


def undo_filters(
    pipeline: tuple[Filter, ...],
    data: Buffer,
    mask: int,
    expected_size: int | None,
    most: int = UNKNOWN_LIMIT,
) -> Buffer:
    """Decode `data` by the pipeline; filters whose bit is set in `mask` are skipped.

    `expected_size` is the size of the unfiltered data in bytes; if it is None, the result is limited to `most` bytes.
    Raises `Corrupt`, naming the filter, if the data does not decode.
    """
    if mask >> len(pipeline):
        raise Corrupt(
            f"The filter mask {mask:#x} has bits beyond the {len(pipeline)} filters of the pipeline."
        )
    if len(data) or expected_size:
        sizes = _sizes(pipeline, mask, most if expected_size is None else expected_size)
        for place in reversed(range(len(pipeline))):
            if not mask >> place & 1:
                data = _decode_one(pipeline[place], data, sizes[place])
    if expected_size is not None and len(data) != expected_size:
        raise Corrupt(f"The filters return {len(data)} bytes; {expected_size} are expected: damaged data.")
    return data


def undo_to_planes(
    pipeline: tuple[Filter, ...], data: Buffer, mask: int, expected_size: int
) -> BytePlanes | Buffer:
    """Decode `data` as `undo_filters`, but leave it shuffled if shuffle is the first filter of the pipeline."""
    element = None if not pipeline or mask & 1 else codec_of(pipeline[0]).plane_element(pipeline[0].values)
    if element is None or not 1 < element <= expected_size // 2:
        return undo_filters(pipeline, data, mask, expected_size)
    return BytePlanes(undo_filters(pipeline[1:], data, mask >> 1, expected_size), element, expected_size)


def decode_alike(one: tuple[Filter, ...], other: tuple[Filter, ...]) -> bool:
    """Return whether two pipelines decode any bytes to the same data; compression levels may differ."""
    return list(map(_decoding, one)) == list(map(_decoding, other))


def _decoding(filter: Filter) -> tuple[int, tuple[int, ...]]:
    definition = BY_ID.get(filter.id)
    return filter.id, filter.values if definition is None else definition.decoding_values(filter.values)


def _decode_one(filter: Filter, data: Buffer, limit: int) -> Buffer:
    codec = codec_of(filter)
    try:
        output = codec.decode(filter.values, data, limit)
    except (RuntimeError, ValueError) as error:
        raise Corrupt(f"The filter {codec.name} cannot decode {len(data)} bytes: {error}.") from error
    if len(output) > limit:
        raise Corrupt(f"The filter {codec.name} returns {len(output)} bytes; at most {limit} are expected.")
    return output


def _sizes(pipeline: tuple[Filter, ...], mask: int, size: int) -> list[int]:
    """Return for each filter an upper bound on the bytes of its input if data of `size` bytes is encoded."""
    sizes = []
    most = 8 * size
    for place, filter in enumerate(pipeline):
        sizes.append(size)
        if not mask >> place & 1:
            growth = codec_of(filter).growth(filter.values)
            # No compressor makes data eight times as long; LZ4 with small blocks is the worst.
            size = min(8 * size, most) + 4096 if growth is None else size + growth
    return sizes
