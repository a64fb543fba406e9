"""The model data node and the real one answer any sequence of metadata messages alike."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.clock import ManualClock
from hsparse.dn.service import DataService
from hsparse.storage.memory import MemoryStore
from hsparse.testing.dict_data_node import DictDataNode
from hsparse.wire.message import DataNode, Message
from hsparse.wire.record_message import (
    AbandonAppends,
    BeginAppend,
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    EndAppend,
    EndTrim,
    ListKeys,
    Outcome,
    PutAcl,
    PutAttributes,
    PutLinks,
    PutQuota,
    ReadObjects,
    RecordChange,
    SetExtent,
)

ROOT = "g-00000000-00000001-8888-888888-888889"
GROUP = "g-00000000-00000001-0000-000000-000001"
DATASET = "d-00000000-00000001-0000-000000-000002"
DOMAIN = "/home/x.h5"
TIMES = {"created", "lastModified"}

NAMES = st.sampled_from(["a", "b", "c"])
SOME = st.lists(NAMES, min_size=1, max_size=2, unique=True).map(tuple)
VALUES = st.integers(0, 2).map(
    lambda n: {"type": "H5T_STD_I8LE", "shape": {"class": "H5S_SCALAR"}, "value": n}
)
LINKS = st.sampled_from([GROUP, ROOT]).map(lambda id: {"class": "H5L_TYPE_HARD", "id": id}) | st.just(
    {"class": "H5L_TYPE_SOFT", "h5path": "/a"}
)
OBJECTS = st.sampled_from([ROOT, GROUP, DATASET])
GROUPS = st.sampled_from([ROOT, GROUP])
DIMS = st.tuples(st.integers(0, 6), st.integers(0, 6))


def new(id: str) -> CreateObject:
    record: dict[str, Any] = {"id": id, "created": 0.0, "lastModified": 0.0, "attributes": {}}
    if id == DOMAIN:
        record |= {"owner": "x", "acls": {}, "root": ROOT}
    elif id == DATASET:
        record["shape"] = {"class": "H5S_SIMPLE", "dims": [3, 3], "maxdims": ["H5S_UNLIMITED", 5]}
    else:
        record["links"] = {}
    return CreateObject(id, record)


TOKENS = st.sampled_from(["a", "b", "c"])
CHANGES: st.SearchStrategy[RecordChange] = st.one_of(
    st.sampled_from([ROOT, GROUP, DATASET, DOMAIN]).map(new),
    st.builds(DeleteObject, st.sampled_from([GROUP, DATASET, DOMAIN])),
    st.builds(PutAttributes, OBJECTS, st.dictionaries(NAMES, VALUES, min_size=1), st.booleans()),
    st.builds(DeleteAttributes, OBJECTS, SOME),
    st.builds(PutLinks, GROUPS, st.dictionaries(NAMES, LINKS, min_size=1)),
    st.builds(DeleteLinks, GROUPS, SOME),
    st.builds(
        PutAcl, st.just(DOMAIN), NAMES, st.dictionaries(st.sampled_from(["read", "update"]), st.booleans())
    ),
    st.builds(
        PutQuota,
        st.just(DOMAIN),
        st.dictionaries(st.sampled_from(["bytes", "used"]), st.none() | st.integers(0, 3)),
    ),
    st.builds(SetExtent, st.just(DATASET), DIMS),
    st.builds(SetExtent, st.just(DATASET), st.tuples(st.integers(1, 3)), st.integers(0, 1)),
    st.builds(SetExtent, st.just(DATASET), DIMS, expect=DIMS),
    st.builds(EndTrim, st.just(DATASET), st.integers(0, 3)),
    st.builds(BeginAppend, st.just(DATASET), TOKENS, DIMS, st.integers(0, 1), st.sampled_from([-1.0, 1.0])),
    st.builds(EndAppend, st.just(DATASET), TOKENS),
    st.builds(AbandonAppends, st.just(DATASET), st.one_of(st.just(""), TOKENS), st.booleans()),
)
MESSAGES: st.SearchStrategy[Message[Any]] = st.one_of(
    st.lists(CHANGES, min_size=1, max_size=3, unique_by=lambda change: change.id).map(
        lambda changes: ChangeObjects(tuple(changes))
    ),
    st.builds(
        DeleteObject, st.sampled_from([GROUP, DOMAIN]), st.sampled_from([None, {"root": ROOT}, {"root": ""}])
    ).map(lambda change: ChangeObjects((change,)).again()),
    st.just(ReadObjects((ROOT, DATASET, DOMAIN, GROUP))),
    st.builds(
        ListKeys,
        st.sampled_from(["", "db/", "home/", "db/00000000-00000001/"]),
        st.booleans(),
        st.sampled_from(["", "db/00000000-00000001/d/"]),
        st.integers(1, 5),
    ),
    st.just(DeleteTree(ROOT)),
)


def plain(reply: Any) -> Any:
    """Return a reply without times, sizes and sentences."""
    if isinstance(reply, tuple):
        return [plain(one) for one in reply]
    if isinstance(reply, Outcome):
        kind = reply.failure.kind if reply.failure is not None else None
        return (kind, reply.changed, reply.created, untimed(reply.record) if kind is None else None)
    if isinstance(reply, int):
        return reply
    return (reply.keys, reply.prefixes, reply.more)


def untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: untimed(part) for key, part in value.items() if key not in TIMES}
    return [untimed(part) for part in value] if isinstance(value, list) else value


@settings(max_examples=150)
@given(st.lists(MESSAGES, max_size=25))
def test_both_answer_alike(messages: list[Message[Any]]) -> None:
    async def answers(node: DataNode) -> list[Any]:
        for id in (ROOT, DATASET):
            await node.send(ChangeObjects((new(id),)))
        replies = [plain(await node.send(message)) for message in messages]
        await node.close()
        return replies

    async def compare() -> None:
        clock = ManualClock()
        model = await answers(DictDataNode(clock))
        assert await answers(DataService(MemoryStore(clock=clock), clock)) == model

    asyncio.run(compare())
