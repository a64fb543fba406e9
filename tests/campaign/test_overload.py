"""A server with twice the load it can take, and a greedy user beside modest ones: real processes, for a while.

`make overload` runs it; `--overload` is for how many seconds each load is offered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.campaign.load import LOST, SERVICE_UNAVAILABLE, Load, Outcomes, http_request
from tests.support.rest_client import RemoteRest
from tests.support.server_process import ServerProcess, server_process

pytestmark = pytest.mark.overload

BINARY = "application/octet-stream"
MODEST = tuple(f"modest{number}" for number in range(10))
USERS = ("greedy", *MODEST)
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
SIDE, CHUNK, ROWS = 512, 128, 32
DOMAIN = "/home/greedy/overload.h5"
DATASET = {
    "type": "H5T_IEEE_F64LE",
    "shape": [SIDE, SIDE],
    "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": [CHUNK, CHUNK]}},
}
VARIANTS = 8
"""Requests of each kind and user."""
PART_OF_PEAK = 0.2
"""What each modest user asks for, in parts of the peak divided among all of them."""


@pytest.fixture(params=["serve", "cluster"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server, in one process or with two data nodes of its own, and users whose passwords are their names."""
    passwords, hashes = PasswordFile(tmp_path / "passwords"), PasswordHash()
    for user in USERS:
        passwords.put(User(user, hashes.hash(user), admin=True))
    flags = ("--root", str(tmp_path / "store"), "--password-file", str(tmp_path / "passwords"))
    (tmp_path / "store").mkdir()
    nodes = ("--dn", "2") if request.param == "cluster" else ()
    with server_process(*flags, *nodes) as running:
        yield running


async def created(url: str) -> str:
    """Return the id of a new dataset that has values."""
    rest = RemoteRest(url)
    rest.domain = DOMAIN
    head = {
        "headers": {"Authorization": http_request("GET", "/", user="greedy").decode().split("\r\n")[2][15:]}
    }
    assert (await rest("PUT", "/", {}, **head)).status == 201
    reply = await rest("POST", "/datasets", DATASET, **head)
    assert reply.status == 201
    for row in range(0, SIDE, CHUNK):
        values = random.Random(row).randbytes(CHUNK * SIDE * 8)
        select = f"[{row}:{row + CHUNK},:]"
        written = await rest("PUT", f"/datasets/{reply['id']}/value", values, select=select, **head)
        assert written.status < 300
    await rest.close()
    return str(reply["id"])


def requests_of(user: str, dataset: str) -> list[bytes]:
    """Return requests as clients send them: values read as bytes and as JSON, values and attributes written."""
    generator, made = random.Random(user), []
    for number in range(VARIANTS):
        row = generator.randrange(SIDE - ROWS)
        value = f"/datasets/{dataset}/value?domain={DOMAIN}&select="
        made += [
            http_request("GET", f"{value}[{row}:{row + ROWS},:]", user=user, accept=BINARY),
            http_request("GET", f"{value}[{row}:{row + 1},:]", user=user),
            http_request(
                "PUT", f"{value}[{row}:{row + 1},:]", generator.randbytes(8 * SIDE), media=BINARY, user=user
            ),
            http_request(
                "PUT",
                f"/datasets/{dataset}/attributes/{user}{number}?domain={DOMAIN}&replace=1",
                b'{"type": "H5T_STD_I64LE", "value": 7}',
                user=user,
            ),
        ]
    return made


async def sign_in(load: Load, dataset: str) -> None:
    """Have the server verify the passwords, which it remembers."""
    for user in USERS:
        await load.request(requests_of(user, dataset)[0], Outcomes())


async def peak_of(load: Load, requests: list[bytes], seconds: float) -> Outcomes:
    """Return what a closed loop got done with the number of clients with which that is most."""
    best: Outcomes | None = None
    for clients in CLIENTS:
        outcomes = await load.closed(clients, requests, seconds)
        print(f"{clients:4} clients: {outcomes.text}")
        if best is None or outcomes.rate > best.rate:
            best = outcomes
    assert best is not None
    return best


async def greedy_and_modest(
    load: Load, dataset: str, greedy: float, modest: float, seconds: float
) -> tuple[Outcomes, Outcomes]:
    """Return what becomes of the requests of a greedy user, and of those of ten modest ones, at these rates."""
    loads = [
        load.open(modest, requests_of(user, dataset), seconds, place) for place, user in enumerate(MODEST)
    ]
    other = Load(load.url, load.processes)  # its own connections: users do not wait for each other's
    if greedy:
        loads.append(other.open(greedy, requests_of("greedy", dataset), seconds))
    every = await asyncio.gather(*loads)
    other.close()
    together = Outcomes(duration=seconds)
    for one in every[: len(MODEST)]:
        together.seconds += one.seconds
        together.without_retry_after += one.without_retry_after
        for status, count in one.failed.items():
            together.failed[status] = together.failed.get(status, 0) + count
    return every[-1], together


async def test_twice_the_load(server: ServerProcess, request: pytest.FixtureRequest) -> None:
    seconds: float = request.config.getoption("--overload")
    dataset = await created(server.url)
    load = Load(server.url, (server.pid, *server.data_nodes))
    requests = [one for user in USERS for one in requests_of(user, dataset)]
    await sign_in(load, dataset)
    await load.closed(4, requests, seconds / 8)  # fill the cache
    peak = await peak_of(load, requests, seconds / 4)
    twice = await load.open(2 * peak.rate, requests, seconds)
    load.close()
    print(f"twice the peak: {twice.text}")
    goodput, slower = twice.rate / peak.rate, twice.percentile(0.99) / peak.percentile(0.99)
    print(
        f"of the peak: goodput {goodput:.2f}, p99 {slower:.2f}, CPU of an answer {twice.cost / peak.cost:.2f}; "
        f"{twice.without_retry_after} refused without Retry-After"
    )
    assert twice.without_retry_after == 0
    assert set(twice.failed) == {SERVICE_UNAVAILABLE}
    assert goodput >= 0.9
    assert slower <= 4


async def test_a_greedy_user_beside_ten_modest_ones(
    server: ServerProcess, request: pytest.FixtureRequest
) -> None:
    seconds: float = request.config.getoption("--overload")
    dataset = await created(server.url)
    load = Load(server.url, (server.pid, *server.data_nodes))
    requests = [one for user in USERS for one in requests_of(user, dataset)]
    await sign_in(load, dataset)
    await load.closed(4, requests, seconds / 8)
    peak = await load.closed(16, requests, seconds / 4)
    each = PART_OF_PEAK * peak.rate / len(MODEST)
    _, alone = await greedy_and_modest(load, dataset, 0, each, seconds)
    greedy, beside = await greedy_and_modest(load, dataset, 2 * peak.rate, each, seconds)
    load.close()
    print(f"16 clients:    {peak.text}")
    print(f"modest, alone: {alone.text}")
    print(f"modest beside: {beside.text}")
    print(f"greedy:        {greedy.text}")
    assert LOST not in beside.failed
    assert beside.without_retry_after + greedy.without_retry_after == 0
    assert beside.percentile(0.99) <= 2 * alone.percentile(0.99)
