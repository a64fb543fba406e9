"""The store of a bucket whose datasets may have their chunks in other buckets.

The key of such a chunk names its *place*, a bucket or a prefix in a bucket (`hsparse.model.stripes`). Each chunk is
thus stored in a single place and is never searched for. Conditional puts and durability are as for any object.

A *marker* in the dataset's own bucket names a place that has chunks of the dataset:

    db/<uuid1>/d/<uuid2>/.stripe/~/<place>/~

The marker is put before the dataset's record, and sorts after the chunks of all stripes. A listing that finds a marker
also lists the marker's place, and yields its chunks before the marker. An interrupted deletion thus finds the rest.
"""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from hsparse.api import (
    AT,
    PLACED,
    STRIPE,
    STRIPED,
    Buffer,
    DelegatingStore,
    Entry,
    Misconfigured,
    ObjectStore,
    Page,
    Stored,
    StoreFailed,
    bucket_features,
    bucket_of,
    gather_all,
    placed_key,
    seconds_left,
    tree_of_key,
)
from hsparse.stripes.merge import merged

R = TypeVar("R")

END = "~"
"""The component of markers' keys that sorts after the numbers of all stripes."""
MARKER = f"{STRIPE}{END}/"
ALL = "db/"
"""The prefix of a listing of all objects, as made by a sweep."""
PLACES = "db/.stripe-places/"
"""The prefix of the places that have ever had chunks of datasets; a sweep looks there for chunks without a marker."""
MOST_NOTED = 1000
RECORD = "/.dataset.json"
STRIPED_CLASS = json.dumps(STRIPED).encode()
PART_OF_TIME = 0.9
"""The part of a request's remaining time that a bucket may take; the rest is for an error that names the bucket."""


class StripedStore(DelegatingStore):
    """An `ObjectStore` over the store of one bucket, whose datasets may have chunks in `buckets` (stores by name).

    `features` has the features of records that need these buckets. A listing with a delimiter covers only the bucket
    itself.
    """

    def __init__(self, store: ObjectStore, buckets: Mapping[str, ObjectStore]) -> None:
        super().__init__(store)
        self._buckets = buckets
        self.features = bucket_features(store.name, buckets.keys())
        self._noted: set[str] = set()
        """The places that are known to have an entry below `PLACES`."""

    async def get(self, key: str) -> Stored:
        if not key.startswith(STRIPE, AT):
            return await self._store.get(key)
        store, at = self._place(key)
        return await _in_time(store, key, store.get(at))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        if not key.startswith(STRIPE, AT):
            return await self._store.get_range(key, start, length)
        store, at = self._place(key)
        return await _in_time(store, key, store.get_range(at, start, length))

    async def put(self, key: str, data: Buffer) -> str:
        store, at = await self._place_of_put(key, data)
        return await _in_time(store, key, store.put(at, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        store, at = await self._place_of_put(key, data)
        return await _in_time(store, key, store.put_if_absent(at, data))

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        store, at = self._place(key)
        return await _in_time(store, key, store.put_if_match(at, data, etag))

    async def delete(self, key: str) -> None:
        store, at = self._place(key)
        await _in_time(store, key, store.delete(at))

    async def delete_if_match(self, key: str, etag: str) -> None:
        store, at = self._place(key)
        await _in_time(store, key, store.delete_if_match(at, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> builtins.list[bool]:
        """See `ObjectStore`; markers are deleted after the chunks in their places."""
        if not any(entry.key.startswith(STRIPE, AT) for entry in entries):
            return await self._store.delete_all(entries)
        deleted = [False] * len(entries)
        for some in _by_turns(entries):
            await gather_all([self._delete_some(bucket, entries, at, deleted) for bucket, at in some.items()])
        return deleted

    async def _delete_some(
        self, bucket: str, entries: Sequence[Entry], numbers: builtins.list[int], deleted: builtins.list[bool]
    ) -> None:
        """Delete the entries with these indices, all of one bucket, and set in `deleted` which of them are gone."""
        places = [self._place(entries[number].key) for number in numbers]
        listed = [replace(entries[number], key=at) for number, (_, at) in zip(numbers, places, strict=True)]
        store = places[0][0]
        done = await _in_time(store, entries[numbers[0]].key, store.delete_all(listed))
        for number, gone in zip(numbers, done, strict=True):
            deleted[number] = gone

    async def presigned(self, key: str, seconds: int) -> str:
        store, at = self._place(key)
        return await store.presigned(at, seconds)

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        if prefix == ALL and not delimiter:
            async for page in self._everything(start_after):
                yield page
            return
        inside = prefix.startswith(STRIPE, AT)
        if delimiter or not inside:
            pages = self._store.list(prefix, delimiter=delimiter, start_after=start_after)
        else:  # `prefix` may exclude markers, so list all stripes
            pages = self._store.list(prefix[:AT] + STRIPE, start_after=start_after)
        async for page in self._with_places(pages, start_after):
            if not inside or delimiter:
                yield page
            elif some := tuple(entry for entry in page.entries if entry.key.startswith(prefix)):
                yield Page(some)

    async def _with_places(self, pages: AsyncIterator[Page], start_after: str) -> AsyncIterator[Page]:
        """Yield the pages of a listing; before each marker, yield the chunks in the place that the marker names."""
        folder, markers = "", list[Entry]()
        async for page in pages:
            if page.prefixes:
                yield page
                continue
            for found, some in groupby(page.entries, _folder):
                if markers and found != folder:
                    async for one in self._chunks(folder, markers, start_after):
                        yield one
                    markers = []
                if found:
                    folder, markers = found, [*markers, *some]
                else:
                    yield Page(tuple(some))
        if markers:
            async for one in self._chunks(folder, markers, start_after):
                yield one

    async def _chunks(self, folder: str, markers: Sequence[Entry], start_after: str) -> AsyncIterator[Page]:
        """Yield the chunks in all places of the dataset whose stripes are in `folder`, then the markers."""
        if not start_after.startswith(folder + END):
            places = [_marked(marker.key) for marker in markers]
            async for page in _together([self._chunks_in(folder, place, start_after) for place in places]):
                yield page
        yield Page(tuple(markers))

    async def _chunks_in(self, folder: str, place: str, start_after: str) -> AsyncGenerator[Page, None]:
        """Yield the chunks of a dataset in one place, with their keys in this bucket."""
        store, first = self._place(f"{folder}0/{place}/0")
        root, after = first.removesuffix("0/0"), ""
        number, slash, name = start_after.removeprefix(folder).partition("/")
        if start_after.startswith(folder) and slash:
            is_here = name.startswith(f"{place}/")
            after = f"{root}{number}/{name.removeprefix(f'{place}/') if is_here else ''}"
        pages = store.list(root, start_after=after)
        while (page := await _in_time(store, folder, anext(pages, None))) is not None:
            yield _renamed(page, root, folder[:AT], place, start_after)

    async def _everything(self, start_after: str) -> AsyncIterator[Page]:
        """Yield all objects of the bucket, and all chunks of its datasets in other places, even without a marker."""
        places = [
            entry.key.removeprefix(PLACES).removesuffix(f"/{END}")
            async for page in self._store.list(PLACES)
            for entry in page.entries
        ]
        served = [place for place in places if bucket_of(place) in self._buckets]
        streams = [self._all_in(place, start_after) for place in served]
        async for page in _together([_pages(self._store.list(ALL, start_after=start_after)), *streams]):
            yield page

    async def _all_in(self, place: str, start_after: str) -> AsyncGenerator[Page, None]:
        """Yield the chunks of all datasets in one place, with their keys in this bucket."""
        bucket, _, prefix = place.partition("/")
        root = f"{prefix}{'/' if prefix else ''}{PLACED}{self.name}/"
        async for page in self._buckets[bucket].list(root):
            yield _renamed(page, root, "", place, start_after)

    def _place(self, key: str) -> tuple[ObjectStore, str]:
        """Return the pair (store of an object, its key there); raise `Misconfigured` if its bucket is not served."""
        if not key.startswith(STRIPE, AT):
            return self._store, key
        if key.startswith(MARKER, AT):
            self._bucket(
                bucket_of(_marked(key)), key
            )  # else a place in a bucket that is not served would be lost track of
            return self._store, key
        bucket, at = placed_key(self.name, key)
        return (self._store if at == key else self._bucket(bucket, key)), at

    def _bucket(self, name: str, key: str) -> ObjectStore:
        store = self._buckets.get(name)
        if store is None:
            raise Misconfigured(
                f"The object {key} is in the bucket {name!r}, which is not served here: start the server with it."
            )
        return store

    async def _place_of_put(self, key: str, data: Buffer) -> tuple[ObjectStore, str]:
        """Return `_place(key)`; before the record of a striped dataset is put, put the markers of its places."""
        if key.startswith(RECORD, AT) and STRIPED_CLASS in (text := bytes(data)):
            layout = json.loads(text).get("layout", {})
            places = layout.get("stripes") if layout.get("class") == STRIPED else None
            if isinstance(places, builtins.list):
                folder = key[:AT] + MARKER
                names = [f"{place}/{END}" for place in dict.fromkeys(places)]
                keys = [f"{PLACES}{name}" for name in names if name not in self._noted]
                keys += [f"{folder}{name}" for name in names]
                await gather_all([self._store.put(marker, b"{}") for marker in keys])
                self._noted = {*(self._noted if len(self._noted) < MOST_NOTED else ()), *names}
        return self._place(key)


def _folder(entry: Entry) -> str:
    """Return the folder of a dataset's stripes if an entry is a marker, or "" if it is not."""
    return entry.key[:AT] + STRIPE if entry.key.startswith(MARKER, AT) else ""


def _marked(key: str) -> str:
    """Return the place that a marker names."""
    return key[AT + len(MARKER) :].removesuffix(f"/{END}")


def _renamed(page: Page, root: str, dataset: str, place: str, start_after: str) -> Page:
    """Return the chunks on a page of a place, which are below `root`, with their keys in this bucket.

    The keys begin with `dataset`; if that is empty, the keys below `root` name the dataset.
    """
    found = []
    for entry in page.entries:
        rest = entry.key.removeprefix(root)
        tree, rest = (dataset, f"/{rest}") if dataset else (f"{ALL}{rest[: AT - 3]}", rest[AT - 3 :])
        _, number, name = rest.split("/") if rest.count("/") == 2 else ("", "", "")
        key = f"{tree}{STRIPE}{number}/{place}/{name}"
        if key > start_after and number.isdecimal() and name and tree_of_key(key) is not None:
            found.append(replace(entry, key=key))
    return Page(tuple(found))


async def _pages(pages: AsyncIterator[Page]) -> AsyncGenerator[Page, None]:
    async for page in pages:
        yield page


async def _together(streams: Sequence[AsyncGenerator[Page, None]]) -> AsyncIterator[Page]:
    """Yield several listings as one, and close all of them at the end."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(aclosing(stream))
        async for page in merged(streams):
            yield page


def _by_turns(entries: Sequence[Entry]) -> Iterator[dict[str, builtins.list[int]]]:
    """Yield dicts that map buckets ("": this bucket) to indices of entries; markers come last."""
    for markers in (False, True):
        turn: dict[str, builtins.list[int]] = {}
        for number, entry in enumerate(entries):
            if entry.key.startswith(MARKER, AT) == markers:
                turn.setdefault(placed_key("", entry.key)[0], []).append(number)
        if turn:
            yield turn


async def _in_time(store: ObjectStore, key: str, answer: Awaitable[R]) -> R:
    """Await a bucket's answer; raise `StoreFailed`, naming the bucket, after most of the request's remaining time."""
    left = seconds_left() if key.startswith(STRIPE, AT) else None
    if left is None:
        return await answer
    seconds = left * PART_OF_TIME
    try:
        async with asyncio.timeout(seconds) as timeout:
            return await answer
    except TimeoutError:
        if timeout.expired():
            raise StoreFailed(
                f"The bucket {store.name!r} gave no answer on {key!r} in the {seconds:.1f} s that the request had "
                "left; check the bucket and the network, then try again."
            ) from None
        raise
    finally:
        del timeout  # breaks the cycle task -> error -> traceback -> this frame
