"""Mappings to await: groups, folders and attributes, whose values are asked for when they are needed.

Tests: tests/aio/test_async_group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from hsparse.aio.async_object import AsyncObject, Awaited, T
from hsparse.client.attributes import Attributes

MISSING = object()
Value = TypeVar("Value")
Wrapped = TypeVar("Wrapped", bound=Mapping[str, Any])


class AsyncMapping(AsyncObject[Wrapped], Generic[Wrapped, Value]):
    """The methods of a mapping; those that return all of it return lists.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         return await file.keys(), await file.contains("Y"), await file.get("Y", "none")
    >>> asyncio.run(main())
    (['X'], False, 'none')
    """

    async def getitem(self, name: str) -> Value:
        """Return `mapping[name]`; `MissingKey` if there is none."""
        return self._value(await self.run(self.sync.__getitem__, name))

    async def get(self, name: str, default: T | None = None) -> Value | T | None:
        """Return `mapping[name]`, else `default`."""
        found = await self.run(self.sync.get, name, MISSING)
        return default if found is MISSING else self._value(found)

    async def contains(self, name: object) -> bool:
        """Return whether `name in mapping`."""
        return await self.run(self.sync.__contains__, name)

    async def len(self) -> int:
        """Return `len(mapping)`."""
        return await self.run(len, self.sync)

    async def keys(self) -> list[str]:
        """Return the names."""
        return await self.run(list, self.sync)

    async def values(self) -> list[Value | None]:
        """Return the values in the order of `keys`."""
        return [value for _, value in await self.items()]

    async def items(self) -> list[tuple[str, Value | None]]:
        """Return the names with their values; None where a link of a group leads to nothing."""
        found = await self.run(lambda: list(self.sync.items()))
        return [(name, value if value is None else self._value(value)) for name, value in found]

    def _value(self, found: Any) -> Value:
        """Return what the caller gets for a value of the client's mapping."""
        raise NotImplementedError


class AsyncAttributes(AsyncMapping[Attributes, Any]):
    """`x.attrs`: the attributes of an object; `await x.attrs()` returns all of them.

    >>> async def main():
    ...     async with hsparse.aio.open("data/home/admin/run.h5") as file:
    ...         await file.attrs.update({"beam": "on", "run": 7})
    ...         return await file.attrs.getitem("run"), await file.attrs()
    >>> asyncio.run(main())
    (np.int64(7), {'beam': 'on', 'run': np.int64(7)})
    """

    async def __call__(self) -> dict[str, Any]:
        return await self.run(dict, self.sync)

    setitem = Awaited(Attributes.__setitem__)
    delitem = Awaited(Attributes.__delitem__)
    update = Awaited(Attributes.update)
    pop = Awaited(Attributes.pop)
    popitem = Awaited(Attributes.popitem)
    clear = Awaited(Attributes.clear)

    async def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the attribute; set it to `default` if there is none."""
        return await self.run(self.sync.setdefault, name, default)

    def refresh(self) -> None:
        """Forget what is known: others may have changed it."""
        self.sync.refresh()

    def _value(self, found: Any) -> Any:
        return found
