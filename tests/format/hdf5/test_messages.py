"""Messages of object headers, against libhdf5's: attributes, types, fill values, filters, links."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, HsparseError, TooLarge, Unsupported
from hsparse.format.dataspace_message import ByteReader, FormatRevision, encode_dataspace
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.file_fields import Addressed, Widths, address_bytes
from hsparse.hdf5.format.messages.attribute_message import decode_attribute, encode_attribute
from hsparse.hdf5.format.messages.datatype_message import decode_datatype, encode_datatype
from hsparse.hdf5.format.messages.file_type import FileType, file_type, is_packed
from hsparse.hdf5.format.messages.filter_pipeline_message import (
    MESSAGES,
    decode_pipeline,
    decode_section_pipelines,
    encode_pipeline,
    encode_section_pipelines,
    is_section_pipelines,
)
from hsparse.hdf5.format.messages.group_messages import (
    ATTRIBUTE_ORDER_WIDTH,
    DEFAULT_GROUP_INFO,
    LINK_ORDER_WIDTH,
    DenseStorage,
    LinkMessage,
    StoredExternalLink,
    StoredHardLink,
    StoredSoftLink,
    UserDefinedLink,
    decode_dense_storage,
    decode_link,
    decode_symbol_table,
    encode_dense_storage,
    encode_link,
)
from hsparse.hdf5.format.messages.object_messages import (
    FillValue,
    decode_fill,
    decode_old_fill,
    decode_old_time,
    decode_reference_count,
    decode_time,
    encode_fill,
    encode_reference_count,
)
from hsparse.hdf5.format.object_header import (
    SHARED_FLAG,
    decode_shared_location,
    encode_shared_location,
)
from hsparse.model.datatype import parse_type
from tests.format.hdf5.h5py_files import LIBRARIES, compare, messages, needs_library, reader, same
from tests.format.hdf5.plan_strategies import INT, PATHS, SCALAR, simple
from tests.format.hdf5.test_layout_message import DATASETS, golden
from tests.model.type_strategies import ITEMS

STORED = file_type(INT)
DATATYPE = Addressed(encode_datatype(STORED))


def test_attributes_of_libhdf5() -> None:
    found = messages(0x0C)
    assert {data[0] for data in found} == {1, 2, 3}
    for data in found:
        message = decode_attribute(reader(data), Widths())
        assert message.name
        if isinstance(message.type, FileType):
            datatype = Addressed(encode_datatype(message.type))
            again = encode_attribute(message.name, datatype, message.shape, Addressed(bytes(message.data)))
            assert decode_attribute(reader(again.data), Widths()) == message


def test_an_attribute_of_version_2_has_no_padding() -> None:
    datatype, space = DATATYPE.data, encode_dataspace((2,))
    sizes = b"".join(len(part).to_bytes(2, "little") for part in (b"ab\0", datatype, space))
    data = b"\2\0" + sizes + b"ab\0" + datatype + space + bytes(8)
    message = decode_attribute(reader(data), Widths())
    assert (message.name, message.type, message.shape) == ("ab", STORED, simple(2))
    assert message.value(STORED, simple(2)) == bytes(8)


def test_a_committed_type_is_an_address() -> None:
    data = encode_attribute(
        "a", Addressed(encode_shared_location(800)), SCALAR, Addressed(b"abcd"), shared=True
    )
    message = decode_attribute(reader(data.data), Widths())
    assert message.type == 800
    assert message.value(STORED, SCALAR) == b"abcd"


def test_the_old_time_has_digits() -> None:
    assert decode_old_time(reader(b"20231114221320\0\0")) == 1_700_000_000


PREFIX = b"\3\0"
"""What H5Tencode writes before a datatype message: its message id, and a version."""


def of_bytes(data: bytes) -> h5py.h5t.TypeID:
    return h5py.h5t.decode(PREFIX + data)


def message_of(type_id: h5py.h5t.TypeID) -> bytes:
    return type_id.encode()[len(PREFIX) :]


def decode(data: bytes) -> FileType:
    reader = ByteReader(memoryview(data), subject="test")
    stored = decode_datatype(reader)
    reader.done("type")
    return stored


def h5py_types() -> list[h5py.h5t.TypeID]:
    create = h5py.h5t.py_create
    dtypes = [
        *("i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "S7", "V5", "?", "c8"),
        [("a", "<i2"), ("größe", ">f8", (2, 3)), ("c", [("x", "S3")])],
        {"names": ["p", "q"], "formats": ["<i2", "<f8"], "offsets": [4, 16], "itemsize": 32},
        ("<i4", (2, 1, 3)),
    ]
    special = [
        h5py.string_dtype(),
        h5py.string_dtype("ascii"),
        h5py.string_dtype("utf-8", 9),
        h5py.vlen_dtype(np.dtype(">i2")),
        h5py.enum_dtype({"a": -3, "b": 700}, basetype=">i2"),
        h5py.ref_dtype,
        h5py.regionref_dtype,
        np.dtype([("v", h5py.vlen_dtype(np.dtype([("s", h5py.string_dtype()), ("r", h5py.ref_dtype)])))]),
    ]
    tagged = h5py.h5t.create(h5py.h5t.OPAQUE, 3)
    tagged.set_tag(b"12345678")
    padded = h5py.h5t.C_S1.copy()
    padded.set_size(4)
    padded.set_strpad(h5py.h5t.STR_SPACEPAD)
    twelve = h5py.h5t.STD_I16BE.copy()
    twelve.set_precision(12)
    twelve.set_offset(2)
    names = ("B8LE", "B64BE", "REF_OBJ", "REF_DSETREG")
    predefined = [getattr(h5py.h5t, f"STD_{name}") for name in names]
    others = [h5py.h5t.UNIX_D32LE, h5py.h5t.UNIX_D64BE, h5py.h5t.IEEE_F128LE, h5py.h5t.LDOUBLE_LE]
    complexes = [h5py.h5t.COMPLEX_IEEE_F32LE, h5py.h5t.COMPLEX_IEEE_F64BE]
    created = [create(np.dtype(dtype), logical=True) for dtype in (*dtypes, *special)]
    return [*created, tagged, padded, twelve, *predefined, *others, *complexes]


@pytest.mark.parametrize("type_id", h5py_types())
def test_types_of_libhdf5_round_trip(type_id: h5py.h5t.TypeID) -> None:
    message = message_of(type_id)
    stored = decode(message)
    assert stored.size == type_id.get_size()
    assert encode_datatype(stored) == message
    assert of_bytes(encode_datatype(stored, latest=True)) == type_id
    assert decode(encode_datatype(stored, latest=True)) == stored


@given(ITEMS, st.booleans())
def test_items_are_what_libhdf5_reads(item: object, latest: bool) -> None:
    stored = file_type(parse_type(item).item)
    message = encode_datatype(stored, latest=latest)
    found = of_bytes(message)
    assert found == of_bytes(encode_datatype(stored))
    if not parse_type(item).is_vlen:  # in memory they are of another size
        assert message_of(found) == message
    assert parse_type(decode(message).item).element == parse_type(stored.item).element
    assert is_packed(stored)


def test_a_number_without_a_name_is_told_as_it_is() -> None:
    twelve = h5py.h5t.STD_I16BE.copy()
    twelve.set_precision(12)
    item = decode(message_of(twelve)).item
    assert item == {"class": "H5T_INTEGER", "size": 2, "bits": 9, "properties": "00000c00"}
    with pytest.raises(BadRequest, match="needs the name of a predefined type"):
        parse_type(item)


INTEGER = b"\x10\x08\0\0\x04\0\0\0\0\0\x20\0"
"""The message of H5T_STD_I32LE."""


def test_array_members_of_version_1() -> None:
    member = b"a\0\0\0\0\0\0\0" + bytes(4) + b"\2" + bytes(11) + b"\2\0\0\0\3\0\0\0" + bytes(8) + INTEGER
    message = b"\x16\1\0\0" + b"\x18\0\0\0" + member
    item = decode(message).item
    base = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    assert item["fields"] == [{"name": "a", "type": {"class": "H5T_ARRAY", "dims": [2, 3], "base": base}}]
    assert decode(message_of(of_bytes(message))).item == item


@given(st.sampled_from(h5py_types()), st.data())
def test_changed_types_are_read_or_refused(type_id: h5py.h5t.TypeID, data: st.DataObject) -> None:
    message = bytearray(message_of(type_id))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(Corrupt, Unsupported):
        assert decode_datatype(ByteReader(memoryview(message), subject="test")).size > 0


@given(
    st.builds(FillValue, st.none() | st.binary(max_size=9), st.integers(0, 3), st.integers(0, 2)),
    st.sampled_from([2, 3]),
)
def test_fill_values_round_trip(fill: FillValue, version: int) -> None:
    assert decode_fill(reader(encode_fill(fill, version))) == fill


def test_fill_values_of_version_1_and_the_old_message() -> None:
    assert decode_fill(reader(bytes((1, 2, 0, 1)) + b"\2\0\0\0ab")) == FillValue(b"ab", 2, 0)
    assert decode_fill(reader(bytes((1, 2, 0, 0)) + b"\xff\xff\xff\xff")) == FillValue(None, 2, 0)
    assert decode_old_fill(reader(b"\2\0\0\0ab")) == FillValue(b"ab")


FILTERS = st.builds(
    Filter, st.integers(1, 65535), st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple), st.booleans()
)


@given(st.lists(FILTERS, max_size=5).map(tuple), st.sampled_from([1, 2]))
def test_filters_round_trip(pipeline: tuple[Filter, ...], version: int) -> None:
    data = encode_pipeline(pipeline, version)
    message = reader(data)
    assert decode_pipeline(message) == pipeline
    message.done("pipeline")


DEFLATE, SHUFFLE = Filter(1, (6,)), Filter(2, (4,))
ANNOTATED = bytes.fromhex(
    "0102 00010a00 010001000100 06000000 01021400 020001000100 04000000 010001000100 06000000"
)
pipelines = st.lists(st.lists(FILTERS, max_size=4).map(tuple), min_size=2, max_size=3).map(tuple)


@pytest.mark.parametrize("name", DATASETS)
def test_messages_of_the_golden_files_are_written_again(name: str) -> None:
    revision = FormatRevision.RFC_2025_10 if name.startswith("rfc") else FormatRevision.LIB_2026_09
    found = [dataset for dataset in golden(name)[1] if dataset.filters is not None]
    assert found
    for dataset in found:
        kind, body = dataset.filters or (0, b"")
        assert (kind, body[0]) == MESSAGES[revision]
        assert encode_section_pipelines(dataset.pipelines, revision) == body


def test_the_annotated_filters_of_sections() -> None:
    wanted = ((DEFLATE,), (SHUFFLE, DEFLATE))
    assert decode_section_pipelines(ANNOTATED, 2) == wanted
    assert decode_section_pipelines(ANNOTATED + bytes(6), 3) == (*wanted, ())
    assert encode_section_pipelines(wanted) == ANNOTATED


@given(pipelines, st.sampled_from(list(FormatRevision)))
def test_pipelines_come_back(found: tuple[tuple[Filter, ...], ...], revision: FormatRevision) -> None:
    body = encode_section_pipelines(found, revision)
    assert is_section_pipelines(MESSAGES[revision][0], body)
    assert decode_section_pipelines(body, len(found)) == found
    assert decode_section_pipelines(body + b"\0\0\0", len(found)) == found


def test_filters_of_sections_that_end_early_are_corrupt() -> None:
    for end in range(len(ANNOTATED)):
        with pytest.raises(Corrupt, match=r"sections' filters ends inside"):
            decode_section_pipelines(ANNOTATED[:end], 2)


@given(st.binary(max_size=120), st.integers(2, 3))
def test_any_bytes_end_in_an_error_or_filters_of_sections(body: bytes, sections: int) -> None:
    try:
        found = decode_section_pipelines(body, sections)
    except Corrupt:
        return
    assert len(found) == sections


NAMES = PATHS | st.just("n" * 300) | st.just("n" * 70_000) | st.just("\udcff")
TARGETS = (
    st.builds(StoredHardLink, st.integers(0, 2**63))
    | st.builds(StoredSoftLink, PATHS)
    | st.builds(StoredExternalLink, PATHS, PATHS)
    | st.builds(UserDefinedLink, st.integers(65, 255), st.binary(max_size=20))
)


@pytest.mark.endurance
@given(st.builds(LinkMessage, NAMES, TARGETS, st.none() | st.integers(0, 2**63)))
def test_link_round_trip(link: LinkMessage) -> None:
    message = reader(encode_link(link))
    assert decode_link(message, Widths()) == link
    message.done("link")


@pytest.mark.parametrize("track_order", [False, True])
def test_links_of_libhdf5(track_order: bool) -> None:
    found = messages(6, track_order)
    links = [decode_link(reader(data), Widths()) for data in found]
    assert {type(link.target) for link in links} == {StoredHardLink, StoredSoftLink, StoredExternalLink}
    for data, link in zip(found, links, strict=True):
        if not link.name.isascii():  # h5py says of all names that they are UTF-8
            assert same(encode_link(link), data)
    assert any(link.order is not None for link in links) == track_order


@pytest.mark.parametrize(("kind", "width"), [(2, LINK_ORDER_WIDTH), (0x15, ATTRIBUTE_ORDER_WIDTH)])
@pytest.mark.parametrize("track_order", [False, True])
def test_info_of_libhdf5_round_trip(kind: int, width: int, track_order: bool) -> None:
    found = messages(kind, track_order)
    assert found
    tracked = set()
    for data in found:
        storage = decode_dense_storage(reader(data), Widths(), width)
        tracked.add(storage.next_order is not None)
        assert same(encode_dense_storage(storage, width), data)
    assert (True in tracked) == track_order


ADDRESS = (800).to_bytes(8, "little")


@pytest.mark.parametrize(
    "data", [encode_shared_location(800), b"\2\2" + ADDRESS, b"\1\0" + bytes(6) + bytes(8) + ADDRESS]
)
def test_versions_of_shared_locations(data: bytes) -> None:
    assert decode_shared_location(reader(data), Widths()) == 800


ALL = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 0x0B | 1 << 0x0C
"""Every type of message that can be shared, attributes among them, which h5repack leaves out."""


@needs_library
def test_shared_attributes_are_found(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    library = ctypes.CDLL(str(LIBRARIES[0]))  # h5py has no call for it
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    assert library.H5Pset_shared_mesg_nindexes(ctypes.c_int64(plist.id), 1) == 0
    assert library.H5Pset_shared_mesg_index(ctypes.c_int64(plist.id), 0, ALL, 1) == 0
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist)) as file:
        for name in ("few", "many", "others"):
            file[name] = [1, 2, 3]
            for number in range(1 if name == "few" else 20):
                file[name].attrs[f"a{number}"] = [1.5, 2.5]
    found = compare(path)
    assert {0x0C} <= {one.kind for one in found["/few"].header.messages if one.flags & SHARED_FLAG}
    assert [len(found[name].attributes) for name in ("/few", "/many", "/others")] == [1, 20, 20]


def read_count(data: bytes) -> bytes:
    count = decode_reference_count(reader(data))
    assert count > 1
    return encode_reference_count(count)


def read_symbol_table(data: bytes) -> bytes:
    table = decode_symbol_table(reader(data), Widths())
    return address_bytes(table.btree) + address_bytes(table.heap)


@pytest.mark.parametrize(
    ("kind", "versions", "again"),
    [
        (5, {2, 3}, lambda data: encode_fill(decode_fill(reader(data)), data[0])),
        (0x0B, {1, 2}, lambda data: encode_pipeline(decode_pipeline(reader(data)), data[0])),
        (0x11, None, read_symbol_table),
        (0x16, {0}, read_count),
    ],
)
def test_messages_of_libhdf5_round_trip(
    kind: int, versions: set[int] | None, again: Callable[[bytes], bytes]
) -> None:
    found = messages(kind)
    assert found
    assert versions is None or {data[0] for data in found} == versions
    for data in found:
        assert again(data) == data if kind != 5 else same(again(data), data)
    assert any(same(DEFAULT_GROUP_INFO, data) for data in messages(0x0A))


ATTRIBUTE = encode_attribute("a", DATATYPE, simple(3), Addressed(bytes(11))).data
DENSE = encode_dense_storage(DenseStorage(1, 2), LINK_ORDER_WIDTH)


def attribute(data: bytes) -> object:
    return decode_attribute(reader(data), Widths()).value(STORED, simple(3))


def link(data: bytes) -> object:
    return decode_link(reader(data), Widths())


def dense(data: bytes) -> object:
    return decode_dense_storage(reader(data), Widths(), LINK_ORDER_WIDTH)


def shared(data: bytes) -> object:
    return decode_shared_location(reader(data), Widths())


def sections(data: bytes) -> object:
    return decode_section_pipelines(data, 2)


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (attribute, ATTRIBUTE, "'a' has 11 bytes; its elements need 12"),
        (attribute, b"\4" + ATTRIBUTE[1:], "version 4"),
        (attribute, ATTRIBUTE[:12], "ends inside its attribute's datatype"),
        (lambda data: decode_reference_count(reader(data)), b"\1\0\0\0\0", "version 1"),
        (lambda data: decode_time(reader(data)), b"\2" + bytes(7), "version 2"),
        (lambda data: decode_old_time(reader(data)), b"20231399221320\0\0", "'20231399"),
        (decode, b"\x19\0\0\0\x10\0\0\0" * 40 + INTEGER, "nested more than 32 deep"),
        (lambda data: decode_fill(reader(data)), bytes((4, 2, 0, 1)), "version 4"),
        (
            lambda data: decode_fill(reader(data)),
            bytes((2, 2, 0, 1)) + b"\2\0\0\0a",
            "ends inside its fill value",
        ),
        (lambda data: decode_pipeline(reader(data)), b"\3\1", "version 3 with 1 filters"),
        (lambda data: decode_pipeline(reader(data)), b"\2\x21", "33 filters"),
        (sections, b"\2" + ANNOTATED[1:], "version 2"),
        (sections, ANNOTATED[:2] + b"\2" + ANNOTATED[3:], "section 2"),
        (sections, ANNOTATED[:2] + b"\1" + ANNOTATED[3:], "section 1 after section 1"),
        (sections, ANNOTATED[:3] + b"\41" + ANNOTATED[4:], "33 for section 0"),
        (link, b"\2\0\1a" + bytes(8), "version 2"),
        (link, b"\1\x80\1a" + bytes(8), "flags 0x80"),
        (link, b"\1\0\0" + bytes(8), "without a name"),
        (link, b"\1\0\1a" + b"\xff" * 8, "to nowhere"),
        (link, b"\1\x08\5\1a\0\0", "type 5"),
        (link, b"\1\x08\x40\1a\3\0\0ab", "names no file and path"),
        (link, b"\1\x10\2\1a" + bytes(8), "unknown character set"),
        (link, b"\1\0\5ab", "ends inside its link's name"),
        (dense, b"\1" + DENSE[1:], "version 1"),
        (dense, b"\0\4" + DENSE[2:], "flags 4"),
        (lambda data: decode_symbol_table(reader(data), Widths()), b"\xff" * 16, "without a B-tree or heap"),
        (shared, b"\4\2" + ADDRESS, "version 4"),
        (shared, b"\3\2" + b"\xff" * 8, "without an address"),
    ],
)
def test_corrupt_messages(read: Callable[[bytes], object], data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(data)


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (
            lambda: encode_attribute("a" * 65535, DATATYPE, SCALAR, Addressed(bytes(4))),
            TooLarge,
            "name of attribute 'aaa",
        ),
        (
            lambda: file_type({"class": "H5T_REFERENCE", "base": "H5T_STD_REF"}),
            Unsupported,
            "H5T_STD_REF cannot be written",
        ),
        (lambda: file_type("H5T_NATIVE_INT"), BadRequest, "H5T_NATIVE_INT is not the name"),
        (lambda: encode_pipeline([Filter(1)] * 33), BadRequest, "32 filters, not 33"),
        (lambda: encode_section_pipelines(((), (DEFLATE,) * 33)), BadRequest, "33 filters"),
        (
            lambda: encode_link(LinkMessage("a", StoredSoftLink("x" * 65536))),
            BadRequest,
            "65535 bytes in a file, not 65536",
        ),
        (lambda: encode_link(LinkMessage("a\0", StoredSoftLink("x"))), BadRequest, "zero character"),
    ],
)
def test_what_no_message_can_say(write: Callable[[], object], error: type[HsparseError], words: str) -> None:
    with pytest.raises(error, match=words):
        write()
