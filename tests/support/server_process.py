"""`hsparse serve` as a process of its own: what a user runs, for tests with real clients and real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server: its URL, and its process."""

    url: str
    process: subprocess.Popen[str]

    @property
    def data_nodes(self) -> list[int]:
        """Return the process ids of its data nodes."""
        return children_of(self.process.pid)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Stop it as Ctrl-C does; return its exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_SECONDS)


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def server_process(*flags: str, log: Path | None = None, **variables: str) -> Iterator[ServerProcess]:
    """Run `hsparse serve --port 0` with `flags`, and environment variables, while the context lasts.

    What it logs goes to the file `log`, if there is one, else to where this process's standard error goes.
    """
    with nullcontext() if log is None else log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hsparse.cli.main", "serve", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **variables},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if " on http" not in line:
            raise RuntimeError(f"The server did not start; it printed {line!r} and ended {process.wait(5)}.")
        yield ServerProcess(line.rpartition(" on ")[2].split()[0], process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_SECONDS)
        process.stdout.close()
