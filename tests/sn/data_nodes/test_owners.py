"""Messages to owners: split, sent at once, resent by a newer membership, results in the order of the items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hsparse.cluster.membership import Membership
from hsparse.sn.data_nodes.node_set import Resend
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.message import InBucket, Message
from hsparse.wire.record_message import Outcome, ReadObjects


class Script:
    """`NodeSet` whose epochs have the nodes in `epochs`; of each message that is sent some are to be resent."""

    def __init__(self, epochs: list[tuple[str, ...]], refused: list[bool]) -> None:
        self.epochs = epochs
        self.refused = refused
        self.sent: list[tuple[int, str, Message[object]]] = []
        self.membership = Membership(0, epochs[0])

    async def members(self, again: Resend | None) -> Membership:
        if again is not None:
            epoch = min(again.epoch + 1, len(self.epochs) - 1)
            self.membership = Membership(epoch, self.epochs[epoch])
        return self.membership

    async def send(self, membership, node, message, again):  # type: ignore[no-untyped-def]
        self.sent.append((membership.epoch, node, message))
        if self.refused and self.refused.pop():
            return Resend(membership.epoch, 1.0, doubtful=False)
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
