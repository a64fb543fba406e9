"""The container of a structured chunk: its sections one after another, without gaps.

RFC "File Format Changes for Enabling Sparse Storage in HDF5", version 28, sections 2.1 and 2.2: a
section that holds metadata ends with its lookup3, little-endian; then the section, checksum included, runs
through its own filter pipeline. An empty section has no bytes at all, neither checksum nor filters.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.checksum import lookup3
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import apply_filters, undo_filters, undo_to_planes

CHECKSUM = struct.Struct("<I")
SECTION_NAMES = ("selection", "fixed-size values", "variable-length heap")

METADATA_FIXED = (0,)
"""The sections that hold metadata when the datatype is of fixed size."""

METADATA_VL = (0, 1, 2)
"""The sections that hold metadata when the datatype has a variable-length part."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section's entry in the chunk's metadata, in bytes.

    `size` is of the stored bytes; `unfiltered` includes the checksum and is 0 for an empty section.
    """

    offset: int
    size: int
    unfiltered: int
    mask: int


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's encoded sections, `images`, and their entries."""

    images: tuple[Buffer, ...]
    sections: tuple[Section, ...]

    @property
    def data(self) -> bytes:
        """The chunk as an HDF5 file would hold it."""
        return b"".join(self.images)


def name_section(number: int) -> str:
    """Return the name of a section in error messages."""
    return (
        f"section {number} ({SECTION_NAMES[number]})" if number < len(SECTION_NAMES) else f"section {number}"
    )


def build(
    contents: Sequence[Buffer], metadata: Collection[int], pipelines: Sequence[tuple[Filter, ...]]
) -> StoredChunk:
    """Add checksums to the sections numbered in `metadata`, filter all of `contents`, and lay them out.

    There is one pipeline a section. `BadRequest` when a filter that is not optional fails.
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
    """Return the unfiltered sections of a chunk, without their checksums.

    The result is views of `data` where nothing is
    filtered. `Corrupt`, naming the section, when the sections leave gaps, do not decode to their unfiltered sizes, or
    fail their checksums.
    """
    if len(sections) != len(pipelines):
        raise Corrupt(f"The chunk has {len(sections)} sections; the dataset's chunks have {len(pipelines)}.")
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
            raise Corrupt(f"{name_section(number).capitalize()} begins at {section.offset}, not at {end}.")
        end += section.size
    if end != total:
        last = name_section(len(sections) - 1).capitalize()
        raise Corrupt(f"{last} ends at {end}; the chunk has {total} bytes.")


def open_section(
    number: int,
    image: Buffer,
    section: Section,
    metadata: Collection[int],
    pipeline: tuple[Filter, ...],
) -> Buffer:
    """Return one unfiltered section, given its stored bytes alone; `Corrupt` as in `open_chunk`."""
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
    """Return a section whose stored bytes are checked, as `open_section`, but maybe shuffled still.

    Its checksum, which would take a fifth of the time of decompression, is cut off unread.
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
    """Name the section in a `Corrupt` that is raised while it is decoded."""
    try:
        yield
    except Corrupt as error:
        raise Corrupt(f"{name_section(number).capitalize()} does not decode: {error.message}") from error
