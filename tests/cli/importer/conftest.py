from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from tests.support.server_process import server_process

Import = Callable[..., Connection]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root: Path = tmp_path_factory.mktemp("root")
    with server_process("--root", str(root), "--no-fsync") as server:
        yield server.url
        assert server.stop() == 0


@pytest.fixture
def imported(url: str, request: pytest.FixtureRequest) -> Iterator[Import]:
    """Import a file, with flags, and return a connection to the domain that it has become."""
    opened: list[Connection] = []

    def run(path: Path | str, *flags: str, status: int = 0) -> Connection:
        folder = "/home/admin"
        name = f"{request.node.originalname}-{abs(hash(request.node.name))}-{len(opened)}.h5"
        opened.append(Connection(url, f"{folder}/{name}"))
        assert main(["import", str(path), f"{folder}/{name}", "--endpoint", url, *flags]) == status
        return opened[-1]

    yield run
    for connection in opened:
        connection.close()
