"""Choosing chunk dimensions: neither so small that there are too many objects, nor too large to handle."""

from __future__ import annotations

from math import prod

UNLIMITED_GUESS = 1024
"""Elements an unlimited dimension is taken to get where it must be guessed, as in HSDS and h5py."""


def auto_chunk(
    limits: tuple[int | None, ...], item_size: int, min_bytes: int, max_bytes: int
) -> tuple[int, ...]:
    """Return chunk dimensions of `min_bytes` to `max_bytes` for a dataset whose dimensions end at `limits`.

    A limit of None is unlimited. No dimension is beyond its limit, so that a small dataset gets fewer bytes,
    and none is 0.
    """
    start = tuple(max(1, UNLIMITED_GUESS if limit is None else limit) for limit in limits)
    return enlarge(shrink(start, item_size, max_bytes), limits, item_size, min_bytes)


def enlarge(
    dims: tuple[int, ...], limits: tuple[int | None, ...], item_size: int, min_bytes: int
) -> tuple[int, ...]:
    """Return `dims` with dimensions doubled in turn, the last first, until a chunk has `min_bytes`."""
    chunk = list(dims)
    while True:
        before = tuple(chunk)
        for dim in reversed(range(len(chunk))):
            if prod(chunk) * item_size >= min_bytes:
                return tuple(chunk)
            limit = limits[dim]
            chunk[dim] = chunk[dim] * 2 if limit is None else max(chunk[dim], min(chunk[dim] * 2, limit))
        if tuple(chunk) == before:
            return before


def shrink(dims: tuple[int, ...], item_size: int, max_bytes: int) -> tuple[int, ...]:
    """Return `dims` with dimensions halved in turn, from the first, until a chunk has at most `max_bytes`."""
    chunk = list(dims)
    while True:
        before = tuple(chunk)
        for dim in range(len(chunk)):
            if prod(chunk) * item_size <= max_bytes:
                return tuple(chunk)
            chunk[dim] = (chunk[dim] + 1) // 2
        if tuple(chunk) == before:
            return before
