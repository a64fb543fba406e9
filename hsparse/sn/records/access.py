"""Access to domains and files: the record of a domain, and the rights of the principal.

The home folders `/home` and `/home/<user>` are created when they are first needed. Files of the store are readable
by those who may read the nearest folder or domain above them; the same folder decides who learns which names it has.

Paths of domains: the one that a request names, its normal form, and which a new domain may not have.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache

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
from hsparse.model.acl import DEFAULT, Principal, Right, full_rights, is_allowed
from hsparse.model.file_backed import OBJECTS_FOLDER, file_key, file_reference
from hsparse.model.ids import check_bucket_name
from hsparse.model.link import PROTOCOL
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.second_names import FIRST_NAME, with_first_names
from hsparse.sn.request import Domain, Request
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject

TOP_FOLDER = Domain("/", {"owner": "admin", "acls": {"default": {"read": True}}})
"""The folder of the top-level domains, which has no record."""
HOME = "/home"
ADMIN = "admin"
MAX_FOLDERS = 1000
"""The most folders of the files of one read."""


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


async def find_allowed(
    service: Service, path: str, principal: Principal, right: Right, *, dangling: bool = False
) -> Domain:
    """Return the domain or folder at `path`, in which the principal has `right`; `NotFound`, `Gone` or `Forbidden`.

    With `dangling`, as the name itself is asked for, it is enough to have the right there, without the first name's.
    """
    try:
        domain = await find_domain(service, path, principal, dangling=dangling)
    except HsparseError as error:
        await _hide_name(service.owners, path, principal, error)
        raise
    require_right(principal, replace(domain, first=None) if dangling else domain, right)
    return domain


async def find_still_allowed(service: Service, domain: Domain, principal: Principal, right: Right) -> Domain:
    """Return `domain` as it is now; raises as `find_allowed`, and `Conflict` if another one is at its path."""
    found = await find_allowed(service, domain.path, principal, right)
    if found.identity != domain.identity:
        raise Conflict(
            f"{domain.path} was deleted and created again before the body had come; nothing was applied."
        )
    return found


@asynccontextmanager
async def hiding_names(owners: Owners, path: str, principal: Principal) -> AsyncIterator[None]:
    """Make of a missing `path` the `Forbidden` of one that is there, for who may not read the folder that it is in."""
    try:
        yield
    except HsparseError as error:
        await _hide_name(owners, path, principal, error)
        raise


async def _hide_name(owners: Owners, path: str, principal: Principal, error: HsparseError) -> None:
    """Raise `Forbidden` where `hiding_names` makes one of an error."""
    if error.kind in MISSING_KINDS:
        above = await _nearest_above(owners, path)
        if above is not None and not is_allowed(above.record.get("acls") or {}, principal, Right.READ):
            raise _without_right(principal, Right.READ, path) from None


async def require_domain(request: Request, right: Right, *, dangling: bool = False) -> Domain:
    """Return the domain that a request names and check `right`, for handlers whose route has none."""
    if request.domain_path is None:
        raise BadRequest("No domain given: name it by ?domain= or the X-Hdf-domain header.")
    return await find_allowed(
        request.service, request.domain_path, request.principal, right, dangling=dangling
    )


def require_right(principal: Principal, domain: Domain, right: Right) -> None:
    """Raise `Forbidden` if the principal does not have `right` in `domain`."""
    if not domain.allows(principal, right):
        raise _refusal(principal, domain, right)


def _refusal(principal: Principal, domain: Domain, right: Right) -> Forbidden:
    """Return the error; without the right to read, that of a name that is not there."""
    lacking = right if domain.allows(principal, Right.READ) else Right.READ
    if replace(domain, first=None).allows(principal, lacking):
        return Forbidden(
            f"{domain.path} is a second name of another domain's objects, in which {principal.name} does not have "
            f"the right {lacking.value}: it opens no more than that one."
        )
    return _without_right(principal, lacking, domain.path)


def _without_right(principal: Principal, right: Right, path: str) -> Forbidden:
    return Forbidden(f"{principal.name} does not have the right {right.value} in {path}.")


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


async def create_home(service: Service, path: str, principal: Principal | None) -> Record | None:
    """Create the folder at `path` if it is `/home` or the principal's home, and return its record.

    None for any other path. If a concurrent request creates it, that record is returned.
    """
    if path == HOME:
        # Admins need no entry. One by the name would be that of a user who is called so and is no admin.
        return await _create_home(service, path, service.settings.single_user or ADMIN, _readable())
    if principal is None or principal.anonymous or path != f"{HOME}/{principal.name}":
        return None
    if (await service.owners.read(HOME))[0].failure is not None:
        await create_home(service, HOME, None)
    return await _create_home(service, path, principal.name, folder_acls(principal.name))


def folder_acls(owner: str) -> dict[str, dict[str, bool]]:
    """Return the ACLs of a new folder: all rights for the owner, the right to read for all."""
    return {owner: full_rights(), **_readable()}


def _readable() -> dict[str, dict[str, bool]]:
    return {DEFAULT: {right.value: right is Right.READ for right in Right}}


async def _create_home(service: Service, path: str, owner: str, acls: dict[str, dict[str, bool]]) -> Record:
    now = service.clock.now()
    record = {"owner": owner, "acls": acls, "created": now, "lastModified": now}
    outcome = (await service.owners.change(CreateObject(path, record)))[0]
    if outcome.failure is not None and outcome.failure.kind == ErrorKind.CONFLICT:
        return await service.owners.record(path)
    return outcome.unwrap() or record


@dataclass(frozen=True, slots=True)
class FileRights:
    """The rights of a principal to files of the store, whose name is `bucket`, and of others that are served."""

    owners: Owners
    principal: Principal
    bucket: str
    others: Callable[[str], Service] | None = None

    @classmethod
    def of(cls, request: Request) -> FileRights:
        """Return the rights of a request's principal."""
        service = request.service
        return cls(service.owners, request.principal, service.settings.bucket, service.of_bucket)

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
            if above is not None and not is_allowed(
                above.record.get("acls") or {}, self.principal, Right.READ
            ):
                # Not by the folder that decides: this would tell which of those above the file are there.
                raise Forbidden(
                    f"{self.principal.name} does not have the right read in /{folder}, where the file is."
                )


MAX_PATH = 900
"""The most bytes of a path: with `/.domain.json` it must be an S3 key of at most 1024."""
MAX_COMPONENT = 240
RECORD = ".domain.json"
"""The last component of the key of a domain's record."""


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
    if not _is_unicode(request.host) or not _is_unicode(text or ""):
        raise BadRequest("The domain and the host must be UTF-8 text.")
    name = _bucket_name(named) if named else None
    if not text:
        return (service.of_bucket(name) if name else service), None
    in_front, path = _parsed_path(text)
    name = _bucket_name(in_front) if in_front else name
    return (service.of_bucket(name) if name else service), path


def normal_path(service: Service, text: str) -> str:
    """Return a domain path in its normal form; `BadRequest` says what is wrong with it."""
    bucket, path = _parsed_path(text)
    check_bucket(service, bucket)
    return path


@lru_cache(maxsize=4096)
def _parsed_path(text: str) -> tuple[str | None, str]:
    """Return the bucket at the start of a domain path, if any, and the normal form of the path; `BadRequest`."""
    bucket = None
    if text.startswith(PROTOCOL):
        text = "/" + text.removeprefix(PROTOCOL).lstrip("/")
    if not text.startswith("/"):
        bucket, slash, rest = text.partition("/")
        if not slash:
            raise BadRequest(f"The domain {text!r} must be an absolute path, such as /home/user/file.h5.")
        text = "/" + rest
    if text == "/":
        return bucket, text
    text = text.removesuffix("/")
    if not _is_unicode(text):
        raise BadRequest("The domain's path is not valid Unicode: it has a lone surrogate.")
    if len(text.encode()) > MAX_PATH:
        raise BadRequest(f"The domain's path has {len(text.encode())} bytes; the limit is {MAX_PATH}.")
    for component in text[1:].split("/"):
        _check_component(text, component)
    if text.split("/", 2)[1] == OBJECTS_FOLDER:
        raise BadRequest("/db is where the store keeps objects; choose another name.")
    return bucket, text


def check_not_reserved(path: str) -> None:
    """Raise `BadRequest` for a new domain's path that a store without case could take for one of its own.

    Domains that have such a path already are read and deleted as before.
    """
    components = path.casefold().split("/")
    if components[1] == OBJECTS_FOLDER or RECORD in components:
        raise BadRequest(
            f"The domain's path {path!r} has the component /{OBJECTS_FOLDER} or {RECORD} in other letters, which some "
            "file systems take for the same; choose another name."
        )


def _bucket_name(text: str) -> str:
    return check_bucket_name(text.removeprefix("s3://"))


def check_bucket(service: Service, bucket: str | None) -> None:
    """Raise `NotFound` for another bucket than that of the request; None is that one.

    `BadRequest` for a name that no bucket can have.
    """
    if bucket and _bucket_name(bucket) != service.settings.bucket:
        raise NotFound(f"The bucket {bucket!r} is not that of the request: links stay in one bucket.")


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _check_component(path: str, component: str) -> None:
    if not component:
        raise BadRequest(f"The domain's path {path!r} has an empty component ('//').")
    if component in (".", "..", RECORD):
        raise BadRequest(f"The domain's path {path!r} must not have the component {component!r}.")
    if len(component.encode()) > MAX_COMPONENT:
        raise BadRequest(f"A component of the domain's path has more than {MAX_COMPONENT} bytes, the limit.")
    if not component.isprintable():
        hidden = next(character for character in component if not character.isprintable())
        raise BadRequest(
            f"The domain's path has the character U+{ord(hidden):04X}, which is not printed: control characters, those "
            "that order or join text, and spaces but U+0020 are not allowed in paths."
        )
