"""Access control: finding the domain that a request names, and checking the principal's rights to domains and files.

A user's home folder is created when it is first requested.

A principal who may read the nearest folder or domain above a file may read the file. A principal who may not read the
nearest folder above a path is not told whether the path exists.
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
from hsparse.sn.records.second_names import ELSEWHERE, with_first_names
from hsparse.sn.request import Domain, Request, without_right
from hsparse.sn.route import Route
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject

UNCHECKED_BODY = 1 << 20
"""The maximum size of a body on routes that need no right, because clients without rights can send these bodies."""
TOP_FOLDER = Domain("/", {"owner": "admin", "acls": {"default": {"read": True}}})
"""The top-level folder, which has no record in the store."""
HOME = "/home"
ADMIN = "admin"
MAX_FOLDERS = 1000
"""The maximum number of folders that contain the files of one read."""


class AccessPolicy:
    """Finds the bucket and the domain of a request, and checks the right that its route needs.

    Handlers use it as `Request.access` to check further rights, which depend on parameters and bodies.
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
        """See `hsparse.sn.request.AccessControl`."""
        try:
            domain = await find_domain(service, path, principal, dangling=dangling)
        except HsparseError as error:
            await _hide_name(service.owners, path, principal, error)
            raise
        (replace(domain, first=None) if dangling else domain).require(principal, right)
        return domain

    def files(self, service: Service, principal: Principal, beside: str) -> UserFileRights:
        """See `hsparse.sn.request.AccessControl`."""
        return UserFileRights(service.owners, principal, service.settings.bucket, service.of_bucket, beside)

    async def _find_again(self, request: Request) -> None:
        """Load the domain again; raise `Conflict` if it was replaced, `Forbidden` if the principal lost the right."""
        assert request.route.right is not None
        found = await request.find(request.domain.path, request.route.right)
        if found.identity != request.domain.identity:
            raise Conflict(
                f"{found.path} was deleted and created again before the body arrived: send the request again."
            )
        request.found = found


def request_place(service: Service, request: web.BaseRequest) -> tuple[Service, str | None]:
    """Return a pair: the service of the request's bucket, and the normal form of its domain path, or None without one.

    A bucket before the path takes precedence over the parameter. Raises `NotFound` if the bucket is not served.
    """
    if "host" in request.query:
        raise BadRequest("The parameter host is not supported; use domain.")
    named = request.query.get("bucket") or request.headers.get("X-Hdf-bucket")
    text = request.query.get("domain") or request.headers.get("X-Hdf-domain")
    # aiohttp decodes header bytes that are not UTF-8 to lone surrogates, which no answer can contain.
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
    """Return the domain or folder at `path`; raise `NotFound` or `Gone` if neither exists.

    If the objects were deleted by another name, raise `Gone` unless `dangling`. Missing home folders are created.
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
        raise Gone(f"The objects of {path} were deleted by another name; delete {path} as well.")
    domain = Domain(path, record)
    return domain if ELSEWHERE.isdisjoint(record) else (await with_first_names(service.owners, [domain]))[0]


async def create_home(service: Service, path: str, principal: Principal | None) -> Record | None:
    """Create the folder at `path` if it is `/home` or the principal's home, and return its record.

    Returns None for other paths and on a read-only server. If another request creates it first, return that record.
    """
    if service.settings.read_only:
        return None
    if path == HOME:
        # Admins need no entry, and an entry for the name "admin" would apply to a user of that name without the role.
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
    """Raise `Forbidden` if `error` says that `path` is missing and the principal may not read the folder above it."""
    if error.kind in MISSING_KINDS:
        above = await _nearest_above(owners, path)
        if above is not None and not above.allows(principal, Right.READ):
            raise without_right(principal, Right.READ, path) from None


async def _nearest_above(owners: Owners, path: str) -> Domain | None:
    """Return the nearest folder or domain above `path`, or None if there is only the top level."""
    above = path.rpartition("/")[0]
    paths = []
    while above:
        paths.append(above)
        above = above.rpartition("/")[0]
    for above, outcome in zip(paths, await owners.read(*paths), strict=True):
        if outcome.failure is None:
            return (await with_first_names(owners, [Domain(above, outcome.unwrap())]))[0]
        if outcome.failure.kind not in MISSING_KINDS:
            raise outcome.failure.error()
    return None


@dataclass(frozen=True, slots=True)
class UserFileRights:
    """The `FileRights` of a principal; `others` returns the service of a bucket other than `bucket`."""

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
        return service, await AccessPolicy().find(service, path, self.principal, Right.READ)

    def owners_of(self, uri: str) -> tuple[Owners, str, str]:
        """See `hsparse.sn.request.FileRights`."""
        bucket, key = file_reference(uri, self.bucket)
        if bucket != self.bucket and self.others is not None:
            with suppress(NotFound):
                return self.others(bucket).owners, bucket, key
        return self.owners, self.bucket, file_key(uri, self.bucket)

    async def require(self, *uris: str) -> None:
        """Raise `Forbidden` if one of the files is in a folder that the principal may not read, or in no served bucket.

        The nearest folder or domain above a file decides; without one, every user may read the file. Raises
        `BadRequest` for a URI that names no file, `TooLarge` for files in more than `MAX_FOLDERS` folders.
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
                # The message must not name the deciding folder, which would disclose the folders that exist.
                raise Forbidden(
                    f"{self.principal.name} does not have the right read in /{folder}, where the file is."
                )
