"""Other tasks run between the items of a long loop."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.concurrency.gather import with_pauses


@pytest.mark.parametrize("length", [0, 5, 6, 7, 20])
async def test_another_task_runs_after_so_many_items(length: int) -> None:
    ran = 0
    ended = False

    async def other() -> None:
        nonlocal ran
        while not ended:
            ran += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    seen = []
    async for item in with_pauses(range(length), 3):
        seen.append((item, ran))
    ended = True
    await task
    assert seen == [(item, item // 3) for item in range(length)]
