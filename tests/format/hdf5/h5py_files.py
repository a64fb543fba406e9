"""Files that h5py writes: with everything in them, walked by this package's readers, and judged by libhdf5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import h5py
import numpy as np
import pytest

from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Reads, concurrently, run_reads
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.messages.file_type import FileType
from hsparse.hdf5.format.messages.group_messages import StoredExternalLink, StoredHardLink, StoredSoftLink
from hsparse.hdf5.format.messages.layout_message import ChunkedLayout, CompactLayout, ContiguousLayout
from hsparse.hdf5.format.object_header import SHARED_FLAG
from hsparse.hdf5.format.parse.parsed_elements import ReferenceTarget, parse_elements
from hsparse.hdf5.format.parse.parsed_object import (
    ObjectKind,
    ParsedAttribute,
    ParsedDataset,
    ParsedObject,
    parse_object,
)
from hsparse.hdf5.format.superblock import read_superblock
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from hsparse.model.json_values import to_json

LIBVERS = ["earliest", "v108", "v110", "latest"]
LIBRARIES = list((Path(h5py.__file__).parent.parent / "h5py.libs").glob("libhdf5-*"))
needs_library = pytest.mark.skipif(not LIBRARIES, reason="h5py was not installed with a libhdf5 of its own")


def write_types(group: h5py.Group) -> None:
    attrs = group.attrs
    attrs["int"] = np.int16(-3)
    attrs["float"] = np.arange(6, dtype=">f4").reshape(2, 3)
    attrs["text"] = "größe"
    attrs["texts"] = ["one", "", "three"]
    attrs["fixed"] = np.bytes_("abc")
    attrs["bool"] = np.array([True, False])
    attrs["empty"] = h5py.Empty("f4")
    attrs["none"] = np.zeros((0, 3), "u1")
    attrs["compound"] = np.array([(1, 2.5)], [("a", "i2"), ("b", "f8")])
    padded = np.dtype({"names": ["p", "q"], "formats": ["<i2", "<f8"], "offsets": [4, 16], "itemsize": 32})
    attrs["padded"] = np.array([(1, 2.5), (3, 4.5)], padded)
    attrs.create("array", np.arange(12).reshape(2, 2, 3), shape=(2, 2, 3), dtype=np.dtype(("i4", (2, 3))))
    attrs.create("enum", 700, dtype=h5py.enum_dtype({"a": -3, "b": 700}, basetype=">i2"))
    ragged = np.empty(2, object)
    ragged[:] = [np.arange(3, dtype="<i4"), np.arange(0, dtype="<i4")]
    attrs.create("ragged", ragged, dtype=h5py.vlen_dtype(np.dtype("<i4")))
    mixed = np.dtype([("s", h5py.string_dtype()), ("n", "<i4"), ("r", h5py.ref_dtype)])
    attrs.create("mixed", np.array([("x", 1, group.ref), ("yy", 2, None)], mixed), dtype=mixed)
    attrs["object"] = group.ref
    data = group.require_dataset("pointed", (8, 9), "i4")
    attrs["region"] = data.regionref[2:5, 1:4]
    attrs["pieces"] = data.regionref[1, [2, 4, 5]]
    deep = h5py.vlen_dtype(np.dtype([("s", h5py.string_dtype()), ("v", "<i2")]))
    nested = np.empty(1, object)
    nested[0] = np.array([("in", 1), ("out", 2)], [("s", h5py.string_dtype()), ("v", "<i2")])
    attrs.create("nested", nested, dtype=deep)


def write_datasets(file: h5py.File) -> None:
    file["contiguous"] = np.arange(10.0)
    file.create_dataset(
        "chunked", (30, 40), ">i2", chunks=(10, 10), shuffle=True, compression=4, fletcher32=True
    )
    file.create_dataset("lzf", (30,), "f8", chunks=(10,), compression="lzf", maxshape=(None,), fillvalue=2.5)
    file.create_dataset("text", (3,), h5py.string_dtype())
    file["scalar"] = 3
    file["null"] = h5py.Empty("i8")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((5,))
    id = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, plist)
    id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(5, dtype="i4"))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    h5py.h5d.create(file.id, b"early", h5py.h5t.STD_I32LE, space, plist)


def write_everything(file: h5py.File, track_order: bool = False) -> None:
    write_datasets(file)
    group = file.create_group("group", track_order=track_order)
    write_types(group)
    write_types(file["contiguous"].parent)
    group["again"] = file["contiguous"]
    group["up"] = file
    group["soft"] = h5py.SoftLink("/a/b")
    group["external"] = h5py.ExternalLink("other.h5", "/p")
    group["日本"] = h5py.SoftLink("größe")
    file["type"] = np.dtype([("a", "i4"), ("b", "f8", (2,))])
    file.create_dataset("typed", (3,), dtype=file["type"])
    file["typed"].attrs.create("typed", np.zeros(2, file["type"].dtype), dtype=file["type"])
    file["type"].attrs["of"] = "a type"


Found = TypeVar("Found")


def write_file(file: h5py.File) -> None:
    group = file.create_group("group")
    write_types(group)
    for number in range(30):
        group.attrs[f"more {number}"] = number
        group[f"l{number}"] = h5py.SoftLink("pointed")
    file["numbers"] = np.arange(12.0).reshape(3, 4)
    file["texts"] = ["one", "", "größe"] * 100
    file["again"] = file["numbers"]
    file["self"] = file
    file["to"] = np.array([group.ref, file["numbers"].ref], h5py.ref_dtype)
    file["regions"] = np.array(
        [file["numbers"].regionref[1:3, 1], file["numbers"].regionref[...]], h5py.regionref_dtype
    )
    file["type"] = np.dtype([("a", "i4"), ("b", h5py.string_dtype())])
    file.create_dataset("typed", (3,), dtype=file["type"])
    file["typed"][...] = np.array([(1, "x"), (2, "yy"), (3, "")], file["type"].dtype)
    file.create_dataset("filled", (3,), "f4", fillvalue=2.5)
    file["null"] = h5py.Empty("i8")


class FileBytes:
    """A file's bytes, and how much was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.steps = 0
        self.bytes_read = 0

    def fetch(self, wanted: tuple[ByteRange, ...]) -> Sequence[memoryview]:
        self.steps += 1
        for address, size in wanted:
            assert address >= 0
            assert size >= 0
            assert address + size <= len(self.data)
            self.bytes_read += size
        return [self.data[address : address + size] for address, size in wanted]

    def run(self, reads: Reads[Found]) -> Found:
        return run_reads(reads, self.fetch)

    def open(self) -> Hdf5File:
        return self.run(read_superblock(len(self.data)))


def walk(path_or_data: Path | bytes) -> dict[str, ParsedObject]:
    """Return every object by the shortest of its paths."""
    data = path_or_data if isinstance(path_or_data, bytes) else path_or_data.read_bytes()
    source = FileBytes(data)
    file = source.open()
    found: dict[str, ParsedObject] = {}
    seen = {file.root}
    level = {"/": file.root}
    while level:
        objects = source.run(concurrently(parse_object(file, address) for address in level.values()))
        below = {}
        for path, one in zip(level, objects, strict=True):
            found[path] = one
            for link in one.links:
                if isinstance(link.target, StoredHardLink) and link.target.address not in seen:
                    seen.add(link.target.address)
                    below[path.rstrip("/") + "/" + link.name] = link.target.address
        level = below
    return found


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


@lru_cache
def messages(kind: int, track_order: bool = False) -> list[bytes]:
    """Return the different messages of a type that libhdf5's versions write, but for those kept elsewhere."""
    found: set[bytes] = set()
    for libver in LIBVERS:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "f.h5"
            with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
                write_everything(file, track_order)
            headers = [one.header for one in walk(path).values()]
        for header in headers:
            found |= {
                bytes(one.data) for one in header.messages if one.kind == kind and not one.flags & SHARED_FLAG
            }
    return sorted(found)


def same(encoded: bytes, data: bytes) -> bool:
    """Say whether bytes are a message of libhdf5, which headers of version 1 fill up with zeros."""
    return data.startswith(encoded) and len(data) - len(encoded) < 8 and not any(data[len(encoded) :])


def reader(data: bytes) -> ByteReader:
    return ByteReader(memoryview(data), subject="test")
