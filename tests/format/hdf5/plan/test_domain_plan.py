"""Files planned from records alone; with chunks and over HTTP they are in `tests/sn/virtual_file/test_handlers.py`."""

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

from hsparse.errors import BadRequest
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.kinds.registry import kind_of
from hsparse.format.kinds.sparse import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.structured.container import unseal
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.plan.dataset_plan import chunk_form
from hsparse.hdf5.format.plan.domain_plan import known_key, plan_domain
from hsparse.hdf5.format.plan.file_form import STOCK
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, PlannedChunks
from hsparse.hdf5.format.plan.transcoded_chunk import encode_defined_set, transcode_chunk, transcoded_size
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import Values, from_json, to_json
from hsparse.model.vlen_array import VlenArray
from tests.format.hdf5.file_walk import FileBytes, walk
from tests.model.type_strategies import ID, ITEMS, nested, values_of
from tests.support.endurance import repeats

ROOT = "g-1c2d3e4f-00112233-0000-000000-000000"
GROUP = "g-1c2d3e4f-00112233-4455-667788-99aabb"
SET = ID
MADE = SET[:-1] + "0"
TYPE = "t-1c2d3e4f-00112233-4455-667788-99aabb"
INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
HARD = "H5L_TYPE_HARD"
H5DUMP = shutil.which("h5dump")
ONE_FILE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=repeats(120, short=25),
    deadline=None,
)


def hard(id: str, created: float = 0) -> dict[str, Any]:
    return {"class": HARD, "id": id, "created": created}


def records(**changes: Any) -> dict[str, Any]:
    number = {"type": INT | {"id": TYPE}, "shape": {"class": "H5S_SCALAR"}, "value": 5, "created": 0}
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
        SET: {"type": INT, "shape": space, "layout": layout, "attributes": {"DEFINED_SET": number}},
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
    pointed = {"type": INT, "shape": {"class": "H5S_SIMPLE", "dims": [6, 8]}, "attributes": {"n": number}}
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
