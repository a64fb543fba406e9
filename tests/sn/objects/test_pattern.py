"""Patterns of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.sn.objects.pattern import matcher


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="abc", max_size=8))
def test_stars_and_question_marks(pattern: str, name: str) -> None:
    def match(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(match(pattern[1:], name[n:]) for n in range(len(name) + 1))
        return bool(name) and pattern[0] in ("?", name[0]) and match(pattern[1:], name[1:])

    assert matcher(pattern)(name) == (match(pattern, name) or not pattern)


def test_ranges() -> None:
    matches = matcher("f[0-3].h5")
    assert [name for name in ("f0.h5", "f3.h5", "f4.h5", "f.h5") if matches(name)] == ["f0.h5", "f3.h5"]


@pytest.mark.parametrize("pattern", ["[a", "a]", "*" * 300])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadRequest):
        matcher(pattern)
