"""The virtual loop: time that jumps, processes that freeze and die, and ends of what would hang."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.compute import MAX_INLINE_BYTES, compute
from tests.simulation.virtual_loop import Process, Stuck, VirtualLoop, current_process


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(start=0.0)


def test_time_jumps_from_timer_to_timer(loop: VirtualLoop) -> None:
    seen = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    async def main() -> str:
        await asyncio.gather(sleeper("a", 3000), sleeper("b", 0.5), sleeper("c", 0.5), sleeper("d", 0))
        return "done"

    assert loop.run(main()) == "done"
    assert seen == [("d", 0.0), ("b", 0.5), ("c", 0.5), ("a", 3000.0)]


def test_timeouts_are_on_virtual_time(loop: VirtualLoop) -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run(main()) == 30.0


def test_a_timer_that_was_cancelled_takes_no_time(loop: VirtualLoop) -> None:
    async def main() -> float:
        loop.call_later(5, int).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert loop.run(main()) == 1.0


def test_a_deadlock_is_told_with_the_stacks(loop: VirtualLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="waits_for_ever"):
        loop.run(waits_for_ever())


def test_a_busy_loop_is_no_hang(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - an event would not spin
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="spin"):
        loop.run(spin())


def test_a_run_has_a_last_second(loop: VirtualLoop) -> None:
    async def tick() -> None:
        while True:  # noqa: ASYNC110 - a timer is wanted
            await asyncio.sleep(1)

    with pytest.raises(Stuck, match=r"Stuck after 11\.000 s"):
        loop.run(tick(), seconds=10)


def test_what_a_callback_raises_ends_the_run(loop: VirtualLoop) -> None:
    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_tasks_are_of_the_process_that_starts_them(loop: VirtualLoop) -> None:
    async def name() -> str:
        await asyncio.sleep(1)
        process = current_process()
        return "none" if process is None else process.name

    async def both() -> list[str]:
        return list(await asyncio.gather(name(), asyncio.create_task(name())))

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(both(), loop.spawn(Process("p"), both())))

    assert loop.run(main()) == [["none", "none"], ["p", "p"]]


def test_a_frozen_process_misses_its_timers_and_catches_up(loop: VirtualLoop) -> None:
    process, seen = Process("p"), []

    async def ticks() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def main() -> None:
        task = loop.spawn(process, ticks())
        await asyncio.sleep(1.5)
        process.freeze()
        await asyncio.sleep(8.5)
        assert seen == [1.0]
        process.thaw(loop)
        await task

    loop.run(main())
    assert seen == [1.0, 10.0, 11.0]


def test_a_dead_process_runs_nothing_and_others_see_its_end(loop: VirtualLoop) -> None:
    process, seen = Process("p"), []
    process.when_dead.append(lambda: seen.append("closed"))

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("finally")

    async def main() -> None:
        loop.spawn(process, works())
        await asyncio.sleep(0.5)
        process.kill()
        process.kill()
        await asyncio.sleep(10)
        assert seen == ["closed"]

    loop.run(main())


@pytest.mark.parametrize("steps", range(6))
def test_a_process_can_die_at_any_await(loop: VirtualLoop, steps: int) -> None:
    process, seen = Process("p"), []

    async def works() -> None:
        for number in range(5):
            seen.append(number)
            await asyncio.sleep(0)
        seen.append("done")

    async def main() -> None:
        process.kill_after(steps)
        loop.spawn(process, works())
        await asyncio.sleep(1)
        assert seen == [0, 1, 2, 3, 4, "done"][:steps]
        assert process.dead

    loop.run(main())


def test_offloaded_work_runs_inline(loop: VirtualLoop) -> None:

    async def main() -> tuple[int, int]:
        with pytest.raises(ZeroDivisionError):
            await compute(MAX_INLINE_BYTES, lambda: 1 // 0)
        return await compute(MAX_INLINE_BYTES, lambda: 7), await asyncio.to_thread(lambda: 8)

    assert loop.run(main()) == (7, 8)


def test_tasks_that_are_left_are_cancelled(loop: VirtualLoop) -> None:
    seen = []

    async def stays() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.append("cancelled")

    async def main() -> None:
        asyncio.create_task(stays())  # noqa: RUF006 - the loop has it
        await asyncio.sleep(0)

    loop.run(main())
    assert seen == ["cancelled"]
