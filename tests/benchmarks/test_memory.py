"""The kernel's high marks of a session."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.child import Child
from benchmarks.memory import forget_marks, high_marks

HOLDER = """
import subprocess, sys
block = bytearray(64 * 2**20)
del block
child = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import signal; signal.pause()"])
child.wait()
"""


@pytest.fixture
async def holder(tmp_path: Path) -> AsyncIterator[Child]:
    child = await Child.start([sys.executable, "-c", HOLDER], tmp_path / "holder.log")
    while not child.tail():
        child.check()
        await asyncio.sleep(0.01)
    yield child
    await child.stop()


async def test_a_peak_that_is_over_still_counts_until_forgotten_and_so_do_children(holder: Child) -> None:
    marks = high_marks(holder.pid)
    assert len(marks) == 2
    assert marks[holder.pid] > 64 * 2**20
    assert os.getpid() not in marks
    forget_marks(holder.pid)
    assert high_marks(holder.pid)[holder.pid] < 64 * 2**20
