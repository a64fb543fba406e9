"""Which domain a request names, and what its principal may do there, in other domains, and with files of the store.

A user's home folder is made when it is first looked for.

Files are readable by those who may read the nearest folder or domain above them; the same folder decides who learns
which names it has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from aiohttp import web

from hsparse.errors import (
    MISSING_KINDS,
    BadRequest,
    Conflict,
    ErrorKind,
    Forbidden,
    Gone,
    HsparseError,
    NotFound,
    TooLarge,
)
from hsparse.model.acl import Principal, Right, folder_acls, readable
from hsparse.model.file_backed import file_key, file_reference
from hsparse.model.link import external_domain
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.policies.policy import Next
from hsparse.sn.records.domain_path import at_snapshot, bucket_name, is_unicode, parsed_path
from hsparse.sn.records.second_names import FIRST_NAME, with_first_names
from hsparse.sn.request import Domain, Request, without_right
from hsparse.sn.route import Route
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject

UNCHECKED_BODY = 1 << 20
"""Bytes of the largest body on routes whose handlers check rights themselves: every client can send one."""
TOP_FOLDER = Domain("/", {"owner": "admin", "acls": {"default": {"read": True}}})
"""The folder of the top-level domains, which has no record."""
HOME = "/home"
ADMIN = "admin"
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

    def files(self, service: Service, principal: Principal, beside: str) -> FileRights:
        """See `hsparse.sn.request.Access`."""
        return FileRights(service.owners, principal, service.settings.bucket, service.of_bucket, beside)

    async def _find_again(self, request: Request) -> None:
        """Have the domain as it is now; raises if another one is at its path, or the principal lost the right."""
        assert request.route.right is not None
        found = await request.find(request.domain.path, request.route.right)
        if found.identity != request.domain.identity:
            raise Conflict(
                f"{found.path} was deleted and created again before the body had come; nothing was applied."
            )
        request.found = found


def request_place(service: Service, request: web.BaseRequest) -> tuple[Service, str | None]:
    """Return the service of the bucket that a request names, and its domain path, None without one.

    The path is that of `?domain=` or of the header X-Hdf-domain. A leading `hdf5:/` and a trailing slash are dropped.
    The bucket is that in front of the path, else that of `?bucket=` or of the header X-Hdf-bucket; without one it is
    the first. `NotFound` for a bucket that is not served, `BadRequest` for what no bucket can be called.
    """
    if "host" in request.query:
        raise BadRequest("The parameter host is not supported; use domain.")
    named = request.query.get("bucket") or request.headers.get("X-Hdf-bucket")
    text = request.query.get("domain") or request.headers.get("X-Hdf-domain")
    # aiohttp decodes bytes of a header that are not UTF-8 to lone surrogates, which no answer can contain
    if not (said := request.host + (text or "")).isascii() and not is_unicode(said):
        raise BadRequest("The domain and the host must be UTF-8 text.")
    name = bucket_name(named) if named else None
    if not text:
        return (service.of_bucket(name) if name else service), None
    in_front, path = parsed_path(at_snapshot(text, request.query) if "snapshot" in request.query else text)
    name = bucket_name(in_front) if in_front else name
    return (service.of_bucket(name) if name else service), path


async def find_domain(
    service: Service, path: str, principal: Principal | None = None, *, dangling: bool = False
) -> Domain:
    """Return the domain or folder at `path`; `NotFound` or `Gone` without one.

    A domain whose objects were deleted by another name is `Gone`, unless `dangling` ones are asked for. `/home` and
    the home folder of `principal` are created if they do not exist.
    """
    if path == "/":
        return TOP_FOLDER
    outcome = (await service.owners.read(path))[0]
    if outcome.failure is not None:
        created = await create_home(service, path, principal)
        if created is not None:
            return Domain(path, created)
        raise outcome.failure.error()
    record = outcome.record or {}
    if "deleted" in record and not dangling:
        raise Gone(f"The objects of {path} were deleted by another name that they had; delete {path}, too.")
    domain = Domain(path, record)
    return domain if FIRST_NAME not in record else (await with_first_names(service.owners, [domain]))[0]


async def create_home(service: Service, path: str, principal: Principal | None) -> Record | None:
    """Create the folder at `path` if it is `/home` or the principal's home, and return its record.

    None for any other path, and where nothing is written. If a concurrent request creates it, that record is returned.
    """
    if service.settings.read_only:
        return None
    if path == HOME:
        # Admins need no entry. One by the name would be that of a user who is called so and is no admin.
        return await _create_home(service, path, service.settings.single_user or ADMIN, readable())
    if principal is None or principal.anonymous or path != f"{HOME}/{principal.name}":
        return None
    if (await service.owners.read(HOME))[0].failure is not None:
        await create_home(service, HOME, None)
    return await _create_home(service, path, principal.name, folder_acls(principal.name))


async def _create_home(service: Service, path: str, owner: str, acls: dict[str, dict[str, bool]]) -> Record:
    now = service.clock.now()
    record = {"owner": owner, "acls": acls, "created": now, "lastModified": now}
    outcome = (await service.owners.change(CreateObject(path, record)))[0]
    if outcome.failure is not None and outcome.failure.kind == ErrorKind.CONFLICT:
        return await service.owners.record(path)
    return outcome.unwrap() or record


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
    beside: str = ""

    async def domain(self, name: str, beside: str) -> tuple[Service, Domain]:
        """See `hsparse.sn.request.FileRights`."""
        bucket, path = parsed_path(external_domain(name, beside, self.bucket))
        assert self.others is not None
        service = self.others(bucket or self.bucket)
        return service, await Access().find(service, path, self.principal, Right.READ)

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
