"""1,200 requests, 120 at a time, on one service node and two data nodes, each a process: none fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from tests.support.server_process import server_process

AT_ONCE = 120
EACH = 10
ROWS, WIDTH = 10 * AT_ONCE, 1024
"""Ten chunks of 1 MiB, which are not enlarged: both data nodes have some."""
BINARY = "application/octet-stream"
DOMAIN = "/home/admin/many.h5"
KIND = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "who", "type": "H5T_STD_I32LE"}, {"name": "x", "type": "H5T_IEEE_F64LE"}],
}
TABLE = np.dtype([("who", "<i4"), ("x", "<f8")])


class Asker:
    """Sends requests about the domain, counts them, and lets none fail."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.count = 0

    async def __call__(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        self.count += 1
        headers = {"Content-Type": BINARY if isinstance(body, bytes) else "application/json"}
        if params.pop("binary", False):
            headers["Accept"] = BINARY
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        asked = {"domain": DOMAIN} | {key: str(value) for key, value in params.items()}
        async with self._session.request(method, path, data=data, params=asked, headers=headers) as reply:
            answer = await reply.read()
            assert reply.status in (200, 201), f"{method} {path} {params}: {reply.status} {answer[:300]!r}"
            return answer if reply.content_type == BINARY else json.loads(answer)


async def work(ask: Asker, number: int, grid: str, table: str) -> None:
    """Ten requests of one client: everything it writes is its own, and every answer is known."""
    own = slice(10 * number, 10 * number + 10)
    rng = np.random.default_rng(number)
    values = rng.integers(0, 1000, (10, WIDTH)).astype("<i8")
    rows = np.zeros(10, TABLE)
    rows["who"], rows["x"] = number, np.arange(10)
    made = await ask("POST", "/groups", {"h5path": f"/clients/{number}"}, implicit=1)
    path = f"/groups/{made['id']}/attributes/number"
    await ask("PUT", path, {"type": "H5T_STD_I32LE", "value": number})
    await ask("PUT", f"/datasets/{grid}/value", values.tobytes(), select=f"[{own.start}:{own.stop},:]")
    await ask("PUT", f"/datasets/{table}/value", rows.tobytes(), select=f"[{own.start}:{own.stop}]")
    got = await ask("GET", f"/datasets/{grid}/value", select=f"[{own.start}:{own.stop}:3,::5]")
    assert got["value"] == values[::3, ::5].tolist()
    points = np.stack([own.start + rng.integers(0, 10, 50), rng.integers(0, WIDTH, 50)], 1).astype("<u8")
    got = await ask("POST", f"/datasets/{grid}/value", points.tobytes(), binary=True)
    expected = values[points[:, 0].astype(int) - own.start, points[:, 1].astype(int)]
    np.testing.assert_array_equal(np.frombuffer(got, "<i8"), expected)
    changed = await ask("PUT", f"/datasets/{table}/value", {"x": -1}, query=f"who == {number} & x >= 7")
    assert changed["indices"] == [[own.start + i] for i in (7, 8, 9)]
    found = await ask("GET", f"/datasets/{table}/value", query=f"who == {number} & x > 4")
    assert found["value"] == [[number, 5.0], [number, 6.0]]
    assert (await ask("GET", path))["value"] == number
    assert (await ask("GET", "/groups/", h5path=f"/clients/{number}"))["id"] == made["id"]


async def run(url: str) -> None:
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(url, connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
        ask = Asker(session)
        root = (await ask("PUT", "/"))["root"]
        clients = await ask("POST", "/groups", {"link": {"id": root, "name": "clients"}})
        layout = {"layout": {"class": "H5D_CHUNKED", "dims": [128, WIDTH]}}
        body = {"type": "H5T_STD_I64LE", "shape": [ROWS, WIDTH], "creationProperties": layout}
        grid = (await ask("POST", "/datasets", body))["id"]
        layout = {"layout": {"class": "H5D_CHUNKED", "dims": [128]}}
        table = (
            await ask("POST", "/datasets", {"type": KIND, "shape": [ROWS], "creationProperties": layout})
        )["id"]

        ask.count = 0
        await asyncio.gather(*(work(ask, number, grid, table) for number in range(AT_ONCE)))
        assert ask.count == AT_ONCE * EACH

        links = await ask("GET", f"/groups/{clients['id']}/links")
        assert {link["title"] for link in links["links"]} == {str(number) for number in range(AT_ONCE)}
        whole = np.frombuffer(await ask("GET", f"/datasets/{grid}/value", binary=True), "<i8")
        model = [np.random.default_rng(n).integers(0, 1000, (10, WIDTH)) for n in range(AT_ONCE)]
        np.testing.assert_array_equal(whole.reshape(ROWS, WIDTH), np.concatenate(model))
        rows = np.frombuffer(await ask("GET", f"/datasets/{table}/value", binary=True), TABLE)
        assert rows["who"].tolist() == [n // 10 for n in range(ROWS)]
        assert rows["x"].tolist() == [0.0, 1, 2, 3, 4, 5, 6, -1, -1, -1] * AT_ONCE


def test_1200_requests_120_at_a_time(tmp_path: Path) -> None:
    with server_process("--root", str(tmp_path), "--dn", "2") as server:
        asyncio.run(run(server.url))
        assert server.stop() == 0
