from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import server_process


@pytest.fixture(scope="module", autouse=True)
def sockets_left() -> Iterator[None]:
    """h5pyd leaves sessions open for the collector: collected here, not in the test of something else."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", params=["embedded", "two data nodes"])
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server, of either kind."""
    root: Path = tmp_path_factory.mktemp("root")
    flags = ("--dn", "2") if request.param == "two data nodes" else ()
    with server_process("--root", str(root), "--no-fsync", *flags) as server:
        yield server.url
        assert server.stop() == 0
