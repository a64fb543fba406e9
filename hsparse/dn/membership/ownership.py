"""Whether a data node may answer from its cache: only while no other node can have changed the object.

Changes that were sent again: a message that arrives after its replacement is not carried out.

A sender that gets no answer sends a change again, and may then be answered, and send the next change. The first message
may still be under way, in a network that loses packets or in the socket of a process that was stopped: carried out
late, it would undo what came after it. In a later epoch it is refused anyway. If the first message was carried out, and
only its reply lost, its replacement is answered with that reply: carried out again, it would undo what came between.
That holds in later epochs, too: the sender asks here before it sends the change to a new owner.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from hsparse.cluster.lease_object import NO_MEMBERS, Membership
from hsparse.errors import Misdirected
from hsparse.wire.message import DataNode

Kept = Callable[[str], bool]
"""Says of an object's name whether the node owned it before, and does now."""
_ACCEPTED_IN: ContextVar[int | None] = ContextVar("accepted_in", default=None)


@dataclass(frozen=True, slots=True)
class Doubt:
    """That a change may have been carried out before: it was asked for by the time `asked`, of this node's monotonic
    clock, and sent by the membership of `epoch`.
    """

    epoch: int
    asked: float


_DOUBT: ContextVar[Doubt | None] = ContextVar("doubt", default=None)


class Ownership(Protocol):
    """What a data node owns, at this moment."""

    @property
    def shared(self) -> bool:
        """Whether another data node may serve what this one owns, because it does not answer or its lease has ended."""
        ...

    @property
    def hears_all(self) -> bool:
        """Whether this node makes, or is told of, all changes that concern it: no other server makes any unheard."""
        ...

    def trusts(self, name: str) -> bool:
        """Say whether no other node changes the object `name`: what was read while this was true stands."""
        ...

    def accepted_in(self) -> int:
        """Return the term in which the change was accepted that this code carries out."""
        ...

    @property
    def change_epoch(self) -> int:
        """The epoch in which changes are accepted; 0 where none is ever sent again."""
        ...

    def doubt(self) -> Doubt | None:
        """Return whether the change that this code carries out may have been carried out before."""
        ...

    def may_change(self, term: int) -> bool:
        """Say whether a change that was accepted in `term` may be stored, or acknowledged, now.

        Otherwise another node may own the object, and have carried out the change, and others after it.
        """
        ...


class OwningService(DataNode, Protocol):
    """The service of a data node, which is told what it does not own any more."""

    def doubt(self, kept: Kept) -> None:
        """See `DataService`."""
        ...

    def forget_news(self) -> None:
        """See `DataService`."""
        ...

    def counters(self) -> dict[str, int]:
        """See `DataService`."""
        ...


class SoleOwnership:
    """The ownership of a data node that is alone with its store: it owns everything, always."""

    shared = False
    hears_all = True
    change_epoch = 0

    def doubt(self) -> Doubt | None:
        return None

    def trusts(self, name: str) -> bool:
        return True

    def accepted_in(self) -> int:
        return 0

    def may_change(self, term: int) -> bool:
        return True


SOLE = SoleOwnership()


class NoOwnership(SoleOwnership):
    """The ownership of a data node that only reads a store which others may write: it confirms all that it reads."""

    shared = True
    hears_all = False

    def trusts(self, name: str) -> bool:
        return False


class MemberOwnership:
    """The ownership of a member: what the membership gives it, once that is settled, and while its lease holds.

    A membership is settled once no other member answers by an older one. A `server` owns everything where it is the
    only member. Beside other members neither it nor they own anything.
    """

    def __init__(self, holds: Callable[[], bool], *, server: bool = False) -> None:
        self._holds = holds
        self._server = server
        self.membership: Membership = NO_MEMBERS
        self.settled = False
        self.node = ""
        self.term = 0
        """How often another node has taken the lease away."""

    @property
    def in_force(self) -> bool:
        """Whether this node owns what the membership gives it."""
        return self.settled and self._holds()

    @property
    def shared(self) -> bool:
        return not self._server or self.membership.shared or not self.in_force

    @property
    def hears_all(self) -> bool:
        return not self.membership.shared and (not self._server or self.in_force)

    def trusts(self, name: str) -> bool:
        if not self.in_force or self.membership.shared:
            return False
        return self._server or self.membership.owner(name) == self.node

    @contextmanager
    def accepting(self, doubt: Doubt | None = None) -> Iterator[None]:
        """Let what is done in the context be of a change that is accepted now."""
        token, doubted = _ACCEPTED_IN.set(self.term), _DOUBT.set(doubt)
        try:
            yield
        finally:
            _ACCEPTED_IN.reset(token)
            _DOUBT.reset(doubted)

    @property
    def change_epoch(self) -> int:
        return 0 if self._server else self.membership.epoch

    def doubt(self) -> Doubt | None:
        return _DOUBT.get()

    def accepted_in(self) -> int:
        term = _ACCEPTED_IN.get()
        return self.term if term is None else term

    def may_change(self, term: int) -> bool:
        # Other members take over only after this one has finished what it accepted, or when its lease has run out.
        return term == self.term and self._holds()


R = TypeVar("R")

MAX_TOKENS = 100_000
"""The most replaced messages that are remembered, the last ones."""
MAX_REPLIES = 256
"""The most replies with a content that are remembered, the last ones: a message is sent again within seconds.

Of those without one, as of writes, there may be as many as tokens.
"""


class ReplacedMessages:
    """The tokens of messages that were replaced, see `Routed`."""

    def __init__(self, limit: int = MAX_TOKENS) -> None:
        self._limit = limit
        self._replaced: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, list[asyncio.Future[None]]] = {}
        self._replies: OrderedDict[str, Any] = OrderedDict()
        self._done: OrderedDict[str, None] = OrderedDict()
        """The messages whose reply was None."""

    async def once(self, token: str, replaces: Sequence[str], work: Callable[[], Awaitable[R]]) -> R:
        """Return what `work` returns, or what it has returned for this message or one that it `replaces`.

        `Misdirected` when this one was replaced itself. A message without a token is carried out each time.
        """
        if not token:
            return await work()
        async with self.admit(token, replaces):
            known, reply = self._known((token, *replaces))
            if not known:
                reply = await work()
            self._remember(token, reply)
        return cast(R, reply)

    async def recall(self, tokens: Sequence[str]) -> Any:
        """Return the reply to the one of these messages that was carried out, when it has ended.

        `Misdirected` if that is not remembered of any: none of them is carried out any more, but one may have been.
        """
        self._note(tokens)
        if running := self._still_running(tokens):
            await asyncio.wait(running)
        known, reply = self._known(tokens)
        if not known:
            raise Misdirected("This node remembers no reply to this message.")
        return reply

    @asynccontextmanager
    async def admit(self, token: str, replaces: Sequence[str]) -> AsyncIterator[None]:
        """Let a change be carried out in the context, after the end of those that it `replaces`, and of itself.

        `Misdirected` when it was replaced itself.
        """
        if token in self._replaced:
            raise Misdirected("This message was sent again since.")
        self._note(replaces)
        if running := self._still_running((token, *replaces)):
            await asyncio.wait(running)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.setdefault(token, []).append(ended)
        try:
            yield
        finally:
            ended.set_result(None)
            self._running[token].remove(ended)
            if not self._running[token]:
                del self._running[token]

    def _still_running(self, tokens: Sequence[str]) -> list[asyncio.Future[None]]:
        return [one for token in tokens for one in self._running.get(token, ())]

    def _known(self, tokens: Sequence[str]) -> tuple[bool, Any]:
        """Return whether one of the messages was answered, and its reply."""
        for token in tokens:
            if token in self._done:
                return True, None
            if token in self._replies:
                return True, self._replies[token]
        return False, None

    def _remember(self, token: str, reply: Any) -> None:
        if reply is None:
            _keep(self._done, token, None, self._limit)
        else:
            _keep(self._replies, token, reply, min(MAX_REPLIES, self._limit))

    def _note(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            _keep(self._replaced, token, None, self._limit)


def _keep(known: OrderedDict[str, Any], token: str, value: Any, limit: int) -> None:
    """Add a token as the newest; the oldest ones beyond `limit` are forgotten."""
    known[token] = value
    known.move_to_end(token)
    while len(known) > limit:
        known.popitem(last=False)
