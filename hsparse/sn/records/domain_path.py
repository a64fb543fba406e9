"""Domains by their paths: the path that a request names, its normal form, which a new domain may not have, and records.

A user's home folder is made when it is first looked for.
"""

from __future__ import annotations

from functools import lru_cache

from aiohttp import web

from hsparse.errors import (
    BadRequest,
    ErrorKind,
    Gone,
    NotFound,
)
from hsparse.model.acl import DEFAULT, Principal, Right, full_rights
from hsparse.model.file_backed import OBJECTS_FOLDER
from hsparse.model.ids import check_bucket_name
from hsparse.model.link import PROTOCOL
from hsparse.sn.records.second_names import FIRST_NAME, with_first_names
from hsparse.sn.request import Domain
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject

TOP_FOLDER = Domain("/", {"owner": "admin", "acls": {"default": {"read": True}}})
"""The folder of the top-level domains, which has no record."""
HOME = "/home"
ADMIN = "admin"


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
