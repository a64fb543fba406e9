"""A cache bounded by the length of its texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.short_text import ENTRY_SIZE, TextCache

CALLS = st.lists(st.tuples(st.integers(0, 12), st.booleans()))


@given(CALLS, st.integers(1, 6))
def test_results_are_right_and_texts_bounded(calls: list[tuple[int, bool]], entries: int) -> None:
    made = []

    def double(text: str, reverse: bool) -> str:
        made.append(text)
        return (text * 2)[::-1] if reverse else text * 2

    limit = entries * (ENTRY_SIZE + 8)
    cache = TextCache(double, limit, largest=8)
    for length, reverse in calls:
        text = "ab" * length
        assert cache(text, reverse) == double(text, reverse)
        made.pop()
        assert cache.size <= limit
        before = len(made)
        cache(text, reverse)
        assert (len(made) == before) == (len(text) <= 8), "the latest is remembered, unless it is long"
    assert len(cache) <= entries


def test_an_error_is_not_remembered() -> None:
    cache = TextCache(int, 10 * ENTRY_SIZE, largest=10)
    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            cache("x")
    assert (len(cache), cache.size) == (0, 0)
