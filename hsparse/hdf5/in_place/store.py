"""An object store that adds the HDF5 files of places (directories, bucket prefixes, URLs) to another store, as domains.

The file `sub/run.h5` of the place that is served as NAME is the domain `/NAME/sub/run.h5`. Object ids are derived from
the path and the state of their file, so a changed file has new ids, and data cached for its old state is not returned.
Records (metadata) are built when a file is opened or read, chunks when they are read. Files are never written.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.bounded_cache import BoundedCache
from hsparse.clock import SystemClock
from hsparse.dn.record_form import RecordCodec
from hsparse.errors import (
    BadRequest,
    Conflict,
    Corrupt,
    DamagedFile,
    Forbidden,
    HsparseError,
    LeftOut,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    Unsupported,
)
from hsparse.hdf5.in_place.file_chunks import FileChunk
from hsparse.hdf5.in_place.folders import FileFolder, FileState, joined, walked
from hsparse.hdf5.in_place.kept_files import KeptFiles
from hsparse.hdf5.in_place.place_rights import OWNER, RECORD, PlaceRights
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.hdf5.in_place.unknown_roots import UnknownRoots
from hsparse.model.file_backed import MAX_DOMAIN_PATH, PLACE, SERVED, SIZE
from hsparse.model.ids import id_of_deletion_key, is_map_key, root_id, storage_key, tree_of_key
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored, no_urls, resolve_range
from hsparse.storage.store_settings import StoreSettings
from hsparse.wire.message import Record

MARK = bytes.fromhex("f11e")
"""First bytes of the root ids of files: only unknown ids that begin with these bytes are searched for in the places."""
MARKED_NAME = MARK.hex()
MARKED = f"g-{MARKED_NAME}"
OBJECTS = "db/"
MOST_OPEN = 64
"""Most files that stay open, with their records in memory."""
MOST_REFUSED = 10_000
"""Most files for which the error of a failed opening is remembered."""
MOST_KNOWN = 100_000
"""Most root ids whose files are remembered; if an id has been forgotten, its file is searched for on request."""
PAGE_KEYS = 1000
LISTINGS, ENTRY = 64 * 1024 * 1024, 200
"""Bytes of the cache of listings, and the bytes that an entry counts there in addition to its key's bytes."""


class DecodedObject(Stored):
    """A chunk of a file in decoded form; `data` and `size` encode it on first use, which blocks."""

    _encode: Callable[[], Buffer]

    def __init__(self, chunk: FileChunk, etag: str) -> None:
        for name, value in (("decoded", chunk.chunk), ("etag", etag), ("_encode", chunk.encode)):
            object.__setattr__(self, name, value)

    @cached_property
    def data(self) -> bytes:
        return bytes(self._encode())

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInFile(Stored):
    """An object whose bytes come from a served file; errors call the object `name`."""

    name: str

    def damaged(self, error: Corrupt) -> Corrupt:
        # The message of the cause does not contain the object's key, which would mean nothing to a user.
        why = error.__cause__ if isinstance(error.__cause__, Corrupt) else error
        return DamagedFile(f"{self.name}: {why.message}")


class ServedFiles(DelegatingStore):
    """An `ObjectStore` that adds the files of `folders` to another store."""

    def __init__(
        self,
        store: ObjectStore,
        folders: dict[str, FileFolder],
        kept: KeptFiles | None = None,
        most: int | None = None,
    ) -> None:
        """Serve the places in `folders`, a dict by served name; `kept` is the on-disk cache of parsed files.

        A chunk whose decoded bytes exceed `most` is refused (`TooLarge`).
        """
        self._most = most
        super().__init__(store)
        self._folders = folders
        self._kept = kept
        self._rights = PlaceRights(store)
        self._readers = {
            name: ThreadPoolExecutor(one.readers, f"files-{name}") for name, one in folders.items()
        }
        self._places: BoundedCache[str, tuple[str, str, FileState]] = BoundedCache.of_entries(
            MOST_KNOWN, lambda root, _: self._depending.discard(root)
        )
        """Maps each root id to its file: the name of the place, the path in the place, and the state of the file."""
        self._unknown = UnknownRoots(store, folders, self._places, self._root)
        self._depending: set[str] = set()
        """Root ids of files with objects that depend on other files."""
        self._open: BoundedCache[str, asyncio.Task[ServedFile]] = BoundedCache.of_entries(MOST_OPEN)
        """Maps root ids to open files. A file that is removed here is closed when its last read ends."""
        self._listings: BoundedCache[tuple[str, str, bool], Sequence[Entry | str]] = BoundedCache(
            LISTINGS, LISTINGS
        )
        """Listings of files, cached because clients request them page by page."""
        self._refused: BoundedCache[str, HsparseError] = BoundedCache.of_entries(MOST_REFUSED)
        """Maps the root ids of files that could not be opened to the errors, which domain records state."""

    # --- reads -------------------------------------------------------------------------------------------

    async def get(self, key: str) -> Stored:
        found = await self._found(key)
        return await self._store.get(key) if found is None else found

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        found = await self._found(key)
        if found is None:
            return await self._store.get_range(key, start, length)
        data = found.data if found.decoded is None else await asyncio.to_thread(getattr, found, "data")
        first, count = resolve_range(key, start, length, len(data))
        return Stored(data[first : first + count], found.etag, len(data))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        found = await self._keys(prefix, delimiter=delimiter)
        if found is not None:
            names = [one if isinstance(one, str) else one.key for one in found]
            for page in _pages(found[bisect_right(names, start_after) :]):
                yield page
            return
        async for page in _with_folders(
            self._store.list(prefix, delimiter=delimiter, start_after=start_after),
            [name for one in self._folders if (name := f"{one}/").startswith(prefix) and name > start_after]
            if delimiter
            else [],
        ):
            yield page

    async def presigned(self, key: str, seconds: int) -> str:
        if self._is_ours(key):
            raise no_urls(self.name)
        return await self._store.presigned(key, seconds)

    async def close(self) -> None:
        for name, folder in self._folders.items():
            await asyncio.to_thread(self._readers[name].shutdown)
            await asyncio.to_thread(folder.close)
        await super().close()

    # --- writes: passed to the store below, refused for files --------------------------------------------

    async def put(self, key: str, data: Buffer) -> str:
        return await self._below_put(key).put(key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._below_put(key).put_if_absent(key, data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        name, _, rest = key.partition("/")
        if name in self._folders and rest == RECORD:
            return await self._rights.put(name, data, etag)
        return await self._below(key).put_if_match(key, data, etag)

    async def delete(self, key: str) -> None:
        if not self._is_ours(key):  # servers also delete keys of their own accord: keys of files are ignored
            await self._store.delete(key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._below(key).delete_if_match(key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> builtins.list[bool]:
        for entry in entries:
            self._below(entry.key)
        return await self._store.delete_all(entries)

    def _below_put(self, key: str) -> ObjectStore:
        """Return `_below(key)`; for an object's deletion note, apply `_below` to the object: files have no notes."""
        id = id_of_deletion_key(key)
        return self._below(key if id is None else storage_key(id))

    def _below(self, key: str) -> ObjectStore:
        """Return the wrapped store if it may change a key; raise `Forbidden` for a key of a served file."""
        if not self._is_ours(key):
            return self._store
        if is_map_key(key):  # chunk maps of files are kept in memory only
            raise PreconditionFailed(f"The chunk map {key} of a served file is not stored.")
        tree = tree_of_key(key)
        name = key.removesuffix(f"/{RECORD}") if tree is None else "/".join(self._places[tree[0]][:2])
        raise Forbidden(
            f"/{name} is served read-only (--files): to change its contents, import or copy the file (hsparse cp)."
        )

    def _is_ours(self, key: str) -> bool:
        tree = tree_of_key(key)
        return key.partition("/")[0] in self._folders if tree is None else tree[0] in self._places

    # --- lookup of files ---------------------------------------------------------------------------------

    def trusts(self, name: str) -> bool:
        """Return whether the object `name` (an id, key or domain path) changes only through this server.

        Domains and folders below a place may change at any time, and so may objects that depend on other files.
        """
        if MARKED_NAME in (name[2:6], name[3:7]):
            tree = tree_of_key(name if name.startswith(OBJECTS) else storage_key(name))
            return tree is not None and tree[0] in self._places and tree[0] not in self._depending
        return name.count("/") < 2 or name[1:].partition("/")[0] not in self._folders

    async def _found(self, key: str) -> Stored | None:
        """Return an object of a served file, or None for a key of the wrapped store; raise `NotFound` if absent."""
        name, _, rest = key.partition("/")
        if name in self._folders:
            if rest != RECORD and not rest.endswith(f"/{RECORD}"):
                raise NotFound(f"There is no object {key}.")
            if rest == RECORD:
                return await self._rights.get(name)
            path = rest.removesuffix(RECORD).rstrip("/")
            return await asyncio.to_thread(self._domain, name, path, key)
        root = await self._known_root(key)
        return None if root is None else await self._read(root, key)

    async def _read(self, root: str, key: str) -> Stored:
        """Return an object of a file; raise `Conflict` if files that it depends on change during every attempt."""
        loop, readers = asyncio.get_running_loop(), self._readers[self._places[root][0]]
        for _ in range(MAX_READ_ATTEMPTS):
            file = await self._current(root, key)
            try:
                data = await loop.run_in_executor(readers, file.get, key)
            except (Conflict, LeftOut):
                if not file.depends or not await loop.run_in_executor(readers, file.is_changed):
                    raise
                self._open.forget(root)  # the other file changed before this object was first read: reopen
                continue
            self._note_dependence(root, file)
            if not file.is_elsewhere(key):
                return _stored(file, key, data, root)
            etag = f"{root} {file.etag}"
            if not await loop.run_in_executor(readers, file.is_changed):
                return _stored(file, key, data, etag)
        raise Conflict(f"Files that /{'/'.join(self._places[root][:2])} names keep changing: try again.")

    async def _current(self, root: str, key: str | None = None) -> ServedFile:
        """Return the opened file of a root id; reopen it if files that the object at `key` depends on have changed.

        Without a key, the file is reopened if files that any of its objects depends on have changed.
        """
        file = await self._file(root)
        depends = file.depends if key is None else file.is_elsewhere(key)
        if depends and await asyncio.to_thread(file.is_changed):
            self._open.forget(root)
            file = await self._file(root)
        return file

    def _domain(self, name: str, path: str, key: str) -> Stored:
        """Return the domain record of a file, or of a folder below a place."""
        folder = self._folders[name]
        record: Record = {"owner": OWNER, "acls": {}, SERVED: True, PLACE: f"/{name}"}
        state = folder.state(path)
        if state is None:
            modified, etag = 0.0, "folder"
        else:
            modified, etag = state.modified, state.etag
            record[SIZE] = state.size
            root = record["root"] = self._root(name, path, state)
            if (error := state.error or self._refused.get(root)) is not None:
                record |= {"error": str(error.kind), "reason": error.message}
                etag += f" {error.kind}"
        data = RecordCodec(key).encode(record | {"created": modified, "lastModified": modified})
        return Stored(data, etag, len(data))

    def _root(self, name: str, path: str, state: FileState) -> str:
        """Return the root id of a file in a state, and remember where the file is."""
        digest = sha256(f"{name}\0{path}\0{state.etag}".encode()).digest()
        root = root_id(MARK + digest[:6])
        self._places.keep(root, (name, path, state))
        return root

    async def _known_root(self, key: str) -> str | None:
        """Return the root id of the served file that a key belongs to, or None for a key of the wrapped store."""
        tree = tree_of_key(key)
        if tree is None:
            return None
        root = tree[0]
        if root not in self._places and root.startswith(MARKED):
            await self._unknown.look_for(root)
        return root if root in self._places else None

    async def _file(self, root: str) -> ServedFile:
        """Return the opened file of a root id; raise `Conflict` if the file is no longer in the state of the id."""
        opened = self._open.get(root)
        if opened is None or (opened.done() and opened.exception() is not None):
            name, path, state = self._places[root]
            opened = asyncio.create_task(asyncio.to_thread(self._opened, root, name, path, state))
        self._open.keep(root, opened)
        return opened.result() if opened.done() else await asyncio.shield(opened)

    def _opened(self, root: str, name: str, path: str, state: FileState) -> ServedFile:
        folder = self._folders[name]
        if state.error is not None:
            raise type(state.error)(f"/{name}/{path}: {state.error.message}")
        others = {one.place: f"/{other}" for other, one in self._folders.items() if one.place != folder.place}
        kept = None
        if self._kept is not None:
            identity = folder.place, path, state.etag, root, repr(others)
            kept = self._kept.of(max(state.modified, state.changed), *identity)
        try:
            file = ServedFile(
                f"/{name}/{path}",
                root,
                state.modified,
                lambda: folder.open(path, state),
                kept,
                self._most,
                others,
            )
        except (Corrupt, Unsupported, BadRequest) as error:
            self._refused.keep(root, type(error)(error.message))  # a copy without the traceback
            raise
        self._note_dependence(root, file)
        return file

    def _note_dependence(self, root: str, file: ServedFile) -> None:
        """Remember whether a file depends on other files; this may become known only when an object is read."""
        if file.depends:
            self._depending.add(root)

    async def _keys(self, prefix: str, *, delimiter: bool) -> Sequence[Entry | str] | None:
        """Return the sorted entries (str: a common prefix) of a listing, or None for a prefix of the wrapped store."""
        name, slash, rest = prefix.partition("/")
        if slash and name in self._folders:
            return await asyncio.to_thread(self._domain_keys, name, rest, delimiter)
        root = await self._known_root(prefix)
        if root is None:
            return None
        file, modified = await self._current(root), self._places[root][2].modified
        known = None if file.depends else self._listings.use((root, prefix, delimiter))
        if known is None:
            known = await asyncio.to_thread(_listing, file, root, modified, prefix, delimiter)
            self._note_dependence(root, file)
            if not file.depends:
                size = sum(len(one) if isinstance(one, str) else len(one.key) + ENTRY for one in known)
                self._listings.keep((root, prefix, delimiter), known, size)
        return known

    def _domain_keys(self, name: str, rest: str, delimiter: bool) -> Sequence[Entry | str]:
        """Return the sorted keys of domains below `NAME/rest`; with `delimiter`, only keys and prefixes of one level.

        Raises `Forbidden` for a folder that the server may not read, and `StoreFailed` if the place is missing.
        """
        folder, (path, _, start) = self._folders[name], rest.rpartition("/")
        items: dict[str, Entry | str] = {}

        def add(place: str, modified: float, etag: str) -> None:
            key = joined(name, place, RECORD)
            items[key] = Entry(key, 0, etag, modified)

        try:
            for at, content in walked(folder, path) if not delimiter else ((path, folder.content(path)),):
                add(at, 0.0, "folder")
                for file, state in content.files.items():
                    if not delimiter:
                        add(joined(at, file), state.modified, state.etag)
                if delimiter:
                    below = [joined(name, at, one) + "/" for one in (*content.files, *content.folders)]
                    items |= dict(zip(below, below, strict=True))
        except NotFound as error:
            if not path:
                raise StoreFailed(
                    f"The place that is served as /{name} is missing: mount or restore it."
                ) from error
        begin = joined(name, path, start) if start else joined(name, path) + "/"
        return [items[key] for key in sorted(items) if key.startswith(begin) and _has_path(key)]


def served_files(
    store: ObjectStore, items: Sequence[str], settings: StoreSettings, cache: Path | None, most: int
) -> ServedFiles:
    """Return a store that adds the files of the `--files` items to another store; raise `Misconfigured`.

    `cache` is the directory of the on-disk cache. A chunk whose decoded bytes exceed `most` is refused (`TooLarge`).
    """
    return ServedFiles(
        store,
        named_folders(items, settings),
        None if cache is None else KeptFiles(cache, SystemClock()),
        most,
    )


def _stored(file: ServedFile, key: str, data: FileChunk | Buffer | None, etag: str) -> Stored:
    """Return an object read from a file as a stored object; raise `NotFound` if `data` is None."""
    if data is None:
        raise NotFound(f"There is no object {key}.")
    if isinstance(data, FileChunk):
        return DecodedObject(data, etag)
    return StoredInFile(bytes(data), etag, len(data), name=file.name_of(key))


def _listing(
    file: ServedFile, root: str, modified: float, prefix: str, delimiter: bool
) -> Sequence[Entry | str]:
    """Return the sorted entries of a listing of a file's keys; with `delimiter`, common prefixes are str."""
    found, other = file.keys(prefix), f"{root} {file.etag}"
    items: dict[str, Entry | str] = {}
    for key, size in found.items():
        first, slash, _ = key[len(prefix) :].partition("/")
        if delimiter and slash:
            items[prefix + first + slash] = prefix + first + slash
        else:
            items[key] = Entry(key, size, other if file.is_elsewhere(key) else root, modified)
    return [items[key] for key in sorted(items)]


def _has_path(key: str) -> bool:
    """Return whether the path of a key is short enough for a domain, because a longer path cannot be requested."""
    return len(key.removesuffix(RECORD).rstrip("/").encode()) < MAX_DOMAIN_PATH


def _pages(found: Sequence[Entry | str]) -> Iterator[Page]:
    for first in range(0, len(found), PAGE_KEYS):
        some = found[first : first + PAGE_KEYS]
        yield Page(
            tuple(one for one in some if isinstance(one, Entry)),
            tuple(one for one in some if isinstance(one, str)),
        )


async def _with_folders(pages: AsyncIterator[Page], folders: Sequence[str]) -> AsyncIterator[Page]:
    """Yield the pages of a listing with the prefixes `folders` merged in, in sorted order."""
    left = sorted(folders)
    async for page in pages:
        last = max([one.key for one in page.entries[-1:]] + list(page.prefixes[-1:]), default="")
        here = [one for one in left if one <= last]
        left = left[len(here) :]
        yield Page(page.entries, tuple(sorted({*page.prefixes, *here})))
    if left:
        yield Page((), tuple(left))
