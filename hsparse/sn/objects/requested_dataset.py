"""The dataset that a request's path names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.errors import BadRequest, Moved
from hsparse.model.objid import check_id, domain_hex
from hsparse.sn.context import Context
from hsparse.sn.linked.file_rights import FileRights
from hsparse.sn.objects.dataset import Dataset

T = TypeVar("T")

ATTEMPTS = 8
"""How often an operation is planned again before its `Moved` is passed on."""


async def load_dataset(context: Context) -> Dataset:
    """Load the dataset that the request's path names, in the request's domain."""
    id = check_id(context.request.match_info["id"], "datasets")
    root = context.domain.root
    if root is None or domain_hex(id) != domain_hex(root):
        raise BadRequest(f"{id} is not in the domain {context.domain.path}.")
    owners = context.service.owners
    rights = FileRights(owners, context.principal, context.service.settings.bucket)
    return Dataset.of(await owners.record(id), rights)


async def until_current(context: Context, work: Callable[[Dataset], Awaitable[T]]) -> T:
    """Return `work` of the dataset the path names, done again when its extent was shrunk meanwhile."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await work(await load_dataset(context))
        except Moved:
            continue
    return await work(await load_dataset(context))
