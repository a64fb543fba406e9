"""The contract between service nodes and data nodes: typed messages, and the protocol that carries them.

A message is a frozen dataclass whose generic parameter is the type of its reply. `DataNode` has two
equal implementations: the data node's own service, called directly, and a client of it over HTTP.

Messages of the members of a cluster: an envelope that names the membership, and those by which one is adopted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from hsparse.errors import ERRORS, Busy, ErrorKind, HsparseError

Record: TypeAlias = dict[str, Any]

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Message(Generic[R]):
    """Base of all messages; `R` is what the data node answers."""

    @property
    def only_reads(self) -> bool:
        """Whether any data node can answer it, from the store."""
        return False

    def as_repeated(self) -> Self:
        """Return the message to send when it is not known whether it was carried out."""
        return self


@dataclass(frozen=True, slots=True)
class ReadMessage(Message[R]):
    """Base of the messages that only read what is in the store."""

    @property
    def only_reads(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels: the kind and the sentence."""

    kind: str
    message: str
    retry_after: float = 0.0
    """Seconds, of a `Busy`."""

    @classmethod
    def of(cls, error: HsparseError) -> Failure:
        return cls(error.kind.value, error.message, error.retry_after if isinstance(error, Busy) else 0.0)

    def error(self) -> HsparseError:
        try:
            error = ERRORS[ErrorKind(self.kind)](self.message)
        except ValueError:  # a newer node's kind: keep its sentence
            return HsparseError(self.message)
        if isinstance(error, Busy) and self.retry_after:
            error.retry_after = self.retry_after
        return error


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The state of a data node, and its counters."""

    id: str
    state: str
    start_time: float
    bucket: str
    counters: dict[str, int] = field(default_factory=dict)
    buckets: tuple[str, ...] = ()
    """All buckets of the node, the first one included."""


@dataclass(frozen=True, slots=True)
class GetInfo(Message[NodeInfo]):
    """Return a data node's id, state and counters."""


@dataclass(frozen=True, slots=True)
class InBucket(Message[R]):
    """A message about another bucket than the data node's first; `NotFound` for one that it does not have."""

    bucket: str
    message: Message[R]

    @property
    def only_reads(self) -> bool:
        return self.message.only_reads

    def as_repeated(self) -> Self:
        return replace(self, message=self.message.as_repeated())


class DataNode(Protocol):
    """A data node in this process or another one: it owns objects and chunks, and answers messages about them."""

    async def send(self, message: Message[R], /) -> R:
        """Carry out the message and return its reply; raises the `HsparseError` it failed with."""
        ...

    async def close(self) -> None:
        """Release connections or, for a local data node, drain and stop."""
        ...


@dataclass(frozen=True, slots=True)
class Routed(Message[R]):
    """A message to the member `to`, the owner of what it is about in the membership of `epoch`.

    `Misdirected` in a later epoch, or at another member: addresses are used again. With `instead_of` it is for that
    member, which does not answer its sender. What only reads is answered from the store. Anything else is passed on if
    the member answers the receiver; else the receiver evicts it, and answers `Misdirected`.

    `key` is the idempotency key of a change in its epoch, `attempt` how often it was sent before. A node that has
    carried it out answers with its reply, also in a later epoch. An attempt that arrives after a later one is
    `Misdirected`: its sender may have been answered.

    `first_epoch` is that in which a change was sent first that may have been carried out since, `seconds` how long ago
    its sender was asked for it, or less.
    """

    to: str
    epoch: int
    message: Message[R]
    instead_of: str = ""
    key: str = ""
    attempt: int = 0
    first_epoch: int | None = None
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
