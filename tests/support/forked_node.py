"""Data nodes that a test server forks from itself: they have its imports, which are nine tenths of a start.

`hsparse serve --dn N` starts them as commands, `hsparse dn ...`. Here the same command is run by the fork, so all
but the start of the interpreter is what a user runs. Commands as they are typed are started in
tests/cli/test_serve.py.

Tests: tests/support/test_forked_node.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hsparse.cli import child_nodes

COMMAND = (sys.executable, "-m", "hsparse.cli.main")
STANDARD = (0, 1, 2)
DESCRIPTORS = Path("/proc/self/fd")


class ForkedNode:
    """The process of a data node: what `ChildNodes` uses of an `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, stdin: Pipe) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    async def wait(self) -> int:
        """Wait for its end; return its exit status, or minus the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.stdin.close()
        self._ended.set()


class Pipe:
    """The end of a pipe that is held open, for a child whose standard input is the other end."""

    opened: set[int] = set()  # noqa: RUF012 - of the process; a fork closes those of its siblings

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        self.opened.add(self._writing)

    def close(self) -> None:
        if self._writing in self.opened:
            self.opened.remove(self._writing)
            os.close(self._writing)


def fork_data_nodes(main: Callable[[], int]) -> None:
    """Have this process fork its data nodes, which run `main`, in place of starting the command."""
    start = asyncio.create_subprocess_exec

    async def start_or_fork(*command: str, **options: Any) -> Any:
        if command[:4] != (*COMMAND, "dn"):
            return await start(*command, **options)
        return _fork(main, command[3:], options["pass_fds"], options["env"])

    child_nodes.asyncio.create_subprocess_exec = start_or_fork  # type: ignore[assignment]


def _fork(
    main: Callable[[], int], arguments: Sequence[str], kept: Sequence[int], environment: Mapping[str, str]
) -> ForkedNode:
    stdin = Pipe()
    pid = os.fork()
    if pid == 0:
        _be(main, arguments, stdin.reading, kept, environment)
    os.close(stdin.reading)
    return ForkedNode(pid, stdin)


def _be(
    main: Callable[[], int],
    arguments: Sequence[str],
    stdin: int,
    kept: Sequence[int],
    environment: Mapping[str, str],
) -> None:
    """Be the process of a data node, to its end."""
    status = 70
    try:
        os.dup2(stdin, 0)
        _close_all_but(kept)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio._set_running_loop(None)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["hsparse", *arguments]
        status = main()
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else status
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)  # nothing of the server, whose frames are below this one, is to end with it


def _close_all_but(kept: Sequence[int]) -> None:
    """Close the server's files and sockets, and its ends of pipes; its loop, which is no longer run, keeps its own."""
    for path in DESCRIPTORS.iterdir():
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            number, what = int(path.name), str(path.readlink())
            own = what.startswith(("anon_inode:", "pipe:")) and number not in Pipe.opened
            if number not in (*STANDARD, *kept) and not own:
                os.close(number)
