"""Elements of files: written to a planned file and read again, here and by libhdf5, damaged, and odd."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.selection_encoding import encode_points, encode_regular, encode_simple
from hsparse.format.selections.serialized_selection import NONE
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.messages.layout_message import ContiguousLayout
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_object import (
    PlannedAttribute,
    PlannedDataset,
    PlannedGroup,
    PlannedLink,
    PlannedTarget,
    plan_file,
    plan_layout,
)
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.attribute import check_name
from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from tests.format.hdf5.h5py_files import FileBytes, plain, walk
from tests.format.hdf5.plan_strategies import INT, attribute, simple, write
from tests.model.type_strategies import ID, ITEMS, OBJECT, REGION, nested, text, values_of
from tests.support.endurance import repeats

H5DUMP = shutil.which("h5dump")
ONE_FILE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=repeats(200, short=30)
)
KEYS = {"datasets/" + ID: "pointed"}
EXTENT = (6, 8)


def file_of(attributes: list[PlannedAttribute], heap: GlobalHeapPlan, path: Path) -> Path:
    pointed = PlannedDataset(
        "pointed", file_type(INT), simple(*EXTENT), plan_layout(ContiguousLayout(None, 192))
    )
    root = PlannedGroup("root", [PlannedLink("pointed", PlannedTarget("pointed"))], attributes)
    return write(plan_file([root, pointed], "root", heap.pieces()), path)


def read_back(path: Path) -> dict[str, Any]:
    """Return the root's attributes as JSON."""
    found = walk(path)
    source = FileBytes(path.read_bytes())
    pointed = found["/pointed"].header.address

    def find(address: int) -> ReferenceTarget | None:
        return ReferenceTarget("datasets/" + ID, EXTENT) if address == pointed else None

    result = {}
    for one in found["/"].attributes:
        reads = parse_elements(source.open(), one.type, one.data, dims_of(one.shape) or (), find)
        result[one.name] = to_json(source.run(reads), parse_type(one.type.item).element)
    return result


@pytest.mark.endurance
@ONE_FILE
@given(ITEMS, st.data(), st.lists(st.integers(0, 3), max_size=2).map(tuple))
def test_values_come_back(tmp_path: Path, item: Any, data: st.DataObject, dims: tuple[int, ...]) -> None:
    value = data.draw(nested(values_of(item), dims))
    heap = GlobalHeapPlan()
    path = file_of([attribute("a", item, value, dims, heap, dict(KEYS))], heap, tmp_path / "f.h5")
    element = parse_type(item).element
    assert read_back(path)["a"] == to_json(from_json(value, dims, element), element)
    with h5py.File(path) as file:
        assert file.attrs.get_id("a").shape == dims
    if H5DUMP:  # h5py does not read every type, h5dump does
        dumped = subprocess.run([H5DUMP, str(path)], capture_output=True, check=True, text=True)
        assert not dumped.stderr


def test_libhdf5_reads_the_same(tmp_path: Path) -> None:
    string = text("H5T_VARIABLE")
    deep = {
        "class": "H5T_COMPOUND",
        "fields": [
            {"name": "s", "type": string},
            {"name": "v", "type": {"class": "H5T_VLEN", "base": "H5T_STD_I32LE"}},
            {"name": "r", "type": OBJECT},
            {"name": "n", "type": "H5T_STD_I16LE"},
        ],
    }
    reference = "datasets/" + ID
    blocks = {"id": ID[2:], "select_type": "H5S_SEL_HYPERSLABS", "selection": [[[0, 1], [2, 5]]]}
    points = {"id": ID[2:], "select_type": "H5S_SEL_POINTS", "selection": [[0, 3], [4, 1]]}
    values: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
        "texts": (string, ["größe", "", "z" * 100_000], (3,)),
        "compound": (deep, [["a", [1, 2, 3], reference, 4], ["", [], "", -5]], (2,)),
        "object": (OBJECT, reference, ()),
        "blocks": (REGION, [blocks, points, None], (3,)),
        "many": (string, [str(number) for number in range(70_000)], (70_000,)),
    }
    heap = GlobalHeapPlan()
    some = [attribute(check_name(name), *value, heap, dict(KEYS)) for name, value in values.items()]
    path = file_of(some, heap, tmp_path / "f.h5")
    back = read_back(path)
    with h5py.File(path) as file:
        uuid = "d" + file["pointed"].name
        for name, (_, value, _) in values.items():
            assert back[name] == value
            found = plain(file.attrs[name], file)
            if name in ("texts", "many"):
                assert found == value
        assert uuid
        assert file[file.attrs["object"]].name == "/pointed"
        first, second, null = file.attrs["blocks"]
        assert h5py.h5r.get_region(first, file.id).get_select_hyper_blocklist().tolist() == [[[0, 1], [2, 5]]]
        assert h5py.h5r.get_region(second, file.id).get_select_elem_pointlist().tolist() == [[0, 3], [4, 1]]
        assert not null
        row = file.attrs["compound"][0]
        assert (row["s"], row["v"].tolist(), file[row["r"]].name, row["n"]) == (
            b"a",
            [1, 2, 3],
            "/pointed",
            4,
        )
        assert not file.attrs["compound"][1]["r"]


def test_gaps_are_left_out_and_put_in() -> None:
    dtype = np.dtype([("a", "<i2"), ("b", "<f8")])
    item = {
        "class": "H5T_COMPOUND",
        "fields": [{"name": "a", "type": "H5T_STD_I16LE"}, {"name": "b", "type": "H5T_IEEE_F64LE"}],
    }
    packed = file_type(item)
    padded = type(packed)(packed.item, 32, packed.parts, (4, 16))
    values = np.array([(1, 2.5), (3, 4.5)], dtype)
    planned = plan_elements(padded, values, GlobalHeapPlan(), dict[str, str]().get)
    expected = np.zeros(
        2, {"names": ["a", "b"], "formats": ["<i2", "<f8"], "offsets": [4, 16], "itemsize": 32}
    )
    expected["a"], expected["b"] = values["a"], values["b"]
    assert planned == Addressed(expected.tobytes())
    found = parsed(padded, planned.data)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == values.tolist()


def parsed(stored: FileType, data: bytes) -> Any:
    """Return two elements of an empty file."""
    plan = plan_file([PlannedGroup("root")], "root")
    source = FileBytes(plan.read(0, plan.size))
    return source.run(parse_elements(source.open(), stored, data, (2,), lambda _: None))


def test_what_cannot_be_read() -> None:
    with pytest.raises(Corrupt, match="7 bytes for 2 elements of 4"):
        parsed(file_type(INT), bytes(7))
    item = {"class": "H5T_INTEGER", "size": 2, "bits": 9, "properties": "00000c00"}
    with pytest.raises(Unsupported, match="cannot be read"):
        parsed(file_type(item), bytes(4))


TEXT = text("H5T_VARIABLE")
TARGET = 0x60
"""The address that every reference leads to."""


def find(address: int) -> ReferenceTarget | None:
    return ReferenceTarget("datasets/" + ID, (1000, 1000)) if address == TARGET else None


class Heap:
    """A file with a global heap of some objects."""

    def __init__(self, *objects: bytes) -> None:
        heap = GlobalHeapPlan()
        for one in objects:
            heap.add(Addressed(one))
        plan: FilePlan = plan_file([PlannedGroup("root")], "root", heap.pieces())
        self.source = FileBytes(plan.read(0, plan.size))
        self.address = plan.address_of(("heap", 0))

    def place(self, number: int, count: int | None = None) -> bytes:
        """Return an element that has an object, of a sequence with its count."""
        head = b"" if count is None else struct.pack("<I", count)
        return head + struct.pack("<QI", self.address, number)

    def read(self, stored: FileType | Any, data: bytes, *dims: int) -> Any:
        stored = stored if isinstance(stored, FileType) else file_type(stored)
        values = self.source.run(parse_elements(self.source.open(), stored, data, dims, find))
        return to_json(values, parse_type(stored.item).element)


def test_one_object_for_all_elements_is_no_more_than_the_file() -> None:
    heap = Heap(bytes(100_000))
    with pytest.raises(Corrupt, match="more bytes together than the file"):
        heap.read(TEXT, heap.place(1, 100_000) * 100, 100)


def test_references() -> None:
    heap = Heap(b"")
    data = struct.pack("<QQQQ", TARGET, 0, 2**64 - 1, 12345)
    assert heap.read(OBJECT, data, 4) == ["datasets/" + ID, "", "", ""]


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        (encode_simple(NONE), Unsupported, "cannot be kept: .*Empty region"),
        (
            encode_regular([StridedSpan(0, 2, 500, 1), StridedSpan(0, 2, 500, 1)]),
            Unsupported,
            "more than 65536 blocks",
        ),
        (encode_points([np.array([1000]), np.array([0])]), Corrupt, "coordinate 1000 in dimension 0"),
        (b"\7" + bytes(20), Corrupt, "selection has type 7"),
        (b"", Corrupt, "region reference ends inside its selection header"),
    ],
)
def test_regions_that_are_refused(selection: bytes, error: type[Exception], words: str) -> None:
    heap = Heap(struct.pack("<Q", TARGET) + selection)
    with pytest.raises(error, match=words):
        heap.read(REGION, heap.place(1))


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (encode_simple(3), None),
        (encode_regular([StridedSpan(1, 5, 1, 3), StridedSpan(0, 4, 1, 4)]), [[[1, 0], [3, 3]]]),
        (
            encode_regular([StridedSpan(1, 5, 2, 2), StridedSpan(0, 3, 1, 3)]),
            [[row, column] for row in (1, 2, 6, 7) for column in range(3)],
        ),
    ],
)
def test_regions_of_all_and_of_blocks_in_steps(selection: bytes, found: Any) -> None:
    heap = Heap(struct.pack("<Q", TARGET) + selection)
    assert heap.read(REGION, heap.place(1)).get("selection") == found


def test_places_of_another_size() -> None:
    heap = Heap(b"one")
    odd = FileType(file_type(TEXT).item, 20)
    with pytest.raises(Corrupt, match="address of a heap object has 20 bytes"):
        heap.read(odd, bytes(20))
