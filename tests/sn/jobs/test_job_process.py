"""The process of a job: what it is given, what it tells, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hsparse.errors import Conflict, HsparseError, TooLarge
from hsparse.hdf5.jobs import handlers
from hsparse.hdf5.jobs.job_run import (
    LONGEST_MESSAGE,
    MAX_MESSAGES,
    JobCommand,
    JobProcess,
    Progress,
    limit_memory,
)


def process(command: JobCommand, domain: str, header: str | None = "Bearer abc") -> JobProcess:
    return JobProcess(command, ("import", domain), header)


async def heard_once(made: JobProcess) -> asyncio.Task[None]:
    """Begin a process and wait until it has told something."""
    heard = asyncio.Event()
    task = asyncio.create_task(made.run(heard.set))
    await heard.wait()
    return task


def place_in_line(pid: int) -> int:
    """Return what Linux goes by when it must end a process for its memory; the largest is 1000."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_the_header_goes_through_the_pipe(command: JobCommand) -> None:
    made = process(command, "/a")
    await made.run()
    assert made.progress == Progress(10, 10, ["Bearer abc: import /a"])
    assert "abc" not in repr(made)
    assert "PATH" not in repr(replace(command, environment={"PATH": "/bin"}))
    nobody = process(command, "/a", None)
    await nobody.run()
    assert nobody.progress.messages == [": import /a"]


async def test_what_it_tells_is_raised(command: JobCommand) -> None:
    with pytest.raises(Conflict, match=r"It is there\."):
        await process(command, "/fail").run()
    with pytest.raises(HsparseError, match="status 3"):
        await process(command, "/crash").run()
    with pytest.raises(HsparseError, match="cannot be started"):
        await process(replace(command, prefix=("/no/such/program",)), "/a").run()


async def test_it_is_interrupted_by_the_end_of_its_input(command: JobCommand) -> None:
    made = process(command, "/hold")
    task = await heard_once(made)
    made.stop()
    made.stop()
    with pytest.raises(HsparseError, match="status 130"):
        await task
    made.stop()


async def test_one_that_is_stopped_before_it_runs_ends_at_once(command: JobCommand) -> None:
    made = process(command, "/hold")
    made.stop()
    with pytest.raises(HsparseError, match="status 130"):
        await made.run()


async def test_nothing_is_left_when_it_is_waited_for_no_longer(command: JobCommand) -> None:
    made = process(command, "/stubborn")
    task = await heard_once(made)
    running = made._process
    assert running is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(running.pid, 0)


def test_what_is_kept_of_what_it_tells_is_bounded() -> None:
    progress = Progress()
    for number in range(MAX_MESSAGES + 5):
        progress.parse_line(json.dumps({"message": f"{number}" * 10_000}).encode())
    assert len(progress.messages) == MAX_MESSAGES
    assert max(map(len, progress.messages)) == LONGEST_MESSAGE
    for line in (b"", b"x", b"[]", b"{}", b'{"done": 1.5, "total": 2}', b'{"error": "x"}', b"\xff"):
        progress.parse_line(line)
    assert (progress.done, progress.total, progress.failure) == (0, None, None)


async def test_one_that_takes_too_long_is_stopped(command: JobCommand) -> None:
    made = process(replace(command, seconds=0.01), "/hold")
    with pytest.raises(TooLarge, match="job_time"):
        await made.run()


@pytest.mark.parametrize(
    ("hard", "most", "limit"), [(2 << 30, 3 << 30, 2 << 30), (4 << 30, 3 << 30, 3 << 30)]
)
def test_a_limit_is_below_that_of_the_server(hard: int, most: int, limit: int) -> None:
    """As under `ulimit -v`: who is not root cannot raise it."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        resource.prlimit(child.pid, resource.RLIMIT_AS, (hard, hard))
        limit_memory(child.pid, most)
        assert resource.prlimit(child.pid, resource.RLIMIT_AS) == (limit, limit)


@pytest.mark.parametrize(
    ("machine", "most", "found"),
    [
        (64 << 30, 16 << 30, 16 << 30),
        (8 << 30, 16 << 30, 6 << 30),
        (1 << 30, 16 << 30, 2 << 30),
        (8 << 30, 0, 0),
    ],
)
def test_it_has_no_more_than_the_machine_can_spare(
    monkeypatch: pytest.MonkeyPatch, machine: int, most: int, found: int
) -> None:
    monkeypatch.setattr(handlers, "machine_memory", lambda: machine)
    assert handlers.address_space(most) == found


async def test_it_ends_before_the_server_where_all_memory_is_taken(command: JobCommand) -> None:
    made = process(command, "/hold")
    task = await heard_once(made)
    assert made._process is not None
    assert place_in_line(made._process.pid) == 1000
    made.stop()
    with pytest.raises(HsparseError):
        await task


async def test_one_that_takes_too_much_memory_fails(command: JobCommand) -> None:
    made = process(replace(command, memory=1 << 30), "/greedy")
    with pytest.raises(HsparseError, match="job_memory"):
        await made.run()
    await process(command, "/greedy").run()
