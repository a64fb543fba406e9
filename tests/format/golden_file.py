"""Just enough of an HDF5 file's structure to find structured chunks: layouts, pipelines, fixed arrays.

"Data Layout Message" version 5 and the messages beside it, RFC "File Format Changes for Enabling Sparse
Storage in HDF5", version 28, section 3.1; the fixed array, H5.format.html, VII.C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hsparse.format.structured_chunk import Section
from hsparse.model.filter import Filter

UNDEFINED = b"\xff" * 8
PAGE = 1024


@dataclass(frozen=True)
class GoldenChunk:
    """A chunk: dimensions, bytes of an element, stored bytes, and what its index says of them."""

    dims: tuple[int, ...]
    itemsize: int
    metadata: tuple[int, ...]
    pipelines: tuple[tuple[Filter, ...], ...]
    data: bytes
    sections: tuple[Section, ...]


def number(data: bytes, place: int, width: int) -> int:
    return int.from_bytes(data[place : place + width], "little")


def golden_chunks(data: bytes) -> Iterator[GoldenChunk]:
    """Yield every structured chunk of a file, in the order of its object headers."""
    for match in re.finditer(b"OHDR\x02", data):
        messages = dict(header_messages(data, match.start()))
        layout = messages.get(8, b"")
        if layout[:2] == b"\5\4":
            yield from dataset_chunks(
                data, messages[1], layout, messages.get(0x19) or messages.get(0x0B, b"")
            )


def header_messages(data: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of the messages in an object header's first block, version 2."""
    flags = data[place + 5]
    place += 6 + 16 * (flags >> 5 & 1) + 4 * (flags >> 4 & 1)
    width = 1 << (flags & 3)
    end = place + width + number(data, place, width)
    place += width
    while place + 4 <= end:
        size = number(data, place + 1, 2)
        start = place + 4 + 2 * (flags >> 2 & 1)
        yield data[place], data[start : start + size]
        place = start + size


def dataset_chunks(data: bytes, space: bytes, layout: bytes, filters: bytes) -> Iterator[GoldenChunk]:
    flags, rank, width = layout[5:8]
    sizes = [number(layout, 8 + width * dim, width) for dim in range(rank)]
    dims, itemsize = tuple(sizes[:-1]), sizes[-1]
    place = 8 + width * rank + 1
    sections, metadata_count = layout[place : place + 2]
    metadata = tuple(layout[place + 2 : place + 2 + metadata_count])
    place += 2 + metadata_count
    pipelines = section_pipelines(filters, sections)
    nominal = itemsize
    for dim in dims:
        nominal *= dim
    width = 8 if sections == 3 else min(8, 1 + (nominal.bit_length() + 7) // 8)
    extent = [number(space, 4 + 8 * dim, 8) for dim in range(len(dims))]

    def chunk(address: int, record: bytes, scaled: tuple[int, ...]) -> GoldenChunk:
        size = number(record, 0, width)
        partial = any((at + 1) * dim > end for at, dim, end in zip(scaled, dims, extent, strict=True))
        own = ((),) * sections if flags & 1 and partial else pipelines
        return GoldenChunk(
            dims,
            itemsize,
            metadata,
            own,
            data[address : address + size],
            read_sections(record[width:], size, sections),
        )

    if layout[place] == 1:
        length = width + 8 * (sections - 1) + (12 * sections if flags & 2 else 0)
        address = layout[place + 1 + length : place + 1 + length + 8]
        if address != UNDEFINED:
            yield chunk(number(address, 0, 8), layout[place + 1 : place + 1 + length], (0,) * len(dims))
    else:
        counts = [-(-end // dim) for end, dim in zip(max_dims(space, len(dims)), dims, strict=True)]
        header = number(layout, place + 2, 8)
        if header != number(UNDEFINED, 0, 8):
            for index, record in fixed_array(data, header):
                if record[:8] != UNDEFINED:
                    yield chunk(number(record, 0, 8), record[8:], unravel(index, counts))


def max_dims(space: bytes, rank: int) -> list[int]:
    start = 4 + 8 * rank * (space[2] & 1)
    return [number(space, start + 8 * dim, 8) for dim in range(rank)]


def unravel(index: int, counts: list[int]) -> tuple[int, ...]:
    scaled = []
    for count in reversed(counts):
        index, at = divmod(index, count)
        scaled.append(at)
    return tuple(reversed(scaled))


def read_sections(record: bytes, size: int, count: int) -> tuple[Section, ...]:
    offsets = [0, *(number(record, 8 * place, 8) for place in range(count - 1)), size]
    sizes = [offsets[place + 1] - offsets[place] for place in range(count)]
    rest = record[8 * (count - 1) :]
    if not rest:
        return tuple(Section(offsets[place], sizes[place], sizes[place], 0) for place in range(count))
    return tuple(
        Section(offsets[at], sizes[at], number(rest, 8 * at, 8), number(rest, 8 * count + 4 * at, 4))
        for at in range(count)
    )


def section_pipelines(message: bytes, sections: int) -> tuple[tuple[Filter, ...], ...]:
    pipelines: list[tuple[Filter, ...]] = [()] * sections
    place = 2
    for _ in range(message[1] if message else 0):
        section, count = message[place : place + 2]
        place += 4
        filters = []
        for _ in range(count):
            id, flags, values = (number(message, place + 2 * field, 2) for field in range(3))
            assert id < 256
            place += 6
            filters.append(
                Filter(id, tuple(number(message, place + 4 * at, 4) for at in range(values)), bool(flags & 1))
            )
            place += 4 * values
        pipelines[section] = tuple(filters)
    return tuple(pipelines)


def fixed_array(data: bytes, header: int) -> Iterator[tuple[int, bytes]]:
    """Yield index and bytes of a fixed array's elements; many are in pages, each with a checksum."""
    size, count = data[header + 6], number(data, header + 8, 8)
    block = number(data, header + 16, 8)
    if block == number(UNDEFINED, 0, 8):
        return
    assert data[block : block + 4] == b"FADB"
    place = block + 14
    pages = -(-count // PAGE) if count > PAGE else 0
    bitmap = data[place : place + -(-pages // 8)]
    place += len(bitmap) + (4 if pages else 0)
    for index in range(count):
        page, at = divmod(index, PAGE)
        if not pages:
            yield index, data[place + index * size : place + (index + 1) * size]
        elif bitmap[page // 8] << page % 8 & 0x80:
            start = place + page * (PAGE * size + 4) + at * size
            yield index, data[start : start + size]
