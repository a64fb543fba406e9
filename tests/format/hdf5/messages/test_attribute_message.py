"""Attribute, reference count and modification time messages, against libhdf5's."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.dataspace_message import encode_dataspace
from hsparse.hdf5.format.file_fields import Addressed, Widths
from hsparse.hdf5.format.messages.attribute_message import decode_attribute, encode_attribute
from hsparse.hdf5.format.messages.datatype_message import encode_datatype
from hsparse.hdf5.format.messages.file_type import FileType, file_type
from hsparse.hdf5.format.messages.object_messages import (
    decode_old_time,
    decode_reference_count,
    decode_time,
    encode_reference_count,
)
from hsparse.hdf5.format.object_header import encode_shared_location
from tests.format.hdf5.plan_strategies import INT, SCALAR, simple
from tests.format.hdf5.sample_messages import messages, reader

STORED = file_type(INT)
DATATYPE = Addressed(encode_datatype(STORED))


def test_messages_of_libhdf5() -> None:
    found = messages(0x0C)
    assert {data[0] for data in found} == {1, 2, 3}
    for data in found:
        message = decode_attribute(reader(data), Widths())
        assert message.name
        if isinstance(message.type, FileType):
            datatype = Addressed(encode_datatype(message.type))
            again = encode_attribute(message.name, datatype, message.shape, Addressed(bytes(message.data)))
            assert decode_attribute(reader(again.data), Widths()) == message


def test_version_2_has_no_padding() -> None:
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


def test_corrupt_attribute() -> None:
    data = encode_attribute("a", DATATYPE, simple(3), Addressed(bytes(11))).data
    with pytest.raises(Corrupt, match="'a' has 11 bytes; its elements need 12"):
        decode_attribute(reader(data), Widths()).value(STORED, simple(3))
    with pytest.raises(Corrupt, match="version 4"):
        decode_attribute(reader(b"\4" + data[1:]), Widths())
    with pytest.raises(Corrupt, match="ends inside its attribute's datatype"):
        decode_attribute(reader(data[:12]), Widths())


def test_too_large() -> None:
    with pytest.raises(TooLarge, match="name of attribute 'aaa"):
        encode_attribute("a" * 65535, DATATYPE, SCALAR, Addressed(bytes(4)))


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(0x16)
    assert found
    for data in found:
        count = decode_reference_count(reader(data))
        assert count > 1
        assert encode_reference_count(count) == data


def test_corrupt_reference_count() -> None:
    with pytest.raises(Corrupt, match="version 1"):
        decode_reference_count(reader(b"\1\0\0\0\0"))


def test_the_old_message_has_digits() -> None:
    assert decode_old_time(reader(b"20231114221320\0\0")) == 1_700_000_000


def test_corrupt_modification_time() -> None:
    with pytest.raises(Corrupt, match="version 2"):
        decode_time(reader(b"\2" + bytes(7)))
    with pytest.raises(Corrupt, match="'20231399"):
        decode_old_time(reader(b"20231399221320\0\0"))
