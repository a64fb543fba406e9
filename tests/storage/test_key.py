from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.storage.key import check_key, is_key
from hsparse.testing.store_conformance import BAD_KEYS, GOOD_KEYS


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_good_keys(key: str) -> None:
    assert check_key(key) == key
    assert is_key(key)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_keys(key: str) -> None:
    with pytest.raises(BadRequest):
        check_key(key)
    assert not is_key(key)


@given(st.text(st.sampled_from("ab./\\\0\n~é"), max_size=12))
def test_a_good_key_stays_inside_its_root(key: str) -> None:
    if is_key(key):
        path = PurePosixPath("root") / key
        assert path.parts[0] == "root"
        assert ".." not in path.parts
        assert str(path) == f"root/{key}"  # one file has one key
        assert key.encode().decode() == key


def test_limits() -> None:
    assert is_key("/".join(["x" * 255] * 4))
    assert not is_key("/".join(["x" * 255] * 4) + "/yy")
    assert is_key("é" * 127)
    assert not is_key("é" * 128)
