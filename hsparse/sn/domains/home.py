"""Home folders: `/home` and `/home/<user>` exist as soon as somebody needs them."""

from __future__ import annotations

from hsparse.errors import ErrorKind
from hsparse.model.acl import DEFAULT, full_rights
from hsparse.model.principal import Principal
from hsparse.model.right import Right
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import CreateObject

HOME = "/home"
ADMIN = "admin"


async def make_home(service: Service, path: str, principal: Principal | None) -> Record | None:
    """Make the folder at `path` if it is `/home` or the principal's own home, and return its record.

    None for any other path. When another request makes it at the same time, theirs is returned.
    """
    if path == HOME:
        return await _make(service, path, service.settings.single_user or ADMIN)
    if principal is None or principal.anonymous or path != f"{HOME}/{principal.name}":
        return None
    if (await service.owners.read(HOME))[0].failure is not None:
        await make_home(service, HOME, None)
    return await _make(service, path, principal.name)


def folder_acls(owner: str) -> dict[str, dict[str, bool]]:
    """Return a folder's first ACLs: everything for the owner, reading for all."""
    return {owner: full_rights(), DEFAULT: {right.value: right is Right.READ for right in Right}}


async def _make(service: Service, path: str, owner: str) -> Record:
    now = service.clock.now()
    record = {"owner": owner, "acls": folder_acls(owner), "created": now, "lastModified": now}
    outcome = (await service.owners.change(CreateObject(path, record)))[0]
    if outcome.failure is not None and outcome.failure.kind == ErrorKind.CONFLICT:
        return await service.owners.record(path)
    return outcome.unwrap() or record
