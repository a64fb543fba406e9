"""The container of a structured chunk (its sections without gaps), and the footer of a chunk's object.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 28, sections 2.1 and 2.2: a section that holds
metadata ends with its lookup3 checksum, little-endian. The section, including the checksum, is encoded by its own
filter pipeline. An empty section has no bytes at all, not even a checksum.

hsparse's footer has the entry that a structured chunk would have in an HDF5 file's chunk index, and checksums. The
footer follows the chunk's bytes in the object, which therefore describes itself. A suffix range read of `MAX_FOOTER`
bytes always contains the footer. All numbers are little-endian:

| bytes | content |
| --- | --- |
| 32 per section | offset, stored size, unfiltered size: u64; filter mask, CRC-32 of the stored bytes: u32 |
| 40 per column | statistics, see `hsparse.format.chunk_spec` |
| 8 | number of defined elements |
| 2 | number of sections |
| 2 | number of columns |
| 4 | length of the whole footer |
| 7 | `hsparse` |
| 1 | version: 2 with statistics, otherwise 1 |
| 4 | lookup3 of all previous bytes of the footer |

A later version may add fields before the length; the last 16 bytes keep their layout.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.codec_library import crc32, lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters, undo_filters, undo_to_planes

CHECKSUM = struct.Struct("<I")
SECTION_NAMES = ("selection", "fixed-size values", "variable-length heap")

METADATA_FIXED = (0,)
"""The sections that hold metadata if the datatype has a fixed size."""

METADATA_VL = (0, 1, 2)
"""The sections that hold metadata if the datatype has a variable-length part."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section's entry in the chunk's metadata: its offset and sizes in bytes, and its filter mask.

    `size` is the stored size. `unfiltered` is the unfiltered size including the checksum, or 0 for an empty section.
    """

    offset: int
    size: int
    unfiltered: int
    mask: int


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """The encoded sections of a chunk, `images`, and their entries."""

    images: tuple[Buffer, ...]
    sections: tuple[Section, ...]

    @property
    def data(self) -> bytes:
        """The bytes of the chunk in an HDF5 file."""
        return b"".join(self.images)


def name_section(number: int) -> str:
    """Return the name of a section for error messages."""
    return (
        f"section {number} ({SECTION_NAMES[number]})" if number < len(SECTION_NAMES) else f"section {number}"
    )


def build(
    contents: Sequence[Buffer], metadata: Collection[int], pipelines: Sequence[tuple[Filter, ...]]
) -> StoredChunk:
    """Build a chunk of the sections `contents`: add checksums to the sections numbered in `metadata`, and filter all.

    `pipelines` has one pipeline per section. Raises `BadRequest` if a filter that is not optional fails.
    """
    images: list[Buffer] = []
    sections: list[Section] = []
    offset = 0
    for number, (content, pipeline) in enumerate(zip(contents, pipelines, strict=True)):
        if len(content) and number in metadata:
            content = b"".join((content, CHECKSUM.pack(lookup3(content))))
        image, mask = apply_filters(pipeline, content)
        images.append(image)
        sections.append(Section(offset, len(image), len(content), mask))
        offset += len(image)
    return StoredChunk(tuple(images), tuple(sections))


def open_chunk(
    data: Buffer,
    sections: Sequence[Section],
    metadata: Collection[int],
    pipelines: Sequence[tuple[Filter, ...]],
) -> tuple[Buffer, ...]:
    """Return the unfiltered sections of a chunk without their checksums, which without filters are views of `data`.

    Raises `Corrupt`, naming the section, if the sections leave gaps, do not decode to their unfiltered sizes, or fail
    their checksums.
    """
    if len(sections) != len(pipelines):
        raise Corrupt(f"The chunk has {len(sections)} sections; the dataset's chunks need {len(pipelines)}.")
    check_layout(sections, len(data))
    view = memoryview(data)
    return tuple(
        open_section(
            number, view[section.offset : section.offset + section.size], section, metadata, pipeline
        )
        for number, (section, pipeline) in enumerate(zip(sections, pipelines, strict=True))
    )


def check_layout(sections: Sequence[Section], total: int) -> None:
    """Raise `Corrupt`, naming the section, unless the sections fill `total` bytes without gaps."""
    end = 0
    for number, section in enumerate(sections):
        if section.offset != end:
            raise Corrupt(f"{name_section(number).capitalize()} begins at {section.offset} instead of {end}.")
        end += section.size
    if end != total:
        last = name_section(len(sections) - 1).capitalize()
        raise Corrupt(f"{last} must end with the chunk, at {total}, not at {end}.")


def open_section(
    number: int,
    image: Buffer,
    section: Section,
    metadata: Collection[int],
    pipeline: tuple[Filter, ...],
) -> Buffer:
    """Return one unfiltered section without its checksum, given its stored bytes; raise `Corrupt` as `open_chunk`."""
    with decoding(number):
        content = undo_filters(pipeline, image, section.mask, section.unfiltered)
    if number not in metadata or not len(content):
        return content
    if len(content) <= CHECKSUM.size:
        raise Corrupt(
            f"{name_section(number).capitalize()} has {len(content)} bytes: too few for a checksum."
        )
    body = memoryview(content)[: -CHECKSUM.size]
    (stored,) = CHECKSUM.unpack(memoryview(content)[-CHECKSUM.size :])
    found = lookup3(body)
    if found != stored:
        raise Corrupt(f"{name_section(number).capitalize()} has checksum {found:#010x}, not {stored:#010x}.")
    return body


def open_planes(
    number: int, image: Buffer, section: Section, metadata: Collection[int], pipeline: tuple[Filter, ...]
) -> BytePlanes | Buffer:
    """Return the result of `open_section`, possibly still shuffled, for stored bytes that were already verified.

    The section's checksum is removed without a check, which would take a fifth of the decompression time.
    """
    with decoding(number):
        content = undo_to_planes(pipeline, image, section.mask, section.unfiltered)
        size = section.unfiltered
        if number in metadata and size:
            size -= CHECKSUM.size
        if size < 0:
            raise Corrupt(f"{section.unfiltered} bytes are too few for a checksum.")
    if isinstance(content, BytePlanes):
        return replace(content, size=size)
    return memoryview(content)[:size]


@contextmanager
def decoding(number: int) -> Iterator[None]:
    """Add the name of section `number` to any `Corrupt` that is raised inside the context."""
    try:
        yield
    except Corrupt as error:
        raise Corrupt(f"{name_section(number).capitalize()} does not decode: {error.message}") from error


MAX_FOOTER = 256
MAX_UNCHECKED_BYTES = 1 << 16
"""The most unfiltered bytes that a footer may claim without being checked."""
MAX_SECTIONS = 3
MAGIC = b"hsparse"
VERSION, WITH_STATISTICS = 1, 2

ENTRY = struct.Struct("<QQQII")
TAIL = struct.Struct("<QHHI7sB")
COLUMN = 40
"""The bytes of one column's statistics."""
END = struct.Struct("<I7sBI")
"""The last 16 bytes of a footer: length, magic, version, checksum."""


@dataclass(frozen=True, slots=True)
class Footer:
    """A chunk's sections, the CRC-32 of the stored bytes of each section, and the number of defined elements.

    `statistics` has the words of the chunk's columns, (columns, 5), as bytes; it is empty without statistics.
    """

    sections: tuple[Section, ...]
    checksums: tuple[int, ...]
    defined: int
    statistics: bytes = b""

    @property
    def size(self) -> int:
        """The size of the chunk without the footer, in bytes."""
        return sum(section.size for section in self.sections)


def footer_size(sections: int, columns: int = 0) -> int:
    """Return the length in bytes of a footer with these numbers of sections and of columns with statistics."""
    return sections * ENTRY.size + columns * COLUMN + TAIL.size + 4


def seal(chunk: StoredChunk, defined: int, statistics: bytes = b"") -> bytes:
    """Return the bytes of a chunk's object: the chunk and its footer; `statistics` are as in `Footer`."""
    entries = [
        ENTRY.pack(section.offset, section.size, section.unfiltered, section.mask, crc32(image))
        for section, image in zip(chunk.sections, chunk.images, strict=True)
    ]
    count, columns = len(chunk.sections), len(statistics) // COLUMN
    version = WITH_STATISTICS if columns else VERSION
    tail = TAIL.pack(defined, count, columns, footer_size(count, columns), MAGIC, version)
    footer = b"".join((*entries, statistics, tail))
    return b"".join((*chunk.images, footer, struct.pack("<I", lookup3(footer))))


def read_footer(tail: Buffer, total_size: int) -> Footer:
    """Return the footer of an object of `total_size` bytes; `tail` has its last `MAX_FOOTER` bytes, or all bytes.

    Raises `Corrupt` if the footer is damaged or does not match the size, and `Unsupported` if a newer version wrote it.
    """
    view = memoryview(tail)
    if len(view) < END.size:
        raise Corrupt(f"The footer is missing: the object has {total_size} bytes.")
    length, magic, version, stored = END.unpack_from(view, len(view) - END.size)
    if magic != MAGIC or not END.size <= length <= min(len(view), MAX_FOOTER):
        raise Corrupt("The footer is missing or damaged: its magic or length is not valid.")
    footer = view[len(view) - length :]
    if lookup3(footer[:-4]) != stored:
        raise Corrupt("The footer is damaged: its checksum does not match.")
    if version not in (VERSION, WITH_STATISTICS):
        raise Unsupported(
            f"The footer has version {version}; upgrade hsparse, which reads versions up to {WITH_STATISTICS}."
        )
    return _parse(footer, total_size, version)


def _parse(footer: memoryview, total_size: int, version: int) -> Footer:
    """Parse a footer whose checksum matches; raise `Corrupt` if its contents are inconsistent."""
    if len(footer) < footer_size(1):
        raise Corrupt(f"The footer is damaged: its {len(footer)} bytes are too few.")
    defined, count, columns, _, _, _ = TAIL.unpack_from(footer, len(footer) - 4 - TAIL.size)
    is_sound = 1 <= count <= MAX_SECTIONS and (columns > 0) == (version == WITH_STATISTICS)
    if not is_sound or len(footer) != footer_size(count, columns):
        raise Corrupt(f"The footer is damaged: {len(footer)} bytes do not describe {count} sections.")
    entries = [ENTRY.unpack_from(footer, place * ENTRY.size) for place in range(count)]
    sections = tuple(Section(offset, size, unfiltered, mask) for offset, size, unfiltered, mask, _ in entries)
    check_layout(sections, total_size - len(footer))
    first = count * ENTRY.size
    statistics = bytes(footer[first : first + columns * COLUMN])
    return Footer(sections, tuple(entry[-1] for entry in entries), defined, statistics)


def claimed_sizes(data: Buffer) -> list[int]:
    """Return the unfiltered sizes that the footer of a whole object claims for the sections, or [] without a footer.

    Callers reserve memory by these sizes before `unseal` checks every byte. Raises `Corrupt` for a damaged footer that
    claims more than `MAX_UNCHECKED_BYTES` bytes.
    """
    view = memoryview(data)
    start = len(view) - 4 - TAIL.size
    if start < 0:
        return []
    _, count, _, length, _, _ = TAIL.unpack_from(view, start)
    first = len(view) - length
    if not 0 <= first <= start - count * ENTRY.size:
        return []
    sizes = [ENTRY.unpack_from(view, first + place * ENTRY.size)[2] for place in range(count)]
    if sum(sizes) > MAX_UNCHECKED_BYTES:
        read_footer(view[-MAX_FOOTER:], len(view))
    return sizes


def unseal(data: Buffer) -> tuple[memoryview, Footer]:
    """Return a pair: a view of the chunk's bytes in a whole object, and the object's footer.

    Raises `Corrupt`, naming the section, if any byte is damaged.
    """
    view = memoryview(data)
    footer = read_footer(view[-MAX_FOOTER:], len(view))
    for number, (section, checksum) in enumerate(zip(footer.sections, footer.checksums, strict=True)):
        if crc32(view[section.offset : section.offset + section.size]) != checksum:
            raise Corrupt(f"{name_section(number).capitalize()} is damaged: its CRC-32 does not match.")
    return view[: footer.size], footer
