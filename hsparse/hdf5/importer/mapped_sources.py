"""Resolve name patterns (%b) and unlimited mappings of a virtual dataset, which determine its extent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.plan.unlimited_selection import block_of, clipped, end_of_slices, slices_before
from hsparse.format.plan.virtual_plan import bounds_of
from hsparse.format.selections.serialized_selection import Regular, Serialized
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping, block_name, unlimited_dim

Dims = tuple[int, ...]
SourceDims: TypeAlias = Callable[[str, str], Dims | None]
"""Returns the extent of a dataset, given its file's name and its path, or None if file or dataset is missing."""
MAX_BLOCKS = 100_000
"""The maximum number of sources that a name pattern may have."""


@dataclass(frozen=True, slots=True)
class MappedSource:
    """A resolved mapping: the selection `virtual` reads the selection `source` of `dataset` in `file`."""

    file: str
    dataset: str
    virtual: Serialized
    source: Serialized


def resolve_mappings(
    mappings: Iterable[VirtualMapping], stored: Dims, dims_of: SourceDims
) -> tuple[list[MappedSource], Dims]:
    """Return a pair: the sources of all mappings, and the extent, which may differ from the `stored` extent.

    As in libhdf5's default view, an unlimited mapping ends where its source ends, a name pattern ends before the first
    missing source, and the extent ends where the last mapping ends. Raises `Corrupt` and `TooLarge`.
    """
    ends: dict[int, int] = {}
    least = [0] * len(stored)
    sources: list[MappedSource] = []
    for one in mappings:
        dim = unlimited_dim(one.virtual)
        for place, end in enumerate(bounds_of(one.virtual, len(stored))):
            least[place] = max(least[place], 0 if place == dim else end)
        if dim is None:
            sources.append(MappedSource(*_names(one), one.virtual, one.source))
            continue
        found, end = (_blocks if one.by_blocks else _endless)(one, dim, dims_of)
        sources += found
        ends[dim] = max(ends.get(dim, 0), end)
    dims = (max(least[dim], ends[dim]) if dim in ends else length for dim, length in enumerate(stored))
    return sources, tuple(dims)


def _names(one: VirtualMapping, block: int = 0) -> tuple[str, str]:
    return block_name(one.file, block), block_name(one.dataset, block)


def _blocks(one: VirtualMapping, dim: int, dims_of: SourceDims) -> tuple[list[MappedSource], int]:
    """Return a pair: the sources of a name pattern before the first missing source, and their end along `dim`."""
    assert isinstance(one.virtual, Regular)
    found: list[MappedSource] = []
    while dims_of(*(names := _names(one, len(found)))) is not None:
        found.append(MappedSource(*names, block_of(one.virtual, dim, len(found)), one.source))
        if len(found) > MAX_BLOCKS:
            raise TooLarge(
                f"{one.dataset} in {one.file} names more than {MAX_BLOCKS} sources: split the virtual dataset."
            )
    span = one.virtual.spans[dim]
    return found, end_of_slices(span, len(found) * span.block)


def _endless(one: VirtualMapping, dim: int, dims_of: SourceDims) -> tuple[list[MappedSource], int]:
    """Return a pair: an unlimited mapping cut to the extent of its source ([] without a source), and its end."""
    names = _names(one)
    dims, end = dims_of(*names), unlimited_dim(one.source)
    assert isinstance(one.virtual, Regular)
    assert isinstance(one.source, Regular)
    assert end is not None
    if dims is None:
        return [], 0
    if len(dims) != len(one.source.spans):
        raise Corrupt(f"{one.dataset} in {one.file} has {len(dims)} dimensions, unlike its mapping.")
    slices = slices_before(one.source.spans[end], dims[end])
    stop = end_of_slices(one.virtual.spans[dim], slices)
    virtual, source = clipped(one.virtual, dim, slices), clipped(one.source, end, slices)
    return [MappedSource(*names, virtual, source)], stop
