"""Changes that were sent again: a message that arrives after its replacement is not carried out.

A sender that gets no answer sends a change again, and may then be answered, and send the next change. The first message
may still be under way, in a network that loses packets or in the socket of a process that was stopped: carried out
late, it would undo what came after it. In a later epoch it is refused anyway. If the first message was carried out, and
only its reply lost, its replacement is answered with that reply: carried out again, it would undo what came between.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from hsparse.errors import Misdirected

R = TypeVar("R")

MAX_TOKENS = 100_000
"""The most replaced messages that are remembered, the last ones."""
MAX_REPLIES = 256
"""The most replies that are remembered, the last ones: a message is sent again within seconds."""


class ReplacedMessages:
    """The tokens of messages that were replaced, see `Routed`."""

    def __init__(self, limit: int = MAX_TOKENS) -> None:
        self._limit = limit
        self._replaced: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, list[asyncio.Future[None]]] = {}
        self._replies: OrderedDict[str, Any] = OrderedDict()

    async def once(self, token: str, replaces: Sequence[str], work: Callable[[], Awaitable[R]]) -> R:
        """Return what `work` returns, or what it has returned for this message or one that it `replaces`.

        `Misdirected` when this one was replaced itself. A message without a token is carried out each time.
        """
        if not token:
            return await work()
        async with self.admit(token, replaces):
            known = next((one for one in (token, *replaces) if one in self._replies), None)
            reply: R = await work() if known is None else self._replies[known]
            self._replies[token] = reply
        if len(self._replies) > MAX_REPLIES:
            self._replies.popitem(last=False)
        return reply

    @asynccontextmanager
    async def admit(self, token: str, replaces: Sequence[str]) -> AsyncIterator[None]:
        """Let a change be carried out in the context, after the end of those that it `replaces`, and of itself.

        `Misdirected` when it was replaced itself.
        """
        if token in self._replaced:
            raise Misdirected("This message was sent again since.")
        self._note(replaces)
        if running := [one for other in (token, *replaces) for one in self._running.get(other, ())]:
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

    def _note(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            self._replaced[token] = None
            self._replaced.move_to_end(token)
        while len(self._replaced) > self._limit:
            self._replaced.popitem(last=False)
