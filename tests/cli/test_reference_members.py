"""References read member by member, however the blocks are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.cli.reference_members import ReferenceMembers
from hsparse.errors import HsparseError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), JSON),
    st.dictionaries(st.text().filter(lambda name: name != "refs"), JSON, max_size=3),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_cut(refs: dict[str, object], others: dict[str, object], size: int, indent: int | None) -> None:
    data = json.dumps({**others, "refs": refs}, ensure_ascii=False, indent=indent).encode(errors="replace")
    told = json.loads(data)
    members = ReferenceMembers(data[start : start + size] for start in range(0, len(data), size))
    assert dict(members) == told["refs"]
    assert members.others == {name: value for name, value in told.items() if name != "refs"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"refs"',
        b'{"refs": {"a": [1, 2',
        b'{"refs": {"a": 1}',
        b'{"refs": {"a" 1}}',
        b'{"a": nul}',
        b'{"refs": {"\xff": 1}}',
    ],
)
def test_what_is_no_such_json(data: bytes) -> None:
    with pytest.raises(HsparseError):
        list(ReferenceMembers([data]))
