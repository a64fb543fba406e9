"""Which domain a request names, and what its principal may do there, in other domains, and with files of the store.

Files are readable by those who may read the nearest folder or domain above them; the same folder decides who learns
which names it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from aiohttp import web

from hsparse.errors import MISSING_KINDS, BadRequest, Conflict, Forbidden, HsparseError, NotFound, TooLarge
from hsparse.model.acl import Principal, Right
from hsparse.model.file_backed import file_key, file_reference
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.policies.policy import Next
from hsparse.sn.records.domain_path import find_domain, request_place
from hsparse.sn.request import Domain, Request, without_right
from hsparse.sn.route import Route
from hsparse.sn.service import Service

UNCHECKED_BODY = 1 << 20
"""Bytes of the largest body on routes whose handlers check rights themselves: every client can send one."""
MAX_FOLDERS = 1000
"""The most folders of the files of one read."""


class Access:
    """Finds the bucket and the domain of a request, and checks the right that its route needs.

    Handlers ask it, through the request, for the rights that follow from what a request says.
    """

    def applies(self, route: Route) -> bool:
        return route.authenticated

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        request.access = self
        request.service, request.domain_path = request_place(request.service, request.http)
        path = request.trace.domain = request.domain_path
        right = request.route.right
        if right is None:
            request.limit = min(UNCHECKED_BODY, request.limit)
            return await next(request)
        if path is None:
            raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
        request.found = await self.find(request.service, path, request.principal, right)
        request.checks.append(self._find_again)
        return await next(request)

    async def find(
        self, service: Service, path: str, principal: Principal, right: Right, *, dangling: bool = False
    ) -> Domain:
        """See `hsparse.sn.request.Access`."""
        try:
            domain = await find_domain(service, path, principal, dangling=dangling)
        except HsparseError as error:
            await _hide_name(service.owners, path, principal, error)
            raise
        (replace(domain, first=None) if dangling else domain).require(principal, right)
        return domain

    @asynccontextmanager
    async def hiding_names(self, service: Service, path: str, principal: Principal) -> AsyncIterator[None]:
        """See `hsparse.sn.request.Access`."""
        try:
            yield
        except HsparseError as error:
            await _hide_name(service.owners, path, principal, error)
            raise

    def files(self, service: Service, principal: Principal) -> FileRights:
        """See `hsparse.sn.request.Access`."""
        return FileRights(service.owners, principal, service.settings.bucket, service.of_bucket)

    async def _find_again(self, request: Request) -> None:
        """Have the domain as it is now; raises if another one is at its path, or the principal lost the right."""
        assert request.route.right is not None
        found = await request.find(request.domain.path, request.route.right)
        if found.identity != request.domain.identity:
            raise Conflict(
                f"{found.path} was deleted and created again before the body had come; nothing was applied."
            )
        request.found = found


async def _hide_name(owners: Owners, path: str, principal: Principal, error: HsparseError) -> None:
    """Raise `Forbidden` for a missing name, as of one that is there, if the principal may not read its folder."""
    if error.kind in MISSING_KINDS:
        above = await _nearest_above(owners, path)
        if above is not None and not above.allows(principal, Right.READ):
            raise without_right(principal, Right.READ, path) from None


async def _nearest_above(owners: Owners, path: str) -> Domain | None:
    """Return the nearest folder or domain above `path`, None if there is none but the top level."""
    above = path.rpartition("/")[0]
    paths = []
    while above:
        paths.append(above)
        above = above.rpartition("/")[0]
    for above, outcome in zip(paths, await owners.read(*paths), strict=True):
        if outcome.failure is None:
            return Domain(above, outcome.unwrap())
        if outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()
    return None


@dataclass(frozen=True, slots=True)
class FileRights:
    """The rights of a principal to files of the store, whose name is `bucket`, and of others that are served."""

    owners: Owners
    principal: Principal
    bucket: str
    others: Callable[[str], Service] | None = None

    def owners_of(self, uri: str) -> tuple[Owners, str, str]:
        """Return the owners, the bucket and the key of a file; `Forbidden` for a bucket that is not served."""
        bucket, key = file_reference(uri, self.bucket)
        if bucket != self.bucket and self.others is not None:
            with suppress(NotFound):
                return self.others(bucket).owners, bucket, key
        return self.owners, self.bucket, file_key(uri, self.bucket)

    async def require(self, *uris: str) -> None:
        """Raise `Forbidden` for a file in a folder where the principal may not read.

        The nearest folder or domain above the file decides; a file without one is readable by all. A file in another
        bucket that is not served is `Forbidden`, a URI that names no file a `BadRequest`.
        """
        folders: dict[tuple[str, str], Owners] = {}
        for uri in uris:
            owners, bucket, key = self.owners_of(uri)
            folders[bucket, key.rpartition("/")[0]] = owners
        if len(folders) > MAX_FOLDERS:
            raise TooLarge(f"The data is in files of more than {MAX_FOLDERS} folders; select less at a time.")
        for (_, folder), owners in sorted(folders.items(), key=lambda item: item[0]):
            above = await _nearest_above(owners, f"/{folder}/" if folder else "")
            if above is not None and not above.allows(self.principal, Right.READ):
                # Not by the folder that decides: this would tell which of those above the file are there.
                raise Forbidden(
                    f"{self.principal.name} does not have the right read in /{folder}, where the file is."
                )
