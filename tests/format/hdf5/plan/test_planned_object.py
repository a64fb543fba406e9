"""Files that were planned, as libhdf5 reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import h5py
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.format.messages.group_messages import StoredSoftLink
from hsparse.hdf5.format.messages.layout_message import (
    BTREE_1,
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    LayoutIndex,
)
from hsparse.hdf5.format.messages.object_messages import FillValue
from hsparse.hdf5.format.plan.file_plan import FilePiece
from hsparse.hdf5.format.plan.planned_object import (
    PlannedDataset,
    PlannedDatatype,
    PlannedGroup,
    PlannedLink,
    PlannedObject,
    PlannedTarget,
    plan_file,
    plan_layout,
)
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from tests.format.hdf5.file_walk import walk
from tests.format.hdf5.h5py_judge import compare
from tests.format.hdf5.plan_strategies import (
    INT,
    SCALAR,
    attribute,
    int_bytes,
    links,
    number,
    numbers,
    simple,
    soft,
    write,
)
from tests.support.endurance import repeats

ONE_FILE = settings(
    max_examples=repeats(50, short=20), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
COMPOUND = {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": INT}, {"name": "größe", "type": INT}]}


def group(some: list[PlannedLink], ordered: bool = False) -> list[PlannedObject]:
    return [PlannedGroup("root", some, ordered=ordered)]


@pytest.mark.parametrize("version", [2, 3])
def test_datasets(tmp_path: Path, version: int) -> None:
    space, stored = simple(10), file_type(INT)
    data = FilePiece("data", 40, lambda _: int_bytes(*range(10)))
    chunked = ChunkedLayout((4,), 4, LayoutIndex(BTREE_1, None))
    growing = {**space, "maxdims": ["H5S_UNLIMITED"]}
    datasets = [
        PlannedDataset("contiguous", stored, space, plan_layout(ContiguousLayout(0, 40), "data")),
        PlannedDataset("compact", stored, space, plan_layout(CompactLayout(int_bytes(*range(10))))),
        PlannedDataset(
            "empty", stored, space, plan_layout(ContiguousLayout(None, 40)), FillValue(int_bytes(7))
        ),
        PlannedDataset(
            "chunked",
            stored,
            growing,
            plan_layout(chunked),
            FillValue(int_bytes(9)),
            (Filter(2, (4,)), Filter(1, (4,)), Filter(32000, (4, 261, 16)), Filter(32015, (3,))),
        ),
        PlannedDataset("null", stored, {"class": "H5S_NULL"}, plan_layout(ContiguousLayout(None, 0))),
        PlannedDataset("undefined", stored, SCALAR, plan_layout(ContiguousLayout(None, 4)), FillValue(None)),
        PlannedDataset(
            "typed", file_type(COMPOUND), simple(2), plan_layout(ContiguousLayout(None, 16)), committed="type"
        ),
        PlannedDatatype("type", file_type(COMPOUND), [number("n", 5)]),
    ]
    root = PlannedGroup("root", [PlannedLink(str(one.key), PlannedTarget(one.key)) for one in datasets])
    path = write(plan_file([root, *datasets], "root", [data], version), tmp_path / "f.h5")
    found = compare(path)
    assert found["/type"].references == 2
    with h5py.File(path) as file:
        for name in ("contiguous", "compact"):
            assert file[name][()].tolist() == list(range(10))
        assert file["empty"][()].tolist() == [7] * 10
        assert file["chunked"].chunks == (4,)
        assert file["chunked"][()].tolist() == [9] * 10
        assert file["chunked"].maxshape == (None,)
        assert file["null"].shape is None
        assert file["typed"].id.get_type().committed()
        assert file["type"].attrs["n"] == 5


@pytest.mark.endurance
@ONE_FILE
@given(st.data(), st.booleans())
def test_groups(tmp_path: Path, data: st.DataObject, ordered: bool) -> None:
    keys = ["root", "one", "two"]
    objects: list[PlannedObject] = [
        PlannedGroup(key, data.draw(links(keys)), data.draw(numbers()), ordered) for key in keys
    ]
    objects[0] = PlannedGroup(
        "root",
        [
            PlannedLink("\x011", PlannedTarget("one")),
            PlannedLink("\x022", PlannedTarget("two")),
            *soft(data.draw(st.integers(0, 12))),
        ],
        ordered=ordered,
    )
    path = write(plan_file(objects, "root"), tmp_path / "f.h5")
    found = compare(path)
    for key, name in (("one", "/\x011"), ("two", "/\x022")):
        one = next(one for one in objects if one.key == key)
        assert isinstance(one, PlannedGroup)
        assert {link.name for link in found[name].links} == {link.name for link in one.links}
        if ordered:
            assert [link.name for link in found[name].links] == [link.name for link in one.links]
            assert [some.name for some in found[name].attributes] == [some.name for some in one.attributes]


@pytest.mark.endurance
@pytest.mark.parametrize("count", [60_001, 60_002][: repeats(2, short=1)])
def test_an_index_of_several_leaves(tmp_path: Path, count: int) -> None:
    path = write(plan_file(group(soft(count), ordered=True), "root"), tmp_path / "f.h5")
    names = [link.name for link in soft(count)]
    with h5py.File(path) as file:
        assert list(file) == names
        assert all(file.id.links.exists(name.encode()) for name in names[::97])
    assert [link.name for link in walk(path)["/"].links] == names


@pytest.mark.parametrize("count", [3, 20])
def test_libhdf5_adds_to_what_was_planned(tmp_path: Path, count: int) -> None:
    objects = [PlannedGroup("root", soft(count), [number(f"a{at}", at) for at in range(count)], True)]
    path = write(plan_file(objects, "root"), tmp_path / "f.h5")
    with h5py.File(path, "r+") as file:
        for at in range(300):
            file[f"new {at}"] = h5py.SoftLink("/y")
            file.attrs[f"new {at}"] = at
        del file[soft(1)[0].name]
        del file.attrs["a1"]
    found = compare(path)["/"]
    assert (len(found.links), len(found.attributes)) == (count + 299, count + 299)


def test_what_leads_nowhere() -> None:
    with pytest.raises(BadRequest, match="refers to 'other', which is not in the file"):
        plan_file(group([PlannedLink("l", PlannedTarget("other"))]), "root")
    with pytest.raises(BadRequest, match="refers to 'root'"):
        plan_file([], "root")
    stored = file_type(INT)
    dataset = PlannedDataset("root", stored, simple(10), plan_layout(ContiguousLayout(0, 40), "data"))
    plan = plan_file([dataset], "root")
    with pytest.raises(BadRequest, match="refers to 'data'"):
        plan.read(0, plan.size)


def test_names_are_there_and_once() -> None:
    for names in (["a", "b", "a"], [""]):
        with pytest.raises(BadRequest, match="'root' has two links or attributes of one name"):
            plan_file(group([PlannedLink(name, StoredSoftLink("/")) for name in names]), "root")
        with pytest.raises(BadRequest, match="'root' has two links or attributes of one name"):
            plan_file([PlannedGroup("root", (), [number(name, 1) for name in names])], "root")


@pytest.mark.needs("h5dump")
def test_h5dump_reads_all(tmp_path: Path) -> None:
    heap = GlobalHeapPlan()
    text = {
        "class": "H5T_STRING",
        "charSet": "H5T_CSET_UTF8",
        "strPad": "H5T_STR_NULLTERM",
        "length": "H5T_VARIABLE",
    }
    reference = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    keys = {"datasets/d-1": "d"}
    some = [
        attribute("text", text, ["one", "", "three"], (3,), heap, dict(keys)),
        attribute("to", reference, "datasets/d-1", (), heap, dict(keys)),
    ]
    dataset = PlannedDataset(
        "d", file_type(INT), simple(2), plan_layout(CompactLayout(int_bytes(41, 42))), attributes=some
    )
    root = PlannedGroup("root", [PlannedLink("d", PlannedTarget("d")), *soft(5000)])
    path = write(plan_file([root, dataset], "root", heap.pieces()), tmp_path / "f.h5")
    dumped = subprocess.run(["h5dump", str(path)], capture_output=True, check=True, text=True)
    assert not dumped.stderr
    for words in ("(0): 41, 42", '"one", "", "three"', 'SOFTLINK "link 7919"', "DATASET"):
        assert words in dumped.stdout
    assert dumped.stdout.count("LINKTARGET") == 5000
