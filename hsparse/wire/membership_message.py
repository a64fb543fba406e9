"""Messages of the members of a cluster: an envelope that names the membership, and those by which one is adopted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsparse.wire.message import InBucket, Message, R


@dataclass(frozen=True, slots=True)
class Routed(Message[R]):
    """A message to the member `to`, the owner of what it is about in the membership of `epoch`.

    `Misdirected` in a later epoch, or at another member: addresses are used again. With `instead_of` it is for that
    member, which does not answer its sender. What only reads is answered from the store. Anything else is passed on if
    the member answers the receiver; else the receiver evicts it, and answers `Misdirected`.

    `token` names a change that may be sent again, `replaces` are those of the times that it was sent before without
    an answer. One of them that arrives later is `Misdirected`: its sender may have been answered. A node that has
    carried one of them out answers with its reply, also in a later epoch.

    `doubted_in` is the epoch in which a change was sent first that may have been carried out then, `seconds` how long
    ago its sender was asked for it, or less.
    """

    to: str
    epoch: int
    message: Message[R]
    instead_of: str = ""
    token: str = ""
    replaces: tuple[str, ...] = ()
    doubted_in: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AdoptMembership(Message[int]):
    """Have the member `to` adopt the membership of `epoch`, or a later one, from the store; the reply is its epoch.

    The reply is 0 while changes that the member accepted in earlier epochs are running. `Unanswered` at another member,
    and without a lease.
    """

    to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CheckMember(Message[bool]):
    """Find out whether a member answers the receiver, which evicts it if not.

    The reply is whether it answers; `Misdirected` when it is no member of `epoch` any more.
    """

    epoch: int
    node: str


def message_name(message: Any) -> str:
    """Return the type of a message, without its envelopes."""
    while isinstance(message, Routed | InBucket):
        message = message.message
    return type(message).__name__
