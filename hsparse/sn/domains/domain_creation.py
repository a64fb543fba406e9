"""Creation of a domain or folder: the root group is stored first, then the record that makes the domain visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsparse.errors import BadRequest, Conflict, ErrorKind, Forbidden, HsparseError, NotFound
from hsparse.model.acl import (
    ANONYMOUS,
    DEFAULT,
    Principal,
    Right,
    folder_acls,
    full_rights,
    grants_any,
    is_granted,
)
from hsparse.model.ids import check_id, domain_prefix, is_root, new_root_id
from hsparse.model.short_text import short_repr
from hsparse.sn.domains.domain_deletion import check_root_stays
from hsparse.sn.records.domain_path import (
    check_bucket,
    check_new_path,
    normal_path,
)
from hsparse.sn.records.second_names import FolderLimits, first_name, named_after, note_second_name
from hsparse.sn.request import Domain, Request
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject, DeleteObject, Forget, ListKeys


@dataclass(frozen=True, slots=True)
class _DomainRequest:
    """The parsed body of a request that creates a domain or folder; `shared_domain` is the body's `linked_domain`."""

    path: str
    owner: str
    folder: bool
    shared_domain: str | None
    root: str | None
    properties: Record


async def create_domain(request: Request, body: Record) -> Record:
    """Create the domain or folder that the request names, and return its record.

    Raises `Conflict` if it exists, `NotFound` if its parent does not exist, `Forbidden` without the right to create it.
    Only an admin may create domains at the top level or for another owner.
    """
    requested = _parse(request, body)
    parent = await require_creation(request, requested.path)
    if (await request.service.owners.read(requested.path))[0].failure is None:
        raise Conflict(f"{requested.path} exists already.")
    if not parent.allows(request.principal, Right.READ):
        await require_nothing_below(request, requested.path)
    first: Domain | None = None
    if requested.shared_domain is not None:
        first = await _first_name(request, requested.shared_domain, requested.path)
    root = shared_root = None if first is None else first.root
    if not requested.folder and shared_root is None:
        root = await _create_root(request, requested)
    now = request.service.clock.now()
    record: Record = {
        "owner": requested.owner,
        "acls": acls_of_new(parent, requested.owner, folder=requested.folder),
        "created": now,
        "lastModified": now,
    }
    record |= {"root": root} if root is not None else {}
    record |= {} if first is None else named_after(first)
    owners, domain = request.service.owners, Domain(requested.path, record)
    try:
        await owners.apply(CreateObject(domain.path, record))
        if root is not None and (shared_root is not None or requested.root is not None):
            await check_root_stays(owners, domain, root)
        if requested.root is not None:
            await owners.ask_all(Forget(requested.root, renewed=True))
        if first is not None:
            await note_second_name(owners, first, domain, request.principal)
    except HsparseError:
        if root is not None and shared_root is None:
            await owners.change(DeleteObject(root))
        raise
    return record


def _parse(request: Request, body: Record) -> _DomainRequest:
    if request.domain_path is None or request.domain_path == "/":
        raise BadRequest("No domain given: name the new domain by ?domain= or the X-Hdf-domain header.")
    folder = bool(body.get("folder"))
    linked, bucket, root = (_text(body, key) for key in ("linked_domain", "linked_bucket", "root_id"))
    if folder and (linked or root):
        raise BadRequest("A folder has no objects: leave out linked_domain and root_id.")
    if linked is not None:
        check_bucket(request.service, bucket)
        linked = normal_path(request.service, linked)
    if root is not None and not is_root(check_id(root, "groups")):
        raise BadRequest(f"{short_repr(root)} is not the id of a root group; root_id must be one.")
    return _DomainRequest(
        request.domain_path, _owner(request, body), folder, linked, root, _properties(body.get("group"))
    )


def _text(body: Record, key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"{key} must be a string, not {value!r:.40}.")
    return value


def _owner(request: Request, body: Record) -> str:
    owner = body.get("owner") or request.principal.name
    if not isinstance(owner, str):
        raise BadRequest(f"The owner must be a user's name, not {short_repr(owner)}.")
    if request.principal.anonymous:
        raise Forbidden("An anonymous user cannot create a domain: sign in with a name and password.")
    if owner != request.principal.name and not request.principal.admin:
        raise Forbidden("Only an admin can create a domain that another user owns.")
    return owner


def _properties(group: Any) -> Record:
    if group is None:
        return {}
    properties = group.get("creationProperties", {}) if isinstance(group, dict) else None
    if not isinstance(properties, dict):
        raise BadRequest("group must be an object with the root group's creationProperties.")
    return dict(properties)


async def require_creation(request: Request, new_path: str) -> Domain:
    """Return the parent folder of `new_path`, in which the principal may create a domain or folder.

    Raises `Forbidden` if the principal may not, `NotFound` if the parent folder does not exist, `BadRequest` if the
    parent is a domain or the new path is reserved, `OverQuota` or `Busy` if a quota leaves no room.
    """
    check_new_path(new_path)
    path = new_path.rpartition("/")[0] or "/"
    if path == "/" and not request.principal.admin:
        raise Forbidden(f"{new_path} is at the top level: only an admin can create it.")
    try:
        parent = await request.find(path, Right.CREATE)
    except HsparseError as error:
        if error.kind is ErrorKind.GONE:
            raise NotFound(
                f"The parent folder {path} was deleted; create it first: hsparse mkdir -p {path}"
            ) from error
        if error.kind is ErrorKind.NOT_FOUND:
            raise NotFound(
                f"The parent folder {path} does not exist; create it first: hsparse mkdir -p {path}"
            ) from error
        raise
    if parent.root is not None:
        raise BadRequest(f"{path} is a domain: only a folder can contain domains.")
    if (limits := request.service.provided(FolderLimits)) is not None:
        await limits.check_new(new_path, request.principal)
    return parent


async def require_nothing_below(request: Request, path: str) -> None:
    """Raise `Conflict` if the store has keys below a new path, such as files in folders without a record.

    Otherwise a principal who may not read the parent folder could get the right to read these files, by owning `path`.
    """
    if (await request.service.owners.ask_any(ListKeys(f"{path[1:]}/", limit=1))).keys:
        raise Conflict(f"{path} exists already.")


async def _first_name(request: Request, path: str, new_path: str) -> Domain:
    """Return the first name of the objects of the domain at `path`; the domain at `new_path` will share the objects.

    The principal needs all rights in the domain at `path`, because the new name can outlive the first name. Raises
    `OverQuota` or `Busy` if a quota above `new_path` has no room for the objects.
    """
    domain = await request.find(path, Right.READ)
    if domain.root is None:
        raise BadRequest(f"{path} is a folder: only a domain can be linked.")
    for right in Right:
        domain.require(request.principal, right)
    if (limits := request.service.provided(FolderLimits)) is not None:
        await limits.check_second_name(new_path, request.principal, path, domain.root)
    return first_name(domain)


async def _create_root(request: Request, requested: _DomainRequest) -> str:
    clock = request.service.clock
    if requested.root is not None:
        await _require_unused(request, requested.root)
    root, now = requested.root or new_root_id(clock), clock.now()
    record: Record = {
        "id": root,
        "root": root,
        "created": now,
        "lastModified": now,
        "domain": requested.path,
        "links": {},
        "attributes": {},
    }
    if requested.properties:
        record["creationProperties"] = requested.properties
    await request.service.owners.apply(CreateObject(root, record))
    return root


async def _require_unused(request: Request, root: str) -> None:
    """Raise `Conflict` if the store has objects of this root group, even of a domain that is still being deleted."""
    below = await request.service.owners.ask_any(ListKeys(domain_prefix(root), limit=1))
    if below.keys:
        raise Conflict(f"There are objects of {root} already: choose another root_id.")


def acls_of_new(parent: Domain, new_owner: str, *, folder: bool = False) -> dict[str, dict[str, bool]]:
    """Return a new domain's ACLs: its owner's, and the parent's that grant a right, except `default` and its owner's.

    A new folder must not be readable by users who may not read its parent. It therefore also inherits the entries that
    grant nothing. `default` may read it only if `default` may read the parent; else the parent's owner may read it.
    """
    acls, owner = parent.record.get("acls") or {}, parent.record.get("owner")
    inherited = {
        user: rights
        for user, rights in acls.items()
        if user not in (DEFAULT, new_owner, owner) and (folder or grants_any(rights))
    }
    if not folder:
        return inherited | {new_owner: full_rights()}
    own = folder_acls(new_owner)
    if not is_granted({DEFAULT: acls.get(DEFAULT)}, ANONYMOUS, Right.READ):
        if owner in acls and is_granted(acls, Principal(str(owner)), Right.READ):
            inherited[owner] = own[DEFAULT]
        own[DEFAULT] = {right.value: False for right in Right}
    return inherited | own
