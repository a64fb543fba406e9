"""Clients of a simulated cluster, and their operations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.clock import Clock
from hsparse.errors import Conflict, Gone, HsparseError, Moved, NotFound, OutOfRange
from hsparse.format.selections.points import Orthogonal, Points, Selection
from hsparse.format.selections.select_syntax import parse_select
from hsparse.format.selections.signed_extent import points_of
from hsparse.model.dataset_state import extents_of_change, is_trimmed
from hsparse.model.dataspace import UNLIMITED, lower_of
from hsparse.model.json_values import Values
from hsparse.model.layout import SIGNED
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.values.append import Append, AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, CreateObject, DeleteObject, PutAttributes, SetExtent
from tests.simulation.linearizability import Action, AppendOperation, ExtentRead, Growth, History, Operation

T = TypeVar("T")

ELEMENTS = 4
"""Elements of the dataset that is written; a chunk has two."""
LOWER = -3
"""The place of the first of them, if datasets have lower bounds."""
TRIES = 4
"""How often a request with a key is sent."""
UNKNOWN = ("store_failed", "busy", "unanswered", "moved")
"""Kinds of errors after which it is not known whether an operation took effect."""


class Ended(HsparseError):
    """What an operation is of is being deleted."""


@dataclass(frozen=True, slots=True)
class Names:
    """The objects that clients work on: datasets that exist from the start, and groups that need not."""

    written: str
    appended: str
    extended: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """How often clients do what: writes, reads, erasures; groups, attributes, appends, reads of extents, extensions.

    `focus` is how often an operation on elements is one on the first element alone. With lower bounds `moves` is how
    often both bounds of the dataset that is written are moved or read, or elements are appended at either end.
    """

    of_elements: tuple[int, int, int] = (8, 10, 2)
    of_others: tuple[int, int, int, int, int] = (4, 6, 2, 1, 1)
    focus: float = 0.0
    moves: int = 3


MIXED = Mix()
MOST_READS = Mix((3, 20, 0), (0, 0, 0, 0, 0), 0.7)
MOST_APPENDS = Mix((1, 1, 0), (0, 0, 20, 1, 0))
MOST_WRITES = Mix((12, 8, 0), (0, 0, 0, 0, 0))
MOST_MOVES = Mix((8, 8, 2), (0, 0, 0, 0, 0), moves=5)


class Request(Protocol):
    """Sends a request to a service node, and returns its answer or raises its error."""

    async def __call__(self, work: Callable[[ServiceOperations], Awaitable[T]]) -> T:
        """Return what `work` returns at a service node."""
        ...


@dataclass(slots=True)
class Clients:
    """Clients that share a history. No value is written twice."""

    names: Names
    request: Request
    history: History
    generator: random.Random
    sparse: bool
    signed: bool = False
    """Whether datasets have lower bounds, below which elements are appended, too, and that move."""
    mix: Mix = MIXED
    values: Any = field(default_factory=lambda: iter(range(1, 1 << 30)))
    unanswered: list[tuple[History, Operation, int]] = field(default_factory=list)
    """Appends to the datasets that are written that were not answered, with their values."""
    errors: list[str] = field(default_factory=list)
    """The errors of operations of which it is not known whether they took effect."""
    defects: list[str] = field(default_factory=list)
    """Errors that no client may get here."""

    async def run(self, count: int, operations: int, pause: float) -> None:
        """Let `count` clients do so many operations each, in bursts, and pause for about `pause` seconds after each."""

        async def client(name: str) -> None:
            for _ in range(operations):
                await self.step(name)
                mean = pause * self.generator.choice((0.02, 0.5, 2.5))
                await asyncio.sleep(self.generator.expovariate(1 / mean))

        await asyncio.gather(*(client(f"c{number}") for number in range(count)))

    async def step(self, client: str) -> None:
        """Do an operation."""
        (step,) = self.generator.choices(
            [
                *(self.write, self.read, self.erase),
                *(self.group, self.attribute, self.append, self.extent, self.extend),
                self.move,
            ],
            [
                *self.mix.of_elements[:2],
                self.mix.of_elements[2] if self.sparse else 0,
                *self.mix.of_others,
                self.mix.moves if self.signed else 0,
            ],
        )
        await step(client)

    async def write(self, client: str) -> None:
        value, places = next(self.values), self._places()
        noted = [self.history.invoke(("element", i), Action.WRITE, value, client) for i in places]
        await self._change(noted, lambda node: node.write(self.names.written, places, value), self._outside)

    async def erase(self, client: str) -> None:
        places = self._places()
        noted = [self.history.invoke(("element", i), Action.WRITE, None, client) for i in places]
        await self._change(noted, lambda node: node.erase(self.names.written, places), self._outside)

    async def read(self, client: str, places: Sequence[int] | None = None) -> None:
        chosen = places or self._places()
        noted = [self.history.invoke(("element", i), Action.READ, client=client) for i in chosen]
        try:
            found = await self.request(lambda node: node.read(self.names.written, chosen))
        except OutOfRange as error:
            if not self.signed:
                self._unknown(error)
            elif len(noted) == 1:  # else one of them is, and others may not be
                self.history.respond(noted[0], None)
        except HsparseError as error:
            self._unknown(error)
        else:
            for operation, value in zip(noted, found, strict=True):
                self.history.respond(operation, value or None)

    async def move(self, client: str) -> None:
        """Read the bounds, append at either end, or move both: what falls outside is erased."""
        chosen = self.generator.random()
        if chosen < 0.5:
            await (self.read_bounds(client) if chosen < 0.25 else self.append_written(client))
            return
        below, above = self.generator.choices((0, 1, 2), (2, 1, 1), k=2)
        await self.move_to(client, self.places[below], self.places[-1] + 1 - above)

    async def move_to(self, client: str, low: int, high: int) -> None:
        noted = [self.history.invoke("bounds", Action.WRITE, (low, high), client)]
        outside = [place for place in self.places if not low <= place < high]
        noted += [self.history.invoke(("element", i), Action.WRITE, None, client) for i in outside]
        # Another one may begin to shrink the dataset before this one makes it grow.
        await self._change(noted, lambda node: node.move(self.names.written, low, high), (Conflict,))

    async def append_written(self, client: str) -> None:
        """Append to the dataset that is written."""
        value, count = next(self.values), self.generator.randint(1, 2)
        below = self.generator.random() < 0.5
        noted = self.history.invoke("bounds", Action.GROW, Growth(count, below), client)
        start = await self._ask(lambda node: node.append(self.names.written, count, value, below=below))
        if start is None:
            self.unanswered.append((self.history, noted, value))
        else:
            self.history.appended(noted, start, value, self.places)

    async def read_bounds(self, client: str) -> None:
        noted = self.history.invoke("bounds", Action.READ, client=client)
        bounds = await self._ask(lambda node: node.bounds(self.names.written))
        if bounds is not None:
            self.history.respond(noted, bounds)

    async def group(self, client: str) -> None:
        id = self.generator.choice(self.names.groups)
        action = self.generator.choice((Action.CREATE, Action.DELETE, Action.READ))
        if action is Action.READ:
            await self.read_group(client, id)
            return
        value = next(self.values) if action is Action.CREATE else None
        noted = self.history.invoke(("group", id), action, value, client)
        if action is Action.CREATE:
            await self._change([noted], lambda node: node.create(id, group_record(id, value)))
        else:
            await self._change([noted], lambda node: node.delete(id))

    async def read_group(self, client: str, id: str) -> None:
        noted = self.history.invoke(("group", id), Action.READ, client=client)
        try:
            record = await self.request(lambda node: node.record(id))
        except (NotFound, Gone):
            self.history.respond(noted, None)
        except HsparseError as error:
            self._unknown(error)
        else:
            self.history.respond(noted, record["created"])

    async def attribute(self, client: str) -> None:
        if self.generator.random() < 0.5:
            await self.read_attribute(client)
            return
        value = next(self.values)
        noted = self.history.invoke("attribute", Action.WRITE, value, client)
        await self._change([noted], lambda node: node.put_attribute(self.names.written, "a", value))

    async def read_attribute(self, client: str) -> None:
        noted = self.history.invoke("attribute", Action.READ, client=client)
        record = await self._ask(lambda node: node.record(self.names.written))
        if record is not None:
            self.history.respond(noted, record["attributes"].get("a", {}).get("value"))

    async def append(self, client: str) -> None:
        """Append, every other time with a key: such a request is sent again until it is answered."""
        value, count = next(self.values), self.generator.randint(1, 3)
        key = str(value) if value % 2 else ""
        below = self.signed and self.generator.random() < 0.5
        noted = AppendOperation(value, count, next(self.history.ticks), below=below)
        self.history.appends.append(noted)
        for _ in range(TRIES if key else 1):
            start = await self._ask(
                lambda node: node.append(self.names.appended, count, value, key, below=below)
            )
            if start is not None:
                noted.answered(start, next(self.history.ticks))
                break

    async def extent(self, client: str) -> None:
        invoked = next(self.history.ticks)
        bounds = await self._ask(lambda node: node.bounds(self.names.appended))
        if bounds is not None:
            returned = next(self.history.ticks)
            self.history.extents.append(ExtentRead(bounds[1], invoked, returned))
            self.history.extents.append(ExtentRead(-bounds[0], invoked, returned, below=True))

    async def extend(self, client: str) -> None:
        count = self.generator.randint(1, 3)
        self.history.extensions.append((count, None))
        place = len(self.history.extensions) - 1
        start = await self._ask(lambda node: node.extend(self.names.extended, count))
        self.history.extensions[place] = (count, start)

    async def _change(
        self,
        noted: Sequence[Operation],
        work: Callable[[ServiceOperations], Any],
        refusals: tuple[type[HsparseError], ...] = (),
    ) -> None:
        """Make a change. `refusals` are errors that a write may get here."""
        try:
            await self.request(work)
        except (Conflict, NotFound, Gone, OutOfRange) as error:
            for operation in noted:
                if operation.action is Action.WRITE and not isinstance(error, refusals):
                    self.defects.append(f"{operation}: {error}")
                self.history.respond(operation, refused=True)
        except HsparseError as error:
            self._unknown(error)
        else:
            for operation in noted:
                self.history.respond(operation)

    async def _ask(self, work: Callable[[ServiceOperations], Awaitable[T]]) -> T | None:
        try:
            return await self.request(work)
        except HsparseError as error:
            self._unknown(error)
            return None

    def _unknown(self, error: HsparseError) -> None:
        if isinstance(error, Ended):
            return
        text = f"{type(error).__name__}: {error}"
        (self.errors if error.kind in UNKNOWN else self.defects).append(text)

    @property
    def places(self) -> range:
        """The elements that are written."""
        return range(LOWER, LOWER + ELEMENTS) if self.signed else range(ELEMENTS)

    @property
    def _outside(self) -> tuple[type[HsparseError], ...]:
        """The errors of elements that may be outside the bounds just then."""
        return (OutOfRange,) if self.signed else ()

    def _places(self) -> list[int]:
        if self.mix.focus and self.generator.random() < self.mix.focus:
            return [self.places[0]]
        return sorted(self.generator.sample(self.places, self.generator.choice((1, 1, 2, 3))))


def group_record(id: str, value: Any) -> Record:
    """Return the record of a group whose time of creation is `value`: it tells creations apart."""
    return {"id": id, "root": id, "links": {}, "attributes": {}, "created": value, "lastModified": value}


def dataset_record(id: str, root: str, extent: int, *, sparse: bool, lower: int | None = None) -> Record:
    """Return the record of a dataset of one dimension that can grow, with chunks of two elements."""
    layout: Record = {"class": "H5D_CHUNKED", "dims": [2]}
    if sparse:
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [2], "flags": ["H5D_SPARSE_DATA"]}
    if lower is not None:
        layout = {"class": SIGNED, "layout": layout}
    bounds = {} if lower is None else {"lower": [lower], "minlower": [UNLIMITED]}
    return {
        "id": id,
        "root": root,
        "type": {"class": "H5T_INTEGER", "base": "H5T_STD_I64LE"},
        "shape": {"class": "H5S_SIMPLE", "dims": [extent], "maxdims": [0]} | bounds,
        "layout": layout,
        "creationProperties": {"layout": layout, "filters": []},
        "attributes": {},
        "created": 1,
        "lastModified": 1,
    }


DTYPE = np.dtype("<i8")


class ServiceOperations:
    """A service node's operations on datasets of one dimension and on records, through its `owners`."""

    def __init__(self, owners: Owners, clock: Clock) -> None:
        self.owners = owners
        self._clock = clock
        self._groups = AppendGroups(owners, clock)

    async def write(self, id: str, places: Sequence[int], value: int) -> None:
        """Write `value` to elements."""

        async def write(dataset: StoredDataset) -> None:
            values = np.full(len(places), value, DTYPE)
            await ChunkFanout(self.owners, dataset).write(points(dataset, places), values)

        await self._until_current(id, write)

    async def erase(self, id: str, places: Sequence[int]) -> None:
        """Erase elements."""

        async def erase(dataset: StoredDataset) -> None:
            await ChunkFanout(self.owners, dataset).erase(points(dataset, places))

        await self._until_current(id, erase)

    async def read(self, id: str, places: Sequence[int]) -> list[int]:
        """Return elements."""

        async def read(dataset: StoredDataset) -> list[int]:
            return list(map(int, await ChunkFanout(self.owners, dataset).read(points(dataset, places))))

        return await self._until_current(id, read)

    async def read_all(self, id: str) -> list[int]:
        """Return all elements of the extent."""
        return (await self.read_bounded(id))[1]

    async def read_bounded(self, id: str) -> tuple[int, list[int]]:
        """Return the lower bound, and all elements from there."""

        async def read(dataset: StoredDataset) -> tuple[int, list[int]]:
            (lower,) = lower_of(dataset.record["shape"]) or (0,)
            found = await ChunkFanout(self.owners, dataset).read(parse_select(None, dataset.extent))
            return lower, list(map(int, found))

        return await self._until_current(id, read)

    async def append(self, id: str, count: int, value: int, key: str = "", *, below: bool = False) -> int:
        """Append `count` elements of this value, once for a key, and return where they are."""

        async def load() -> StoredDataset:
            return await self._load(id)

        @asynccontextmanager
        async def prepare(slab: StoredDataset) -> AsyncIterator[tuple[Selection, Values]]:
            yield Orthogonal.all(slab.extent), np.full(count, value, DTYPE)

        async def write(dataset: StoredDataset, selection: Selection, values: Values) -> None:
            await ChunkFanout(self.owners, dataset).write(selection, values)

        select = await self._groups.apply(Append(count, 0, below), load, prepare, write, key)
        return int(select.strip("[]").split(":")[0])

    async def extend(self, id: str, count: int) -> int:
        """Extend by `count` elements, and return where they begin."""
        token = self._clock.token(8).hex()
        record = (await self.owners.apply(SetExtent(id, (count,), 0, token=token))).unwrap()
        extents = extents_of_change(record, token)
        assert extents is not None
        return extents[0][0]

    async def move(self, id: str, low: int, high: int) -> None:
        """Set both bounds of a signed dataset, and erase what falls outside; `Conflict` if others shrink it."""
        change = SetExtent(id, (high - low,), token=self._clock.token(8).hex(), lower=(low,))
        for _ in range(MAX_READ_ATTEMPTS):
            record = await self.owners.record(id)
            if is_trimmed(record):
                await finish_trim(self.owners, record)
            with suppress(Moved):
                await change_extent(self.owners, change)
                return
            await change_extent(self.owners, AbandonAppends(id))
        await change_extent(self.owners, change)

    async def bounds(self, id: str) -> tuple[int, int]:
        """Return the lower bound, 0 of a dataset that has none, and the upper one."""
        shape = (await self.owners.record(id))["shape"]
        (lower,) = lower_of(shape) or (0,)
        return lower, lower + shape["dims"][0]

    async def create(self, id: str, record: Record) -> None:
        """Create a record; `Conflict` if it exists."""
        await self.owners.apply(CreateObject(id, record))

    async def delete(self, id: str) -> None:
        """Delete a record; `NotFound` or `Gone` if it does not exist."""
        await self.owners.apply(DeleteObject(id))

    async def record(self, id: str) -> Record:
        """Return a record; `NotFound` or `Gone` if it does not exist."""
        return await self.owners.record(id)

    async def put_attribute(self, id: str, name: str, value: int) -> None:
        """Set an attribute."""
        attribute = {"type": "H5T_STD_I64LE", "shape": {"class": "H5S_SCALAR"}, "value": value}
        await self.owners.apply(PutAttributes(id, {name: attribute}, replace=True))

    async def _until_current(self, id: str, work: Callable[[StoredDataset], Awaitable[T]]) -> T:
        for _ in range(MAX_READ_ATTEMPTS):
            with suppress(Moved):
                return await work(await self._load(id))
        return await work(await self._load(id))

    async def _load(self, id: str) -> StoredDataset:
        return StoredDataset.of(await self.owners.record(id)).seen_by("signed")


def points(dataset: StoredDataset, places: Sequence[int]) -> Points:
    """Return elements as a selection."""
    return points_of(dataset.extent, np.array(places, np.int64).reshape(-1, 1))
