"""Choosing chunk dimensions of sparse datasets that are written at once, when the number of elements is known."""

from __future__ import annotations

from math import isqrt, prod

from hsparse.model.layout import MAX_CHUNK_ELEMENTS

IN_CHUNK = 1 << 17
"""The average number of elements in a chunk."""


def chunk_of(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return equal chunk dimensions, so that a chunk has `IN_CHUNK` of `count` elements on average."""
    wanted = min(MAX_CHUNK_ELEMENTS, max(IN_CHUNK, prod(shape) * IN_CHUNK // max(1, count)))
    chunk = [0] * len(shape)
    left = wanted
    for place, dim in enumerate(sorted(range(len(shape)), key=lambda dim: shape[dim])):
        remaining = len(shape) - place
        side = left if remaining == 1 else isqrt(left) if remaining == 2 else int(left ** (1 / remaining))
        chunk[dim] = max(1, min(shape[dim], side))
        left = max(1, left // chunk[dim])
    return tuple(chunk)
