"""Jobs in flight."""

import asyncio

import pytest

from benchmarks.load import Load, drive


async def test_every_job_runs_once_and_no_more_than_the_clients_at_a_time() -> None:
    seen: list[int] = []
    running = most = 0

    async def job(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        seen.append(number)

    load = await drive(job, 20, clients=3)
    assert sorted(seen) == list(range(20))
    assert most == 3
    assert len(load.latencies) == 20
    assert load.seconds >= max(load.latencies)


async def test_a_job_that_fails_ends_the_load() -> None:
    async def job(number: int) -> None:
        if number == 2:
            raise KeyError(number)

    with pytest.raises(ExceptionGroup) as caught:
        await drive(job, 5)
    assert caught.group_contains(KeyError)


def test_rates_and_percentiles() -> None:
    load = Load(2.0, tuple(i / 1000 for i in range(101)))
    assert load.rate == 50.5
    assert load.percentile(50) == pytest.approx(50)
    assert load.percentile(99) == pytest.approx(99)
