"""Group info messages, against libhdf5's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.hdf5.group_info import GroupInfo, decode_group_info, encode_group_info
from tests.format.hdf5.sample_messages import messages, reader, same

NUMBER = st.integers(0, 65535)


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(0x0A)
    assert found
    for data in found:
        assert same(encode_group_info(decode_group_info(reader(data))), data)


@given(st.builds(GroupInfo, NUMBER, NUMBER, NUMBER, NUMBER))
def test_round_trip(info: GroupInfo) -> None:
    assert decode_group_info(reader(encode_group_info(info))) == info


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 1"):
        decode_group_info(reader(b"\1\0"))
