"""Stateful test of a store against a dict: moves drawn by hypothesis are applied to both and compared."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from hsparse.errors import NotFound, PreconditionFailed
from hsparse.storage.object_store import Entry, ObjectStore
from tests.testing.faulty_store import CHANGES

KEYS = ("a", "b/a", "b/c", "b/d/e", "b.d", "b-/é", "c/c/c/c")
PREFIXES = ("", "a", "b", "b/", "b/d", "b/d/", "c/c", "x")


@dataclass(frozen=True, slots=True)
class Move:
    """A call of `method` on `key` with `data`; `..._if_match` uses the etag that the key had `back` puts ago."""

    method: str
    key: str
    data: bytes
    back: int


def moves() -> st.SearchStrategy[list[Move]]:
    """Return a strategy of lists of moves on a few keys, so that moves often have the same key."""
    methods = st.sampled_from((*CHANGES, "delete_all", "list", "list_delimiter"))
    move = st.builds(Move, methods, st.sampled_from(KEYS), st.binary(max_size=8), st.integers(0, 2))
    return st.lists(move, max_size=30)


async def check_moves(store: ObjectStore, moves: list[Move]) -> None:
    """Apply `moves` to an empty store and to a dict, and assert that both agree after each move."""
    model: dict[str, tuple[bytes, str]] = {}
    etags: dict[str, list[str]] = {}
    for move in moves:
        if move.method == "delete":
            await store.delete(move.key)
            model.pop(move.key, None)
        elif move.method == "delete_if_match":
            await _check_delete_if_match(store, model, etags.get(move.key, ["0-0-0"]), move)
        elif move.method == "delete_all":
            await _check_delete_all(store, model, etags, move)
        elif move.method.startswith("list"):
            await _check_list(store, model, move)
        else:
            await _check_put(store, model, etags.setdefault(move.key, ["0-0-0"]), move)
        await _check_get(store, model, move.key)
    for key in KEYS:
        await _check_get(store, model, key)
    for given in etags.values():
        assert len(set(given)) == len(given), "two states share an etag"


async def _check_put(
    store: ObjectStore, model: dict[str, tuple[bytes, str]], etags: list[str], move: Move
) -> None:
    """Apply a put and check its outcome; `etags` are all etags the key has had, the latest first."""
    expected = etags[min(move.back, len(etags) - 1)]
    current = model.get(move.key)
    allowed = True
    try:
        if move.method == "put":
            etag = await store.put(move.key, move.data)
        elif move.method == "put_if_absent":
            allowed = current is None
            etag = await store.put_if_absent(move.key, move.data)
        else:
            allowed = current is not None and current[1] == expected
            etag = await store.put_if_match(move.key, move.data, expected)
    except PreconditionFailed:
        assert not allowed, f"{move} was refused"
        return
    assert allowed, f"{move} was not refused"
    model[move.key] = (move.data, etag)
    etags.insert(0, etag)


async def _check_delete_if_match(
    store: ObjectStore, model: dict[str, tuple[bytes, str]], etags: list[str], move: Move
) -> None:
    expected = etags[min(move.back, len(etags) - 1)]
    allowed = move.key not in model or model[move.key][1] == expected
    try:
        await store.delete_if_match(move.key, expected)
    except PreconditionFailed:
        assert not allowed, f"{move} was refused"
        return
    assert allowed, f"{move} was not refused"
    model.pop(move.key, None)


async def _check_delete_all(
    store: ObjectStore, model: dict[str, tuple[bytes, str]], etags: dict[str, list[str]], move: Move
) -> None:
    """Delete some objects by their current etags, and the object of the move's key by an earlier etag."""
    entries = []
    for key in KEYS[len(move.data) :]:
        known = etags.get(key, ["0-0-0"])
        etag = known[min(move.back, len(known) - 1) if key == move.key else 0]
        entries.append(Entry(key, 0, etag, 0.0))
    expected = [e.key not in model or model[e.key][1] == e.etag for e in entries]
    assert await store.delete_all(entries) == expected
    for entry, deleted in zip(entries, expected, strict=True):
        if deleted:
            model.pop(entry.key, None)


async def _check_get(store: ObjectStore, model: dict[str, tuple[bytes, str]], key: str) -> None:
    try:
        stored = await store.get(key)
    except NotFound:
        assert key not in model, f"{key!r} is lost"
        return
    assert (stored.data, stored.etag) == model.get(key), f"{key!r} is not what was put"


async def _check_list(store: ObjectStore, model: dict[str, tuple[bytes, str]], move: Move) -> None:
    prefix = PREFIXES[len(move.data) % len(PREFIXES)]
    delimiter = move.method == "list_delimiter"
    keys = [key for key in sorted(model) if key.startswith(prefix)]
    below = {prefix + key.removeprefix(prefix).split("/")[0] + "/" for key in keys}
    below = {name for name in below if any(key.startswith(name) for key in keys)} if delimiter else set()
    expected = [
        (key, len(model[key][0]), model[key][1])
        for key in keys
        if key > move.key and not any(key.startswith(name) for name in below)
    ]
    entries: list[tuple[str, int, str]] = []
    prefixes: list[str] = []
    async for page in store.list(prefix, delimiter=delimiter, start_after=move.key):
        entries += [(entry.key, entry.size, entry.etag) for entry in page.entries]
        prefixes += page.prefixes
    assert (entries, prefixes) == (expected, sorted(name for name in below if name > move.key))
