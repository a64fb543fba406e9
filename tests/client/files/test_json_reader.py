from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import HsparseError
from hsparse.hdf5.json_reader import JsonReader
from tests.support.characters import CHARACTERS

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(CHARACTERS, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def reader(text: bytes, size: int) -> JsonReader:
    return JsonReader(text[at : at + size] for at in range(0, len(text), size))


def read(found: JsonReader, like: Any) -> Any:
    """Read a value piece by piece where it is an object or array."""
    if isinstance(like, dict):
        return {name: read(found, like[name]) for name in found.members()}
    if isinstance(like, list):
        parts = iter(like)
        return [read(found, next(parts)) for _ in found.items()]
    return found.value()


@given(VALUES, st.integers(1, 12), st.sampled_from([None, 1]), st.booleans())
def test_values(value: Any, size: int, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii).encode()
    assert reader(text, size).value() == value
    assert read(reader(text, size), value) == value


@pytest.mark.parametrize(
    "text",
    [b"", b"[1", b'{"a"', b'{"a":', b'{"a":1', b"[1 2]", b"{1:2", b"\xff", b"nonsense", b'{"a" 1}', b"1"],
)
def test_what_is_none(text: bytes) -> None:
    with pytest.raises(HsparseError, match="not the expected JSON"):
        read_all(reader(text, 3), array=text.startswith(b"["))


def read_all(found: JsonReader, *, array: bool) -> None:
    for _ in found.items() if array else found.members():
        found.value()
