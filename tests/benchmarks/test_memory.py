"""The kernel's high marks of a session."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from benchmarks import memory
from benchmarks.child import Child
from benchmarks.memory import TooMuchMemory, Watch, high_marks

HOLDER = """
import subprocess, sys
block = bytearray(64 * 2**20)
del block
child = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import signal; signal.pause()"])
child.wait()
"""


@pytest.fixture
async def holder(tmp_path: Path):
    child = await Child.start([sys.executable, "-c", HOLDER], tmp_path / "holder.log")
    while not child.tail():
        child.check()
        await asyncio.sleep(0.01)
    yield child
    await child.stop()


async def test_a_peak_that_is_over_still_counts_and_so_do_children(holder: Child) -> None:
    marks = high_marks(holder.pid)
    assert len(marks) == 2
    assert marks[holder.pid] > 64 * 2**20
    assert os.getpid() not in marks


async def test_a_session_beyond_the_limit_is_refused(holder: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LIMIT", 32 * 2**20)
    with pytest.raises(TooMuchMemory, match="the limit is 32 MiB"):
        await Watch(holder.pid).run()


async def test_a_session_within_the_limit_passes(holder: Child) -> None:
    watch = Watch(holder.pid, stopped=True)
    await watch.run()
    assert 64 * 2**20 < watch.peak < memory.LIMIT
