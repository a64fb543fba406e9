"""What elements are made of: h5json's dtypes where it has one, and what it refuses."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest
from h5json.hdf5dtype import check_dtype, createDataType
from hypothesis import given

from hsparse.model.element import Fixed, Region, VlenSequence, VlenString, element_of
from tests.model.type_strategies import BOOLEAN, ITEMS, length_prefixed, text

TEXT = text("H5T_VARIABLE")


def known_to_h5json(item: Any) -> bool:
    try:
        createDataType(item)
    except (TypeError, KeyError, ValueError):
        return False
    return True


@given(ITEMS.filter(known_to_h5json))
def test_the_dtypes_of_h5json(item: Any) -> None:
    expected = createDataType(item)
    dtype = element_of(item).dtype
    assert dtype == expected
    for tag in ("vlen", "enum"):  # the classes that h5json tags references with are its own
        assert repr(check_dtype(**{tag: dtype})) == repr(check_dtype(**{tag: expected}))


@given(ITEMS)
def test_the_least_bytes_of_an_element(item: Any) -> None:
    element = element_of(item)
    empty = {Fixed: None, VlenString: "", VlenSequence: [], Region: None}.get(type(element))
    if empty is not None or isinstance(element, Region):
        assert len(length_prefixed(item, empty)) == element.min_size
    elif isinstance(element, Fixed):
        assert element.min_size == element.dtype.itemsize


def test_a_boolean_is_what_h5py_writes_as_one() -> None:
    assert element_of(BOOLEAN).dtype == np.dtype(bool)
    turned = {**BOOLEAN, "members": [{"name": "FALSE", "value": 1}, {"name": "TRUE", "value": 0}]}
    assert element_of(turned).dtype == np.dtype("i1")


@pytest.mark.parametrize(
    "item",
    [
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"a": 128}},
        {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {}},
        {"class": "H5T_ARRAY", "dims": [1] * 33, "base": "H5T_STD_I8LE"},
        {
            "class": "H5T_ARRAY",
            "dims": [1] * 20,
            "base": {"class": "H5T_ARRAY", "dims": [1] * 20, "base": TEXT},
        },
        "H5T_STD_I128LE",
        "H5T_IEEE_F8LE",
    ],
)
def test_what_is_refused(item: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        element_of(item)


FILE_TYPES = [
    (TEXT, h5py.string_dtype()),
    ({"class": "H5T_VLEN", "base": "H5T_IEEE_F64LE"}, h5py.vlen_dtype(np.dtype("<f8"))),
    (
        {
            "class": "H5T_COMPOUND",
            "fields": [
                {"name": "n", "type": "H5T_STD_U16LE"},
                {"name": "t", "type": TEXT},
                {"name": "a", "type": {"class": "H5T_ARRAY", "dims": [3], "base": TEXT}},
            ],
        },
        np.dtype([("n", "<u2"), ("t", h5py.string_dtype()), ("a", h5py.string_dtype(), (3,))]),
    ),
    ({"class": "H5T_ARRAY", "dims": [2, 3], "base": "H5T_STD_I32LE"}, np.dtype(("<i4", (2, 3)))),
]


@pytest.mark.parametrize(("item", "dtype"), FILE_TYPES, ids=range(len(FILE_TYPES)))
def test_the_bytes_of_an_element_in_a_file(item: Any, dtype: Any) -> None:
    """libhdf5 tells how many it takes for a dataset's elements, its heaps not counted."""
    with h5py.File("none.h5", "w", driver="core", backing_store=False) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((7,))
        dataset = h5py.h5d.create(file.id, b"d", h5py.h5t.py_create(dtype, logical=True), space, properties)
        assert dataset.get_storage_size() == 7 * element_of(item).file_size
