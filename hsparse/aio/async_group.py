"""Groups to await, and what is in them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from hsparse.aio.async_dataset import AsyncDense, AsyncSparse
from hsparse.aio.async_mapping import AsyncAttributes, AsyncMapping
from hsparse.aio.async_object import AsyncObject, Awaited
from hsparse.client.group import Group, Member, NamedType
from hsparse.client.sparse_dataset import SparseDataset

AsyncMember: TypeAlias = "AsyncGroup | AsyncSparse | AsyncDense | AsyncNamedType"


class AsyncNamedType(AsyncObject[NamedType]):
    """A committed type."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def item(self) -> Any:
        return self.sync.item

    @property
    def attrs(self) -> AsyncAttributes:
        return AsyncAttributes(self.sync.attrs, self.pool)


class AsyncGroup(AsyncMapping[Group, AsyncMember]):
    """A group: a mapping from paths to groups and datasets."""

    @property
    def name(self) -> str:
        return self.sync.name

    @property
    def id(self) -> str:
        return self.sync.id

    @property
    def attrs(self) -> AsyncAttributes:
        return AsyncAttributes(self.sync.attrs, self.pool)

    create_group = Awaited(Group.create_group, lambda found, pool: AsyncGroup(found, pool))
    require_group = Awaited(Group.require_group, lambda found, pool: AsyncGroup(found, pool))
    create_dataset = Awaited(Group.create_dataset, AsyncDense)
    create_sparse = Awaited(Group.create_sparse, AsyncSparse)
    delitem = Awaited(Group.__delitem__)
    links = Awaited(Group.links)
    records = Awaited(Group.records)

    async def setitem(self, name: str, value: Any) -> None:
        """Do as `group[name] = value`: link an object or a link, or create a dense dataset of an array."""
        found = value.sync if isinstance(value, AsyncObject) else value
        await self.run(self.sync.__setitem__, name, found)

    def _value(self, found: Member) -> AsyncMember:
        return async_member(found, self.pool)


def async_member(found: Member, pool: ThreadPoolExecutor) -> AsyncMember:
    """Return an object of a group to await."""
    if isinstance(found, Group):
        return AsyncGroup(found, pool)
    if isinstance(found, NamedType):
        return AsyncNamedType(found, pool)
    return AsyncSparse(found, pool) if isinstance(found, SparseDataset) else AsyncDense(found, pool)
