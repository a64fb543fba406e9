"""Groups and attributes of `hsparse.aio`."""

from __future__ import annotations

import pytest

import hsparse
from hsparse import aio


async def test_groups_are_mappings(address: str) -> None:
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncFile)
        group = await file.create_group("a/b", {"n": 3})
        same = await file.require_group("a/b")
        assert (group.name, group.id) == (same.name, same.id) == ("/a/b", same.id)
        await group.setitem("numbers", [1, 2])
        await file.setitem("b", group)
        await file.setitem("soft", hsparse.SoftLink("/a/b/numbers"))
        assert await file.keys() == ["a", "b", "soft"]
        assert (await file.len(), await file.contains("b"), await file.contains("c")) == (3, True, False)
        below, numbers = await file.get("b"), await file.getitem("soft")
        assert isinstance(below, aio.AsyncGroup)
        assert isinstance(numbers, aio.AsyncDense)
        assert await file.get("c") is None
        assert [type(member) for member in await file.values()] == [
            aio.AsyncGroup,
            aio.AsyncGroup,
            aio.AsyncDense,
        ]
        assert [name for name, _ in await below.items()] == ["numbers"]
        assert set(await file.links()) == {"a", "b", "soft"}
        assert "a/b/numbers" in await file.records()
        await file.setitem("none", hsparse.SoftLink("/nowhere"))
        assert await file.contains("none")
        assert await file.get("none", 7) == 7
        assert dict(await file.items())["none"] is None
        await file.delitem("b")
        with pytest.raises(KeyError):
            await file.delitem("b")
        assert await same.attrs() == {"n": 3}


async def test_attributes_are_mappings(address: str) -> None:
    async with aio.open(address, "x") as file:
        assert isinstance(file, aio.AsyncFile)
        attrs = file.attrs
        await attrs.update({"a": 1, "b": "two"}, c=[3, 4])
        await attrs.setitem("d", 5.5)
        assert await attrs.getitem("b") == "two"
        assert await attrs.pop("a") == 1
        assert await attrs.setdefault("d", 7) == 5.5
        assert (await attrs.len(), await attrs.contains("a"), await attrs.get("a", 9)) == (3, False, 9)
        await attrs.delitem("d")
        attrs.refresh()
        assert {name: list(value) for name, value in await attrs.items()} == {"b": list("two"), "c": [3, 4]}
        await attrs.clear()
        assert await attrs.values() == []
