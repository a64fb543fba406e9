"""What HSDS 1.0.2 was measured to do, and all recorded requests: the same here, or a difference with a reason."""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from hsparse.dn.service import DataService
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.behaviours import domains, groups, values
from tests.sn.conftest import USERS, TickingClock
from tests.sn.recording import PATH, Ask, Comparison, Deviation, Row, play, recorded
from tests.support.rest_client import Reply, RestClient
from tests.testing.memory_store import MemoryStore

SECTIONS = {
    "hrefs": domains.HREFS,
    "domains": domains.ROWS,
    "groups": groups.ROWS,
    "attributes": groups.ATTRIBUTES,
    "datasets": values.DATASETS,
    "values": values.ROWS,
}
ROWS = {f"{section}: {row.name}": row for section, rows in SECTIONS.items() for row in rows}
BUCKET = "hsdstest"


@cache
def row_deviations(name: str) -> list[str]:
    """Play a row on a new server; return how the answers deviate from what it says of hsparse."""
    return asyncio.run(_row_deviations(ROWS[name]))


async def _row_deviations(row: Row) -> list[str]:
    clock = TickingClock()
    store = MemoryStore(clock=clock)
    await store.put("data/file.h5", bytes(400))
    node = DataService(store, clock)
    settings = ServiceSettings(bucket=BUCKET, single_user=None)
    async with RestClient(node, clock, *USERS, settings=settings) as rest:
        comparison = Comparison(rest.url)
        comparison.bound["<g0>"] = (await rest("PUT", "/", {}, domain=PATH))["root"]
        comparison.bound["<number0>"] = clock.time + 200.25
        comparison.bound["<number1>"] = int(clock.time) + 250
        return [
            f"{one.method} {one.path}: {text}"
            for one in row.asks
            for text in await _ask(rest, comparison, one)
        ]


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
    assert row_deviations(name) == []


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


OLD, NEW = "0.9.4", "1.0.2"
BOTH = (OLD, NEW)
HOME = "/home/test_user1"


@dataclass(frozen=True, slots=True)
class Difference:
    """A deviation that is meant: `*` in `where` and `pairs` (names of pairs, by `|`) stands for anything."""

    where: str
    how: str
    why: str
    versions: tuple[str, ...] = BOTH
    pairs: str = "*"

    def allows(self, version: str, pair: str, deviation: Deviation) -> bool:
        return (
            version in self.versions
            and deviation.how == self.how
            and _matches(self.where, deviation.where)
            and any(_matches(name, pair) for name in self.pairs.split("|"))
        )


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


NAMES_OF_FILE = "an external link's file is told by both names, and taken by both"
LAYOUT = "a dataset's layout is told in both places"
COUNTED = "counted as soon as it is stored; HSDS counts later"
WITH_PLACES = "elements that answer a query have their places beside them, 0.9 in front of their fields"
DIFFERENCES = (
    # --- who we are
    Difference("reply.name", "other", "our own name", pairs="about*"),
    Difference("reply.greeting", "other", "our own name", pairs="about*"),
    Difference("reply.about", "other", "our own name", pairs="about*"),
    Difference("reply.idempotency_keys", "extra", "what clients may repeat with a key", pairs="about*"),
    Difference("reply.hsparse_version", "extra", "the version of the server, beside that of the API", pairs="about*"),
    Difference("reply.dn_urls", "other", "where data nodes are is not told to anybody who asks", pairs="about*"),
    Difference("reply.hsds_version", "other", "one version for both dialects", (OLD,), pairs="about*"),
    Difference("reply.version", "other", "one version for both dialects", (OLD,)),
    Difference("reply.dn_ids[]", "other", "always in the same order", (OLD,), pairs="flush + dn ids*"),
    Difference("reply.*", "missing", "figures of the machine are not told to anybody who asks", pairs="info"),
    Difference("reply.data_nodes", "extra", "states of the data nodes", pairs="info"),
    # --- how answers are made
    Difference("header Content-Type", "other", "errors are JSON, of one shape", pairs=(
        "create domain: *|get domain: *|get link: *|link hard conflict|get links of several *|put attribute again *"
        "|get attribute: *|create dataset: bad type|write wrong size|read out of bounds|multi-path POST|acl missing"
        "|other user cannot write|get deleted *|delete root group|delete domain by other user"
    )),
    Difference("header Content-Type", "other", "an answer without a body has no type", (OLD,), "CORS preflight"),
    Difference("reply.hrefs", "extra", "the recording left them out, but for GET /"),
    # --- dialects
    Difference("reply.*.file", "extra", NAMES_OF_FILE, (OLD,)),
    Difference("reply.*.h5domain", "extra", NAMES_OF_FILE, BOTH),
    Difference("reply.*.class", "other", "0.9 did not know `file`", (OLD,), "get links*|group incl*"),
    Difference("reply.layout", "extra", LAYOUT, BOTH, "create *dataset*|dataset with committed type|get dataset*"),
    Difference("reply.creationProperties", "extra", LAYOUT, (OLD,), "create *dataset*|dataset with committed type"),
    Difference("reply.creationProperties.layout", "extra", LAYOUT, (OLD,), "get dataset*"),
    Difference("reply.shape.maxdims[]", "other", "no limit is H5S_UNLIMITED", (OLD,), "*resizable*|get shape"),
    Difference("reply.domain_objs.<id>.*", "extra", "members of domain_objs with all that HSDS 0.9 tells", (NEW,)),
    Difference("status", "other", "0.9 fails at a query on an array; it answers none", (OLD,), "list folder query*"),
    # --- more than was answered
    Difference("reply.index", "extra", WITH_PLACES, pairs="query|query no hit"),
    Difference("reply.indices", "extra", "both dialects' keys", (OLD,), "query update"),
    Difference("reply.value", "extra", "both dialects' keys", (NEW,), "query update"),
    Difference("reply.num_chunks", "extra", COUNTED, pairs="get dataset verbose"),
    Difference("reply.allocated_size", "extra", COUNTED, pairs="get dataset verbose"),
    Difference("reply.selection", "extra", "an append tells where the values went", pairs="append*"),
    Difference("reply.status", "extra", "points are answered as selections are", pairs="read points POST JSON*"),
    # --- otherwise
    Difference("reply.value[]", "other", WITH_PLACES, (OLD,), "query"),
    Difference("reply", "other", WITH_PLACES, (OLD,), "query binary"),
    Difference(
        "header Content-Length", "other", "what is small is sent in one piece, its length told",
        pairs="query binary|read vlen string scalar binary",
    ),
    Difference(
        "reply.attributes.<id>", "other", "those asked for; HSDS answers with all", pairs="*POST several objects"
    ),
    Difference(
        "reply.domain_objs.<id>", "missing", "objects that no link leads to are had by their ids", (NEW,), "getobjs*"
    ),
    Difference("*.lastModified", "other", "when it was written; HSDS writes chunks later", pairs="*verbose*"),
    Difference("reply.lastModified", "other", "when it was replaced, not when it was made", pairs="get attribute"),
    Difference("*.allocated_bytes", "other", "compressed bytes are the encoder's affair", pairs="*verbose*"),
)  # fmt: skip


@cache
def deviations(version: str) -> dict[str, list[Deviation]]:
    """Play a recording on a new server of two data nodes; return each pair's deviations, by its name."""
    return asyncio.run(_deviations(version))


async def _deviations(version: str) -> dict[str, list[Deviation]]:
    clock = TickingClock()
    store = MemoryStore(clock=clock)
    nodes: dict[str, Any] = {id: DataService(store, clock, id=id) for id in ("dn-001", "dn-002")}
    async with RestClient(nodes, clock, *USERS, settings=ServiceSettings(bucket="hsdstest")) as rest:
        for name in ("h5pyd_tests", "hsds_test"):
            assert (await rest("PUT", "/", {"folder": True}, domain=f"{HOME}/{name}")).status == 201
        comparison = Comparison(rest.url)
        return {pair["name"]: await play(pair, rest, comparison) for pair in recorded(version)}


def cases() -> list[Any]:
    found = []
    for version in BOTH:
        for pair in recorded(version):
            found.append(pytest.param(version, pair["name"], id=f"{version} {pair['name']}"))
    return found


@pytest.mark.parametrize(("version", "name"), cases())
def test_an_answer_is_as_recorded(version: str, name: str) -> None:
    unexpected = [
        str(deviation)
        for deviation in deviations(version)[name]
        if not any(difference.allows(version, name, deviation) for difference in DIFFERENCES)
    ]
    assert unexpected == []


@pytest.mark.parametrize("version", BOTH)
def test_all_pairs_are_there(version: str) -> None:
    names = [pair["name"] for pair in recorded(version)]
    assert len(names) == len(set(names)) == 145


def test_every_difference_is_one() -> None:
    found = [
        (version, name, deviation)
        for version in BOTH
        for name, some in deviations(version).items()
        for deviation in some
    ]
    stale = [
        (difference.where, difference.pairs, version)
        for difference in DIFFERENCES
        for version in difference.versions
        if not any(difference.allows(version, name, one) for there, name, one in found if there == version)
    ]
    assert stale == []
