"""The values a new dataset is given with its creation."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.initial_value import parse_initial_bytes, parse_initial_value

INTEGER = parse_type("H5T_STD_I32LE")


def test_values_in_the_shape_of_the_dataset() -> None:
    array = parse_initial_value([[1, 2], [3, 4]], parse_shape({"shape": [2, 2]}), INTEGER)
    np.testing.assert_array_equal(array, np.array([[1, 2], [3, 4]], "<i4"))
    assert parse_initial_value(5, parse_shape({}), INTEGER).shape == ()


@pytest.mark.parametrize(
    ("value", "shape", "error"),
    [
        ([1, 2], {"shape": [3]}, BadRequest),
        (["x"], {"shape": [1]}, BadRequest),
        (1, {"shape": "H5S_NULL"}, BadRequest),
        (1, {"shape": [2**40]}, TooLarge),
    ],
)
def test_what_does_not_fit(value: object, shape: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_initial_value(value, parse_shape(shape), INTEGER)


def test_values_as_bytes() -> None:
    text = base64.b64encode(np.array([[1, 2], [3, -4]], "<i4").tobytes()).decode()
    array = parse_initial_bytes(text, parse_shape({"shape": [2, 2]}), INTEGER)
    np.testing.assert_array_equal(array, np.array([[1, 2], [3, -4]], "<i4"))
    for wrong in (text[:-4], "not base64", 7):
        with pytest.raises(BadRequest):
            parse_initial_bytes(wrong, parse_shape({"shape": [2, 2]}), INTEGER)
    with pytest.raises(BadRequest, match="null dataspace"):
        parse_initial_bytes("", parse_shape({"shape": "H5S_NULL"}), INTEGER)
