"""A request, once it is known who asks and about which domain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.model.principal import Principal

if TYPE_CHECKING:
    from hsparse.sn.service import Service

BODY_PATIENCE = 30.0
BODY_RATE = 64 * 1024
"""A body must come at this many bytes a second, after so many seconds: it holds memory that others wait for."""
MAX_DIGITS = 19
"""Digits of a number in a query: as many as 2^63-1 has."""
TRUE = frozenset({"1", "t", "true", "yes", "on"})
FALSE = frozenset({"", "0", "f", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain or folder: its absolute path, and its record as stored (not to be modified).

    A folder has no `root`.
    """

    path: str
    record: dict[str, Any]

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is given; `domain` is None only on routes that ask for no right."""

    service: Service
    request: web.Request
    principal: Principal
    path: str | None
    """The domain path the request names, normalised; None where it names none."""
    found: Domain | None
    limit: int = 0
    """The most bytes the body may have; 0 for what the settings say."""

    @property
    def domain(self) -> Domain:
        assert self.found is not None
        return self.found

    @property
    def collection(self) -> str:
        """The collection in the request's path: `groups`, `datasets` or `datatypes`."""
        return self.request.path.split("/", 2)[1]

    def arg(self, name: str) -> str | None:
        """Return a query parameter, None when it is not given."""
        return self.request.query.get(name)

    def flag(self, name: str) -> bool:
        """Return a query parameter as a truth value; `BadRequest` when it is none."""
        text = self.request.query.get(name, "").lower()
        if text in TRUE:
            return True
        if text in FALSE:
            return False
        raise BadRequest(f"{name} must be 0 or 1, not {text!r}.")

    def number(self, name: str) -> int | None:
        """Return a query parameter as a non-negative integer, None when it is not given."""
        text = self.request.query.get(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
            raise BadRequest(
                f"{name} must be a non-negative integer below 10^{MAX_DIGITS}, not {text[:40]!r}."
            )
        return int(text)

    def refuse(self, *names: str) -> None:
        """Raise `Unsupported` when one of these parameters, known to the API, is given."""
        for name in names:
            if self.request.query.get(name):
                raise Unsupported(f"The parameter {name} is not supported here yet; leave it out.")

    def check_length(self) -> None:
        """Raise `TooLarge` for a body that is announced as larger than the limit."""
        length = self.request.content_length
        if length is not None and length > self.most:
            raise TooLarge(f"The body has {length} bytes; the limit is {self.most} (max_request_size).")

    @property
    def most(self) -> int:
        """The most bytes the body may have."""
        return self.limit or self.service.settings.max_request_size

    async def body(self) -> bytearray:
        """Return the whole body; `TooLarge` beyond the limit, `BadRequest` when it was cut short."""
        self.check_length()
        limit = self.most
        length = self.request.content_length
        content = self.request.content
        if content.is_eof() and content.exception() is None:
            data = bytearray(content.read_nowait())  # it came with the headers
        else:
            data = await self._received(limit)
        if length is not None and len(data) != length:
            raise BadRequest(
                f"The body has {len(data)} bytes of the {length} announced; nothing was applied."
            )
        return data

    async def _received(self, limit: int) -> bytearray:
        """Return the body as it comes in, if that is fast enough."""
        data = bytearray()
        try:
            started = asyncio.get_running_loop().time()
            async with asyncio.timeout(BODY_PATIENCE) as patience:
                async for block in self.request.content.iter_any():
                    data += block
                    if len(data) > limit:
                        raise TooLarge(f"The body has more than {limit} bytes, the limit (max_request_size).")
                    patience.reschedule(started + BODY_PATIENCE + len(data) / BODY_RATE)
        except TimeoutError as error:
            raise BadRequest("The body came too slowly, or not at all; nothing was applied.") from error
        except web.RequestPayloadError as error:
            raise BadRequest("The body was cut short; nothing was applied.") from error
        return data
