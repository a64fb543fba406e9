"""Children end with everything they started."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from benchmarks.child import Child, ChildFailed, free_port, run

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
child.wait()
"""


def state(pid: int) -> str:
    """Return a process's state letter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


async def test_stopping_a_child_ends_its_own_children(tmp_path: Path) -> None:
    child = await Child.start([sys.executable, "-c", PARENT], tmp_path / "parent.log")
    while not (text := child.tail()).endswith("\n"):
        child.check()
        await asyncio.sleep(0.01)
    await child.stop()
    assert child.process.returncode is not None
    assert state(int(text)) == "gone"


async def test_a_child_that_ended_is_found_with_its_last_words(tmp_path: Path) -> None:
    child = await Child.start([sys.executable, "-c", "print('farewell'); exit(3)"], tmp_path / "brief.log")
    await child.process.wait()
    with pytest.raises(ChildFailed, match=r"brief ended with 3: farewell"):
        child.check()
    await child.stop()


async def test_a_child_gets_the_environment_it_is_given(tmp_path: Path) -> None:
    code = "import os; print(os.environ['MARK'], os.environ['PATH'])"
    child = await Child.start([sys.executable, "-c", code], tmp_path / "env.log", {"MARK": "x"})
    await child.process.wait()
    assert child.tail() == f"x {os.environ['PATH']}\n"


async def test_a_command_is_run_to_its_end_and_must_succeed(tmp_path: Path) -> None:
    await run([sys.executable, "-c", "print('done')"], tmp_path / "sound.log")
    assert (tmp_path / "sound.log").read_text() == "done\n"
    with pytest.raises(ChildFailed, match=r"broken ended with 1: .*no such thing"):
        await run([sys.executable, "-c", "exit('no such thing')"], tmp_path / "broken.log")


def test_a_free_port_can_be_bound() -> None:
    assert 1024 <= free_port() < 65536
