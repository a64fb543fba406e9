"""JSON made piece by piece is the JSON that would have been made at once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.http.response import encode_json
from hsparse.sn.records.bulk_listing import wrap_items
from tests.support.characters import CHARACTERS

TEXT = st.text(CHARACTERS, max_size=5)
VALUES = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers(0, 9) | st.floats(0, 1) | TEXT, max_size=4
)


async def generated(parts: list[bytes]) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


@given(TEXT, VALUES, VALUES)
async def test_members_in_an_object(name: str, inner: dict[str, object], around: dict[str, object]) -> None:
    around.pop(name, None)
    parts = [encode_json(key) + b":" + encode_json(value) for key, value in inner.items()]
    found = b"".join([part async for part in wrap_items(name, generated(parts), around)])
    assert json.loads(found) == {name: inner, **around}


@given(st.lists(VALUES, max_size=4), VALUES)
async def test_elements_in_a_list(inner: list[dict[str, object]], around: dict[str, object]) -> None:
    around.pop("x", None)
    parts = [encode_json(value) for value in inner]
    found = b"".join([part async for part in wrap_items("x", generated(parts), around, b"[]")])
    assert json.loads(found) == {"x": inner, **around}
