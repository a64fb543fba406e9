"""Files cut short and changed: a clear error or an answer, in bounded work, and never anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.hdf5.format import file_fields, fractal_heap
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.group_messages import StoredHardLink, StoredSoftLink
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.parse.parsed_object import ParsedObject, parse_object
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, PlannedLink, plan_file
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from tests.format.hdf5.h5py_files import LIBVERS, FileBytes, write_everything
from tests.format.hdf5.plan_strategies import attribute, number
from tests.model.type_strategies import ID, text
from tests.support.endurance import repeats

KINDS = [*LIBVERS, "tracked", "dense", "planned"]
MAX_OBJECTS = 200


@lru_cache
def sample(kind: str) -> bytes:
    if kind == "planned":
        heap = GlobalHeapPlan()
        some = [attribute("t", text("H5T_VARIABLE"), ["a", "bcd"], (2,), heap, {})]
        some += [number(f"n{at}", at) for at in range(20)]
        links = [PlannedLink(f"l{at}", StoredSoftLink("/x")) for at in range(20)]
        plan = plan_file([PlannedGroup("root", links, some, ordered=True)], "root", heap.pieces())
        return plan.read(0, plan.size)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f.h5"
        libver = kind if kind in LIBVERS else "v108"
        with h5py.File(path, "w", libver=libver, track_order=kind == "tracked") as file:
            if kind == "dense":
                for at in range(150):
                    file[f"l{at}"] = h5py.SoftLink("/" + "x" * 30)
                    file.attrs[f"a{at}"] = at
                file.attrs["large"] = np.zeros(70_000, "u1")
            else:
                write_everything(file)
        return path.read_bytes()


@lru_cache
def addresses(kind: str) -> list[int]:
    """Return where in a file something stands that may be an address."""
    whole = sample(kind)
    return [
        at
        for at in range(8, len(whole) - 8)
        if 48 <= int.from_bytes(whole[at : at + 8], "little") < len(whole)
    ]


def read_all(data: bytes) -> FileBytes:
    """Read every object and value of a file; return how much was read."""
    source = FileBytes(data)
    file = source.open()
    todo, seen = [file.root], {file.root}
    while todo and len(seen) < MAX_OBJECTS:
        address = todo.pop()
        with suppress(Corrupt, Unsupported):
            one = source.run(parse_object(file, address))
            read_values(source, file, one)
            found = {link.target.address for link in one.links if isinstance(link.target, StoredHardLink)}
            todo += found - seen
            seen |= found
    return source


def read_values(source: FileBytes, file: Hdf5File, one: ParsedObject) -> None:
    for some in one.attributes:
        dims = dims_of(some.shape)
        with suppress(BadRequest, Corrupt, Unsupported):  # types that no server has are bad requests
            parse_type(some.type.item)
            if dims is not None:
                find = {one.header.address: ReferenceTarget("datasets/" + ID, (8, 9))}.get
                source.run(parse_elements(file, some.type, some.data, dims, find))


class Whatever:
    """A checksum that is always right, so that what lies behind checksums is reached."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


@contextmanager
def no_checksums() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_fields, "lookup3", lambda _: Whatever())
        patch.setattr(fractal_heap, "lookup3", lambda _: Whatever())
        yield


def check(data: bytes) -> None:
    with suppress(Corrupt, Unsupported):
        source = read_all(data)
        assert source.bytes_read < 100 * len(data) + 10_000_000
        assert source.steps < 20_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_whole_is_read(kind: str) -> None:
    whole = sample(kind)
    with no_checksums():
        assert read_all(whole).bytes_read > 1000


@pytest.mark.endurance
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=repeats(150, short=25))
@given(st.data())
def test_changed_bytes(kind: str, data: st.DataObject) -> None:
    changed = bytearray(sample(kind))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 8))
        width = data.draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
        value = data.draw(
            st.sampled_from([0, 1, 2**64 - 1, len(changed) - 1, 96]) | st.integers(0, 2**64 - 1)
        )
        changed[place : place + width] = value.to_bytes(8, "little")[:width]
    if data.draw(st.booleans()):
        check(bytes(changed))
    with no_checksums():
        check(bytes(changed))


@pytest.mark.endurance
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=repeats(100, short=20))
@given(st.data())
def test_changed_addresses(kind: str, data: st.DataObject) -> None:
    """Exchange one thing that looks like an address for another: circles, and structures in each other's place."""
    whole = sample(kind)
    places = addresses(kind)
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        to, source = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))
        changed[to : to + 8] = whole[source : source + 8]
    with no_checksums():
        check(bytes(changed))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(st.data())
def test_cut_short(kind: str, data: st.DataObject) -> None:
    whole = sample(kind)
    with pytest.raises(Corrupt, match=r"cut short|no HDF5 file|ends inside"):
        read_all(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_or_signature_is_named(kind: str) -> None:
    changed = bytearray(sample(kind))
    changed[8] = 9
    with pytest.raises(Unsupported, match="superblock at byte 0 has version 9"):
        read_all(bytes(changed))
