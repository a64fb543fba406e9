"""Structured chunks whose elements a file has in another form than the store, made when they are asked for.

The store has the heaps of the newest revision, and the names of objects in references; older revisions have another
heap (`hsparse.format.structured.heap`), and files have addresses. The selection's section is the same everywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_rows import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.addressed import Addressed
from hsparse.format.hdf5.format_revision import NEWEST, FormatRevision
from hsparse.format.hdf5.heap_plan import HeapPlan
from hsparse.format.hdf5.planned_chunks import Column, PlannedChunks
from hsparse.format.hdf5.planned_elements import KeyOf, plan_elements
from hsparse.format.hdf5.section_pipelines import Pipelines
from hsparse.format.hdf5.stored_type import has_references, stored_type
from hsparse.format.kinds.vlen_chunk import NAMES
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, build, open_chunk
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements


def is_converted(spec: ChunkSpec, revision: FormatRevision) -> bool:
    """Say whether a sparse dataset's chunks differ from those of a file of this revision."""
    if spec.datatype.is_vlen:
        return revision is not NEWEST
    return has_references(stored_type(spec.datatype.item))


def check_convertible(spec: ChunkSpec) -> None:
    """Raise `Unsupported` where structured chunks cannot have the elements.

    References of variable length are on a heap of the whole file, or would be addresses inside of a filtered heap.
    """
    if spec.datatype.is_vlen and has_references(stored_type(spec.datatype.item)):
        raise Unsupported(
            f"{spec.dataset} is sparse and has references to regions, or references beside parts of variable length, "
            "for which structured chunks have no place: ask for layout=stock."
        )


def filters_in_file(spec: ChunkSpec) -> Pipelines:
    """Return the pipelines of a sparse dataset's sections in a file.

    References are not filtered: sizes must be known before addresses are.
    """
    if not spec.datatype.is_vlen and has_references(stored_type(spec.datatype.item)):
        return spec.filters[0], ()
    return spec.filters


def referring_chunks(spec: ChunkSpec, chunks: PlannedChunks) -> PlannedChunks:
    """Return chunks of elements of fixed size with references, with the sizes and sections that a file has."""
    nbytes = chunks.defined * np.uint64(stored_type(spec.datatype.item).size)
    sections = chunks.sections.copy()
    sections[:, 1] = np.stack((nbytes, nbytes, np.zeros_like(nbytes)), axis=1)
    return chunks.converted(sections)


def convert_chunk(
    spec: ChunkSpec, data: Buffer, sections: Column, revision: FormatRevision, key_of: KeyOf
) -> tuple[NDArray[np.uint64], Addressed]:
    """Return a chunk's sections in a file, (k, 3) as in `ChunkRows`, and its bytes.

    `data` and `sections` are those stored; `Corrupt` when they do not decode.
    """
    try:
        if spec.datatype.is_vlen:
            return _convert_heap(spec, data, sections, revision)
        return _convert_references(spec, data, sections, key_of)
    except Corrupt as error:
        raise Corrupt(f"A chunk of {spec.dataset} is corrupt: {error.message}") from error


def _convert_heap(
    spec: ChunkSpec, data: Buffer, sections: Column, revision: FormatRevision
) -> tuple[NDArray[np.uint64], Addressed]:
    element = spec.datatype.element
    selection, fixed, heap = open_chunk(data, sections_of(sections), METADATA_VL, spec.filters)
    values = decode_elements(fixed, heap, element, NAMES)
    made = build((selection, *encode_elements(values, element, revision)), METADATA_VL, spec.filters)
    table = [(one.size, one.unfiltered, one.mask) for one in made.sections]
    return np.array(table, np.uint64), Addressed(made.data)


def _convert_references(
    spec: ChunkSpec, data: Buffer, sections: Column, key_of: KeyOf
) -> tuple[NDArray[np.uint64], Addressed]:
    _, fixed = open_chunk(data, sections_of(sections), METADATA_FIXED, spec.filters)
    values = np.frombuffer(fixed, np.uint8)
    elements = plan_elements(stored_type(spec.datatype.item), values, HeapPlan(), key_of)
    selection = Addressed(bytes(memoryview(data)[: int(sections[0, 0])]))
    size = len(elements.data)
    table = np.array([sections[0], (size, size, 0)], np.uint64)
    return table, Addressed.join((selection, elements))
