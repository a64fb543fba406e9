"""What libhdf5 says of a file, compared with what this package reads in it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.messages.group_messages import StoredExternalLink, StoredHardLink, StoredSoftLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout, CompactLayout, ContiguousLayout
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, ParsedAttribute, ParsedDataset, ParsedObject
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from hsparse.model.json_values import to_json
from tests.format.hdf5.file_walk import FileBytes, walk

KINDS = {h5py.Group: ObjectKind.GROUP, h5py.Dataset: ObjectKind.DATASET, h5py.Datatype: ObjectKind.DATATYPE}


Spell = Callable[[str, h5py.File], str]
COLLECTIONS = {h5py.Group: "groups/g", h5py.Dataset: "datasets/d", h5py.Datatype: "datatypes/t"}


def kind_of(other: Any) -> type:
    return h5py.Group if isinstance(other, h5py.Group) else type(other)


def compare(path: Path) -> dict[str, ParsedObject]:
    """Assert that both find the same in the file; return what this package found."""
    found = walk(path)
    source = FileBytes(path.read_bytes())
    with h5py.File(path) as file:
        names = names_of(found)
        for name, one in found.items():
            other = file[name]
            assert KINDS[kind_of(other)] == one.kind
            assert h5py.h5o.get_info(other.id).rc == one.references
            if one.kind == ObjectKind.GROUP:
                compare_links(one, other)
            elif one.dataset is not None:
                compare_dataset(one.dataset, other, source.open().base)
            else:
                assert one.type is not None
                compare_type(one.type, other.id)
            compare_attributes(one, other, source, names)
    return found


def names_of(found: dict[str, ParsedObject]) -> dict[int, str]:
    return {one.header.address: name for name, one in found.items()}


def compare_links(one: ParsedObject, group: h5py.Group) -> None:
    assert [link.name for link in one.links] == list(group) or {link.name for link in one.links} == set(group)
    if all(link.order is not None for link in one.links):
        assert [link.name for link in one.links] == list(group)
    for link in one.links:
        info = group.id.links.get_info(link.name.encode("utf-8", "surrogateescape"))
        match link.target:
            case StoredHardLink(address):
                assert info.type == h5py.h5l.TYPE_HARD
                assert info.u == address
            case StoredSoftLink(path):
                other = group.get(link.name, getlink=True)
                assert (type(other), other.path) == (h5py.SoftLink, path)
            case StoredExternalLink(file, path):
                other = group.get(link.name, getlink=True)
                assert (other.filename, other.path) == (file, path)


def compare_dataset(one: ParsedDataset, other: h5py.Dataset, base: int) -> None:
    plist = other.id.get_create_plist()
    compare_type(one.type, other.id.get_type())
    assert dims_of(one.shape) == other.shape
    if other.shape:
        assert max_dims_of(one.shape) == other.maxshape
    filters = [plist.get_filter(at) for at in range(plist.get_nfilters())]
    assert [(id, tuple(values), bool(flags & 1)) for id, flags, values, _ in filters] == [
        (filter.id, filter.values, filter.optional) for filter in one.pipeline
    ]
    layout = one.layout
    if isinstance(layout, ChunkedLayout):
        assert (layout.dims, layout.item_size) == (other.chunks, other.id.get_type().get_size())
    else:
        assert (
            plist.get_layout()
            == {CompactLayout: h5py.h5d.COMPACT, ContiguousLayout: h5py.h5d.CONTIGUOUS}[type(layout)]
        )
    if isinstance(layout, ContiguousLayout) and layout.address is not None:
        assert base + layout.address == other.id.get_offset()
    defined = plist.fill_value_defined()
    assert defined == (0 if one.fill.value is None else 2 if one.fill.value else 1)
    if one.fill.value and isinstance(parse_type(one.type.item).element, Fixed):
        value = np.frombuffer(one.fill.value, raw(one.type))
        assert value.tobytes() == np.array(other.fillvalue).astype(other.dtype).tobytes()
    assert plist.get_alloc_time() == one.fill.allocation
    assert plist.get_fill_time() == one.fill.writing
    if isinstance(layout, CompactLayout) and isinstance(parse_type(one.type.item).element, Fixed):
        assert layout.data == other[()].tobytes()


def raw(stored: FileType) -> np.dtype[Any]:
    return np.dtype(f"V{stored.size}")


def compare_type(stored: FileType, type_id: h5py.h5t.TypeID) -> None:
    datatype = parse_type(stored.item)
    if not datatype.is_vlen:  # what varies is of another size in memory
        assert stored.size == type_id.get_size()
        assert type_id.dtype.hasobject or packed(type_id.dtype) == packed(datatype.dtype)


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type without gaps, as values have it."""
    if dtype.subdtype is not None:
        return np.dtype((packed(dtype.subdtype[0]), dtype.shape))
    if dtype.names:
        return np.dtype([(name, packed(dtype[name])) for name in dtype.names])
    return np.dtype(dtype.str)


def compare_attributes(one: ParsedObject, other: Any, source: FileBytes, names: dict[int, str]) -> None:
    assert {attribute.name for attribute in one.attributes} == set(other.attrs)
    if all(attribute.order is not None for attribute in one.attributes):
        assert [attribute.name for attribute in one.attributes] == list(other.attrs)
    for attribute in one.attributes:
        id = other.attrs.get_id(attribute.name)
        compare_type(attribute.type, id.get_type())
        assert (attribute.committed is not None) == id.get_type().committed()
        dims = dims_of(attribute.shape)
        assert dims == (None if id.get_space().get_simple_extent_type() == h5py.h5s.NULL else id.shape)
        if dims is not None:
            compare_value(attribute, id, other, source, names)


def compare_value(
    attribute: ParsedAttribute, id: h5py.h5a.AttrID, other: Any, source: FileBytes, names: dict[int, str]
) -> None:
    dims = dims_of(attribute.shape) or ()
    element = parse_type(attribute.type.item).element
    if isinstance(element, Fixed) and not id.get_type().detect_class(h5py.h5t.REFERENCE):
        data = np.empty(dims, raw(attribute.type))
        id.read(data, mtype=id.get_type())
        assert data.tobytes() == attribute.data
    values = source.run(
        parse_elements(
            source.open(),
            attribute.type,
            attribute.data,
            dims,
            lambda address: target(address, names, other.file),
        )
    )
    assert to_json(values, element) == plain(other.attrs[attribute.name], other.file)


def target(address: int, names: dict[int, str], file: h5py.File) -> ReferenceTarget | None:
    """Spell an object by its number among all, in hsparse's form."""
    name = names.get(address)
    if name is None:
        return None
    shape = getattr(file[name], "shape", ()) or ()
    return ReferenceTarget(spelled(name, file), shape)


def spelled(name: str, file: h5py.File) -> str:
    token = h5py.h5o.get_info(file[name].id).addr
    return f"{COLLECTIONS[kind_of(file[name])]}-{token:08x}-00112233-4455-667788-99aabb"


def plain(value: Any, file: h5py.File, spell: Spell = spelled) -> Any:
    """Return h5py's value as JSON has it; `spell` says how an object of the file is spelled, by its path."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.tolist()
    if isinstance(value, np.ndarray) and value.shape:
        return [plain(one, file, spell) for one in value]
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, h5py.RegionReference):
        return region(value, file, spell) if value else None
    if isinstance(value, h5py.Reference):
        return spell(file[value].name, file) if value else ""
    if isinstance(value, np.void) and value.dtype.names:
        return [plain(value[name], file, spell) for name in value.dtype.names]
    if isinstance(value, bytes):
        return value.rstrip(b"\0").decode()
    return value.item() if hasattr(value, "item") else value


def region(value: h5py.RegionReference, file: h5py.File, spell: Spell = spelled) -> Any:
    uuid = spell(file[value].name, file).partition("-")[2]
    space = h5py.h5r.get_region(value, file.id)
    if space.get_select_type() == h5py.h5s.SEL_POINTS:
        return {
            "id": uuid,
            "select_type": "H5S_SEL_POINTS",
            "selection": space.get_select_elem_pointlist().tolist(),
        }
    blocks = space.get_select_hyper_blocklist().tolist()
    if len(blocks) > 1:  # h5json spells their elements
        points = [
            list(point)
            for first, last in blocks
            for point in product(*(range(low, high + 1) for low, high in zip(first, last, strict=True)))
        ]
        return {"id": uuid, "select_type": "H5S_SEL_POINTS", "selection": points}
    return {"id": uuid, "select_type": "H5S_SEL_HYPERSLABS", "selection": blocks}
