"""Shifted chunks: chunks of a file that are assembled from parts of several stored chunks.

A file's chunk grid begins at the dataset's first element. If the dataset's lower bound
(`hsparse.hdf5.format.lower_bounds`) is inside of a stored chunk, the grids of the file and of the store differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import row_names
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.hdf5.format.file_fields import AddressOf
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_chunks import KeyOf, PlannedChunks, ShiftedParts, Uint64Column
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.format.plan.transcoded_chunk import chunk_values, encode_defined_set, unwritten_values

Part = tuple[tuple[int, ...], Buffer, Uint64Column]
"""A stored chunk: its scaled offset from the file's chunk (0 or 1 in each dimension), its bytes and its sections."""


def shift_chunks(stored: PlannedChunks, first: tuple[int, ...], counts: tuple[int, ...]) -> PlannedChunks:
    """Return the chunks of a file: `counts` chunks per dimension, from element `first` of the first stored chunk on."""
    steps = np.array(list(product(*((0, 1) if one else (0,) for one in first))), np.int64)
    own = stored.scaled.astype(np.int64)
    near = (own[:, None, :] - steps).reshape(-1, len(first))
    inside = ((near >= 0) & (near < np.array(counts))).all(1)
    scaled = np.unique(near[inside], axis=0).astype(np.uint64)
    names = row_names(stored.scaled)
    rows = np.full((len(scaled), len(steps)), -1, np.intp)
    for number, step in enumerate(steps if len(stored) else ()):
        wanted = row_names(scaled + step.astype(np.uint64))
        found = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        rows[:, number] = np.where(names[found] == wanted, found, -1)
    known = rows >= 0
    odd = 2 * np.arange(len(steps), dtype=np.uint64) + np.uint64(1)
    none = np.zeros(len(scaled), np.uint64)
    return PlannedChunks(
        scaled,
        (np.where(known, stored.digest[rows], 0).astype(np.uint64) * odd).sum(1, dtype=np.uint64),
        none,
        np.zeros((len(scaled), *stored.sections.shape[1:]), np.uint64),
        np.where(known, stored.defined[rows], 0).sum(1).astype(np.uint64),
        np.ones(len(scaled), np.bool_),
        foreign=True,
        shifted=ShiftedParts(stored, first, steps, rows),
    )


def sized_chunks(spec: ChunkSpec, chunks: PlannedChunks, *, encoded: bool) -> PlannedChunks:
    """Return shifted chunks with the sizes that they have in a file, where they are unfiltered.

    Raises `Unsupported` for vlen elements, and if the dataset would be a matrix group in the file (`encoded`).
    """
    where = f"{spec.dataset} has a lower bound inside of a chunk, but a file's first chunk begins at the first element"
    if spec.datatype.is_vlen:
        raise Unsupported(
            f"{where}: elements of variable length cannot be moved to other chunks: read the values instead."
        )
    if encoded:
        raise Unsupported(f"{where}: ask for layout=stock, which has no matrices.")
    size = int(np.prod(spec.dims)) * file_type(spec.datatype.item).size
    return chunks.sized(size)


def shifted_chunk(
    spec: ChunkSpec, first: tuple[int, ...], parts: Sequence[Part], address_of: AddressOf, key_of: KeyOf
) -> bytes:
    """Return the elements of a chunk of the file, copied from the stored chunks `parts`."""
    size = spec.dtype.itemsize
    found = _as_bytes(unwritten_values(spec, (0,) * len(spec.dims)), size, spec.dims).copy()
    for step, data, sections in parts:
        _put(found, _as_bytes(chunk_values(spec, data, sections), size, spec.dims), first, step)
    elements = plan_elements(file_type(spec.datatype.item), found, GlobalHeapPlan(), key_of)
    return elements.filled(address_of)


def shifted_defined_set(spec: ChunkSpec, first: tuple[int, ...], parts: Sequence[Part]) -> bytes:
    """Return one byte for each element of a chunk of the file: 1 if the element is defined, else 0."""
    found = np.zeros(spec.dims, np.uint8)
    for step, data, sections in parts:
        own = np.frombuffer(encode_defined_set(spec, data, sections), np.uint8).reshape(spec.dims)
        _put(found, own, first, step)
    return found.tobytes()


def _as_bytes(values: object, size: int, dims: tuple[int, ...]) -> NDArray[np.void]:
    """View elements as opaque elements of `size` bytes; numpy would copy compounds field by field."""
    return np.ascontiguousarray(np.asarray(values)).reshape(-1).view(np.uint8).view(f"V{size}").reshape(dims)


def _put(target: NDArray[Any], source: NDArray[Any], first: tuple[int, ...], step: tuple[int, ...]) -> None:
    """Copy from the stored chunk `source` to a file's chunk `target` the elements that both chunks have."""
    into, out = [], []
    for length, begin, is_next in zip(source.shape, first, step, strict=True):
        into.append(slice(length - begin, length) if is_next else slice(0, length - begin))
        out.append(slice(0, begin) if is_next else slice(begin, length))
    target[tuple(into)] = source[tuple(out)]
