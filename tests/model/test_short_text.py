"""The beginning of a value in an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.short_text import LENGTH, short_repr
from tests.support.characters import CHARACTERS

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats()
    | st.text(CHARACTERS)
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner),
)


@given(JSON)
def test_a_short_value_is_whole_and_a_long_one_begins_alike(value: Any) -> None:
    found = short_repr(value)
    assert len(found) <= LENGTH
    if len(repr(value)) <= LENGTH // 2 and repr(value).count("[") + repr(value).count("{") <= 3:
        assert found == repr(value)


class Watched(list[Any]):
    """A list that counts how many of its items are looked at."""

    looked = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            Watched.looked += 1
            yield item


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        b"x" * 10**6,
        ["x" * 10**6] * 1000,
        dict.fromkeys(range(100_000)),
        [[[[[["x" * 1000] * 1000] * 1000] * 1000] * 1000]],
    ],
    ids=["text", "bytes", "list", "dict", "nested"],
)
def test_of_a_long_value_the_beginning(value: Any) -> None:
    assert len(short_repr(value)) <= LENGTH
    assert short_repr(value).endswith("...") or "..." in short_repr(value)


def test_a_long_list_is_not_looked_through() -> None:
    short_repr(Watched(range(100_000)))
    assert Watched.looked < 100
