"""The whole system against the trivially right model, with restarts, faults and crashes as moves.

`SparseMachine` drives one data node, `TwoOwnersMachine` two that both believe they own everything.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from hsparse.cluster.membership import Membership
from hsparse.dn.service import DataService
from hsparse.model.datatype import parse_type
from hsparse.model.principal import Principal
from hsparse.clock import SystemClock
from hsparse.sn.owners import Owners
from hsparse.sn.settings import ServiceSettings
from hsparse.storage.object_store import ObjectStore
from hsparse.testing.direct_door import DirectDoor
from hsparse.testing.door import Door, Kind, Place
from hsparse.testing.mortal_store import CHANGES, Moment
from hsparse.testing.process_life import ProcessLife
from hsparse.testing.rest_client import RestClient
from hsparse.testing.rest_door import RestDoor
from hsparse.testing.sparse_model import Coord, SparseModel

T = TypeVar("T")

COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "count", "type": "H5T_STD_I16BE"}, {"name": "weight", "type": "H5T_IEEE_F32LE"}],
}
TEXT = {"class": "H5T_STRING", "length": 5, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
DEFLATE = {"class": "H5Z_FILTER_DEFLATE", "level": 1}
SHUFFLE = {"class": "H5Z_FILTER_SHUFFLE"}
VALUES_ONLY = {"class": "H5Z_FILTER_LZF", "section": "H5_SECTION_FIXED"}

KINDS: dict[str, Kind] = {
    "line": Kind("H5T_STD_I32LE", (20,), (7,), 40),
    "plane": Kind(
        "H5T_IEEE_F64BE", (9, 11), (4, 5), 16, np.array(1.5, ">f8").tobytes(), filters=[SHUFFLE, DEFLATE]
    ),
    "compound": Kind(COMPOUND, (5, 6, 4), (2, 3, 3), 8, b"\xff\xfe\x00\x00\x80\x3f", filters=[VALUES_ONLY]),
    "deep": Kind(
        "H5T_STD_U8LE", (3, 4, 3, 4), (2, 2, 2, 3), 5, b"\x07", filters=[{"class": "H5Z_FILTER_FLETCHER32"}]
    ),
    "text": Kind(TEXT, (6, 5), (6, 2), 12, b"none\0", filters=[{"id": 32015, "level": 1}]),
    "dense": Kind(
        "H5T_STD_I64BE", (8, 6), (3, 4), 12, np.array(-1, ">i8").tobytes(), filters=[DEFLATE], sparse=False
    ),
}
"""Datasets of rank 1 to 4: types, byte orders, filters and fill values differ."""


# --- changes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Write `values: (n,)` to a place."""

    place: Place
    values: NDArray[Any]
    drop_fill: bool

    def apply(self, model: SparseModel) -> None:
        model.write(self.place.coords, self.values, drop_fill=self.drop_fill)

    async def run(self, door: Door, id: str) -> None:
        await door.write(id, self.place, self.values, self.drop_fill)


@dataclass(frozen=True, slots=True)
class Erase:
    """Make the elements of a place undefined."""

    place: Place

    def apply(self, model: SparseModel) -> None:
        model.erase(self.place.coords)

    async def run(self, door: Door, id: str) -> None:
        await door.erase(id, self.place)


@dataclass(frozen=True, slots=True)
class Resize:
    """Set the extent."""

    extent: Coord

    def apply(self, model: SparseModel) -> None:
        model.resize(self.extent)

    async def run(self, door: Door, id: str) -> None:
        await door.resize(id, self.extent)


Change: TypeAlias = Write | Erase | Resize


@dataclass(slots=True)
class Subject:
    """A dataset under test: what it was created as, and what it must hold."""

    id: str
    kind: Kind
    model: SparseModel

    async def settle(self, change: Change, door: Door) -> None:
        """After `change` was not acknowledged: each element may be as before or as after it; believe what is."""
        before, after = self.model, self.model.copy()
        change.apply(after)
        extent = await door.extent(self.id)
        assert extent in (before.extent, after.extent), f"extent {extent} after an interrupted {change}"
        if isinstance(change, Resize):
            self.model = after if extent == after.extent else before
            return
        seen = await self.look(door)
        for coord in dict.fromkeys(change.place.coords):
            value = seen.get(coord)
            assert value in (before.elements.get(coord), after.elements.get(coord)), (
                f"{coord} is {value!r} after an interrupted {change}"
            )
            after.elements.pop(coord, None)
            after.elements |= {} if value is None else {coord: value}
        self.model = after

    async def look(self, door: Door) -> dict[Coord, bytes]:
        """Return what is there; of a dense dataset what differs from the fill, and what the model has."""
        if self.model.sparse:
            return await door.read_sparse(self.id)
        values = np.frombuffer(await door.read_dense(self.id), np.uint8).view(self.model.dtype)
        column = (value.tobytes() for value in values.reshape(-1, 1))
        places = itertools.product(*map(range, self.model.extent))
        both = zip(places, column, strict=True)
        return {coord: value for coord, value in both if coord in self.model.elements or value != self.model.fill}


# --- draws ----------------------------------------------------------------------------------------


def boxes(extent: Coord) -> st.SearchStrategy[Place]:
    """Boxes with steps in the extent, empty ones too."""

    def edges(length: int) -> st.SearchStrategy[tuple[int, int, int]]:
        ends = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
        return st.tuples(ends, st.integers(1, 3)).map(lambda drawn: (*drawn[0], drawn[1]))

    return st.tuples(*map(edges, extent)).map(lambda box: Place(box=box))


def places(extent: Coord) -> st.SearchStrategy[Place]:
    """Boxes, and points in any order with repeats."""
    if not all(extent):
        return boxes(extent)
    point = st.tuples(*(st.integers(0, length - 1) for length in extent))
    points = st.lists(point, min_size=1, max_size=20).map(lambda drawn: Place(points=tuple(drawn)))
    return boxes(extent) | points


def extents(kind: Kind, extent: Coord) -> st.SearchStrategy[Coord]:
    """Extents that grow, shrink or do both."""
    return st.tuples(*(st.just(length) | st.integers(1, kind.most) | st.integers(0, length) for length in extent))


@st.composite
def writes(draw: st.DrawFn, subject: Subject) -> Write:
    """Writes whose values are often the fill value."""
    place = draw(places(subject.model.extent))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, dtype = len(place.coords), subject.model.dtype
    values = np.frombuffer(generator.bytes(count * dtype.itemsize), np.uint8).view(dtype).copy()
    values[generator.random(count) < 0.3] = np.frombuffer(subject.model.fill, np.uint8).view(dtype)[0]
    return Write(place, values, subject.kind.sparse and draw(st.booleans()))


def changes(subject: Subject) -> st.SearchStrategy[Change]:
    """Any change that the dataset takes."""
    resizes = extents(subject.kind, subject.model.extent).map(Resize)
    if not subject.kind.sparse:
        return writes(subject) | resizes
    return writes(subject) | places(subject.model.extent).map(Erase) | resizes


# --- the machines ---------------------------------------------------------------------------------


class World:
    """What outlives a machine: an event loop and a store. With `rest` the machine goes through HTTP."""

    def __init__(self, open_store: Callable[[], Awaitable[ObjectStore]], *, rest: bool) -> None:
        self._runner = asyncio.Runner()
        self._rest = rest
        self.store: ObjectStore = self.run(_awaited(open_store))
        self.kinds: dict[str, Kind] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def open_door(self, node: DataService) -> Door:
        if not self._rest:
            return DirectDoor(Owners(Membership(1, (node.id,)), {node.id: node}))
        settings = ServiceSettings(page_size=256, min_chunk_size=1)
        rest = RestClient(node, SystemClock(), Principal("admin", admin=True), settings=settings)
        return await RestDoor(await rest.open(), "/machine").know(self.kinds).open()

    async def create(self, door: Door, kind: Kind) -> Subject:
        """Create a dataset; `kinds` has all that there are."""
        id = await door.create(kind)
        self.kinds[id] = kind
        dtype = parse_type(kind.type).dtype
        return Subject(id, kind, SparseModel(kind.extent, dtype, kind.fill, sparse=kind.sparse))

    def close(self) -> None:
        self.run(self.store.close())
        self._runner.close()


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


class SparseMachine(RuleBasedStateMachine):
    """One data node, its restarts and crashes, and up to three datasets."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.subjects: list[Subject] = []
        self.life: ProcessLife

    @property
    def door(self) -> Door:
        return self.life.door

    @property
    def subject(self) -> Subject:
        """The dataset that was last worked on, which the invariants look at."""
        return self.subjects[-1]

    @initialize(
        names=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True),
        cache_size=st.sampled_from([1, 4096, 2**27]),
    )
    def start(self, names: list[str], cache_size: int) -> None:
        self.cache_size = cache_size

        async def start() -> None:
            await self._begin()
            self.subjects = [await self.world.create(self.door, KINDS[name]) for name in names]

        self.world.run(start())

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        """A change that is acknowledged."""
        self._turn(data)
        change = data.draw(changes(self.subject))
        self.world.run(change.run(self.door, self.subject.id))
        change.apply(self.subject.model)

    @rule(data=st.data(), skip=st.integers(0, 5), applied=st.booleans(), gets=st.booleans())
    def fault(self, data: st.DataObject, skip: int, applied: bool, gets: bool) -> None:
        """A change during which the store fails once; the node goes on."""
        self._interrupt(data, Moment(skip, applied, False, ("get", "get_range") if gets else CHANGES))

    @rule(data=st.data(), skip=st.integers(0, 5), applied=st.booleans())
    def crash(self, data: st.DataObject, skip: int, applied: bool) -> None:
        """A change during which the process dies; another one starts."""
        self._interrupt(data, Moment(skip, applied, True))

    @rule()
    def restart(self) -> None:
        """Every cache is dropped."""

        async def restart() -> None:
            await self.life.stop()
            await self._begin()

        self.world.run(restart())

    @rule(data=st.data())
    def select_defined(self, data: st.DataObject) -> None:
        """Which elements of a box are defined, how many, and their values."""
        self._turn(data)
        place, subject = data.draw(boxes(self.subject.model.extent)), self.subject
        if not subject.kind.sparse:
            return
        expected = subject.model.defined(place.coords)
        assert self.world.run(self.door.count(subject.id, place)) == len(expected)
        assert sorted(self.world.run(self.door.defined(subject.id, place))) == expected
        values = {coord: subject.model.elements[coord] for coord in expected}
        assert self.world.run(self.door.read_sparse(subject.id, place)) == values

    @rule(data=st.data())
    def read_place(self, data: st.DataObject) -> None:
        """Values of a place, the fill value where undefined."""
        self._turn(data)
        place, subject = data.draw(places(self.subject.model.extent)), self.subject
        expected = subject.model.read(place.coords).tobytes()
        assert self.world.run(self.door.read_dense(subject.id, place)) == expected

    @invariant()
    def extent_equal(self) -> None:
        assert self.world.run(self.door.extent(self.subject.id)) == self.subject.model.extent

    @invariant()
    def count_equal(self) -> None:
        if self.subject.kind.sparse:
            assert self.world.run(self.door.count(self.subject.id)) == len(self.subject.model.elements)

    @invariant()
    def defined_equal(self) -> None:
        if self.subject.kind.sparse:
            found = self.world.run(self.door.defined(self.subject.id))
            assert sorted(found) == self.subject.model.defined()

    @invariant()
    def values_equal(self) -> None:
        if self.subject.kind.sparse:
            assert self.world.run(self.door.read_sparse(self.subject.id)) == self.subject.model.elements

    @invariant()
    def dense_equal(self) -> None:
        assert self.world.run(self.door.read_dense(self.subject.id)) == self.subject.model.read().tobytes()

    def teardown(self) -> None:
        """Look at every dataset once more with cold caches, unless something failed before."""
        if not hasattr(self, "life"):
            return
        if sys.exc_info()[0] is None:
            self.restart()
            for subject in self.subjects:
                seen = self.world.run(subject.look(self.door))
                assert seen == subject.model.elements, f"{subject.id} has changed by a restart"
        self.world.run(self.life.stop())

    async def _begin(self) -> None:
        life = ProcessLife(self.world.store, self.world.open_door, cache_size=self.cache_size)
        self.life = await life.start()

    def _turn(self, data: st.DataObject) -> None:
        """Take a dataset in hand."""
        place = data.draw(st.integers(0, len(self.subjects) - 1))
        self.subjects.append(self.subjects.pop(place))

    def _interrupt(self, data: st.DataObject, moment: Moment) -> None:
        self._turn(data)
        change = data.draw(changes(self.subject))
        self.world.run(self._attempt(change, moment))

    async def _attempt(self, change: Change, moment: Moment) -> None:
        acknowledged = await self.life.attempt(change.run(self.door, self.subject.id), moment)
        if self.life.store.died.is_set():
            await self.life.kill()
            await self._begin()
        if acknowledged:
            change.apply(self.subject.model)
        else:
            await self.subject.settle(change, self.door)


class TwoOwnersMachine(RuleBasedStateMachine):
    """Two data nodes that both believe they own everything; each change goes through either."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.lives: list[ProcessLife] = []
        self.subject: Subject

    @initialize(name=st.sampled_from(sorted(KINDS)), cache_size=st.sampled_from([1, 2**27]))
    def start(self, name: str, cache_size: int) -> None:
        async def start() -> None:
            for _ in range(2):
                life = ProcessLife(self.world.store, self.world.open_door, cache_size=cache_size)
                self.lives.append(await life.start())
            self.subject = await self.world.create(self.lives[0].door, KINDS[name])

        self.world.run(start())

    @rule(data=st.data(), node=st.integers(0, 1))
    def write(self, data: st.DataObject, node: int) -> None:
        self._change(data.draw(writes(self.subject)), node)

    @rule(data=st.data(), node=st.integers(0, 1))
    def erase(self, data: st.DataObject, node: int) -> None:
        if self.subject.kind.sparse:
            self._change(Erase(data.draw(places(self.subject.model.extent))), node)

    @invariant()
    def nothing_lost(self) -> None:
        """A third node, whose caches are empty, sees every change."""

        async def look() -> dict[Coord, bytes]:
            life = await ProcessLife(self.world.store, self.world.open_door).start()
            try:
                return await self.subject.look(life.door)
            finally:
                await life.stop()

        assert self.world.run(look()) == self.subject.model.elements

    def teardown(self) -> None:
        for life in self.lives:
            self.world.run(life.stop())

    def _change(self, change: Change, node: int) -> None:
        self.world.run(change.run(self.lives[node].door, self.subject.id))
        change.apply(self.subject.model)
