"""What fails is freed at once: an error that its own traceback refers to would keep bodies, records and chunks.

The collector of cycles runs seldom in a server, and a thousand abandoned requests took gigabytes until then.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import pytest
from aiohttp import web

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import create, sparse, value_client
from tests.support.rest_client import RemoteRest, RestClient

PACKAGES = tuple(str(Path(module.__file__ or "").parent) for module in (hsparse, web))
COMPUTED = {"initializer": ["arange"], "layout": {"class": "H5D_CHUNKED", "dims": [100_000]}}


@contextmanager
def no_frames_left() -> Iterator[None]:
    """Fail if frames of the package or of aiohttp are in a cycle that was made in this context."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        codes = [one.f_code for one in gc.garbage if isinstance(one, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    left = {
        f"{code.co_name} in {code.co_filename}" for code in codes if code.co_filename.startswith(PACKAGES)
    }
    assert left == set()


async def hang_up(client: RestClient, method: str, path: str, body: object = None, **options: str) -> None:
    """Send a request and close the connection when others have had so many turns."""
    request = asyncio.create_task(client(method, path, body, **options))
    for _ in range(200):
        await asyncio.sleep(0)
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request


async def abandoned_read(client: RestClient, path: str) -> None:
    await hang_up(client, "GET", f"{path}/value", select="[0:190000000:100000]")


async def abandoned_query(client: RestClient, path: str) -> None:
    await hang_up(client, "GET", f"{path}/value", query="_ < 0", select="[0:100000000]")


async def abandoned_reduction(client: RestClient, path: str) -> None:
    await hang_up(client, "GET", f"{path}/reduce", op="sum", select="[0:100000000]")


async def abandoned_write(client: RestClient, path: str) -> None:
    elements = await create(client, [10_000, 100], "H5T_STD_I64LE", layout=sparse(50, 100))
    points = [[row, 1] for row in range(0, 10_000, 2)]
    await hang_up(client, "PUT", f"{elements}/value", {"points": points, "value": [1] * len(points)})


async def refused_change(client: RestClient, path: str) -> None:
    root = (await client("GET", "/"))["root"]
    link = f"/groups/{root}/links/frames"
    await client("PUT", link, {"id": path.rpartition("/")[2]})
    assert (await client("PUT", link, {"h5path": "/elsewhere"})).status == 409


async def missing_names(client: RestClient, path: str) -> None:
    body = {"h5paths": [f"/no{number}" for number in range(20)]}
    assert (await client("POST", "/", body)).status == 404
    names = {"attr_names": [f"no{number}" for number in range(20)]}
    assert (await client("POST", f"{path}/attributes", names)).status in (200, 404)


async def body_that_is_no_json(client: RestClient, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = json.dumps({"value": ["x" * 100] * 5_000}).encode()[:-2]
    assert (await client("PUT", f"{path}/value", body, headers=headers)).status == 400


async def values_that_do_not_fit(client: RestClient, path: str) -> None:
    body = {"start": 0, "stop": 50_000, "value": ["x"] * 50_000}
    assert (await client("PUT", f"{path}/value", body)).status == 400


async def places_outside(client: RestClient, path: str) -> None:
    body = {"points": [2**50] * 20_000, "value": [1] * 20_000}
    assert (await client("PUT", f"{path}/value", body)).status == 400


async def hang_up_in_an_answer(url: str, target: str) -> None:
    """Ask for something, take the first bytes of the answer, and close the connection."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert await reader.read(1024)
    writer.transport.abort()


REQUESTS: tuple[Callable[[RestClient, str], Awaitable[None]], ...] = (
    abandoned_read,
    abandoned_query,
    abandoned_reduction,
    abandoned_write,
    refused_change,
    missing_names,
    body_that_is_no_json,
    values_that_do_not_fit,
    places_outside,
)


@pytest.mark.parametrize("send", REQUESTS, ids=lambda request: request.__name__)
async def test_what_fails_keeps_no_frames(send: Callable[[RestClient, str], Awaitable[None]]) -> None:
    async with value_client(settings=ServiceSettings()) as client:
        path = await create(client, [2**40], "H5T_STD_I64LE", **COMPUTED)
        await send(client, path)  # what is made once may be in cycles
        with no_frames_left():
            for _ in range(3):
                await send(client, path)
            assert (await client("GET", "/")).status == 200


async def test_a_client_that_hangs_up_in_an_answer_keeps_no_frames(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, port=0, fsync=False)
    with embedded_server(settings) as url:
        rest = RemoteRest(url)
        rest.domain = "/home/admin/a.h5"
        group = f"/groups/{(await rest('PUT', '/', {}))['root']}"
        text = {"class": "H5T_STRING", "length": 1 << 19, "charSet": "H5T_CSET_ASCII"}
        for number in range(16):
            body = {"type": text, "value": "x" * text["length"]}
            await rest("PUT", f"{group}/attributes/a{number}", body)
        target = f"{group}?domain={rest.domain}&include_attrs=1"

        async def answered() -> None:
            await hang_up_in_an_answer(url, target)
            assert (await rest("GET", "/")).status == 200

        await answered()
        with no_frames_left():
            for _ in range(3):
                await answered()
        await rest.close()
