"""What the machine gives: time, threads, and the memory of it and of containers."""

from __future__ import annotations

import ast
import asyncio
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hsparse import machine_memory as module
from hsparse.clock import BOOT_CLOCK, Clock, SystemClock, steady
from hsparse.compute import MAX_INLINE_BYTES, MIN_THREAD_BYTES, compute
from hsparse.concurrency.gathering import YIELD_EVERY, gather_each, give_way
from hsparse.concurrency.short_calls import ShortCalls
from hsparse.machine_memory import UNKNOWN_MEMORY, machine_memory
from tests.testing.manual_clock import ManualClock

PACKAGE = Path(__file__).parent.parent / "hsparse"


def in_main_thread(*, named: str) -> tuple[bool, str]:
    return threading.current_thread() is threading.main_thread(), named


@pytest.mark.parametrize(
    ("nbytes", "is_inline"),
    [(MAX_INLINE_BYTES, True), (MAX_INLINE_BYTES + 1, False), (MIN_THREAD_BYTES, False)],
)
async def test_work_on_many_bytes_leaves_the_event_loop(nbytes: int, is_inline: bool) -> None:
    assert await compute(nbytes, in_main_thread, named="a") == (is_inline, "a")
    with pytest.raises(ZeroDivisionError):
        await compute(nbytes, divmod, 1, 0)


@pytest.mark.parametrize(("nbytes", "at_once"), [(MIN_THREAD_BYTES - 1, 1), (MIN_THREAD_BYTES, 2)])
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


async def test_one_thread_makes_short_calls_but_dropped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.concurrency.short_calls.CHECK_SECONDS", 3600)
    with ThreadPoolExecutor(3) as pool:
        calls, last, made = ShortCalls(asyncio.get_running_loop(), pool, 3), threading.Event(), list[int]()
        first = asyncio.create_task(calls.call(partial(last.wait, 30)))
        dropped = asyncio.create_task(calls.call(partial(made.append, 1)))
        others = [asyncio.create_task(calls.call(threading.current_thread)) for _ in range(100)]
        await asyncio.sleep(0)
        dropped.cancel()
        last.set()
        assert await first
        assert len(set(await asyncio.gather(*others))) == 1
        assert not made


async def test_calls_that_wait_have_threads_of_their_own() -> None:
    with ThreadPoolExecutor(3) as pool:
        calls, last = ShortCalls(asyncio.get_running_loop(), pool, 3), threading.Event()
        waiting = [asyncio.create_task(calls.call(partial(last.wait, 30))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ZeroDivisionError):
            await calls.call(partial(divmod, 1, 0))
        assert not any(one.done() for one in waiting)
        last.set()
        assert await asyncio.gather(*waiting) == [True, True]


def test_a_forked_process_has_threads_of_its_own() -> None:
    asyncio.run(compute(MIN_THREAD_BYTES, os.getpid))
    child = os.fork()
    if not child:
        asyncio.set_event_loop(None)
        done = threading.Event()
        threading.Thread(target=lambda: asyncio.run(compute(MIN_THREAD_BYTES, done.set))).start()
        os._exit(0 if done.wait(30) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


CALLS = 32
"""The most places that choose a thread: each step of a layer is one, with what follows from it."""


def test_few_places_choose_a_thread() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "from hsparse.compute import" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "compute"
    ]
    assert len(found) <= CALLS, f"Let one of these do it, or do what is short on the event loop: {found}"
    assert len(found) == CALLS, "There are fewer now: lower CALLS."


async def test_many_callers_that_never_wait_make_no_long_turn_of_the_loop() -> None:
    """Other tasks run after some items, however many calls work on items at once."""
    count, seen = 0, [0]

    async def work(item: int) -> int:
        nonlocal count
        count += 1
        return item

    async def other() -> None:
        while True:
            seen.append(count)
            await asyncio.sleep(0)

    beat = asyncio.create_task(other())
    found = await asyncio.gather(*(gather_each(work, range(200), 32) for _ in range(16)))
    beat.cancel()
    assert found == [list(range(200))] * 16
    turns = [after - before for before, after in itertools.pairwise(seen)]
    # each call begins at once, with one of its workers
    assert sorted(turns)[-2:][0] <= 2 * YIELD_EVERY
    assert max(turns) <= 16 * YIELD_EVERY


async def test_a_task_that_is_cancelled_while_it_gives_way_holds_up_no_other() -> None:
    tasks = [asyncio.create_task(give_way()) for _ in range(9)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, False] * 4 + [True]
    await give_way()


@pytest.mark.parametrize("source", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_tokens_have_their_length_and_differ(source: Clock) -> None:
    for nbytes in (1, 8, 16, 40):
        first, second = source.token(nbytes), source.token(nbytes)
        assert len(first) == len(second) == nbytes
        assert nbytes == 1 or first != second


def test_the_system_clock_is_the_machine_s() -> None:
    system = SystemClock()
    assert time.time() <= system.now() <= time.time()
    first = system.monotonic()
    assert system.monotonic() >= first


@pytest.mark.skipif(BOOT_CLOCK is None, reason="this system has no clock that goes on while it is suspended")
def test_the_monotonic_clock_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_without_a_clock_of_the_time_since_boot_another_one_is_read() -> None:
    assert time.monotonic() <= steady(None)() <= time.monotonic()


def test_a_manual_clock_stands_still_until_it_is_set() -> None:
    manual = ManualClock(5.0)
    assert (manual.now(), manual.monotonic()) == (5.0, 5.0)
    manual.time += 2
    assert (manual.now(), manual.monotonic()) == (7.0, 7.0)


PHYSICAL = 4096 * 3_000_000


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 3_000_000}
    monkeypatch.setattr(module.os, "sysconf", sizes.__getitem__)


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    assert machine_memory(tmp_path) == PHYSICAL


def test_a_machine_that_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(module.os, "sysconf", unknown)
    assert machine_memory(tmp_path) == UNKNOWN_MEMORY


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a/b", {"a/b/memory.max": "1000"}, 1000),
        ("0::/a/b", {"a/b/memory.max": "max"}, PHYSICAL),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "500"}, 500),
        ("0::/", {"memory.max": "700"}, 700),
        ("0::/of/the/host", {"memory.max": "700"}, 700),
        ("8:pids:/\n4:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": "900"}, 900),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, PHYSICAL),
    ],
)
def test_the_limit_of_a_cgroup_counts(tmp_path: Path, own: str, files: dict[str, str], expected: int) -> None:
    put(tmp_path, {"proc/self/cgroup": own} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert machine_memory(tmp_path) == expected
