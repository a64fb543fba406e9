"""The contract between service nodes and data nodes: typed messages, and the protocol that carries them.

A message is a frozen dataclass whose generic parameter is the type of its reply. `DataNode` has two
equal implementations: the data node's own service, called directly, and the same over HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from hsparse.errors import ERRORS, ErrorKind, HsparseError

Record: TypeAlias = dict[str, Any]

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Message(Generic[R]):
    """Base of all messages; `R` is what the data node answers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels: the kind and the sentence."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: HsparseError) -> Failure:
        return cls(error.kind.value, error.message)

    def error(self) -> HsparseError:
        try:
            return ERRORS[ErrorKind(self.kind)](self.message)
        except ValueError:  # a newer node's kind: keep its sentence
            return HsparseError(self.message)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A data node's own account of itself."""

    id: str
    state: str
    start_time: float
    bucket: str
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetInfo(Message[NodeInfo]):
    """Ask a data node who it is and how it does."""


class DataNode(Protocol):
    """Whoever answers messages: the owner of objects and chunks, near or far."""

    async def send(self, message: Message[R], /) -> R:
        """Do what the message says and return its reply; raises the `HsparseError` it failed with."""
        ...

    async def close(self) -> None:
        """Release connections or, for a local data node, drain and stop."""
        ...
