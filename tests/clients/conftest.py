from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from zlib import crc32

import pytest

from tests.support.endurance import ENDURANCE

KINDS = ("embedded", "two data nodes")


@pytest.fixture(scope="module", autouse=True)
def sockets_left() -> Iterator[None]:
    """h5pyd leaves sessions open for the collector: collected here, not in the test of something else."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have all tests that run over both kinds of server in `make endure`."""
    if _kind(item):
        item.add_marker(pytest.mark.endurance)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --endure, run each of them over one of the two: by its name, so that all workers choose the same."""
    if ENDURANCE.full:
        return
    left_out = {item for item in items if _kind(item) not in ("", KINDS[crc32(_plain_name(item)) % 2])}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _kind(item: pytest.Item) -> str:
    """Return the kind of server that a test runs over, "" if that is not its parameter."""
    call = getattr(item, "callspec", None)
    found = "" if call is None else call.params.get("endpoint", "")
    return found if found in KINDS else ""


def _plain_name(item: pytest.Item) -> bytes:
    """Return the name of a test without the kind of server."""
    return item.nodeid.replace(_kind(item), "").encode()


@pytest.fixture(scope="module", params=KINDS)
def endpoint(request: pytest.FixtureRequest) -> str:
    """The URL of a server, of either kind."""
    url: str = request.getfixturevalue("embedded_url" if request.param == "embedded" else "two_nodes_url")
    return url
