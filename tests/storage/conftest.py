"""A server of another make than moto's, with a weaker contract; no test leaves an error in a cycle with its frames."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hsparse.storage.s3.s3_store import S3Store
from tests.support.error_cycles import no_cycles_of_errors
from tests.support.s3_servers import rclone_server
from tests.testing.store_conformance import PAGE_SIZE

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _no_cycles() -> Iterator[None]:
    with no_cycles_of_errors():
        yield


@pytest.fixture(scope="session")
def rclone_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an `rclone serve s3` with no buckets."""
    with rclone_server(
        Path(sys.executable).with_name("rclone"), tmp_path_factory.mktemp("rclone")
    ) as endpoint:
        yield endpoint


@pytest.fixture
async def rclone_store(rclone_endpoint: str) -> AsyncIterator[S3Store]:
    """A fresh empty bucket of an rclone server, which ignores conditions."""
    bucket = f"bucket-{next(NUMBERS)}"
    async with S3Store(
        bucket,
        endpoint=rclone_endpoint,
        region="us-east-1",
        access_key="test",
        secret_key="test",
        page_size=PAGE_SIZE,
    ) as store:
        await store._client.create_bucket(Bucket=bucket)
        yield store
