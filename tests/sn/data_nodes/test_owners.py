"""Messages to owners: split, sent at once, resent by a newer membership, results in the order of the items."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.cluster.membership import Membership
from hsparse.dn import records
from hsparse.dn.service import DataService
from hsparse.sn.data_nodes.owners import RESEND, Delivery, FixedNodes, Owners
from hsparse.wire.message import InBucket, Message
from hsparse.wire.record_message import CreateObject, Outcome, ReadObjects
from tests.testing.memory_store import MemoryStore


class Script:
    """`NodeSet` whose epochs have the nodes in `epochs`; of each message that is sent some are to be resent."""

    def __init__(self, epochs: list[tuple[str, ...]], refused: list[bool]) -> None:
        self.epochs = epochs
        self.refused = refused
        self.sent: list[tuple[int, str, Message[object]]] = []
        self.membership = Membership(0, epochs[0])

    async def members(self, delivery: Delivery) -> Membership:
        if delivery.epoch >= 0:
            epoch = min(delivery.epoch + 1, len(self.epochs) - 1)
            self.membership = Membership(epoch, self.epochs[epoch])
        return self.membership

    async def send(self, membership, node, message, delivery):  # type: ignore[no-untyped-def]
        self.sent.append((membership.epoch, node, message))
        if self.refused and self.refused.pop():
            delivery.epoch = max(delivery.epoch, membership.epoch)
            return RESEND
        inner = message.message if isinstance(message, InBucket) else message
        return tuple(Outcome({"id": id, "node": node}) for id in inner.ids)

    async def send_any(self, message):  # type: ignore[no-untyped-def]
        return message

    async def send_all(self, message):  # type: ignore[no-untyped-def]
        return [message]


@given(
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=12),
    st.lists(st.sets(st.sampled_from("uvwx"), min_size=1).map(tuple), min_size=1, max_size=4),
    st.lists(st.booleans(), max_size=8),
    st.sampled_from(["", "other"]),
)
async def test_each_item_is_answered_by_its_owner(
    ids: list[str], epochs: list[tuple[str, ...]], refused: list[bool], bucket: str
) -> None:
    once = not any(refused)
    nodes = Script(epochs, refused)
    outcomes = await Owners(nodes, bucket).read(*ids)
    assert [outcome.unwrap()["id"] for outcome in outcomes] == ids
    for epoch, node, message in nodes.sent:
        assert isinstance(message, InBucket) == bool(bucket)
        inner = message.message if isinstance(message, InBucket) else message
        assert isinstance(inner, ReadObjects)
        assert inner.ids
        assert all(Membership(epoch, epochs[epoch]).owner(id) == node for id in inner.ids)
    if once:
        owners = [node for _, node, _ in nodes.sent]
        assert len(owners) == len(set(owners)), "one message an owner"


def as_root(number: int) -> str:
    return f"/home/a/{number:04d}.h5"


@pytest.mark.parametrize("room", [0, 3000, 20_000, records.REPLY_MEMORY])
@pytest.mark.parametrize("names", [("dn-001",), ("dn-001", "dn-002")])
async def test_large_records_come_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, room: int, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(records, "REPLY_MEMORY", room)
    monkeypatch.setattr(records, "LARGE_READ", min(room, records.LARGE_READ))
    random = Random(room)
    store, ids = MemoryStore(), [as_root(number) for number in range(60)]
    texts = {id: "x" * random.choice([1, 100, 1000, 30_000]) for id in ids}
    asked = [*ids, as_root(9999)]
    for cold in (False, True):
        nodes = {name: DataService(store, SystemClock()) for name in names}
        owners = Owners(FixedNodes(dict(nodes)))
        if not cold:
            await owners.change(*(CreateObject(id, {"owner": text}) for id, text in texts.items()))
        else:
            assert len(await owners.read(*asked)) == 61
        found, parts = {}, 0
        async for first, some in owners.read_parts(asked):
            assert first == len(found)
            parts += 1
            sizes = [len((one.record or {}).get("owner", "")) for one in some]
            assert sum(sizes) <= len(names) * (room + max(sizes))
            found |= {asked[first + place]: one for place, one in enumerate(some)}
        assert (parts > 1) == (room < 1 << 20)
        assert found.pop(asked[-1]).failure is not None
        assert {id: one.unwrap()["owner"] for id, one in found.items()} == texts
        assert [one.record for one in await owners.read(*ids)] == [found[id].record for id in ids]
        for node in nodes.values():
            await node.close()
