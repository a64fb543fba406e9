"""Attacks on a server in a process of its own, while another client asks for `/about`.

`make attack` gives each of them ten seconds, prints a table and holds what others notice; `make test` has them for a
moment, and holds that nothing is a defect and the server goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attack.attacks import ATTACKS, Attack
from tests.attack.row import Row
from tests.attack.target import BINARY, COLUMNS, ROWS, Target, attacked_server, authorization, prepared
from tests.attack.witness import Witness, memory_of
from tests.support.rest_client import RemoteRest
from tests.support.server_process import ServerProcess

MIB = 1 << 20
LONG = 5.0
"""Seconds of an attack from which on times are held."""
MOST_SECONDS = 0.25
BUDGETS = 256 + 256 + 128 + 256
"""MiB of bodies, answers, decoded objects, and writes that are not durable yet, by default."""
MOST_MEMORY = (BUDGETS + 512) * MIB
"""Bytes that a server may have more than at its start: its budgets, and what Python's allocator keeps."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two users, whose passwords are their names."""
    with attacked_server(tmp_path_factory.mktemp("attacked")) as running:
        yield running


@pytest.fixture(scope="module")
def target(server: ServerProcess) -> list[Target]:
    """The target, once it is prepared: fixtures of a module have no loop."""
    return []


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_attack(
    attack: Attack,
    server: ServerProcess,
    target: list[Target],
    rows: list[Row],
    request: pytest.FixtureRequest,
) -> None:
    seconds: float = request.config.getoption("--attack")
    if not target:
        target.append(await prepared(server.url))
        values = target[0].request("PUT", "/datasets/{dense}/value", bytes(8 * ROWS * COLUMNS), BINARY)
        assert await target[0].exchange(values, 60) == 200
    before = memory_of([server.pid])
    witness, tally = Witness(server.url, [server.pid]), Counter[int]()
    try:
        await attack(target[0], seconds, tally)
    finally:
        row = Row(attack.__name__, tally, witness.witnessed(), before)
    rows.append(row)
    rest = RemoteRest(server.url)
    assert (
        await rest("GET", "/", headers={"Authorization": authorization("ann")}, domain="/home/ann/")
    ).status == 200
    await rest.close()
    assert tally, "nothing was tried"
    assert row.defects == 0, row
    assert row.seen.unanswered == 0, row
    assert row.seen.memory - before <= MOST_MEMORY, row
    assert row.seen.p99 <= MOST_SECONDS or seconds < LONG, row
