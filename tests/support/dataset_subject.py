"""A dataset under test: its model, what can be done to it, and strategies that draw that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st

from hsparse.model.datatype import parse_type
from hsparse.model.element import PREFIX_SIZE, ArrayOfVlen, Compound, Element, Fixed, VlenSequence
from hsparse.model.vlen_array import VlenArray, split_elements
from tests.support.driver import DatasetSpec, Driver, ElementValues, Place, Slab
from tests.testing.sparse_model import Bounds, Coord, SparseModel, element_bytes

COMPOUND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "count", "type": "H5T_STD_I16BE"}, {"name": "weight", "type": "H5T_IEEE_F32LE"}],
}
TEXT = {"class": "H5T_STRING", "length": 5, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
WORDS = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
LISTS = {
    "class": "H5T_COMPOUND",
    "fields": [
        {"name": "count", "type": "H5T_STD_U16LE"},
        {
            "name": "lists",
            "type": {"class": "H5T_VLEN", "base": {"class": "H5T_VLEN", "base": "H5T_STD_I32BE"}},
        },
        {"name": "words", "type": {"class": "H5T_ARRAY", "base": WORDS, "dims": [2]}},
    ],
}
DEFLATE = {"class": "H5Z_FILTER_DEFLATE", "level": 1}
SHUFFLE = {"class": "H5Z_FILTER_SHUFFLE"}
VALUES_ONLY = {"class": "H5Z_FILTER_LZF", "section": "H5_SECTION_FIXED"}
HEAP_ONLY = {"class": "H5Z_FILTER_DEFLATE", "level": 1, "section": "H5_SECTION_VL"}

KINDS: dict[str, DatasetSpec] = {
    "line": DatasetSpec("H5T_STD_I32LE", (20,), (7,), 40),
    "plane": DatasetSpec(
        "H5T_IEEE_F64BE",
        (9, 11),
        (4, 5),
        16,
        np.array(1.5, ">f8").tobytes(),
        filters=[SHUFFLE, DEFLATE],
        stripes=3,
    ),
    "compound": DatasetSpec(
        COMPOUND, (5, 6, 4), (2, 3, 3), 8, b"\xff\xfe\x00\x00\x80\x3f", filters=[VALUES_ONLY]
    ),
    "deep": DatasetSpec(
        "H5T_STD_U8LE", (3, 4, 3, 4), (2, 2, 2, 3), 5, b"\x07", filters=[{"class": "H5Z_FILTER_FLETCHER32"}]
    ),
    "text": DatasetSpec(TEXT, (6, 5), (6, 2), 12, b"none\0", filters=[{"id": 32015, "level": 1}]),
    "dense": DatasetSpec(
        "H5T_STD_I64BE",
        (8, 6),
        (3, 4),
        12,
        np.array(-1, ">i8").tobytes(),
        filters=[DEFLATE],
        sparse=False,
        stripes=2,
    ),
    "words": DatasetSpec(WORDS, (9, 6), (4, 3), 12, b"\4\0\0\0none", filters=[SHUFFLE, DEFLATE]),
    "lists": DatasetSpec(LISTS, (14,), (6,), 20, bytes(14), flags=("H5D_SPARSE_DATA", "H5D_VL_DATA")),
    "dense words": DatasetSpec(
        WORDS, (5, 4), (2, 3), 8, b"\1\0\0\0f", filters=[HEAP_ONLY], sparse=False, flags=("H5D_VL_DATA",)
    ),
    "signed line": DatasetSpec("H5T_STD_I16LE", (12,), (5,), 30, lower=(-7,)),
    "signed plane": DatasetSpec(
        "H5T_STD_I32BE", (7, 6), (3, 4), 14, bytes([0, 0, 0, 9]), [SHUFFLE, DEFLATE], stripes=2, lower=(-4, 2)
    ),
    "signed dense": DatasetSpec(
        "H5T_IEEE_F32LE", (8, 5), (3, 4), 12, filters=[DEFLATE], sparse=False, lower=(-5, -1)
    ),
    "signed words": DatasetSpec(WORDS, (5, 3, 3), (2, 3, 2), 6, b"\1\0\0\0s", lower=(-3, 0, -2)),
}
"""Datasets of rank 1 to 4: types, byte orders, filters and fill values differ. Some have lower bounds that move."""
SIGNED = sorted(name for name, kind in KINDS.items() if kind.lower)


@dataclass(frozen=True, slots=True)
class Write:
    """Write `values: (n,)` to a place."""

    place: Place
    values: ElementValues
    drop_fill: bool

    def apply(self, model: SparseModel) -> None:
        model.write(self.place.coords, self.values, drop_fill=self.drop_fill)

    async def run(self, driver: Driver, id: str) -> None:
        await driver.write(id, self.place, self.values, self.drop_fill)


@dataclass(frozen=True, slots=True)
class Erase:
    """Make the elements of a place undefined."""

    place: Place

    def apply(self, model: SparseModel) -> None:
        model.erase(self.place.coords)

    async def run(self, driver: Driver, id: str) -> None:
        await driver.erase(id, self.place)


@dataclass(frozen=True, slots=True)
class Resize:
    """Set the bounds."""

    bounds: Bounds

    def apply(self, model: SparseModel) -> None:
        model.move(self.bounds)

    async def run(self, driver: Driver, id: str) -> None:
        await driver.resize(id, self.bounds)


@dataclass(frozen=True, slots=True)
class Extend:
    """Grow by a slab."""

    slab: Slab

    def apply(self, model: SparseModel) -> None:
        model.move(self.slab.after(model.bounds))

    async def run(self, driver: Driver, id: str) -> None:
        await driver.extend(id, self.slab)


@dataclass(frozen=True, slots=True)
class Append:
    """Grow by a slab, and write to a place in it; nobody sees the one without the other."""

    slab: Slab
    write: Write

    def apply(self, model: SparseModel) -> None:
        before = model.bounds
        model.move(self.slab.after(before))
        coords = [self.slab.moved(coord, before) for coord in self.write.place.coords]
        model.write(coords, self.write.values, drop_fill=self.write.drop_fill)

    async def run(self, driver: Driver, id: str) -> None:
        write = self.write
        await driver.append(id, self.slab, write.place, write.values, write.drop_fill)


Change: TypeAlias = Write | Erase | Resize | Extend | Append


@dataclass(slots=True)
class DatasetSubject:
    """A dataset under test: what it was created as, and what it must hold."""

    id: str
    kind: DatasetSpec
    model: SparseModel

    async def settle(self, change: Change, driver: Driver) -> None:
        """After `change` was not acknowledged: each element may be as before or as after it; believe what is."""
        before, after = self.model, self.model.copy()
        change.apply(after)
        bounds = await driver.bounds(self.id)
        assert bounds in (before.bounds, after.bounds), f"bounds {bounds} after an interrupted {change}"
        if isinstance(change, Resize | Extend | Append):
            self.model = after if bounds == after.bounds else before
            return
        seen = await self.look(driver)
        for coord in dict.fromkeys(change.place.coords):
            value = seen.get(coord)
            assert value in (before.elements.get(coord), after.elements.get(coord)), (
                f"{coord} is {value!r} after an interrupted {change}"
            )
            after.elements.pop(coord, None)
            after.elements |= {} if value is None else {coord: value}
        self.model = after

    async def settle_at_once(self, changes: list[Write | Erase], driver: Driver) -> None:
        """After changes made at once: each element may be as any of them leaves it; believe what is."""
        allowed: dict[Coord, set[bytes | None]] = {}
        for change in changes:
            alone = SparseModel(self.model.extent, self.model.dtype, self.model.fill, lower=self.model.lower)
            change.apply(alone)
            erased = {} if isinstance(change, Write) else dict.fromkeys(change.place.coords)
            for coord, value in (erased | alone.elements).items():
                allowed.setdefault(coord, set()).add(value)
        seen = await self.look(driver)
        for coord, values in allowed.items():
            value = seen.get(coord, None if self.model.sparse else self.model.fill)
            assert value in values, f"{coord} is {value!r} after {changes} at once"
            self.model.elements.pop(coord, None)
            self.model.elements |= {} if value is None else {coord: value}

    async def look(self, driver: Driver) -> dict[Coord, bytes]:
        """Return what is there; of a dense dataset what differs from the fill, and what the model has."""
        if self.model.sparse:
            return await driver.read_sparse(self.id)
        data, datatype = await driver.read_dense(self.id), parse_type(self.kind.type)
        values: ElementValues
        if datatype.is_vlen:
            values = split_elements(data, datatype.element, (math.prod(self.model.extent),))
        else:
            values = np.frombuffer(data, np.uint8).view(self.model.dtype)
        both = zip(self.model.coords, element_bytes(values), strict=True)
        return {
            coord: value for coord, value in both if coord in self.model.elements or value != self.model.fill
        }


@cache  # Hypothesis validates and labels each new strategy
def boxes(bounds: Bounds) -> st.SearchStrategy[Place]:
    """Boxes with steps between the bounds, empty ones too."""

    def edges(axis: tuple[int, int]) -> st.SearchStrategy[tuple[int, int, int]]:
        ends = st.tuples(st.integers(*axis), st.integers(*axis))
        return st.builds(lambda pair, step: (min(pair), max(pair), step), ends, st.integers(1, 3))

    return st.tuples(*map(edges, bounds)).map(lambda box: Place(box=box))


@cache
def places(bounds: Bounds) -> st.SearchStrategy[Place]:
    """Boxes, and points in any order with repeats."""
    if any(low == high for low, high in bounds):
        return boxes(bounds)
    point = st.tuples(*(st.integers(low, high - 1) for low, high in bounds))
    points = st.lists(point, min_size=1, max_size=20).map(lambda drawn: Place(points=tuple(drawn)))
    return boxes(bounds) | points


@st.composite
def resizes(draw: st.DrawFn, subject: DatasetSubject) -> Resize:
    """Bounds that grow, shrink or do both, at the lower end too if the dataset has lower bounds."""
    bounds, most = [], subject.kind.most
    for low, high in subject.model.bounds:
        near, far = st.integers(low - 2, min(low + 2, high)), st.integers(low - most // 2, high)
        start = draw(st.just(low) | near | far) if subject.kind.lower else low
        same = st.just(min(high - start, most))
        length = draw(same | st.integers(1, most) | st.integers(0, high - low))
        bounds.append((start, start + length))
    return Resize(tuple(bounds))


@st.composite
def slabs(draw: st.DrawFn, subject: DatasetSubject, least: int = 0) -> Slab:
    """New elements along any dimension, as far as the dataset may grow, at either end if it has lower bounds."""
    extent = subject.model.extent
    dim = draw(st.integers(0, len(extent) - 1))
    below = bool(subject.kind.lower) and draw(st.booleans())
    return Slab(dim, draw(st.integers(least, max(least, subject.kind.most - extent[dim]))), below)


@st.composite
def writes(draw: st.DrawFn, subject: DatasetSubject, bounds: Bounds | None = None) -> Write:
    """Writes to the dataset, or between other bounds, whose values are often the fill value."""
    place = draw(places(subject.model.bounds if bounds is None else bounds))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    drop_fill = subject.kind.sparse and draw(st.booleans())
    count, datatype = len(place.coords), parse_type(subject.kind.type)
    like_fill = generator.random(count) < 0.3
    column = [
        subject.model.fill if same else random_element(datatype.element, generator) for same in like_fill
    ]
    if datatype.is_vlen:
        return Write(place, VlenArray.of(column), drop_fill)
    return Write(place, np.frombuffer(b"".join(column), np.uint8).view(datatype.dtype), drop_fill)


def value_changes(subject: DatasetSubject) -> st.SearchStrategy[Write | Erase]:
    """Any change of elements that the dataset takes."""
    if not subject.kind.sparse:
        return writes(subject)
    return writes(subject) | places(subject.model.bounds).map(Erase)


@st.composite
def appends(draw: st.DrawFn, subject: DatasetSubject) -> Append:
    """Appends of any slab, an empty one too."""
    slab = draw(slabs(subject))
    return Append(slab, draw(writes(subject, slab.alone(subject.model.bounds))))


def moves(subject: DatasetSubject) -> st.SearchStrategy[Change]:
    """Any change of the bounds."""
    return resizes(subject) | slabs(subject, 1).map(Extend) | appends(subject)


@st.composite
def changes(draw: st.DrawFn, subject: DatasetSubject) -> Change:
    """Any change that the dataset takes; every other one is one of the bounds."""
    return draw(draw(st.sampled_from((value_changes, moves)))(subject))


def random_element(element: Element, generator: np.random.Generator, depth: int = 0) -> bytes:
    """Return one element; strings and sequences are short, and shorter the deeper they are."""
    if isinstance(element, Fixed):
        return generator.bytes(element.dtype.itemsize)
    if isinstance(element, Compound):
        return b"".join(random_element(part, generator, depth) for part in element.parts)
    if isinstance(element, ArrayOfVlen):
        count = prod(element.dims)
        return b"".join(random_element(element.base, generator, depth) for _ in range(count))
    count = int(generator.integers(0, max(1, 6 - 2 * depth)))
    if isinstance(element, VlenSequence):
        data = b"".join(random_element(element.base, generator, depth + 1) for _ in range(count))
    else:
        data = generator.integers(97, 123, count, np.uint8).tobytes()
    return len(data).to_bytes(PREFIX_SIZE, "little") + data
