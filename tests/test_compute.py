"""Work: small work stays on the event loop, large work runs in a thread, and errors come back from both."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from hsparse.compute import ALONE, INLINE, compute


def in_main_thread(*, named: str) -> tuple[bool, str]:
    return threading.current_thread() is threading.main_thread(), named


@pytest.mark.parametrize(("nbytes", "is_inline"), [(INLINE, True), (INLINE + 1, False), (ALONE, False)])
async def test_work_on_many_bytes_leaves_the_event_loop(nbytes: int, is_inline: bool) -> None:
    assert await compute(nbytes, in_main_thread, named="a") == (is_inline, "a")
    with pytest.raises(ZeroDivisionError):
        await compute(nbytes, divmod, 1, 0)


@pytest.mark.parametrize(("nbytes", "at_once"), [(ALONE - 1, 1), (ALONE, 2)])
async def test_small_work_is_done_one_after_the_other(nbytes: int, at_once: int) -> None:
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
        for _ in range(at_once):
            group.create_task(compute(nbytes, work))
        await asyncio.sleep(0)
        submitted.set()
    assert max(most) == at_once


def test_a_forked_process_has_threads_of_its_own() -> None:
    asyncio.run(compute(ALONE, os.getpid))
    child = os.fork()
    if not child:
        asyncio.set_event_loop(None)
        done = threading.Event()
        threading.Thread(target=lambda: asyncio.run(compute(ALONE, done.set))).start()
        os._exit(0 if done.wait(30) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
