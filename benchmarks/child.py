"""A child process: started in a session of its own, ended with everything it started."""

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
    """A child process did not do what it was started for."""


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
        """Start `argv` with `env` over this process's environment."""
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
        """Raise `ChildFailed`, with the end of its log, when the child is no longer running."""
        if self.process.returncode is not None:
            raise ChildFailed(f"{self.log.stem} ended with {self.process.returncode}: {self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the child's output."""
        return self.log.read_text(errors="replace")[-2000:]

    async def stop(self) -> None:
        """End the child and every process of its session; returns when they are gone."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
        await self.process.wait()
        while self._signal(0):  # noqa: ASYNC110 - nothing tells when a group of others' children is empty
            await asyncio.sleep(0.01)

    def _signal(self, number: int) -> bool:
        """Signal the child's group; tell whether any of it was there."""
        if self.process.returncode is not None and Path(f"/proc/{self.pid}").exists():
            return False  # the child is gone, and its id is another's now
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return False
        return True


async def run(argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command to its end; `ChildFailed`, with the end of its log, unless it returns 0."""
    child = await Child.start(argv, log, env)
    try:
        status = await child.process.wait()
    finally:
        await child.stop()
    if status:
        child.check()


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
