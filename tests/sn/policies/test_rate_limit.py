"""How often a user may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.service import DataService
from hsparse.errors import RateLimited
from hsparse.model.acl import Principal
from hsparse.sn.policies import authentication as rate_limit
from hsparse.sn.policies.authentication import RateLimit
from hsparse.sn.service_settings import ServiceSettings
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


def granted(limit: RateLimit, who: str = "ann") -> bool:
    try:
        limit.take(who)
    except RateLimited:
        return False
    return True


def test_a_burst_then_the_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(2, 5, clock)
    assert [granted(limit) for _ in range(7)] == [True] * 5 + [False] * 2
    assert granted(limit, "bob"), "one user's requests are not another's"
    clock.time += 0.5
    assert [granted(limit) for _ in range(2)] == [True, False]
    clock.time += 1000
    assert [granted(limit) for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_burst_is_ten_seconds_of_the_rate_if_not_said() -> None:
    limit = RateLimit(0.25, 0, ManualClock())
    assert [granted(limit) for _ in range(4)] == [True] * 3 + [False]


def test_what_is_told_is_the_limit_and_when_to_come_again() -> None:
    limit = RateLimit(0.5, 1, ManualClock())
    limit.take("ann")
    with pytest.raises(
        RateLimited, match=r"0\.5 requests a second, 1 at once .* try again in 2 seconds"
    ) as caught:
        limit.take("ann")
    assert caught.value.retry_after == 2


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    clock = ManualClock()
    limit = RateLimit(2, 3, clock)
    start, count = clock.time, 0
    for pause in pauses:
        clock.time += pause
        count += granted(limit)
        assert count <= 3 + 2 * (clock.time - start) + 1e-6


def test_users_are_forgotten_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_BUCKETS", 2)
    limit = RateLimit(1, 1, ManualClock())
    for who in ("a", "b", "a", "c"):
        granted(limit, who)
    assert not granted(limit, "a")
    assert not granted(limit, "c")
    assert granted(limit, "b"), "the one longest not seen"


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    clock = ManualClock()
    node = DataService(MemoryStore(clock=clock), clock)
    settings = ServiceSettings(rate_limit=1, rate_burst=3)
    rest = await RestClient(node, clock, Principal("ann"), Principal("bob"), settings=settings).open()
    yield rest
    await rest.close()
    await node.close()


async def test_over_http(client: RestClient) -> None:
    assert [(await client("GET", "/about")).status for _ in range(3)] == [200] * 3
    reply = await client("GET", "/about")
    assert reply.status == 429
    assert reply.headers["Retry-After"] == "1"
    assert reply["error"]["kind"] == "rate_limited"
    assert "1 requests a second, 3 at once" in reply["error"]["message"]
    assert (await client("GET", "/about", user="bob")).status == 200
    assert [(await client("GET", "/about", user="nobody")).status for _ in range(4)] == [401] * 3 + [429]
    client.user = None
    assert (await client("GET", "/about")).status == 429, "counted by the address, as wrong credentials are"
    clock = client.service.clock
    assert isinstance(clock, ManualClock)
    clock.time += 3
    assert [(await client("GET", "/about")).status for _ in range(4)] == [200] * 3 + [429]
