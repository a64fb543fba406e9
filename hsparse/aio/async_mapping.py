"""Mappings to await: groups, folders and attributes, whose values are asked for when they are needed.

Tests: tests/aio/test_async_group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from hsparse.aio.async_object import AsyncObject, Awaited, T
from hsparse.client.attributes import Attributes

Value = TypeVar("Value")
Wrapped = TypeVar("Wrapped", bound=Mapping[str, Any])


class AsyncMapping(AsyncObject[Wrapped], Generic[Wrapped, Value]):
    """The methods of a mapping; those that return all of it return lists."""

    async def getitem(self, name: str) -> Value:
        """Return `mapping[name]`; `MissingKey` if there is none."""
        return self._value(await self.run(self.sync.__getitem__, name))

    async def get(self, name: str, default: T | None = None) -> Value | T | None:
        """Return `mapping[name]`, else `default`."""
        try:
            return await self.getitem(name)
        except KeyError:
            return default

    async def contains(self, name: object) -> bool:
        """Return whether `name in mapping`."""
        return await self.run(self.sync.__contains__, name)

    async def len(self) -> int:
        """Return `len(mapping)`."""
        return await self.run(len, self.sync)

    async def keys(self) -> list[str]:
        """Return the names."""
        return await self.run(list, self.sync)

    async def values(self) -> list[Value]:
        """Return the values in the order of `keys`."""
        return [value for _, value in await self.items()]

    async def items(self) -> list[tuple[str, Value]]:
        """Return the names with their values."""
        found = await self.run(lambda: list(self.sync.items()))
        return [(name, self._value(value)) for name, value in found]

    def _value(self, found: Any) -> Value:
        """Return what the caller gets for a value of the client's mapping."""
        raise NotImplementedError


class AsyncAttributes(AsyncMapping[Attributes, Any]):
    """`x.attrs`: the attributes of an object; `await x.attrs()` returns all of them."""

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
