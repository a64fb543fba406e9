"""A server over a bucket under faults: what it answers and keeps is right, and no write replaces what was not seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from tests.storage.s3.test_s3_store import NUMBERS
from tests.storage.test_store_faults import FAULTS, first
from tests.support.faulty_proxy import FaultyProxy, Loss
from tests.support.s3_servers import make_bucket

PATH = "/home/admin/x.h5"


@contextmanager
def served(bucket: str, endpoint: str, single_writer: bool) -> Iterator[str]:
    """Run a server over the bucket, with nothing in its cache."""
    settings = load_settings(
        bucket=(bucket,), s3_endpoint=endpoint, s3_region="us-east-1", port=0, single_writer=single_writer
    )
    with embedded_server(settings) as url:
        yield url


@pytest.fixture
async def proxy(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyProxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with FaultyProxy(moto_endpoint).serving() as proxy:
        yield proxy


@pytest.mark.parametrize("single_writer", [True, False], ids=["single writer", "conditional"])
@pytest.mark.parametrize("fault", ["404 of another", "404 empty", "200 of another", "412 of another", "204"])
async def test_nothing_wrong_stays(
    moto_endpoint: str, proxy: FaultyProxy, fault: str, single_writer: bool
) -> None:
    bucket = f"cached-{next(NUMBERS)}"
    right = np.arange(40.0)

    def run() -> None:
        make_bucket(moto_endpoint, bucket)
        with served(bucket, moto_endpoint, single_writer) as url, hsparse.open(PATH, "w", endpoint=url) as f:
            f.create_dataset("read", data=right, chunks=(10,))
            f.create_dataset("changed", data=right, chunks=(10,))
        with served(bucket, proxy.url, single_writer) as url, hsparse.open(PATH, "a", endpoint=url) as f:
            read, changed = f["read"], f["changed"]
            proxy.draw = first(FAULTS[fault], 6)
            assert np.array_equal(read[:], right)
            proxy.draw = first(FAULTS[fault], 6)
            changed[3] = -1.0
            proxy.draw = Loss
            assert np.array_equal(read[:], right)
            right[3] = -1.0
            assert np.array_equal(changed[:], right)
        with served(bucket, moto_endpoint, single_writer) as url, hsparse.open(PATH, endpoint=url) as f:
            assert np.array_equal(f["changed"][:], right)

    await asyncio.to_thread(run)
