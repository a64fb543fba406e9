"""Objects of chunks of variable-length types: random types and values, filters, and bytes that are corrupt."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.vlen_chunk import decode_bare_vlen, encode_bare_vlen
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from hsparse.model.vlen_array import VlenArray
from tests.model.type_strategies import ITEMS, nested, values_of

DIMS = (2, 3)
PIPELINES = [
    (),
    (Filter(1, (6,)),),
    (Filter(32015, (3,)), Filter(3, (), optional=False)),
    (Filter(32004, (0,)),),
]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Any, Any]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    return item, draw(nested(values_of(item), DIMS))


@given(chunks(), st.sampled_from(PIPELINES))
def test_what_is_stored_is_loaded(drawn: tuple[Any, Any], pipeline: tuple[Filter, ...]) -> None:
    item, value = drawn
    element = parse_type(item).element
    array = from_json(value, DIMS, element)
    assert isinstance(array, VlenArray)
    data = bytes(encode_bare_vlen(array, pipeline))
    if not pipeline:
        assert data == array.heap.tobytes()
    assert to_json(decode_bare_vlen(data, DIMS, element, pipeline), element) == value
