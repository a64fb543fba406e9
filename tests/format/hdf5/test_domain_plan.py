"""Files that were planned, of objects and of a domain's records, as libhdf5 reads them."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.structured.container import unseal
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.file_fields import Addressed
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
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.plan.dataset_plan import chunk_form
from hsparse.hdf5.format.plan.domain_plan import known_key, plan_domain
from hsparse.hdf5.format.plan.file_form import STOCK
from hsparse.hdf5.format.plan.file_plan import FilePiece, FilePlan
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, PlannedChunks
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
from hsparse.hdf5.format.plan.planned_structures import (
    PlannedMessage,
    plan_object_header,
)
from hsparse.hdf5.format.plan.transcoded_chunk import encode_defined_set, transcode_chunk, transcoded_size
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import Values, from_json, to_json
from hsparse.model.vlen_array import VlenArray
from tests.format.hdf5.h5py_files import FileBytes, compare, walk
from tests.format.hdf5.plan_strategies import (
    INT,
    SCALAR,
    int_bytes,
    links,
    number,
    numbers,
    simple,
    soft,
    write,
)
from tests.model.type_strategies import ID, ITEMS, nested, values_of
from tests.support.endurance import repeats

ONE_FILE = settings(
    max_examples=repeats(120, short=25), suppress_health_check=[HealthCheck.function_scoped_fixture]
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


def test_data_of_others_are_not_read() -> None:
    stored = file_type(INT)
    objects = [
        PlannedGroup("root", [PlannedLink("d", PlannedTarget("d"))]),
        PlannedDataset("d", stored, simple(10), plan_layout(ContiguousLayout(0, 40), "data")),
    ]
    plan = plan_file(objects, "root", [FilePiece("data", 40)])
    address = plan.address_of("data")
    assert [(start, piece.key) for start, piece in plan.pieces_in(address, address + 8)] == [
        (address, "data")
    ]
    assert len(plan.read(0, address)) == address
    with pytest.raises(BadRequest, match="'data' are not in the plan"):
        plan.read(0, plan.size)


def test_what_no_plan_can_be() -> None:
    with pytest.raises(BadRequest, match="same key"):
        FilePlan([FilePiece("a", 1), FilePiece("a", 1)], "a")
    with pytest.raises(AssertionError, match="'a' has 3 bytes, 4 were planned"):
        FilePlan([FilePiece("a", 4, lambda _: b"abc")], "a").read(48, 50)


def test_a_message_that_is_too_long() -> None:
    with pytest.raises(TooLarge, match="0x01 has 65536 bytes; the limit is 65535"):
        plan_object_header("header", [PlannedMessage(1, Addressed(bytes(65536)))])


ROOT = "g-1c2d3e4f-00112233-0000-000000-000000"
GROUP = "g-1c2d3e4f-00112233-4455-667788-99aabb"
SET = ID
MADE = SET[:-1] + "0"
TYPE = "t-1c2d3e4f-00112233-4455-667788-99aabb"
HARD = "H5L_TYPE_HARD"
H5DUMP = shutil.which("h5dump")


def hard(id: str, created: float = 0) -> dict[str, Any]:
    return {"class": HARD, "id": id, "created": created}


def records(**changes: Any) -> dict[str, Any]:
    number = {
        "type": INT | {"id": TYPE},
        "shape": {"class": "H5S_SCALAR"},
        "value": 5,
        "created": 0,
    }
    links = {"b": hard(GROUP, 1), "a": hard(SET, 2), "gone": hard(SET[:-1] + "c"), "t": hard(TYPE, 3)}
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [5], "flags": ["H5D_SPARSE_DATA"]}
    space = {"class": "H5S_SIMPLE", "dims": [10]}
    some = {
        ROOT: {
            "links": links,
            "attributes": {"y": number | {"created": 1}, "x": number | {"created": 2}},
            "creationProperties": {"CreateOrder": "1"},
        },
        GROUP: {"links": {"up": hard(ROOT), "a": hard(SET)}},
        SET: {
            "type": INT,
            "shape": space,
            "layout": layout,
            "attributes": {"DEFINED_SET": number},
        },
        TYPE: {"type": INT},
    }
    return {id: {"id": id, **record} for id, record in (some | changes).items()}


def opened(found: dict[str, Any]) -> h5py.File:
    plan = plan_domain(ROOT, found, {SET: PlannedChunks.of([], 1)}, STOCK)
    return h5py.File(io.BytesIO(plan.file.read(0, plan.file.size)))


def test_objects_links_and_attributes_in_their_order() -> None:
    with opened(records()) as file:
        order = file["/"].id.get_create_plist().get_link_creation_order()
        assert order & h5py.h5p.CRT_ORDER_TRACKED
        names: list[str] = []
        file.id.links.iterate(lambda name: names.append(name.decode()), idx_type=h5py.h5.INDEX_CRT_ORDER)
        assert names == ["b", "a", "t", "a.defined"]
        assert dict(file.attrs) == {"x": 5, "y": 5}
        assert file.attrs.get_id("x").get_type().committed()
        assert file["b/up"] == file
        assert h5py.h5o.get_info(file.id).num_attrs == 2


def test_a_defined_set_takes_no_name_that_is_taken() -> None:
    """It is beside the first link to its dataset: here in the group with the lower id."""
    with opened(records()) as file:
        assert sorted(file) == ["a", "a.defined", "b", "t"]
        assert file["a"].attrs["DEFINED_SET"] == 5
        reference = file["a"].attrs["DEFINED_SET_"]
        assert file[reference] == file["a.defined"]
        assert file["a.defined"].dtype == bool
        assert file["a.defined"].chunks == file["a"].chunks == (5,)
        assert not file["a.defined"][()].any()


def test_what_is_wrong_is_told_of_its_object() -> None:
    bad = records(**{GROUP: {"links": {"a\0b": hard(SET)}}})
    with pytest.raises(BadRequest, match="zero character"):
        opened(bad)
    number = {"type": INT, "shape": {"class": "H5S_SCALAR"}, "value": "no number", "created": 0}
    with pytest.raises(BadRequest, match=f"{GROUP} cannot be in a file: .*"):
        opened(records(**{GROUP: {"links": {}, "attributes": {"a": number}}}))


@pytest.mark.endurance
@ONE_FILE
@given(ITEMS, st.data(), st.integers(0, 5), st.booleans())
def test_elements_of_every_type_come_back(
    tmp_path: Path, item: Any, data: st.DataObject, count: int, sparse: bool
) -> None:
    """As attributes, and as a dataset of one chunk, dense or sparse, that is made of its stored bytes."""
    element = parse_type(item).element
    value = data.draw(nested(values_of(item), (count,)))
    values = from_json(value, (count,), element)
    space = {"class": "H5S_SIMPLE", "dims": [count]}
    number = {"type": INT, "shape": {"class": "H5S_SCALAR"}, "value": 5}
    pointed = {
        "type": INT,
        "shape": {"class": "H5S_SIMPLE", "dims": [6, 8]},
        "attributes": {"n": number},
    }
    layout = {"class": "H5D_CHUNKED", "dims": [max(1, count)]}
    if sparse:
        layout = {"class": "H5D_STRUCT_CHUNK", "dims": [max(1, count)], "flags": ["H5D_SPARSE_DATA"]}
    made = {"type": item, "shape": space, "layout": layout}
    made["attributes"] = {"a": {"type": item, "shape": space, "value": value, "created": 0}}
    found = {ROOT: {"links": {"made": hard(MADE), "pointed": hard(SET)}}, SET: pointed, MADE: made}
    file = file_of({id: {"id": id, **one} for id, one in found.items()}, values, tmp_path / "f.h5")
    objects, source = walk(file.read_bytes()), FileBytes(file.read_bytes())
    there = objects["/pointed"].header.address

    def find(address: int) -> ReferenceTarget | None:
        return ReferenceTarget(f"datasets/{SET}", (6, 8)) if address == there else None

    expected = to_json(values, element)
    attribute = next(one for one in objects["/made"].attributes if one.name == "a")
    reads = parse_elements(source.open(), attribute.type, attribute.data, (count,), find)
    assert to_json(source.run(reads), element) == expected
    dataset = objects["/made"].dataset
    assert dataset is not None
    if not count:
        return
    assert isinstance(dataset.layout, ChunkedLayout)
    index = IndexLayout(
        IndexKind.BTREE_V1, (count,), (count,), dataset.type.size, address=dataset.layout.index.address
    )
    (address,) = source.run(read_chunk_index(index, (count,), len(source.data))).address.tolist()
    stored = bytes(source.data[address : address + count * dataset.type.size])
    reads = parse_elements(source.open(), dataset.type, stored, (count,), find)
    assert to_json(source.run(reads), element) == expected
    if H5DUMP:  # h5py does not read every type, h5dump does
        done = subprocess.run([H5DUMP, str(file)], capture_output=True, check=True, text=True)
        assert not done.stderr


def file_of(found: dict[str, Any], values: Values, path: Path) -> Path:
    """Write a file whose dataset `MADE` has one chunk of these values."""
    spec = chunk_spec(found[MADE])
    codec = kind_of(spec)
    places = np.arange(values.size if isinstance(values, VlenArray) else len(values), dtype=np.uint32)
    chunk: Any = values
    if not isinstance(values, VlenArray):
        chunk = np.ascontiguousarray(values).reshape(-1).view(spec.dtype).reshape(-1)[: len(places)]
    if spec.sparse and isinstance(values, VlenArray):
        chunk = SparseVlenChunk(spec.dims, places, values)
    elif spec.sparse:
        chunk = SparseChunk(spec.dims, places, chunk)
    data, table = (b"", np.zeros((0, 3), np.uint64))
    if len(places):
        data = bytes(codec.encode(chunk))
    if spec.sparse and data:
        content, footer = unseal(data)
        data = bytes(content)
        table = np.array([[one.size, one.unfiltered, one.mask] for one in footer.sections], np.uint64)
    ids = frozenset(found)
    form = chunk_form(spec, STOCK)

    def key_of(name: str) -> Any:
        return known_key(name, ids)

    size = len(data) if form is ChunkForm.STORED or not data else transcoded_size(spec, data, table, key_of)
    count = min(1, len(places))
    one = np.ones(count, np.uint64)
    some = PlannedChunks(np.zeros((count, 1), np.uint64), one, size * one, table[None][:count], one, one > 0)
    plan = plan_domain(ROOT, found, {SET: PlannedChunks.of([], 2), MADE: some}, STOCK)
    with path.open("wb") as out:
        out.truncate(plan.file.size)
        for address, piece in plan.file.pieces_in(0, plan.file.size):
            out.seek(address)
            region = plan.regions.get(piece.key)
            if region is None:
                out.write(plan.file.bytes_of(piece))
            elif region.form is ChunkForm.STORED:
                out.write(data)
            elif region.form is ChunkForm.DEFINED:
                out.write(encode_defined_set(spec, data, table))
            else:
                out.write(transcode_chunk(spec, data, table, address, plan.file.address_of, plan.key_of))
    return path
