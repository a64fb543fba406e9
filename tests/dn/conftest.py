"""A store that counts and fails when told to, and threads; no test leaves an error in a cycle with its frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.error_cycles import no_cycles_of_errors
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore


@pytest.fixture(autouse=True)
def _no_cycles() -> Iterator[None]:
    with no_cycles_of_errors():
        yield


@pytest.fixture
def faulty() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def store(faulty: FaultyStore) -> CountingStore:
    return CountingStore(faulty)
