"""`hsparse.aio`: results are those of the client, requests are bounded, and cancelled calls disturb no other one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import hsparse
from hsparse import aio
from tests.client.conftest import NUMBERS

WAIT = 30


@pytest.fixture
def address(embedded_url: str) -> str:
    return f"{embedded_url}/aio-{next(NUMBERS)}.h5"


async def test_a_domain_is_written_and_read(address: str) -> None:
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncGroup)
        group = await file.create_group("run")
        x = await group.create_sparse("x", (10, 10), "f4", (5, 5), max_shape=(None, 10))
        await x.write([[1, 2], [9, 9]], [3, 4])
        await x.write_region((2, slice(0, 2)), 5)
        assert await x.append([[0, 0]], [6], count=2) == slice(10, 12)
        assert await x.extend(1) == slice(12, 13)
        assert (x.shape, x.dtype, x.chunks) == ((13, 10), np.dtype("f4"), (5, 5))
        y = await file.create_dataset("y", data=[1, 2, 3])
        await y.setitem(slice(1, 3), 7)
        assert await file.attrs() == {}
    async with aio.open(address) as file:
        assert await file.keys() == ["run", "y"]
        x = await file.getitem("run/x")
        assert "async" in repr(x)
        coords, values = await x.read()
        assert len(coords) == len(values) == await x.count() == 5
        assert len(await x.defined((2, slice(None)))) == 2
        assert (await x.read_points([[9, 9], [0, 0]])).tolist() == [4, 0]
        await x.erase((slice(0, 5), slice(None)))
        assert (await x.read_dense())[9, 9] == (await x.getitem((9, 9))) == 4
        await x.setitem((8, slice(None)), (await x.getitem(slice(9, 10))))
        assert (await x.to_scipy("csc")).nnz == (await x.to_coo(slice(8, 10))).nnz + 1 == 3
        assert (await x.to_numpy(8)).tolist() == [0] * 9 + [4]
        await x.resize((8, 10), erase=True)
        assert await x.refresh() == (8, 10)
        assert await x.count() == 0
        assert await x.run(x.sync.storage) is not None
        assert (await (await file.getitem("y")).getitem(...)).tolist() == [1, 7, 7]
        with pytest.raises(KeyError):
            await file.getitem("none")


async def test_a_folder(address: str) -> None:
    url, _, name = address.rpartition("/")
    hsparse.open(address, "x")
    async with aio.open(url) as folder:
        assert isinstance(folder, aio.AsyncFolder)
        assert name in await folder.keys()
        assert isinstance(await folder.getitem(name), aio.AsyncGroup)


class Gate:
    """A call that waits for `opened`, and counts how many wait."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Semaphore(0)
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def pass_through(self, result: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self.opened.wait(WAIT)
        with self._lock:
            self.inside -= 1
        return result


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, timeout=WAIT)


async def test_no_more_calls_than_requests_are_under_way(address: str) -> None:
    gate = Gate()
    async with aio.open(address, "x", requests=3) as file:
        calls = [asyncio.create_task(file.run(gate.pass_through, number)) for number in range(10)]
        for _ in range(3):
            await entered(gate)
        gate.opened.set()
        assert await asyncio.gather(*calls) == list(range(10))
    assert gate.most == 3


async def test_a_cancelled_call_disturbs_no_other(address: str) -> None:
    gate, sent = Gate(), []
    async with aio.open(address, "x", requests=1) as file:
        await file.create_dataset("y", data=np.arange(5))
        y = await file.getitem("y")
        begun = asyncio.create_task(file.run(gate.pass_through, 1))
        await entered(gate)
        waiting = asyncio.create_task(file.run(sent.append, 1))
        await asyncio.sleep(0)  # it is queued now
        for call in (begun, waiting):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        gate.opened.set()
        assert (await y.getitem(slice(1, 3))).tolist() == [1, 2]
        assert gate.inside == 0
        assert sent == []


async def test_many_reads_cancelled_at_any_time_leave_right_answers(address: str) -> None:
    async with aio.open(address, "x", requests=4) as file:
        x = await file.create_sparse("x", (200, 4), "i4", (10, 4))
        await x.write([[row, row % 4] for row in range(200)], np.arange(200))
        reads = [asyncio.create_task(x.read(f"[{row},:]")) for row in range(120)]
        await reads[5]
        for read in reads[::3]:
            read.cancel()
        found = await asyncio.gather(*reads, return_exceptions=True)
    answers = {row: one for row, one in enumerate(found) if not isinstance(one, asyncio.CancelledError)}
    assert len(answers) >= 80
    for row, (coords, values) in answers.items():  # type: ignore[misc]
        assert (coords.tolist(), values.tolist()) == ([[row, row % 4]], [row])


async def test_an_error_of_opening_is_raised(address: str) -> None:
    with pytest.raises(KeyError):
        async with aio.open(address):
            pass
