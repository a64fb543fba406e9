from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def sockets_left() -> Iterator[None]:
    """h5pyd leaves sessions open for the collector: collected here, not in the test of something else."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", params=["embedded", "two data nodes"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """The URL of a server, of either kind."""
    url: str = request.getfixturevalue("embedded_url" if request.param == "embedded" else "two_nodes_url")
    return url
