"""Dataspaces."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.model.dataspace import (
    dims_of,
    is_extensible,
    max_dims_of,
    num_elements,
    parse_extent,
    parse_shape,
    shape_json,
)

EXTENTS = st.lists(st.integers(0, 2**15), min_size=1, max_size=4)


@given(EXTENTS, st.data())
def test_a_simple_dataspace(dims: list[int], data: st.DataObject) -> None:
    limits = [
        data.draw(st.sampled_from([0, None, "H5S_UNLIMITED"]) | st.integers(max(1, d), 2**20)) for d in dims
    ]
    shape = parse_shape({"shape": dims, "maxdims": limits})
    assert dims_of(shape) == tuple(dims)
    assert max_dims_of(shape) == tuple(
        None if limit in (0, None, "H5S_UNLIMITED") else limit for limit in limits
    )
    assert num_elements(shape) == prod(dims)
    assert is_extensible(shape)
    assert parse_shape({"shape": shape}) == shape == shape_json(shape)
    assert not is_extensible(parse_shape({"shape": dims}))
    assert max_dims_of(parse_shape({"shape": dims})) == tuple(dims)


def test_older_records_have_0_for_unlimited() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [1], "maxdims": [0]}
    assert shape_json(shape)["maxdims"] == ["H5S_UNLIMITED"]
    assert max_dims_of(shape) == (None,)


@pytest.mark.parametrize(
    "body",
    [
        {"shape": -1},
        {"shape": [1, "2"]},
        {"shape": [1.5]},
        {"shape": [True]},
        {"shape": "x"},
        {"shape": [2**63]},
        {"shape": [2**40, 2**40]},
        {"shape": [1] * 33},
        {"shape": None},
        {"shape": {"class": "H5S_FOO"}},
        {"shape": {"class": "H5S_NULL", "dims": [1]}},
        {"shape": {"class": "H5S_SIMPLE"}},
        {"maxdims": [1]},
        {"shape": "H5S_NULL", "maxdims": [1]},
        {"shape": [5], "maxdims": [4]},
        {"shape": [5], "maxdims": [-1]},
        {"shape": [5], "maxdims": [5, 5]},
        {"shape": [5], "maxdims": "x"},
        {"shape": [5], "maxdims": [True]},
    ],
)
def test_what_is_no_dataspace(body: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_shape(body)
    assert caught.value.message.endswith(".")


def test_extents_to_resize_to() -> None:
    assert parse_extent([1, 0]) == (1, 0)
    assert parse_extent(3) == (3,)
    for bad in (None, "x", [-1], [1.0]):
        with pytest.raises(BadRequest):
            parse_extent(bad)
