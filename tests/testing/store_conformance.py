"""Conformance tests of an `ObjectStore`, over a fixture `store` that provides an empty store.

A test module of a store imports all tests by `*` and provides the fixture. Its store lists pages of at most
`PAGE_SIZE` entries, so that short listings have several pages. Tests must not be overridden.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession
from yarl import URL

from hsparse.errors import BadRequest, NotFound, PreconditionFailed, Unsupported
from hsparse.storage.condition_probe import probe
from hsparse.storage.object_store import Entry, ObjectStore

PAGE_SIZE = 20

BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "../a",
    "a/./b",
    "a\0b",
    "a\nb",
    "a\x7f",
    ".tmp-1",
    "a/.tmp-1/b",
    ".hsparse",
    "a/.hsparse/locks",
    "a/" + "x" * 256,
    "/".join(["x" * 200] * 6),
    "\udc80",
]
GOOD_KEYS = [
    "a",
    "home/user/.domain.json",
    "db/0123-4567/d/89ab-cdef/0_1_2",
    "...",
    ".tmp",
    "with space/and+plus/100%/é/😀/~#?&=",
    "x" * 255,
    "/".join(["é" * 100] * 5),
]


async def listed_keys(
    store: ObjectStore, prefix: str = "", *, delimiter: bool = False, start_after: str = ""
) -> tuple[list[Entry], list[str]]:
    """Return all entries and common prefixes of a listing."""
    entries: list[Entry] = []
    prefixes: list[str] = []
    async for page in store.list(prefix, delimiter=delimiter, start_after=start_after):
        entries += page.entries
        prefixes += page.prefixes
    return entries, prefixes


async def put_all(store: ObjectStore, keys: list[str]) -> None:
    """Put an object at each key, with the key as its data."""
    await asyncio.gather(*(store.put(key, key.encode()) for key in keys))


async def test_probe(store: ObjectStore) -> None:
    await probe(store)
    assert await listed_keys(store) == ([], [])


async def test_get_returns_what_was_put(store: ObjectStore) -> None:
    etag = await store.put("a/b", b"first")
    assert etag
    stored = await store.get("a/b")
    assert (stored.data, stored.etag, stored.size) == (b"first", etag, 5)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_put_takes_any_buffer(store: ObjectStore, kind: type[bytes | bytearray | memoryview]) -> None:
    data = bytes(range(256))
    await store.put("a", kind(data))
    await store.put_if_absent("b", kind(data))
    await store.put_if_match("a", kind(data + data), (await store.get("a")).etag)
    assert (await store.get("a")).data == data + data
    assert (await store.get("b")).data == data


@pytest.mark.parametrize("size", [0, 1, 3 << 20])
async def test_sizes(store: ObjectStore, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    etag = await store.put("a", data)
    stored = await store.get("a")
    assert (stored.data, stored.etag) == (data, etag)
    entries, _ = await listed_keys(store)
    assert [(entry.key, entry.size, entry.etag) for entry in entries] == [("a", size, etag)]


async def test_absent_objects(store: ObjectStore) -> None:
    await store.put("a/b", b"data")
    for key in ("b", "a", "a/b/c", "a/c", "c/d/e"):
        with pytest.raises(NotFound, match=key):
            await store.get(key)
        with pytest.raises(NotFound, match=key):
            await store.get_range(key, 0, 1)
        with pytest.raises(PreconditionFailed, match=key):
            await store.put_if_match(key, b"data", "0-0-0")
        await store.delete_if_match(key, "0-0-0")
    await store.delete("b")
    await store.delete("c/d/e")
    assert [entry.key for entry in (await listed_keys(store))[0]] == ["a/b"]


async def test_delete_above_and_below_an_object_removes_nothing(store: ObjectStore) -> None:
    await store.put("a/b", b"data")
    for key in ("a", "a/b/c", "a/c"):
        await store.delete(key)
    assert (await store.get("a/b")).data == b"data"


async def test_get_range(store: ObjectStore) -> None:
    data = bytes(range(100))
    etag = await store.put("a", data)
    for start, length, expected in [
        (0, None, data),
        (0, 1, data[:1]),
        (10, 20, data[10:30]),
        (99, None, data[99:]),
        (90, 50, data[90:]),
        (-1, None, data[-1:]),
        (-30, None, data[-30:]),
        (-30, 30, data[-30:]),
        (-200, None, data),
        (-100, None, data),
    ]:
        stored = await store.get_range("a", start, length)
        assert (stored.data, stored.etag, stored.size) == (expected, etag, 100), (start, length)


async def test_a_presigned_url_reads_the_object(store: ObjectStore) -> None:
    await store.put("a/with space", b"data")
    with pytest.raises(BadRequest):
        await store.presigned("../a", 60)
    try:
        url = await store.presigned("a/with space", 60)
    except Unsupported:
        return
    async with ClientSession() as session, session.get(URL(url, encoded=True)) as reply:
        assert await reply.read() == b"data"


async def test_bad_ranges(store: ObjectStore) -> None:
    await store.put("a", b"0123456789")
    await store.put("empty", b"")
    for key, start, length in [
        ("a", 10, None),
        ("a", 11, 1),
        ("a", 0, 0),
        ("a", 5, -1),
        ("a", -5, 2),
        ("empty", 0, None),
        ("empty", 0, 1),
        ("empty", -1, None),
    ]:
        with pytest.raises(BadRequest):
            await store.get_range(key, start, length)


async def test_bad_keys(store: ObjectStore) -> None:
    calls: list[Callable[[str], Awaitable[object]]] = [
        store.get,
        store.delete,
        lambda key: store.delete_if_match(key, "0-0-0"),
        lambda key: store.get_range(key, 0),
        lambda key: store.put(key, b""),
        lambda key: store.put_if_absent(key, b""),
        lambda key: store.put_if_match(key, b"", "0-0-0"),
    ]
    for key in BAD_KEYS:
        for call in calls:
            with pytest.raises(BadRequest):
                await call(key)
    assert await listed_keys(store) == ([], [])


async def test_good_keys(store: ObjectStore) -> None:
    await put_all(store, GOOD_KEYS)
    for key in GOOD_KEYS:
        assert (await store.get(key)).data == key.encode()
    assert [entry.key for entry in (await listed_keys(store))[0]] == sorted(GOOD_KEYS, key=str.encode)
    for key in GOOD_KEYS:
        assert [entry.key for entry in (await listed_keys(store, key))[0]] == [
            other for other in sorted(GOOD_KEYS) if other.startswith(key)
        ]
        await store.delete(key)
    assert await listed_keys(store) == ([], [])


async def test_etags_change_with_the_state(store: ObjectStore) -> None:
    etags = [await store.put("a", data) for data in (b"1", b"2", b"33", b"4")]
    assert len(set(etags)) == 4
    assert (await store.get("a")).etag == etags[-1]


async def test_put_if_absent(store: ObjectStore) -> None:
    etag = await store.put_if_absent("a/b", b"first")
    with pytest.raises(PreconditionFailed, match="a/b"):
        await store.put_if_absent("a/b", b"second")
    stored = await store.get("a/b")
    assert (stored.data, stored.etag, stored.size) == (b"first", etag, 5)
    await store.delete("a/b")
    await store.put_if_absent("a/b", b"third")
    assert (await store.get("a/b")).data == b"third"


async def test_put_if_match(store: ObjectStore) -> None:
    first = await store.put("a/b", b"first")
    second = await store.put_if_match("a/b", b"second", first)
    with pytest.raises(PreconditionFailed, match="a/b"):
        await store.put_if_match("a/b", b"third", first)
    stored = await store.get("a/b")
    assert (stored.data, stored.etag) == (b"second", second)
    await store.delete("a/b")
    with pytest.raises(PreconditionFailed, match="a/b"):
        await store.put_if_match("a/b", b"fourth", second)
    with pytest.raises(NotFound):
        await store.get("a/b")


async def test_delete_if_match(store: ObjectStore) -> None:
    first = await store.put("a/b", b"first")
    second = await store.put_if_match("a/b", b"second", first)
    with pytest.raises(PreconditionFailed, match="a/b"):
        await store.delete_if_match("a/b", first)
    assert (await store.get("a/b")).etag == second
    await store.delete_if_match("a/b", second)
    with pytest.raises(NotFound):
        await store.get("a/b")
    await store.delete_if_match("a/b", second)  # a missing object is not an error
    third = await store.put_if_absent("a/b", b"third")
    with pytest.raises(PreconditionFailed, match="a/b"):
        await store.delete_if_match("a/b", second)
    entries, _ = await listed_keys(store)
    assert [(entry.key, entry.etag) for entry in entries] == [("a/b", third)]


async def test_delete_all(store: ObjectStore) -> None:
    await put_all(store, ["a/b/c", "a/b/d", "a/e", "f", "g"])
    listed, _ = await listed_keys(store, "a/")
    await store.put("a/b/d", b"changed")
    await store.delete("a/e")
    assert await store.delete_all(listed) == [True, False, True]  # a missing object is not an error
    assert [entry.key for entry in (await listed_keys(store))[0]] == ["a/b/d", "f", "g"]
    assert await store.delete_all([]) == []
    rest, _ = await listed_keys(store)
    assert await store.delete_all([*rest, rest[0]]) == [True] * 4
    assert await listed_keys(store) == ([], [])
    await store.put_if_absent("a", b"now an object")
    assert await store.delete_all(rest[:1]) == [True]  # "a/b/d", which is below the object "a"
    assert (await store.get("a")).data == b"now an object"


async def test_delete_all_refuses_bad_keys(store: ObjectStore) -> None:
    await put_all(store, ["a"])
    listed, _ = await listed_keys(store)
    for key in ("../a", "a/.hsparse/locks", "a//b"):
        with pytest.raises(BadRequest):
            await store.delete_all([Entry(key, 0, "0-0-0", 0.0)])
    assert await listed_keys(store) == (listed, [])


@pytest.mark.parametrize("together", [False, True])
async def test_no_update_is_lost_to_a_delete(store: ObjectStore, together: bool) -> None:
    """Concurrent replacements and deletes: an object whose replacement succeeded is never deleted."""
    etags = [await store.put(f"a/{number}", b"old") for number in range(8)]
    listed, _ = await listed_keys(store)

    async def replaced(number: int) -> bool:
        try:
            await store.put_if_match(f"a/{number}", b"new", etags[number])
        except PreconditionFailed:
            return False
        return True

    async def deleted(number: int) -> bool:
        try:
            await store.delete_if_match(f"a/{number}", etags[number])
        except PreconditionFailed:
            return False
        return True

    async def all_deleted() -> list[bool]:
        if together:
            return await store.delete_all(listed)
        return await asyncio.gather(*map(deleted, range(8)))

    *replacements, deletions = await asyncio.gather(*map(replaced, range(8)), all_deleted())
    assert isinstance(deletions, list)
    kept = {entry.key for entry in (await listed_keys(store))[0]}
    for number, (was_replaced, was_deleted) in enumerate(zip(replacements, deletions, strict=True)):
        assert was_replaced != was_deleted
        assert (f"a/{number}" in kept) == was_replaced


async def test_match_fails_after_delete_and_create(store: ObjectStore) -> None:
    first = await store.put("a", b"first")
    await store.delete("a")
    await store.put("a", b"other")
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("a", b"second", first)
    assert (await store.get("a")).data == b"other"


async def test_one_of_many_creators_wins(store: ObjectStore) -> None:
    async def create(number: int) -> int | None:
        try:
            await store.put_if_absent("deep/down/a", str(number).encode())
        except PreconditionFailed:
            return None
        return number

    winners = [number for number in await asyncio.gather(*map(create, range(16))) if number is not None]
    assert len(winners) == 1
    assert (await store.get("deep/down/a")).data == str(winners[0]).encode()


async def test_no_update_is_lost(store: ObjectStore) -> None:
    await store.put("counter", b"0")

    async def increment() -> None:
        while True:
            stored = await store.get("counter")
            try:
                await store.put_if_match("counter", str(int(stored.data) + 1).encode(), stored.etag)
            except PreconditionFailed:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(16)))
    assert (await store.get("counter")).data == b"16"


async def test_create_and_delete_race(store: ObjectStore) -> None:
    async def churn(key: str) -> None:
        for _ in range(8):
            await store.put(key, b"data")
            await store.delete(key)

    await asyncio.gather(*(churn(f"deep/down/{number}") for number in range(6)))
    assert await listed_keys(store) == ([], [])


async def test_delete(store: ObjectStore) -> None:
    await put_all(store, ["a/b/c", "a/b/d", "a/e"])
    await store.delete("a/b/c")
    await store.delete("a/b/c")
    with pytest.raises(NotFound):
        await store.get("a/b/c")
    assert [entry.key for entry in (await listed_keys(store))[0]] == ["a/b/d", "a/e"]
    await store.delete("a/b/d")
    await store.delete("a/e")
    assert await listed_keys(store) == ([], [])
    await store.put("a", b"now an object")
    assert (await store.get("a")).data == b"now an object"


ORDERED = ["a-b", "a.b", "a/b", "a/b.c", "a/b/c", "a0", "b/c/d/e", "b/é", "b/😀", "b/\uffee", "c"]
KEYS = [key for key in ORDERED if key != "a/b"]  # "a/b" and "a/b/c" exclude each other in a file system


async def test_list_order(store: ObjectStore) -> None:
    await put_all(store, KEYS[::-1])
    entries, prefixes = await listed_keys(store)
    assert ([entry.key for entry in entries], prefixes) == (sorted(KEYS, key=str.encode), [])


async def test_list_prefix_and_start(store: ObjectStore) -> None:
    await put_all(store, KEYS)
    for prefix in ["", "a", "a/", "a/b", "a/b/", "b/", "b/c/d", "x", "a//", "../", "/", "."]:
        expected = [key for key in sorted(KEYS) if key.startswith(prefix)]
        for start_after in ["", "a.b", "a/", "a/b", "a/b.c", "b/c/d/e", "b/c/zzz", "zz"]:
            entries, _ = await listed_keys(store, prefix, start_after=start_after)
            assert [entry.key for entry in entries] == [key for key in expected if key > start_after]


async def test_list_delimiter(store: ObjectStore) -> None:
    await put_all(store, KEYS)
    for prefix in ["", "a", "a/", "a/b", "b/", "b/c/", "x"]:
        below = [key.removeprefix(prefix) for key in KEYS if key.startswith(prefix)]
        keys = sorted(prefix + name for name in below if "/" not in name)
        prefixes = sorted({prefix + name.split("/")[0] + "/" for name in below if "/" in name})
        for start_after in ["", "a.b", "a/", "a/b/", "b/", "b/c/", "c"]:
            entries, common = await listed_keys(store, prefix, delimiter=True, start_after=start_after)
            assert [entry.key for entry in entries] == [key for key in keys if key > start_after]
            assert common == [name for name in prefixes if name > start_after]


async def test_list_pages_while_deleting(store: ObjectStore) -> None:
    keys = sorted(f"d/{number}" for number in range(2 * PAGE_SIZE + 5))
    await put_all(store, keys)
    pages = []
    async for page in store.list("d/"):
        pages.append([entry.key for entry in page.entries])
        await asyncio.gather(*map(store.delete, pages[-1]))
    assert len(pages) >= 3
    assert all(0 < len(page) <= PAGE_SIZE for page in pages)
    assert [key for page in pages for key in page] == keys
    assert await listed_keys(store) == ([], [])


async def test_a_listing_can_be_left(store: ObjectStore) -> None:
    await put_all(store, ["a", "b"])
    async for page in store.list(""):
        assert page.entries[0].key == "a"
        break
    assert (await store.get("b")).data == b"b"


async def test_entries_have_times(store: ObjectStore) -> None:
    await store.put("a", b"first")
    await store.put("b", b"second")
    entries, _ = await listed_keys(store)
    assert entries[0].modified > 1_500_000_000
    assert abs(entries[1].modified - entries[0].modified) < 60
