"""Why a link or an attribute is not there: it never was (404), or it was deleted (410)."""

from __future__ import annotations

from hsparse.errors import HsparseError, NotFound
from hsparse.sn.owners import Owners
from hsparse.wire.record_message import DeleteAttributes, DeleteLinks

NEVER = "/"
"""A title that no link can have."""
NEVER_NAMED = ""
"""A name that no attribute can have."""


async def missing_link(owners: Owners, id: str, title: str) -> HsparseError:
    """Return the error for a link that a group's record does not have."""
    return await _ask(owners, DeleteLinks(id, (title, NEVER)), f"The group {id} has no link {title!r}.")


async def missing_attribute(owners: Owners, id: str, name: str) -> HsparseError:
    """Return the error for an attribute that an object's record does not have."""
    return await _ask(owners, DeleteAttributes(id, (name, NEVER_NAMED)), f"{id} has no attribute {name!r}.")


async def _ask(owners: Owners, change: DeleteLinks | DeleteAttributes, sentence: str) -> HsparseError:
    """Ask the owner, who remembers what was deleted, by a deletion that is certain to be refused.

    Deletions are all or none, so one that also names what cannot be there changes nothing, even when the
    missing thing has come to be in the meantime.
    """
    outcome = (await owners.change(change))[0]
    return NotFound(sentence) if outcome.failure is None else outcome.failure.error()
