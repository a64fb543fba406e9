"""All recorded requests of two HSDS servers, in order: what differs from their answers stands in one table."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from hsparse.dn.service import DataService
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.conftest import USERS, TickingClock
from tests.sn.recording import Comparison, Deviation, play, recorded
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore

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


FILE = "an external link's file is told by both names, and taken by both"
LAYOUT = "a dataset's layout is told in both places"
COUNTED = "counted as soon as it is stored; HSDS counts later"
ROWS = "elements that answer a query have their places beside them, 0.9 in front of their fields"
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
    Difference("reply.*.file", "extra", FILE, (OLD,)),
    Difference("reply.*.h5domain", "extra", FILE, BOTH),
    Difference("reply.*.class", "other", "0.9 did not know `file`", (OLD,), "get links*|group incl*"),
    Difference("reply.layout", "extra", LAYOUT, BOTH, "create *dataset*|dataset with committed type|get dataset*"),
    Difference("reply.creationProperties", "extra", LAYOUT, (OLD,), "create *dataset*|dataset with committed type"),
    Difference("reply.creationProperties.layout", "extra", LAYOUT, (OLD,), "get dataset*"),
    Difference("reply.shape.maxdims[]", "other", "no limit is H5S_UNLIMITED", (OLD,), "*resizable*|get shape"),
    Difference("reply.domain_objs.<id>.*", "extra", "members of domain_objs with all that HSDS 0.9 tells", (NEW,)),
    Difference("status", "other", "0.9 fails at a query on an array; it answers none", (OLD,), "list folder query*"),
    # --- more than was answered
    Difference("reply.index", "extra", ROWS, pairs="query|query no hit"),
    Difference("reply.indices", "extra", "both dialects' keys", (OLD,), "query update"),
    Difference("reply.value", "extra", "both dialects' keys", (NEW,), "query update"),
    Difference("reply.num_chunks", "extra", COUNTED, pairs="get dataset verbose"),
    Difference("reply.allocated_size", "extra", COUNTED, pairs="get dataset verbose"),
    Difference("reply.selection", "extra", "an append tells where the values went", pairs="append*"),
    Difference("reply.status", "extra", "points are answered as selections are", pairs="read points POST JSON*"),
    # --- otherwise
    Difference("reply.value[]", "other", ROWS, (OLD,), "query"),
    Difference("reply", "other", ROWS, (OLD,), "query binary"),
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
    rest = await RestClient(nodes, clock, *USERS, settings=ServiceSettings(bucket="hsdstest")).open()
    for name in ("h5pyd_tests", "hsds_test"):
        assert (await rest("PUT", "/", {"folder": True}, domain=f"{HOME}/{name}")).status == 201
    comparison = Comparison(rest.url)
    found = {pair["name"]: await play(pair, rest, comparison) for pair in recorded(version)}
    await rest.close()
    for node in nodes.values():
        await node.close()
    return found


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
