"""Names as bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.hdf5.stored_name import name_bytes, name_text


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_any_bytes_come_back(data: bytes) -> None:
    assert name_bytes(name_text(data)) == data


def test_a_name_that_would_end_early() -> None:
    with pytest.raises(BadRequest, match="has a zero character, which ends"):
        name_bytes("a\0b")
