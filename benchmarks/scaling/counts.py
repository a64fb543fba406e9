"""Counts of requests to the store and messages to data nodes, by operation and number of objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.scaling.installation import Installation
from benchmarks.scaling.operations import OPERATIONS, Operation

SIZES = (4, 8, 16)
NODES = (1, 2, 4, 8)
KINDS = ("get", "put", "delete", "list")
NONE = "none"


async def counted(installation: Installation, operation: Operation, size: int, *, cold: bool) -> Counter[str]:
    """Return the requests to the store of one operation, after a restart if `cold`, otherwise with a warm cache."""
    request = await operation.prepare(installation, size)
    if cold:
        await installation.restart()
    elif operation.repeatable:
        await installation.ask(request)
    installation.reset()
    await installation.ask(request)
    return installation.requests


def growth(values: Sequence[int], letter: str = "n") -> str:
    """Return counts at `SIZES` as a formula such as `2 + n` or `3`, or as `a/b/c` if they do not grow linearly."""
    slope, rest = divmod(values[1] - values[0], SIZES[1] - SIZES[0])
    base = values[0] - slope * SIZES[0]
    if rest or any(base + slope * size != value for size, value in zip(SIZES, values, strict=True)):
        return "/".join(map(str, values))
    factor = "" if not slope else letter if slope == 1 else f"{slope}{letter}"
    return f"{base} + {factor}" if base and factor else factor or str(base)


def formula(found: Sequence[Counter[str]]) -> str:
    """Return the requests at `SIZES` as a formula by kind, such as `2 + n get, 1 put`."""
    parts = [
        f"{growth([one[kind] for one in found])} {kind}" for kind in KINDS if any(one[kind] for one in found)
    ]
    return ", ".join(parts) or NONE


async def request_rows() -> list[tuple[str, str, str, str]]:
    """Return a row per operation: its name, what `n` counts, and its requests to the store, cold and warm."""
    rows = []
    async with Installation() as installation:
        for operation in OPERATIONS:
            texts = [
                formula([await counted(installation, operation, size, cold=cold) for size in SIZES])
                for cold in (True, False)
            ]
            rows.append((operation.name, operation.size, texts[0], texts[1]))
    return rows


async def message_rows() -> list[tuple[str, ...]]:
    """Return a row per operation on 16 objects: its name, and its messages to data nodes in clusters of `NODES`."""
    columns = []
    for nodes in NODES:
        column = []
        async with Installation(nodes) as installation:
            for operation in OPERATIONS:
                request = await operation.prepare(installation, SIZES[-1])
                installation.reset()
                await installation.ask(request)
                column.append(str(installation.messages.total()))
        columns.append(column)
    names = [operation.name for operation in OPERATIONS]
    return [(name, *row) for name, row in zip(names, zip(*columns, strict=True), strict=True)]
