"""Link, link info, attribute info, symbol table and group info messages, against libhdf5's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.hdf5.format.file_fields import Widths, address_bytes
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
from tests.format.hdf5.plan_strategies import PATHS
from tests.format.hdf5.sample_messages import messages, reader, same

NAMES = PATHS | st.just("n" * 300) | st.just("n" * 70_000) | st.just("\udcff")
TARGETS = (
    st.builds(StoredHardLink, st.integers(0, 2**63))
    | st.builds(StoredSoftLink, PATHS)
    | st.builds(StoredExternalLink, PATHS, PATHS)
    | st.builds(UserDefinedLink, st.integers(65, 255), st.binary(max_size=20))
)


def decode(data: bytes) -> LinkMessage:
    return decode_link(reader(data), Widths())


@pytest.mark.endurance
@given(st.builds(LinkMessage, NAMES, TARGETS, st.none() | st.integers(0, 2**63)))
def test_link_round_trip(link: LinkMessage) -> None:
    message = reader(encode_link(link))
    assert decode_link(message, Widths()) == link
    message.done("link")


@pytest.mark.parametrize("track_order", [False, True])
def test_links_of_libhdf5(track_order: bool) -> None:
    found = messages(6, track_order)
    links = [decode(data) for data in found]
    assert {type(link.target) for link in links} == {StoredHardLink, StoredSoftLink, StoredExternalLink}
    for data, link in zip(found, links, strict=True):
        if not link.name.isascii():  # h5py says of all names that they are UTF-8
            assert same(encode_link(link), data)
    assert any(link.order is not None for link in links) == track_order


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\2\0\1a" + bytes(8), "version 2"),
        (b"\1\x80\1a" + bytes(8), "flags 0x80"),
        (b"\1\0\0" + bytes(8), "without a name"),
        (b"\1\0\1a" + b"\xff" * 8, "to nowhere"),
        (b"\1\x08\5\1a\0\0", "type 5"),
        (b"\1\x08\x40\1a\3\0\0ab", "names no file and path"),
        (b"\1\x10\2\1a" + bytes(8), "unknown character set"),
        (b"\1\0\5ab", "ends inside its link's name"),
    ],
)
def test_corrupt_link(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode(data)


def test_what_no_message_can_say() -> None:
    with pytest.raises(BadRequest, match="65535 bytes in a file, not 65536"):
        encode_link(LinkMessage("a", StoredSoftLink("x" * 65536)))
    with pytest.raises(BadRequest, match="zero character"):
        encode_link(LinkMessage("a\0", StoredSoftLink("x")))


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


def test_corrupt_dense_storage() -> None:
    data = encode_dense_storage(DenseStorage(1, 2), LINK_ORDER_WIDTH)
    with pytest.raises(Corrupt, match="version 1"):
        decode_dense_storage(reader(b"\1" + data[1:]), Widths(), LINK_ORDER_WIDTH)
    with pytest.raises(Corrupt, match="flags 4"):
        decode_dense_storage(reader(b"\0\4" + data[2:]), Widths(), LINK_ORDER_WIDTH)


def test_symbol_table_of_libhdf5() -> None:
    found = messages(0x11)
    assert found
    for data in found:
        table = decode_symbol_table(reader(data), Widths())
        assert address_bytes(table.btree) + address_bytes(table.heap) == data


def test_corrupt_symbol_table() -> None:
    with pytest.raises(Corrupt, match="without a B-tree or heap"):
        decode_symbol_table(reader(b"\xff" * 16), Widths())


def test_group_info_of_libhdf5() -> None:
    assert any(same(DEFAULT_GROUP_INFO, data) for data in messages(0x0A))
