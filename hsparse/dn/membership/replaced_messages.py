"""Changes that were sent again: a message that arrives after its replacement is not carried out.

A sender that gets no answer sends a change again, and may then be answered, and send the next change. The first message
may still be under way, in a network that loses packets or in the socket of a process that was stopped: carried out
late, it would undo what came after it. In a later epoch it is refused anyway. If the first message was carried out, and
only its reply lost, its replacement is answered with that reply: carried out again, it would undo what came between.
That holds in later epochs, too: the sender asks here before it sends the change to a new owner.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from hsparse.errors import Misdirected

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
