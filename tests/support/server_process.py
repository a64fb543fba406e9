"""`hsparse serve` as a process of its own: what a user runs, for tests with real clients and real signals.

It is forked from a process that has imported the command already, for half of a start is the imports. The command as it
is typed is started in tests/cli/test_serve.py.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TextIO

from hsparse.cli.main import main

STOP_SECONDS = 20
CLONE_NEWNET = 0x40000000  # <linux/sched.h>; os.setns is new in Python 3.12
STARTS = get_context("forkserver")
STARTS.set_forkserver_preload([__name__, "hsparse.cli.serve"])


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server: its URL, and its process."""

    url: str
    process: ForkServerProcess

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def data_nodes(self) -> list[int]:
        """Return the process ids of its data nodes."""
        return children_of(self.pid)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self.process.kill()
        _ended(self.process)

    def stop(self) -> int:
        """Stop it as Ctrl-C does; return its exit status."""
        os.kill(self.pid, signal.SIGINT)
        return _ended(self.process)


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def server_process(*flags: str, log: Path | None = None, **variables: str) -> Iterator[ServerProcess]:
    """Run `hsparse serve --port 0` with `flags`, and environment variables, while the context lasts.

    What it logs goes to the file `log`, if there is one, else to where this process's standard error goes.
    """
    if log is not None:
        log.write_bytes(b"")
    process, lines = start_command(("serve", "--port", "0", *flags), log, "", variables)
    with lines:
        try:
            line = lines.readline()
            if " on http" not in line:
                raise RuntimeError(
                    f"The server did not start; it printed {line!r} and ended {_ended(process)}."
                )
            yield ServerProcess(line.rpartition(" on ")[2].split()[0], process)
        finally:
            process.kill()
            _ended(process)


def ended_command(*arguments: str, log: Path, **variables: str) -> tuple[int, str]:
    """Run `hsparse` with `arguments` and environment variables; return its exit status and what it logs, by `log`."""
    log.write_bytes(b"")
    process, lines = start_command(arguments, log, "", variables)
    with lines:
        try:
            status = _ended(process)
        finally:
            process.kill()
            _ended(process)
    return status, log.read_text()


def start_command(
    arguments: tuple[str, ...], log: Path | None, namespace: str, variables: dict[str, str]
) -> tuple[ForkServerProcess, TextIO]:
    """Start `hsparse` with `arguments`, and environment variables; return the process and what it prints.

    What it logs is added to the file `log`, if there is one. `namespace` is the path of a network namespace that it is
    to be in, or "".
    """
    reading, writing = os.pipe()
    errors = os.dup(2) if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # As connections, because those are passed on.
    with Connection(writing) as output, Connection(errors) as error_output:
        environment = {**os.environ, **variables}
        process = STARTS.Process(
            target=_run, args=(arguments, environment, output, error_output, namespace), daemon=True
        )
        process.start()
    return process, os.fdopen(reading)


def _run(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    output: Connection,
    errors: Connection,
    namespace: str,
) -> None:
    """Be the process of a command."""
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    output.close()
    errors.close()
    if namespace:
        enter_namespace(namespace)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["hsparse", *arguments]
    sys.exit(main())


def enter_namespace(path: str) -> None:
    """Give this process, which has one thread, the network of a namespace."""
    with Path(path).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"{path} cannot be entered; it needs root")


def _ended(process: ForkServerProcess) -> int:
    """Wait for the end of a process; return its exit status."""
    process.join(STOP_SECONDS)
    if process.exitcode is None:
        raise TimeoutError(f"The server's process {process.pid} has not ended.")
    return process.exitcode
