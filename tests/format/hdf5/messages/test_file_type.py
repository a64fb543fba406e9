"""Types without gaps, and which have some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from hsparse.errors import BadRequest, Unsupported
from hsparse.hdf5.format.messages.file_type import FileType, file_type, is_packed
from hsparse.model.datatype import parse_type
from hsparse.model.element import Fixed
from tests.model.type_strategies import ITEMS, OBJECT, REGION, text


@given(ITEMS)
def test_a_type_of_fixed_size_is_as_large_as_its_dtype(item: Any) -> None:
    datatype = parse_type(item)
    stored = file_type(item)
    assert is_packed(stored)
    if isinstance(datatype.element, Fixed) and "REF" not in repr(item):
        assert stored.size == datatype.dtype.itemsize


@pytest.mark.parametrize(
    ("item", "size"), [(OBJECT, 8), (REGION, 12), (text("H5T_VARIABLE"), 16), (text(5), 5)]
)
def test_sizes_in_a_file(item: Any, size: int) -> None:
    assert file_type(item).size == size
    assert file_type({"class": "H5T_ARRAY", "dims": [2, 3], "base": item}).size == 6 * size
    assert file_type({"class": "H5T_VLEN", "base": item}).size == 16


def test_gaps() -> None:
    fields = [{"name": "a", "type": "H5T_STD_I8LE"}, {"name": "b", "type": "H5T_STD_I32LE"}]
    packed = file_type({"class": "H5T_COMPOUND", "fields": fields})
    assert (packed.offsets, packed.size) == ((0, 1), 5)
    for other in (replace(packed, offsets=(0, 4), size=8), replace(packed, size=6)):
        assert not is_packed(other)
        assert not is_packed(FileType({"class": "H5T_VLEN", "base": other.item}, 16, (other,)))


def test_what_is_no_type_of_a_file() -> None:
    with pytest.raises(Unsupported, match="H5T_STD_REF cannot be written"):
        file_type({"class": "H5T_REFERENCE", "base": "H5T_STD_REF"})
    with pytest.raises(BadRequest, match="H5T_NATIVE_INT is not the name"):
        file_type("H5T_NATIVE_INT")
