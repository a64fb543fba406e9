from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection

Import = Callable[..., Connection]


@pytest.fixture(scope="session")
def url(embedded_url: str) -> str:
    return embedded_url


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
