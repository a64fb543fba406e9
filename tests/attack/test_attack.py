"""Attacks on a server in a process of its own, while another client asks for `/about`.

`make attack` gives each of them ten seconds, prints a table and holds what others notice; `make test` has them for a
moment, and holds that nothing is a defect and the server goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hsparse.sn.auth.password_file import PasswordFile, PasswordHash, User
from tests.attack.attacks import ATTACKS, Attack
from tests.attack.target import USER, Target, prepared
from tests.attack.witness import Witness, Witnessed, memory_of
from tests.campaign.load import SERVICE_UNAVAILABLE, http_request
from tests.support.rest_client import RemoteRest
from tests.support.server_process import ServerProcess, server_process

MIB = 1 << 20
LONG = 5.0
"""Seconds of an attack from which on times are held."""
MOST_SECONDS = 0.25
BUDGETS = 256 + 256 + 128 + 256
"""MiB of bodies, answers, decoded objects, and writes that are not durable yet, by default."""
MOST_MEMORY = (BUDGETS + 512) * MIB
"""Bytes that a server may have more than at its start: its budgets, and what Python's allocator keeps."""
REFUSED = frozenset({SERVICE_UNAVAILABLE, 507})
"""Statuses above 500 that are no defect: busy, and a disk that is full."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of an attack: answers by status, and what the witness saw; `before` is the server's memory then."""

    name: str
    tally: Counter[int]
    seen: Witnessed
    before: int

    @property
    def defects(self) -> int:
        return sum(count for status, count in self.tally.items() if status >= 500 and status not in REFUSED)

    def __str__(self) -> str:
        answers = ", ".join(f"{count} x {status or 'none'}" for status, count in sorted(self.tally.items()))
        worst = max(self.seen.seconds, default=float("inf"))
        return (
            f"| {self.name.replace('_', ' ')} | {answers} | {self.defects} | {1000 * self.seen.p99:.0f} ms | "
            f"{1000 * worst:.0f} ms | {self.seen.unanswered} | {(self.seen.memory - self.before) // MIB} MiB |"
        )


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Rows of the table that is printed at the end."""
    found: list[Row] = []
    yield found
    print("\n| attack | answers | 5xx | p99 of others | worst | unanswered | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(*found, sep="\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two users, whose passwords are their names."""
    path: Path = tmp_path_factory.mktemp("attacked")
    passwords, hashes = PasswordFile(path / "passwords"), PasswordHash()
    for user in ("ann", USER):
        passwords.put(User(user, hashes.hash(user)))
    (path / "store").mkdir()
    flags = ("--root", str(path / "store"), "--password-file", str(path / "passwords"), "--no-fsync")
    with server_process(*flags, log=path / "log") as running:
        yield running
        assert running.stop() == 0


@pytest.fixture(scope="module")
def target(server: ServerProcess) -> list[Target]:
    """The target, once it is prepared: fixtures of a module have no loop."""
    return []


def authorization(user: str) -> str:
    return http_request("GET", "/", user=user).decode().split("\r\n")[2].removeprefix("Authorization: ")


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
        target.append(await prepared(server.url, authorization(USER)))
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
