"""Merge consecutive mappings of a virtual dataset, such as frames that were mapped one by one.

    virtual [0, 3, :, :] of source [0, :, :], virtual [1, 3, :, :] of source [1, :, :], ...

become one mapping of virtual [:, 3, :, :]. Mappings are merged only if the results do not overlap, because merging
loses the order of mappings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.serialized_selection import UNLIMITED, Regular
from hsparse.hdf5.format.parse.virtual_mapping import VirtualMapping

MIN_MERGED_MAPPINGS = 8
"""Layouts with at most this many mappings are not merged."""
MAX_COMPARED_MAPPINGS = 2000
"""Most mappings that are compared pairwise."""
Spans: TypeAlias = tuple[StridedSpan, ...]


def merged_mappings(mappings: list[VirtualMapping]) -> list[VirtualMapping]:
    """Return equivalent mappings, merged where possible."""
    if len(mappings) <= MIN_MERGED_MAPPINGS or not all(map(_is_plain, mappings)):
        return mappings
    groups: dict[tuple[object, ...], list[VirtualMapping]] = {}
    for one in mappings:
        key = one.file, one.dataset, _shape(one.virtual), _shape(one.source)
        groups.setdefault(key, []).append(one)
    found = [one for group in groups.values() for one in _runs(group)]
    return found if len(found) <= MAX_COMPARED_MAPPINGS and _are_apart(found) else mappings


def _is_plain(one: VirtualMapping) -> bool:
    return isinstance(one.virtual, Regular) and isinstance(one.source, Regular) and not _is_endless(one)


def _is_endless(one: VirtualMapping) -> bool:
    return any(UNLIMITED in (span.count, span.block) for span in _spans(one.virtual))


def _spans(selection: object) -> Spans:
    assert isinstance(selection, Regular)
    return selection.spans


def _shape(selection: object) -> tuple[tuple[int, int, int], ...]:
    return tuple((span.stride, span.count, span.block) for span in _spans(selection))


def _runs(group: list[VirtualMapping]) -> Iterator[VirtualMapping]:
    """Yield a group's mappings (of one source and shape); consecutive mappings with a constant step are merged."""
    first = 0
    while first < len(group):
        last, found = first, group[first]
        if first + 1 < len(group):
            step = _step(group[first], group[first + 1])
            if step is not None:
                last += 1
                while last + 1 < len(group) and _step(group[last], group[last + 1]) == step:
                    last += 1
                found = _joined(group[first], step, last - first + 1)
        yield found
        first = last + 1


def _step(one: VirtualMapping, other: VirtualMapping) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return a pair of (dimension, step), virtual and source, between two mappings, or None if not mergeable."""
    steps = []
    for a, b in ((_spans(one.virtual), _spans(other.virtual)), (_spans(one.source), _spans(other.source))):
        moved = [dim for dim, (x, y) in enumerate(zip(a, b, strict=True)) if x.start != y.start]
        if len(moved) != 1:
            return None
        (dim,) = moved
        step = b[dim].start - a[dim].start
        if a[dim].count != 1 or step < a[dim].block:
            return None
        before = [span.size for span in a[:dim] if span.size != 1]
        steps.append((dim, step, a[dim].block, before))
    (dim, step, block, before), (own, own_step, own_block, own_before) = steps
    # Elements are paired in row-major order, so the dimensions outside of the growing one must be equal.
    if block != own_block or before != own_before:
        return None
    return (dim, step), (own, own_step)


def _joined(one: VirtualMapping, step: tuple[tuple[int, int], tuple[int, int]], count: int) -> VirtualMapping:
    (dim, by), (own, own_by) = step
    return replace(
        one, virtual=_repeated(one.virtual, dim, by, count), source=_repeated(one.source, own, own_by, count)
    )


def _repeated(selection: object, dim: int, step: int, count: int) -> Regular:
    spans = list(_spans(selection))
    span = StridedSpan(spans[dim].start, step, count, spans[dim].block)
    spans[dim] = StridedSpan.range(span.start, span.stop) if span.contiguous else span
    return Regular(tuple(spans))


def _are_apart(mappings: list[VirtualMapping]) -> bool:
    """Return whether the bounding boxes of the virtual selections are disjoint."""
    low = np.array([[span.start for span in _spans(one.virtual)] for one in mappings], np.int64)
    high = np.array([[span.stop for span in _spans(one.virtual)] for one in mappings], np.int64)
    for number in range(len(mappings) - 1):
        rest = slice(number + 1, None)
        if ((low[rest] < high[number]) & (high[rest] > low[number])).all(axis=1).any():
            return False
    return True
