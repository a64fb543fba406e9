"""Fields of compound elements, picked and set."""

from __future__ import annotations

import numpy as np
import pytest

from hsparse.errors import BadRequest
from hsparse.format.fields import packed_type, parse_fields

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
