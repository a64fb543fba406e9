"""Compounds with text: written and read again, whatever else they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import NotImplementedHere, WrongType
from hsparse.client.group import Group
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.client.types.text_compound import TEXT_TYPE
from tests.support.characters import CHARACTERS

DTYPE = np.dtype([("name", object), ("n", "<i4"), ("note", object), ("pair", "<f8", (2,)), ("yes", bool)])
ROWS = st.lists(
    st.tuples(
        st.text(CHARACTERS, max_size=9),
        st.integers(-9, 9),
        st.text(CHARACTERS, max_size=9),
        st.just((0.5, -1.0)),
        st.booleans(),
    )
)


@given(ROWS)
def test_bytes_and_back(rows: list[Any]) -> None:
    values = np.array(rows, DTYPE)
    kind = Hdf5Type.of(values)
    found = kind.decode(kind.encode(values), values.shape)
    assert found.dtype == DTYPE
    assert str(found.tolist()) == str(values.tolist())


def test_datasets(connection: Connection) -> None:
    group = Group(connection, {"id": connection.json("GET", "/")["root"]}, "/")
    values = np.array([("a", 1, "", (1, 2), True), ("é" * 99, 2, "x", (3, 4), False)] * 3, DTYPE).reshape(
        2, 3
    )
    dataset = group.create_dataset("x", data=values)
    assert str(dataset[...]) == str(values)
    assert str(dataset[1, ::2]) == str(values[1, ::2])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(WrongType, match="3 in the field name is no text"):
        Hdf5Type.of(np.zeros(1, DTYPE)).encode(np.array([(3, 1, "", (1, 2), True)], DTYPE))
    sequence = {"class": "H5T_VLEN", "base": TEXT_TYPE}
    with pytest.raises(NotImplementedHere, match="H5T_COMPOUND"):
        Hdf5Type.parse({"class": "H5T_COMPOUND", "fields": [{"name": "x", "type": sequence}]})
