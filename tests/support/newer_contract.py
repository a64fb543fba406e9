"""A contract of the next version, as an upgrade brings it: kinds and fields that this version does not have."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from hsparse.errors import Unanswered
from hsparse.wire import chunk_message, membership_message, record_message
from hsparse.wire.codec import decode_frame, encode_frame
from hsparse.wire.contract import CONTRACT, NEWER, Contract, Since
from hsparse.wire.message import InBucket, ReadMessage

NEXT = CONTRACT.version + 1


@dataclass(frozen=True, slots=True)
class ReadObjects(record_message.ReadObjects):
    """With a field that an older node can do without."""

    purpose: str = ""


@dataclass(frozen=True, slots=True)
class AdoptMembership(membership_message.AdoptMembership):
    """The same, between data nodes."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome(record_message.Outcome):
    """The same, of a reply."""

    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class EraseChunks(chunk_message.EraseChunks):
    """With a field that an older node must not pass over."""

    unless: str = ""


@dataclass(frozen=True, slots=True)
class StoreChunks(chunk_message.WriteChunks):
    """A kind that an older node can be told in another way."""


@dataclass(frozen=True, slots=True)
class CountObjects(ReadMessage[int]):
    """A kind of which older nodes have nothing."""

    root: str


NEW_KINDS = (ReadObjects, AdoptMembership, Outcome, EraseChunks, StoreChunks, CountObjects)

NEXT_CONTRACT = Contract(
    NEXT,
    {**CONTRACT.kinds, **{kind.__name__: kind for kind in NEW_KINDS}}.values(),
    {
        **NEWER,
        "ReadObjects.purpose": Since(NEXT, lambda message: replace(message, purpose="")),
        "AdoptMembership.reason": Since(NEXT, lambda message: replace(message, reason="")),
        "Outcome.cost": Since(NEXT, lambda outcome: replace(outcome, cost=0.0)),
        "EraseChunks.unless": Since(NEXT),
        "StoreChunks": Since(NEXT, lambda message: as_kind(chunk_message.WriteChunks, message)),
        "CountObjects": Since(NEXT),
    },
)


def as_kind(kind: Any, item: Any, **more: Any) -> Any:
    """Return a message of another kind with the fields that `kind` has of `item`."""
    common = {field.name for field in fields(kind)} & {field.name for field in fields(item)}
    return kind(**{name: getattr(item, name) for name in common}, **more)


def as_next(value: Any) -> Any:
    """Return what the code of the next version would say, a message or a reply: it uses what is new."""
    if isinstance(value, NEW_KINDS):
        return value  # another node has said it, and this one passes it on
    match value:
        case tuple() | list():
            return tuple(map(as_next, value))
        case membership_message.Routed() | InBucket():
            return replace(value, message=as_next(value.message))
        case record_message.ReadObjects():
            return as_kind(ReadObjects, value, purpose="to show it")
        case membership_message.AdoptMembership():
            return as_kind(AdoptMembership, value, reason="one more")
        case record_message.Outcome():
            return as_kind(Outcome, value, cost=0.5)
        case chunk_message.WriteChunks():
            return as_kind(StoreChunks, value)
        case chunk_message.EraseChunks():
            return as_kind(EraseChunks, value)
    return value


def spoken(sender: Contract, receiver: Contract, member: int) -> int:
    """Return the version in which a node speaks with one that it takes for a member of a version, as `RemoteNode`."""
    version = sender.spoken_with(member, "The receiver")
    if version > receiver.version:
        raise Unanswered("A process of an older version has the member's address.")
    receiver.check_spoken(version)
    return version


def carried(value: Any, version: int, sender: Contract, receiver: Contract) -> Any:
    """Return a message, or a reply, of a sender's code as the receiver reads it."""
    said = as_next(value) if sender is NEXT_CONTRACT else value
    read = decode_frame(memoryview(b"".join(encode_frame(said, version, sender))), receiver)
    return tuple(read) if isinstance(read, list) else read
