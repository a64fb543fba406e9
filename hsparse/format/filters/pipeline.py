"""Filter pipelines: bytes through HDF5's filters and back, exactly as libhdf5 and its plugins do it.

A filter that fails, or one that HDF5 skips because its output is not smaller, sets its bit in the filter
mask if it is optional (H5.format.html, IV.A.2.l "Filter Pipeline Message").
"""

from __future__ import annotations

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.table import BY_ID, codec_of

UNKNOWN_LIMIT = 1 << 30
"""What unfiltered data of unknown size is limited to, in bytes."""


def apply_filters(pipeline: tuple[Filter, ...], data: Buffer) -> tuple[Buffer, int]:
    """Filter `data`; return what comes out and the filter mask. No data is never filtered.

    `BadRequest` when a filter that is not optional fails.
    """
    mask = 0
    if not len(data):
        return data, mask
    for place, filter in enumerate(pipeline):
        codec = codec_of(filter)
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
    """Reverse the pipeline; filters whose bit is set in `mask` are skipped.

    `expected_size` is the size of the unfiltered data in bytes; without it the result is limited to
    `most` bytes. `Corrupt`, naming the filter, when the data does not decode.
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
        raise Corrupt(f"The filters return {len(data)} bytes; {expected_size} are expected.")
    return data


def undo_to_planes(
    pipeline: tuple[Filter, ...], data: Buffer, mask: int, expected_size: int
) -> BytePlanes | Buffer:
    """Do as `undo_filters`, but leave the data shuffled if shuffle is the first filter of the pipeline."""
    element = None if not pipeline or mask & 1 else codec_of(pipeline[0]).plane_element(pipeline[0].values)
    if element is None or not 1 < element <= expected_size // 2:
        return undo_filters(pipeline, data, mask, expected_size)
    return BytePlanes(undo_filters(pipeline[1:], data, mask >> 1, expected_size), element, expected_size)


def decode_alike(one: tuple[Filter, ...], other: tuple[Filter, ...]) -> bool:
    """Say whether two pipelines decode the same bytes to the same, whatever their levels of compression are."""
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
    """Return, for each filter, the most bytes that went into it when unfiltered data has `size` bytes."""
    sizes = []
    most = 8 * size
    for place, filter in enumerate(pipeline):
        sizes.append(size)
        if not mask >> place & 1:
            growth = codec_of(filter).growth(filter.values)
            # No compressor makes data eight times as long: the small blocks LZ4 may be told to use are worst.
            size = min(8 * size, most) + 4096 if growth is None else size + growth
    return sizes
