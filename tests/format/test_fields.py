"""Fields of compound elements, picked and set."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.fields import as_type, packed_type, parse_fields, pick_fields, set_fields

DTYPE = np.dtype([("a", "<i4"), ("b", ">f8"), ("in", [("x", "u1")]), ("v", "<i2", (2,))])


def test_fields_are_named_with_colons() -> None:
    assert parse_fields(None, DTYPE) == parse_fields("", DTYPE) == ()
    assert parse_fields("b:a", DTYPE) == ("b", "a")
    assert parse_fields("a:b:in:v", DTYPE) == ()
    assert parse_fields("v:in:b:a", DTYPE) == ("v", "in", "b", "a")
    for text in ("c", "a,b", "in.x", "a:", "a:a"):
        with pytest.raises(BadRequest):
            parse_fields(text, DTYPE)
    with pytest.raises(BadRequest, match="none"):
        parse_fields("a", np.dtype("<i4"))


def test_a_type_with_gaps_is_packed_when_all_its_fields_are_named() -> None:
    gaps = np.dtype({"names": ["a", "b"], "formats": ["u1", "<i4"], "offsets": [0, 4]})
    assert parse_fields("a:b", gaps) == ("a", "b")
    assert packed_type(gaps, ("a", "b")).itemsize == 5


def test_what_is_picked_can_be_set() -> None:
    values = np.zeros((2, 3), DTYPE)
    values["b"] = np.arange(6).reshape(2, 3)
    values["v"] = np.arange(12).reshape(2, 3, 2)
    picked = pick_fields(values, ("v", "b"))
    assert picked.dtype.itemsize == 12
    assert pick_fields(values, ()) is values
    other = np.zeros((2, 3), DTYPE)
    other["a"] = 7
    set_fields(other, picked, ("v", "b"))
    np.testing.assert_array_equal(other["b"], values["b"])
    np.testing.assert_array_equal(other["v"], values["v"])
    assert (other["a"] == 7).all()
    set_fields(other, values[0, 0], ())
    assert (other == values[0, 0]).all()


def test_elements_are_seen_as_what_they_are() -> None:
    values = np.arange(3, dtype="<i4")
    assert as_type(values, values.dtype) is values
    seen = as_type(values.view("V4"), values.dtype)
    assert seen.tolist() == [0, 1, 2]
    assert seen.base is not None
