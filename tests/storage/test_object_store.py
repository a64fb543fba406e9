"""The conformance suite over every store and every wrapper of one; the rules for keys and ranges."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.storage.conditional_put import LookBeforeDelete, SingleWriter, with_conditional_delete
from hsparse.storage.object_store import ObjectStore, check_key, check_range, is_key, resolve_range
from tests.conftest import MakeStore
from tests.support.azurite import PROGRAMS
from tests.testing.faulty_store import FaultyStore
from tests.testing.store_conformance import *  # noqa: F403
from tests.testing.store_conformance import BAD_KEYS, GOOD_KEYS, PAGE_SIZE
from tests.testing.store_wrapper import CountingStore, SlowStore

WRAPPERS = {
    "counting": CountingStore,
    "faulty": FaultyStore,
    "look_before_delete": LookBeforeDelete,
    "single_writer": SingleWriter,
    "slow": lambda store: SlowStore(store, lambda method, key: asyncio.sleep(0)),
}


AZURE = pytest.param("azure", marks=pytest.mark.needs(*PROGRAMS))
NO_CONDITION = {"test_no_update_is_lost_to_a_delete": "obstore has no conditional delete"}
UTF_16 = "Azurite lists by UTF-16; see test_obstore_store.py for other keys"
CLOUDS_CANNOT = {
    "azure": NO_CONDITION | dict.fromkeys(("test_list_order", "test_list_prefix_and_start"), UTF_16),
    "google": NO_CONDITION,
}


@pytest.fixture(params=["memory", "posix", "s3", AZURE, "google", *WRAPPERS])
async def store(request: pytest.FixtureRequest, make_store: MakeStore) -> ObjectStore:
    if request.param in CLOUDS_CANNOT:
        if (reason := CLOUDS_CANNOT[request.param].get(request.node.originalname)) is not None:
            pytest.xfail(reason)
        return await with_conditional_delete(await make_store(request.param, PAGE_SIZE))
    if request.param in WRAPPERS:
        return WRAPPERS[request.param](await make_store("memory", PAGE_SIZE))
    return await make_store(request.param, PAGE_SIZE)


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_check_key_accepts_good_keys(key: str) -> None:
    assert check_key(key) == key
    assert is_key(key)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_check_key_refuses_bad_keys(key: str) -> None:
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


def test_limits_of_keys() -> None:
    assert is_key("/".join(["x" * 255] * 4))
    assert not is_key("/".join(["x" * 255] * 4) + "/yy")
    assert is_key("é" * 127)
    assert not is_key("é" * 128)


@given(st.binary(max_size=20), st.integers(-25, 25), st.none() | st.integers(-2, 30))
def test_resolve_range_agrees_with_slicing(data: bytes, start: int, length: int | None) -> None:
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
