"""What all clients of a campaign change: counters, a log that grows by appends, and an extent; what was acknowledged.

All clients are in this process, so a read of a counter has bounds: no less than was acknowledged before it was sent, no
more than was sent before it was answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.rest_client import Reply

SIDE, CHUNK = 64, 8
INTEGERS = "H5T_STD_I64LE"
Send = Callable[..., Awaitable[Reply | None]]


def places(selection: str) -> tuple[int, int]:
    """Return the ends of a selection of one dimension."""
    start, _, stop = selection.strip("[]").partition(":")
    return int(start), int(stop)


@dataclass(slots=True)
class Register:
    """A counter that one client sets to ever greater numbers: the last that was sent, the last acknowledged."""

    sent: int = 0
    acknowledged: int = 0


@dataclass(slots=True)
class SharedObjects:
    """Ids of datasets, what clients have sent and what was acknowledged. `rows` has rows for each client of its own."""

    root: str
    rows: str
    counters: str
    log: str
    grown: str
    registers: list[Register]
    appended: dict[int, int] = field(default_factory=dict)
    """Where each value was appended that was acknowledged."""
    unsure: set[int] = field(default_factory=set)
    """Values whose append failed: they may be there."""
    extended: list[tuple[int, int]] = field(default_factory=list)
    sure_of_extent: bool = True

    def wrong_log(self, values: list[int]) -> list[str]:
        """Return what is wrong with the values of the log, each of which is there once and in its place."""
        found = [f"the log has {value} at {values.count(value)} places" for value in _repeated(values)]
        for value, place in self.appended.items():
            if place >= len(values) or values[place] != value:
                found.append(f"{value} was appended at {place}, and is not there")
        strange = set(values) - self.appended.keys() - self.unsure
        return found + [f"the log has {value}, which nobody appended" for value in strange]

    def wrong_extent(self, extent: int) -> list[str]:
        """Return what is wrong with an extent that has grown by what was acknowledged, each part once."""
        ends, found = 0, []
        for start, stop in sorted(self.extended):
            if start < ends:
                found.append(f"the extent grew twice over {start}")
            ends = stop
        grown = sum(stop - start for start, stop in self.extended)
        if grown > extent or (self.sure_of_extent and grown != extent):
            found.append(f"the extent is {extent}, and has grown by {grown}")
        return found


def _repeated(values: list[int]) -> list[int]:
    return [value for value, count in Counter(values).items() if count > 1]


async def create_shared(send: Send, clients: int) -> SharedObjects:
    """Create the domain and the datasets."""

    async def created(shape: list[int], layout: dict[str, Any], **body: Any) -> str:
        properties = {"creationProperties": {"layout": layout}}
        reply = await send("POST", "/datasets", {"type": INTEGERS, "shape": shape} | properties | body)
        assert reply is not None
        assert reply.status == 201, reply.body
        return str(reply["id"])

    made = await send("PUT", "/", {})
    assert made is not None
    assert made.status == 201, made.body
    sparse = {"class": "H5D_STRUCT_CHUNK", "dims": [CHUNK, CHUNK], "flags": ["H5D_SPARSE_DATA"]}
    dense = {"class": "H5D_CHUNKED", "dims": [CHUNK]}
    unlimited = {"maxdims": ["H5S_UNLIMITED"]}
    return SharedObjects(
        str(made["root"]),
        await created([SIDE, SIDE], sparse),
        await created([clients], dense),
        await created([0], dense, **unlimited),
        await created([0], dense, **unlimited),
        [Register() for _ in range(clients)],
    )
