"""What HSDS 1.0.2 was measured to do: every behaviour is the same here, or a difference with a reason."""

from __future__ import annotations

import asyncio
import math
from functools import cache
from typing import Any

import pytest

from hsparse.dn.service import DataService
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.behaviours import attributes, datasets, domains, groups, hrefs, values
from tests.sn.behaviours.behaviour import PATH, Ask, Row
from tests.sn.conftest import USERS, TickingClock
from tests.sn.recording import Comparison
from tests.support.rest_client import Reply, RestClient
from tests.testing.memory_store import MemoryStore

SECTIONS = {
    module.__name__.rpartition(".")[2]: module.ROWS
    for module in (hrefs, domains, groups, attributes, datasets, values)
}
ROWS = {f"{section}: {row.name}": row for section, rows in SECTIONS.items() for row in rows}
BUCKET = "hsdstest"


@cache
def deviations(name: str) -> list[str]:
    """Play a row on a new server; return how the answers deviate from what it says of hsparse."""
    return asyncio.run(_deviations(ROWS[name]))


async def _deviations(row: Row) -> list[str]:
    clock = TickingClock()
    store = MemoryStore(clock=clock)
    await store.put("data/file.h5", bytes(400))
    node = DataService(store, clock)
    settings = ServiceSettings(bucket=BUCKET, single_user=None)
    rest = await RestClient(node, clock, *USERS, settings=settings).open()
    comparison = Comparison(rest.url)
    comparison.bound["<g0>"] = (await rest("PUT", "/", {}, domain=PATH))["root"]
    comparison.bound["<number0>"] = clock.time + 200.25
    comparison.bound["<number1>"] = int(clock.time) + 250
    found = [
        f"{one.method} {one.path}: {text}" for one in row.asks for text in await _ask(rest, comparison, one)
    ]
    await rest.close()
    await node.close()
    return found


async def _ask(rest: RestClient, comparison: Comparison, one: Ask) -> list[str]:
    body = one.body if isinstance(one.body, bytes) else _filled(comparison, one.body)
    params = {key: comparison.filled(value) for key, value in one.params.items()}
    path = comparison.filled(one.path)
    got = await rest(one.method, path, body, user=one.user, domain=one.domain, headers=one.sent, **params)
    wanted = one.status if one.ours is None else one.ours
    if got.status != wanted:
        return [f"{got.status}, not {wanted}: {got.body!r}"[:300]]
    return _compare(comparison, one, got)


def _filled(comparison: Comparison, value: Any) -> Any:
    """Return a body with its variables replaced; a number that is a variable stays a number."""
    if isinstance(value, str) and value.startswith("<number"):
        return comparison.bound[value]
    if isinstance(value, dict):
        return {comparison.filled(key): _filled(comparison, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(comparison, part) for part in value]
    return comparison.filled(value)


def _comparable(value: Any) -> Any:
    """Return a JSON value in which NaN equals itself."""
    if isinstance(value, dict):
        return {key: _comparable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_comparable(part) for part in value]
    return "bare NaN" if isinstance(value, float) and math.isnan(value) else value


def _compare(comparison: Comparison, one: Ask, got: Reply) -> list[str]:
    found = []
    if one.reply is not None:
        found += map(str, comparison.value(_comparable(one.reply), _comparable(got.body), "reply"))
    if one.rels is not None:
        rels = " ".join(link["rel"] for link in got.body["hrefs"]) if "hrefs" in got.body else "none"
        found += [] if rels == one.rels else [f"links {rels}, not {one.rels}"]
    for header, text in one.told.items():
        found += (
            [] if got.headers.get(header) == text else [f"{header}: {got.headers.get(header)}, not {text}"]
        )
    if one.data is not None and got.body != one.data:
        found.append(f"{got.body!r}, not {one.data!r}")
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_behaviour_is_as_its_row_says(name: str) -> None:
    assert deviations(name) == []


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_what_it_is(name: str) -> None:
    row = ROWS[name]
    other = [one for one in row.asks if one.ours is not None]
    assert all(one.ours != one.status for one in other)
    assert row.differs or not other, "a difference has a reason"
    assert row.why or row.asks
    assert row.why or not row.differs


def test_names_are_unique() -> None:
    assert len(ROWS) == sum(map(len, SECTIONS.values()))
