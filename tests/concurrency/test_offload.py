"""Offloading: small work stays on the event loop, large work runs in a thread, and errors come back from both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hsparse.concurrency.offload import ALONE_BYTES, INLINE_BYTES, INLINE_ELEMENTS, OffloadPool, offload


@pytest.fixture
async def pool() -> AsyncIterator[OffloadPool]:
    pool = OffloadPool(2)
    yield pool
    pool.close()


def in_main_thread(expected: bool, *, named: str = "") -> str:
    assert (threading.current_thread() is threading.main_thread()) == expected
    return f"result {named}"


async def check(run: Callable[..., Awaitable[str]], most_inline: int) -> None:
    assert await run(most_inline, in_main_thread, True, named="a") == "result a"
    assert await run(most_inline + 1, in_main_thread, False, named="b") == "result b"
    for work in (most_inline, most_inline + 1):
        with pytest.raises(ZeroDivisionError):
            await run(work, divmod, 1, 0)


async def test_a_pool_takes_work_on_many_bytes(pool: OffloadPool) -> None:
    await check(pool.run, INLINE_BYTES - 1)


@pytest.mark.parametrize(("nbytes", "at_once"), [(ALONE_BYTES - 1, 1), (ALONE_BYTES, 2)])
async def test_small_work_of_a_pool_is_done_one_after_the_other(
    pool: OffloadPool, nbytes: int, at_once: int
) -> None:
    both, submitted = threading.Barrier(at_once), threading.Event()
    running, most = list[None](), list[int]()

    def work() -> None:
        running.append(None)
        submitted.wait(30)
        both.wait(30)
        most.append(len(running))
        both.wait(30)
        running.pop()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(pool.run(nbytes, work))
        await asyncio.sleep(0)
        submitted.set()
    assert max(most) == at_once


async def test_work_on_many_elements_leaves_the_event_loop() -> None:
    await check(offload, INLINE_ELEMENTS)
