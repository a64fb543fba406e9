"""Fill value messages, against libhdf5's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.hdf5.format.messages.object_messages import FillValue, decode_fill, decode_old_fill, encode_fill
from tests.format.hdf5.sample_messages import messages, reader, same


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(5)
    assert {data[0] for data in found} == {2, 3}
    for data in found:
        assert same(encode_fill(decode_fill(reader(data)), data[0]), data)


@given(
    st.builds(FillValue, st.none() | st.binary(max_size=9), st.integers(0, 3), st.integers(0, 2)),
    st.sampled_from([2, 3]),
)
def test_round_trip(fill: FillValue, version: int) -> None:
    assert decode_fill(reader(encode_fill(fill, version))) == fill


def test_version_1_and_the_old_message() -> None:
    assert decode_fill(reader(bytes((1, 2, 0, 1)) + b"\2\0\0\0ab")) == FillValue(b"ab", 2, 0)
    assert decode_fill(reader(bytes((1, 2, 0, 0)) + b"\xff\xff\xff\xff")) == FillValue(None, 2, 0)
    assert decode_old_fill(reader(b"\2\0\0\0ab")) == FillValue(b"ab")


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 4"):
        decode_fill(reader(bytes((4, 2, 0, 1))))
    with pytest.raises(Corrupt, match="ends inside its fill value"):
        decode_fill(reader(bytes((2, 2, 0, 1)) + b"\2\0\0\0a"))
