"""The context of a request: its principal and its domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hsparse.model.acl import Principal, Right, is_allowed
from hsparse.sn.http.request import RequestReader
from hsparse.sn.quotas.folder_count import OBJECT_BYTES
from hsparse.sn.quotas.quotas import Growth
from hsparse.sn.service import Service


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain or folder: its absolute path and its stored record, which must not be modified.

    A folder has no `root`.
    """

    path: str
    record: dict[str, Any]
    first: Domain | None = None
    """Of a second name the first one, whose rights count too."""

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this domain from others that were or will be at its path."""
        return {name: self.record.get(name) for name in ("created", "root")}

    def allows(self, principal: Principal, right: Right) -> bool:
        """Say whether `principal` has `right` in this domain, and by the first name of its objects."""
        own = is_allowed(self.record.get("acls") or {}, principal, right)
        return own and (self.first is None or self.first.allows(principal, right))


@dataclass(slots=True)
class Context(RequestReader):
    """The argument of a handler: the request, its principal and its domain.

    `found` is None only on routes without a right; once a body has come late it is the domain as it is then.
    """

    service: Service
    principal: Principal
    path: str | None
    """The normalised domain path in the request, None without one."""
    found: Domain | None
    growth: Growth | None = None
    """What the request may add to the domain."""
    find_again: Callable[[], Awaitable[Domain | None]] | None = None
    """Returns `found` as it is now; raises if the principal is another now, or lacks the right that the route needs."""

    async def body(self) -> bytearray:
        """Return the whole body as `RequestReader.body`, with room for it if the request may add it to the domain."""
        data = await RequestReader.body(self)
        if self.growth is not None and self.growth.of_body:
            await self.growth.take(max(len(data), OBJECT_BYTES))
        return data

    async def make_room(self, nbytes: int) -> None:
        """Let the request add `nbytes` to the domain in all; `OverQuota` or `Busy` if a quota leaves no room."""
        if self.growth is not None:
            await self.growth.take(nbytes)

    async def body_came_late(self) -> None:
        if self.find_again is not None:
            self.found = await self.find_again()

    @property
    def domain(self) -> Domain:
        assert self.found is not None
        return self.found

    @property
    def collection(self) -> str:
        """The collection in the request's path: `groups`, `datasets` or `datatypes`."""
        return self.request.path.split("/", 2)[1]
