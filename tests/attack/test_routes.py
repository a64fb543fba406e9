"""Hostile requests on every route of a server with small budgets, while another client asks for `/about`.

Sixteen are sent at once: `make attack` sends 200 on each route, `make endure` 16.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsparse.sn.route import Route
from tests.attack.hostile import BODIES, hostile_requests, key_of, takes_body
from tests.attack.row import REFUSED, Row
from tests.attack.target import USER, attacked_server, prepared
from tests.attack.witness import Witness, memory_of
from tests.support.rest_client import ROUTES
from tests.support.server_process import ServerProcess

MIB = 1 << 20
AT_ONCE = 16
REQUESTS = 200
LONG = 5.0
"""Seconds of `--attack` from which on all requests are sent."""
BUDGETS = {
    "--request-memory": 64,
    "--answer-memory": 64,
    "--pending-size": 64,
    "--chunk-memory": 128,
    "--cache-size": 32,
}
"""MiB of each budget of the server; JSON values have half as much as bodies."""
MOST_MEMORY = int(1.25 * (sum(BUDGETS.values()) + BUDGETS["--request-memory"] / 2)) * MIB
PATIENCE = 5.0
"""Seconds after which a client hangs up: some requests ask to wait for ever."""
KEPT = 50 * MIB
"""Bytes that a server may have more after a row than before it."""
FLAGS = (
    "--max-request-size",
    "32MiB",
    "--page-size",
    "4MiB",
    "--max-write-size",
    "64MiB",
    *(part for flag, size in BUDGETS.items() for part in (flag, f"{size}MiB")),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path: Path = tmp_path_factory.mktemp("attacked")
    with attacked_server(path, *FLAGS, "--job-places", f"file://{path}/jobs/") as running:
        yield running


def test_every_route_with_a_body_has_one() -> None:
    assert {key_of(route) for route in ROUTES if takes_body(route)} == set(BODIES)


@pytest.mark.parametrize("route", ROUTES, ids=key_of)
async def test_route(
    route: Route, server: ServerProcess, tmp_path: Path, rows: list[Row], request: pytest.FixtureRequest
) -> None:
    target = await prepared(server.url, f"/home/{USER}/{abs(hash(key_of(route)))}.h5")
    count = REQUESTS if request.config.getoption("--attack") >= LONG else AT_ONCE
    requests = iter(hostile_requests(route, target, f"file://{tmp_path}/jobs/")[:count])
    before = memory_of([server.pid])
    witness, tally = Witness(server.url, [server.pid]), Counter[int]()
    defects = []

    async def client() -> None:
        for one in requests:
            status = await target.exchange(bytes(one), PATIENCE)
            tally[status] += 1
            if status >= 500 and status not in REFUSED:
                defects.append((status, one))

    try:
        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    finally:
        seen = witness.witnessed()
    after = memory_of([server.pid]) - before
    row = Row(key_of(route), tally, seen, before)
    rows.append(row)
    assert not defects, defects
    assert seen.unanswered == 0, row
    assert seen.memory - before <= MOST_MEMORY, row
    assert after <= KEPT, f"{row}: {after // MIB} MiB are kept"
