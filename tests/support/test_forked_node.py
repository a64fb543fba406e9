"""Forked data nodes: what they inherit, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.forked_node import COMMAND, DESCRIPTORS, ForkedNode, fork_data_nodes

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """A function that makes this process fork its data nodes, for the time of the test."""
    monkeypatch.setattr(asyncio, "create_subprocess_exec", asyncio.create_subprocess_exec)
    return fork_data_nodes


async def start(*kept: int) -> ForkedNode:
    node = await asyncio.create_subprocess_exec(
        *COMMAND, "dn", "--some", "flag", stdin=asyncio.subprocess.PIPE, pass_fds=kept, env={"ONLY": "this"}
    )
    assert isinstance(node, ForkedNode)
    return node


async def test_it_runs_the_command_with_its_own_files(
    forking: Callable[[Callable[[], int]], None], tmp_path: Path
) -> None:
    told = tmp_path / "told"

    def main() -> int:
        kinds = {}
        for path in DESCRIPTORS.iterdir():
            with suppress(FileNotFoundError):  # the descriptor of the listing
                kinds[int(path.name)] = str(path.readlink())
        sockets = [number for number, kind in kinds.items() if kind.startswith("socket:") and number > 2]
        files = [kind for kind in kinds.values() if kind.startswith(str(tmp_path))]
        loop_runs = asyncio._get_running_loop() is not None
        told.write_text(f"{sys.argv} {dict(os.environ)} {sockets} {files} {loop_runs}")
        return 3 if os.read(0, 1) == b"" else 4

    forking(main)
    with socket.socket() as passed, socket.socket(), (tmp_path / "open").open("w"):
        node = await start(passed.fileno())
        sibling = await start()
        for one in (node, sibling):
            one.stdin.close()
            assert await one.wait() == 3
        node = await start(passed.fileno())
        node.stdin.close()
        assert await node.wait() == 3
        wanted = f"{['hsparse', 'dn', '--some', 'flag']} {{'ONLY': 'this'}} [{passed.fileno()}] [] False"
    assert told.read_text() == wanted


async def test_a_kill_and_an_error_are_its_status(forking: Callable[[Callable[[], int]], None]) -> None:
    def main() -> int:
        if os.read(0, 1) == b"":
            raise SystemExit(2)
        return 0

    forking(main)
    first, second = await start(), await start()
    first.kill()
    assert await first.wait() == -signal.SIGKILL
    second.stdin.close()
    assert await second.wait() == 2


async def test_other_commands_are_started(forking: Callable[[Callable[[], int]], None]) -> None:
    forking(lambda: 1)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(5)")
    assert await process.wait() == 5
