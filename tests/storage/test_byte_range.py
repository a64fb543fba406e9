from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.storage.byte_range import check_range, resolve_range


@given(st.binary(max_size=20), st.integers(-25, 25), st.none() | st.integers(-2, 30))
def test_agrees_with_slicing(data: bytes, start: int, length: int | None) -> None:
    suffix = start < 0
    expected = data[start:] if suffix else data[start:][:length]
    bad = (
        not data[start:]
        or (length is not None and length < 1)
        or (suffix and length is not None and length < -start)
    )
    if bad:
        with pytest.raises(BadRequest, match="key"):
            resolve_range("key", start, length, len(data))
        return
    first, count = resolve_range("key", start, length, len(data))
    assert data[first : first + count] == expected
    assert count == len(expected)
    check_range("key", start, length)


def test_what_no_object_has_is_refused_without_its_size() -> None:
    for start, length in [(0, 0), (0, -1), (-5, 4)]:
        with pytest.raises(BadRequest):
            check_range("key", start, length)
