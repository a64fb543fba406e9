"""Boxes of a dataset that have few enough defined elements to be in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from hsparse.format.selections.selection import Orthogonal

Corner: TypeAlias = tuple[int, ...]


def element_blocks(
    extent: Corner, chunks: Sequence[int], count: Callable[[Orthogonal], int], most: int
) -> Iterator[Orthogonal]:
    """Yield disjoint boxes, in row-major order of their corners, with all defined elements: in each at most `most`.

    `count` says how many elements of a box are defined; it is asked about once for each box that is yielded.
    Boxes end where chunks do, unless a chunk has too many elements itself.
    """
    whole = Orthogonal.all(extent)
    waiting = [((0,) * len(extent), extent, count(whole))]
    while waiting:
        start, stop, have = waiting.pop()
        if not have:
            continue
        cut = _cut(start, stop, chunks) if have > most else None
        if cut is None:
            is_whole = start == (0,) * len(extent) and stop == extent
            yield whole if is_whole else Orthogonal.box(extent, start, stop)
            continue
        dim, middle = cut
        end = (*stop[:dim], middle, *stop[dim + 1 :])
        left = count(Orthogonal.box(extent, start, end))
        begin = (*start[:dim], middle, *start[dim + 1 :])
        # Others may write meanwhile: what a difference says to be empty is asked for.
        right = have - left if have > left else count(Orthogonal.box(extent, begin, stop))
        waiting.append((begin, stop, right))
        waiting.append((start, end, left))


def _cut(start: Corner, stop: Corner, chunks: Sequence[int]) -> tuple[int, int] | None:
    """Return where to divide a box: in the first dimension with several chunks, or else with several elements."""
    for dim, (low, high, chunk) in enumerate(zip(start, stop, chunks, strict=True)):
        middle = (low + high) // 2 // chunk * chunk
        if middle <= low:
            middle = (low // chunk + 1) * chunk
        if middle < high:
            return dim, middle
    for dim, (low, high) in enumerate(zip(start, stop, strict=True)):
        if high - low > 1:
            return dim, (low + high) // 2
    return None
