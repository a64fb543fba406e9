"""A child process that is started in a session of its own, and stopped with all processes that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.failure import Failed

GRACE = 15.0  # seconds between SIGTERM and SIGKILL


class ChildFailed(Failed):
    """A child process ended early or with an error."""


@dataclass(slots=True)
class Child:
    """A running child; its output goes to `log`."""

    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @classmethod
    async def start(
        cls, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> Child:
        """Start `argv` with the environment of this process, updated by `env`."""
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *map(str, argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **(env or {})},
                cwd=log.parent,
                start_new_session=True,
            )
        return cls(process, log)

    def check(self) -> None:
        """Raise `ChildFailed` with the end of the child's log if the child is no longer running."""
        if self.process.returncode is not None:
            raise ChildFailed(f"{self.log.stem} ended with {self.process.returncode}: {self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the child's output."""
        return self.log.read_text(errors="replace")[-2000:]

    async def stop(self) -> None:
        """Stop the child and every process of its session; return when they have ended."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
        await self.process.wait()
        while self._signal(0):  # noqa: ASYNC110 - the end of a process group cannot be awaited
            await asyncio.sleep(0.01)

    def _signal(self, number: int) -> bool:
        """Send a signal to the child's process group; return False if the group has no process any more."""
        if self.process.returncode is not None and Path(f"/proc/{self.pid}").exists():
            return False  # the child has ended, and another process has its id
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


async def run(argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command to its end; raise `ChildFailed` with the end of its log unless it exits with 0."""
    child = await Child.start(argv, log, env)
    try:
        status = await child.process.wait()
    finally:
        await child.stop()
    if status:
        child.check()


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
