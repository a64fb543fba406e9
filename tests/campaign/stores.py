"""The stores of a campaign: a directory, moto, moto behind a proxy that loses requests, Ceph's S3 server, Azurite."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hsparse.storage.s3.s3_client import S3Client
from tests.support.azurite import azure_variables, azurite_server, make_container
from tests.support.faulty_proxy import FaultyProxy, Loss, Weather
from tests.support.radosgw import radosgw_server
from tests.support.s3_servers import moto_server

NUMBERS = itertools.count()
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class CampaignStore:
    """The flags and variables that give a node the store; `proxy` is what stands before it, if anything."""

    flags: tuple[str, ...]
    proxy: FaultyProxy | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def set_weather(self, *, fair: bool) -> None:
        """Have the proxy do nothing to requests, or lose some of them."""
        if self.proxy is not None:
            self.proxy.draw = Loss if fair else Weather(random.Random(0))


@asynccontextmanager
async def campaign_store(kind: str, path: Path, host: str = LOOPBACK) -> AsyncIterator[CampaignStore]:
    """Have a fresh empty store of a kind while the context lasts; an S3 server listens at the address `host`."""
    async with AsyncExitStack() as stack:
        if kind == "directory":
            path.joinpath("root").mkdir()
            yield CampaignStore(("--root", str(path / "root")))
            return
        bucket = f"campaign-{next(NUMBERS)}"  # moto's are those of the process
        if kind == "azurite":
            endpoint = stack.enter_context(azurite_server(host))
            make_container(endpoint, bucket)
            yield CampaignStore(("--bucket", f"az://{bucket}"), variables=azure_variables(endpoint))
            return
        proxy = None
        if kind == "radosgw":
            path.joinpath("ceph").mkdir()
            server = radosgw_server(path / "ceph", host)
            url = await asyncio.to_thread(server.__enter__)
            stack.push(server.__exit__)
        else:
            url = stack.enter_context(moto_server(host))
        await _make_bucket(url, bucket)
        if kind == "proxied":
            proxy = FaultyProxy(url)
            await stack.enter_async_context(proxy.serving(host))
            url = proxy.url
        yield CampaignStore(("--bucket", bucket, "--s3-endpoint", url), proxy)


async def _make_bucket(endpoint: str, bucket: str) -> None:
    async with S3Client(
        bucket, endpoint=endpoint, region="us-east-1", access_key="test", secret_key="test"
    ) as client:
        await client.call(bucket, lambda s3: s3.create_bucket(Bucket=bucket))
