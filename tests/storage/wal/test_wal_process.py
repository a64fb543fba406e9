"""Puts in a process, through a log: the whole contract, and what happens when the process dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hsparse.errors import PreconditionFailed, StoreFailed
from hsparse.storage.posix import PosixStore
from hsparse.storage.wal.wal_process import MAX_LOGGED_SIZE
from tests.testing.store_conformance import *  # noqa: F403


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PosixStore]:
    made = PosixStore(tmp_path / "root", wal=True, page_size=PAGE_SIZE)  # noqa: F405
    yield made
    await made.close()


def pid_of(store: PosixStore) -> int:
    assert store._process is not None
    assert store._process.pid is not None
    return store._process.pid


async def test_many_puts_at_once_and_large_ones(store: PosixStore) -> None:
    datas = {f"a/{i}": bytes([i % 256]) * (i * 1400) for i in range(150)}
    assert max(map(len, datas.values())) > MAX_LOGGED_SIZE
    await asyncio.gather(*(store.put(key, data) for key, data in datas.items()))
    for key, data in datas.items():
        assert (await store.get(key)).data == data


async def test_more_than_the_socket_takes_at_once(store: PosixStore) -> None:
    datas = {f"a/{i}": os.urandom(MAX_LOGGED_SIZE) for i in range(40)}
    await asyncio.gather(*(store.put(key, data) for key, data in datas.items()))
    for key, data in datas.items():
        assert (await store.get(key)).data == data


async def test_one_that_is_killed_fails_its_puts_alone(store: PosixStore) -> None:
    await store.put("a", b"1")
    pid = pid_of(store)
    os.kill(pid, signal.SIGSTOP)
    waiting = [asyncio.create_task(store.put(f"b{i}", b"2")) for i in range(3)]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert {type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {StoreFailed}
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("a", b"3")
    assert pid_of(store) != pid
    assert (await store.get("a")).data == b"1"


async def test_ctrl_c_is_left_to_the_server(store: PosixStore) -> None:
    await store.put("a", b"1")
    os.kill(pid_of(store), signal.SIGINT)
    await store.put("a", b"2")
    assert (await store.get("a")).data == b"2"


async def test_closing_ends_it_and_leaves_no_log(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, wal=True)
    await store.put("a", b"1")
    pid = pid_of(store)
    assert list((tmp_path / ".hsparse" / "puts").iterdir())
    await store.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not list((tmp_path / ".hsparse" / "puts").iterdir())


async def test_closing_waits_for_what_was_not_yet_sent(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, wal=True)
    tasks = [asyncio.create_task(store.put(f"k{i}", bytes(MAX_LOGGED_SIZE))) for i in range(40)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*tasks)) == 40


async def test_a_caller_that_goes_away_changes_nothing_for_others(store: PosixStore) -> None:
    tasks = [asyncio.create_task(store.put(f"k{i}", b"x")) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for i in range(1, 20, 2):
        assert (await store.get(f"k{i}")).data == b"x"


async def test_an_etag_of_any_length_is_compared(store: PosixStore) -> None:
    await store.put("a", b"1")
    for etag in ("e" * 70_000, "é", "\ud800"):
        with pytest.raises(PreconditionFailed):
            await store.put_if_match("a", b"2", etag)


async def test_what_cannot_be_sent_does_not_hold_up_the_end(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, wal=True)
    await store.put("a", b"1")
    with pytest.raises(TypeError):
        await store.put("a", memoryview(b"abcd")[::2])
    await store.close()


async def test_callers_that_have_gone_leave_no_socket(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, wal=True)
    await store.put("a", b"1")
    assert store._process is not None
    worker = store._process._worker
    assert worker is not None
    descriptor = worker.socket.fileno()
    os.kill(pid_of(store), signal.SIGSTOP)
    tasks = [asyncio.create_task(store.put(f"k{i}", bytes(MAX_LOGGED_SIZE))) for i in range(40)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    os.kill(pid_of(store), signal.SIGCONT)
    await store.close()
    assert not asyncio.get_running_loop().remove_writer(descriptor)


async def test_one_that_cannot_be_started(store: PosixStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", fail)
        with pytest.raises(StoreFailed, match="temporarily unavailable"):
            await store.put("a", b"1")
    await store.put("a", b"1")


async def test_what_one_that_was_killed_has_left_is_recovered_by_the_next(
    store: PosixStore, tmp_path: Path
) -> None:
    for _ in range(3):
        await store.put("a", b"1")
        process = store._process
        assert process is not None
        assert process._worker is not None
        process._worker.process.kill()
        process._worker.process.wait()
        process._worker._receive()
    await store.put("a", b"1")
    assert len(list((tmp_path / "root" / ".hsparse" / "puts").iterdir())) == 1


async def test_a_slow_death_is_not_waited_for(store: PosixStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("a", b"1")
    assert store._process is not None
    worker = store._process._worker
    assert worker is not None
    died = threading.Event()
    wait = worker.process.wait

    def wait_long(timeout: float | None = None) -> int:
        assert threading.current_thread() is not threading.main_thread()
        died.wait()
        return wait(timeout)

    monkeypatch.setattr(worker.process, "wait", wait_long)
    worker._lose()
    await store.put("a", b"2")
    died.set()
