"""Puts in processes of their own: the whole contract, and what happens when one of them dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import PreconditionFailed, StoreFailed
from hsparse.storage.posix import PosixStore
from hsparse.storage.put_processes import (
    MOST,
    Condition,
    PutProcesses,
    decode_put,
    decode_reply,
    encode_put,
    encode_reply,
)
from hsparse.testing.store_conformance import *  # noqa: F403


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PosixStore]:
    made = PosixStore(tmp_path / "root", fsync=False, processes=2, page_size=PAGE_SIZE)  # noqa: F405
    yield made
    await made.close()


@given(st.integers(0, 2**64 - 1), st.sampled_from(Condition), st.text(), st.text(), st.binary())
def test_messages_come_back(number: int, condition: Condition, key: str, etag: str, data: bytes) -> None:
    try:
        key.encode(), etag.encode()
    except UnicodeEncodeError:
        return
    *head, got = decode_put(encode_put(number, condition, key, etag, data))
    assert (head, bytes(got)) == ([number, condition, key, etag], data)


def test_replies_come_back() -> None:
    assert decode_reply(encode_reply(7, "etag")) == (7, "etag")
    number, error = decode_reply(encode_reply(8, PreconditionFailed("It was changed.")))
    assert number == 8
    assert isinstance(error, PreconditionFailed)
    assert error.message == "It was changed."


async def test_many_puts_at_once_and_a_large_one(store: PosixStore) -> None:
    datas = {f"a/{i}": bytes([i % 256]) * (i * 700) for i in range(150)}
    assert max(map(len, datas.values())) > MOST
    await asyncio.gather(*(store.put(key, data) for key, data in datas.items()))
    for key, data in datas.items():
        assert (await store.get(key)).data == data


async def test_one_that_is_killed_fails_its_puts_alone(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    processes = PutProcesses(str(tmp_path / "root"), 1, fsync=False)
    await processes.put("a", Condition.NONE, "", b"1")
    (pid,) = processes.pids
    os.kill(pid, signal.SIGSTOP)
    waiting = [asyncio.create_task(processes.put(f"b{i}", Condition.NONE, "", b"2")) for i in range(3)]
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    assert {type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {StoreFailed}
    with pytest.raises(PreconditionFailed):
        await processes.put("a", Condition.ABSENT, "", b"3")
    assert processes.pids != [pid]
    await processes.close()


async def test_ctrl_c_is_left_to_the_server(store: PosixStore) -> None:
    await store.put("a", b"1")
    assert store._processes is not None
    for pid in store._processes.pids:
        os.kill(pid, signal.SIGINT)
    await store.put("a", b"2")
    assert (await store.get("a")).data == b"2"


async def test_closing_ends_them(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, fsync=False, processes=2)
    await store.put("a", b"1")
    assert store._processes is not None
    pids = store._processes.pids
    assert len(pids) == 2
    await store.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_caller_that_goes_away_changes_nothing_for_others(store: PosixStore) -> None:
    tasks = [asyncio.create_task(store.put(f"k{i}", b"x")) for i in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for i in range(1, 20, 2):
        assert (await store.get(f"k{i}")).data == b"x"
