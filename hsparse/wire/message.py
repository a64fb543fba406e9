"""The contract between service nodes and data nodes: typed messages, and the protocol that carries them.

A message is a frozen dataclass whose generic parameter is the type of its reply. `DataNode` has two equivalent
implementations: the data node's own service, called directly, and a client of the service over HTTP.

In a cluster, the envelope `Routed` names the membership for which a message was planned. Members send each other
messages to adopt a membership (`AdoptMembership`) and to check a member (`CheckMember`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from hsparse.errors import ERRORS, Busy, ErrorKind, HsparseError

Record: TypeAlias = dict[str, Any]

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Message(Generic[R]):
    """Base of all messages; `R` is the type of the data node's reply."""

    @property
    def only_reads(self) -> bool:
        """Whether the message only reads, so that any data node can answer it from the store."""
        return False

    def as_repeated(self) -> Self:
        """Return the message to send when it is unknown whether this message was carried out."""
        return self


@dataclass(frozen=True, slots=True)
class ReadMessage(Message[R]):
    """Base of the messages that only read from the store and change nothing."""

    @property
    def only_reads(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on the wire: its kind and its message."""

    kind: str
    message: str
    retry_after: float = 0.0
    """Seconds after which to retry, or 0; only `Busy` sets this field."""

    @classmethod
    def of(cls, error: HsparseError) -> Failure:
        return cls(error.kind.value, error.message, error.retry_after if isinstance(error, Busy) else 0.0)

    def error(self) -> HsparseError:
        try:
            error = ERRORS[ErrorKind(self.kind)](self.message)
        except ValueError:  # the kind is a newer node's: keep the message
            return HsparseError(self.message)
        if isinstance(error, Busy) and self.retry_after:
            error.retry_after = self.retry_after
        return error


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The state of a data node and its counters."""

    id: str
    state: str
    start_time: float
    bucket: str
    counters: dict[str, int] = field(default_factory=dict)
    buckets: tuple[str, ...] = ()
    """All buckets of the node, including the first."""


@dataclass(frozen=True, slots=True)
class GetInfo(Message[NodeInfo]):
    """Return a data node's id, state and counters."""


@dataclass(frozen=True, slots=True)
class InBucket(Message[R]):
    """A message about a bucket other than the node's first; raises `NotFound` if the node does not serve the bucket."""

    bucket: str
    message: Message[R]

    @property
    def only_reads(self) -> bool:
        return self.message.only_reads

    def as_repeated(self) -> Self:
        return replace(self, message=self.message.as_repeated())


class DataNode(Protocol):
    """A data node, in this process or another, that owns objects and chunks and answers messages about them."""

    async def send(self, message: Message[R], /) -> R:
        """Carry out the message and return its reply; raise the `HsparseError` with which it failed."""
        ...

    async def close(self) -> None:
        """Release the connections or, for a local data node, complete its changes and stop."""
        ...


@dataclass(frozen=True, slots=True)
class Routed(Message[R]):
    """A message to the member `to`, which owns the message's objects in the membership of `epoch`.

    `Misdirected` is raised in a later epoch, or by another member, since addresses are reused. With `instead_of`, the
    owner is the member `instead_of`, which does not answer the sender. The receiver answers a read from the store. It
    forwards a change if the owner answers the receiver; otherwise it evicts the owner and raises `Misdirected`.

    `key` is the idempotency key of a change in its epoch, and `attempt` is how often the change was sent before. A node
    that has carried out the change replies as before, also in a later epoch. An attempt that arrives after a later
    attempt raises `Misdirected`, because the sender may have an answer already.

    `first_epoch` is the epoch in which the change was first sent, if it may have been carried out since. `seconds` is a
    lower bound of the time since the sender's client requested the change.
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
    """Have the member `to` adopt the stored membership of `epoch` or later; the reply is the adopted epoch.

    The reply is 0 while changes that the member accepted in earlier epochs are running. `Unanswered` is raised if
    another member receives the message, or if the member has no lease.
    """

    to: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CheckMember(Message[bool]):
    """Have the receiver check whether the member `node` answers, and evict the member if it does not.

    The reply is whether the member answers. `Misdirected` is raised if `node` is no longer a member in `epoch`.
    """

    epoch: int
    node: str


def message_name(message: Any) -> str:
    """Return the name of a message's type, without its envelopes."""
    while isinstance(message, Routed | InBucket):
        message = message.message
    return type(message).__name__
