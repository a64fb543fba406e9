"""The conformance suite over every store, and over every wrapper of one."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.storage.object_store import ObjectStore
from hsparse.storage.single_writer import SingleWriter
from hsparse.testing.counting_store import CountingStore
from hsparse.testing.faulty_store import FaultyStore
from hsparse.testing.slow_store import SlowStore
from hsparse.testing.store_conformance import *  # noqa: F403
from hsparse.testing.store_conformance import PAGE_SIZE
from tests.conftest import MakeStore

WRAPPERS = {
    "counting": CountingStore,
    "faulty": FaultyStore,
    "single_writer": SingleWriter,
    "slow": lambda store: SlowStore(store, lambda method, key: asyncio.sleep(0)),
}


@pytest.fixture(params=["memory", "posix", "s3", *WRAPPERS])
async def store(request: pytest.FixtureRequest, make_store: MakeStore) -> ObjectStore:
    if request.param in WRAPPERS:
        return WRAPPERS[request.param](await make_store("memory", PAGE_SIZE))
    return await make_store(request.param, PAGE_SIZE)
