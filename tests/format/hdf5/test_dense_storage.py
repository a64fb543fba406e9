"""Link info and attribute info messages, against libhdf5's."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.dense_storage import (
    ATTRIBUTE_INFO,
    LINK_INFO,
    DenseStorage,
    decode_dense,
    encode_dense,
)
from hsparse.format.hdf5.widths import Widths
from tests.format.hdf5.sample_messages import messages, reader, same


@pytest.mark.parametrize(("kind", "width"), [(2, LINK_INFO), (0x15, ATTRIBUTE_INFO)])
@pytest.mark.parametrize("track_order", [False, True])
def test_bytes_of_libhdf5_round_trip(kind: int, width: int, track_order: bool) -> None:
    found = messages(kind, track_order)
    assert found
    tracked = set()
    for data in found:
        storage = decode_dense(reader(data), Widths(), width)
        tracked.add(storage.next_order is not None)
        assert same(encode_dense(storage, width), data)
    assert (True in tracked) == track_order


def test_corrupt() -> None:
    data = encode_dense(DenseStorage(1, 2), LINK_INFO)
    with pytest.raises(Corrupt, match="version 1"):
        decode_dense(reader(b"\1" + data[1:]), Widths(), LINK_INFO)
    with pytest.raises(Corrupt, match="flags 4"):
        decode_dense(reader(b"\0\4" + data[2:]), Widths(), LINK_INFO)
