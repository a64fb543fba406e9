"""Just enough of an HDF5 file's structure to find structured chunks: object headers of one block, version 2.

H5.format.html, IV.A.1.b.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hsparse.format.filters.definition import Filter
from hsparse.format.structured.container import Section
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.file_fields import run_reads
from hsparse.hdf5.format.messages.filter_pipeline_message import (
    decode_section_pipelines,
    is_section_pipelines,
)
from hsparse.hdf5.format.messages.structured_layout import StructuredLayout, decode_structured_layout
from tests.format.hdf5.index_files import fetch_from, messages

Pipelines = tuple[tuple[Filter, ...], ...]
UNLIMITED = 2**64 - 1


@dataclass(frozen=True)
class GoldenChunk:
    """A chunk: dimensions, bytes of an element, stored bytes, and what its index says of them."""

    dims: tuple[int, ...]
    itemsize: int
    metadata: tuple[int, ...]
    pipelines: Pipelines
    data: bytes
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class GoldenDataset:
    """A dataset: its extent, its messages as stored and decoded, its chunks."""

    extent: tuple[int, ...]
    message: bytes
    layout: StructuredLayout
    filters: tuple[int, bytes] | None
    pipelines: Pipelines
    records: ChunkRecords


def golden_datasets(data: bytes) -> Iterator[GoldenDataset]:
    """Yield every dataset of structured chunks of a file, in the order of their object headers."""
    for match in re.finditer(b"OHDR\x02", data):
        found = {kind: body for kind, (_, body) in messages(data, match.start()).items()}
        if found.get(8, b"")[:2] != b"\5\4":
            continue
        extent, limits = dataspace(found[1])
        filters = next((item for item in found.items() if is_section_pipelines(*item)), None)
        layout = decode_structured_layout(found[8], limits, filtered=filters is not None)
        sections = layout.index.sections
        pipelines: Pipelines = ((),) * sections
        if filters is not None:
            pipelines = decode_section_pipelines(filters[1], sections)
        records = run_reads(read_chunk_index(layout.index, extent, len(data)), fetch_from(data))
        yield GoldenDataset(extent, found[8], layout, filters, pipelines, records)


def dataspace(message: bytes) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Return extent and limits of a dataspace message, version 2."""
    rank = message[1]
    numbers = [int.from_bytes(message[at : at + 8], "little") for at in range(4, len(message), 8)]
    limits = numbers[rank : 2 * rank] if message[2] & 1 else numbers[:rank]
    return tuple(numbers[:rank]), tuple(None if limit == UNLIMITED else limit for limit in limits)


def golden_chunks(data: bytes) -> Iterator[GoldenChunk]:
    """Yield every structured chunk of a file, in the order of its object headers."""
    for dataset in golden_datasets(data):
        index, records = dataset.layout.index, dataset.records
        for row, (address, size) in enumerate(
            zip(records.address.tolist(), records.size.tolist(), strict=True)
        ):
            ends = (records.scaled[row].astype(int) + 1) * index.chunk
            plain = not dataset.layout.filtered_edges and bool((ends > dataset.extent).any())
            yield GoldenChunk(
                index.chunk,
                index.element_size,
                dataset.layout.metadata,
                ((),) * index.sections if plain else dataset.pipelines,
                data[address : address + size],
                records.sections(row),
            )
