"""Symbol table messages, against libhdf5's."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.symbol_table_message import decode_symbol_table, encode_symbol_table
from hsparse.format.hdf5.widths import Widths
from tests.format.hdf5.sample_messages import messages, reader


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(0x11)
    assert found
    for data in found:
        assert encode_symbol_table(decode_symbol_table(reader(data), Widths())) == data


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="without a B-tree or heap"):
        decode_symbol_table(reader(b"\xff" * 16), Widths())
