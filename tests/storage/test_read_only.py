"""A store that is read and never written."""

from __future__ import annotations

import pytest

from hsparse.errors import Unsupported
from hsparse.storage.delegating_store import MemoryStore, ReadOnlyStore
from hsparse.storage.object_store import Entry


async def test_it_reads_and_refuses_every_change() -> None:
    inner = MemoryStore("bucket")
    etag = await inner.put("a/b", b"bytes")
    store = ReadOnlyStore(inner, Unsupported("Use a newer one."))
    assert store.name == "bucket"
    assert (await store.get("a/b")).data == b"bytes"
    assert (await store.get_range("a/b", 1, 2)).data == b"yt"
    assert [entry.key async for page in store.list("") for entry in page.entries] == ["a/b"]
    for change in (
        store.put("a/b", b""),
        store.put_if_absent("c", b""),
        store.put_if_match("a/b", b"", etag),
        store.delete("a/b"),
        store.delete_if_match("a/b", etag),
        store.delete_all([Entry("a/b", 5, etag, 0.0)]),
    ):
        with pytest.raises(Unsupported, match=r"Use a newer one\."):
            await change
    with pytest.raises(Unsupported, match="has no URLs"):
        await store.presigned("a/b", 1)
    await store.close()
    assert (await inner.get("a/b")).etag == etag
