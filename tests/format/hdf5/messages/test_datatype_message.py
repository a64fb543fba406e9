"""Datatype messages, against those of libhdf5."""

from __future__ import annotations

from contextlib import suppress

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.messages.datatype_message import decode_datatype, encode_datatype
from hsparse.hdf5.format.messages.file_type import FileType, file_type, is_packed
from hsparse.model.datatype import parse_type
from tests.model.type_strategies import ITEMS

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
def test_bytes_of_libhdf5_round_trip(type_id: h5py.h5t.TypeID) -> None:
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


def test_array_members_of_version_1() -> None:
    inner = b"\x10\x08\0\0\x04\0\0\0\0\0\x20\0"
    member = b"a\0\0\0\0\0\0\0" + bytes(4) + b"\2" + bytes(11) + b"\2\0\0\0\3\0\0\0" + bytes(8) + inner
    message = b"\x16\1\0\0" + b"\x18\0\0\0" + member
    item = decode(message).item
    base = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
    assert item["fields"] == [{"name": "a", "type": {"class": "H5T_ARRAY", "dims": [2, 3], "base": base}}]
    assert decode(message_of(of_bytes(message))).item == item


@given(st.sampled_from(h5py_types()), st.data())
def test_changed_bytes_are_read_or_refused(type_id: h5py.h5t.TypeID, data: st.DataObject) -> None:
    message = bytearray(message_of(type_id))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(Corrupt, Unsupported):
        assert decode_datatype(ByteReader(memoryview(message), subject="test")).size > 0


def test_nesting_has_an_end() -> None:
    message = b"\x19\0\0\0\x10\0\0\0" * 40 + b"\x10\x08\0\0\x04\0\0\0\0\0\x20\0"
    with pytest.raises(Corrupt, match="nested more than 32 deep"):
        decode(message)
