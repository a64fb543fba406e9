"""A store that serves the HDF5 files of some places as domains, beside what the store below it has.

The file `sub/run.h5` of the place that is served as NAME is the domain `/NAME/sub/run.h5`. The ids of its objects
follow from its name and its state: a file that was changed has others, and what was known of the old ones is not
answered for it. A record is made when the file is first opened, a chunk when it is read; nothing is written.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from hsparse.clock import SystemClock
from hsparse.dn.record_form import RecordCodec
from hsparse.errors import (
    BadRequest,
    Corrupt,
    Forbidden,
    HsparseError,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from hsparse.hdf5.served.file_chunks import FileChunk
from hsparse.hdf5.served.folders import FileFolder, FileState, joined, walked
from hsparse.hdf5.served.kept_files import KeptFiles
from hsparse.hdf5.served.places import named_folders
from hsparse.hdf5.served.served_file import ServedFile
from hsparse.model.acl import readable
from hsparse.model.file_backed import SERVED
from hsparse.model.ids import is_map_key, root_id, tree_of_key
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page, Stored, no_urls, resolve_range
from hsparse.storage.store_settings import StoreSettings
from hsparse.wire.message import Record

RECORD = ".domain.json"
MARK = bytes.fromhex("f11e")
"""What the ids of files begin with: an id that nobody knows is looked for among the files only if it does."""
MARKED = f"g-{MARK.hex()}"
MOST_OPEN = 64
"""Files that are kept open, with their records."""
MOST_REFUSED = 10_000
"""Files that could not be opened whose reasons are known."""
MOST_KNOWN = 100_000
"""Files whose ids are known; that of another one is looked for when it is asked for."""
PAGE = 1000


class DecodedObject(Stored):
    """A chunk of a file as it is decoded; its bytes are made when they are asked for, which blocks."""

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


class ServedFiles(DelegatingStore):
    """An `ObjectStore` over another one, with the files of `folders`, by the names that they are served as."""

    def __init__(
        self, store: ObjectStore, folders: dict[str, FileFolder], kept: KeptFiles | None = None
    ) -> None:
        """Serve `folders`; what is known of their files is `kept` for the next start."""
        super().__init__(store)
        self._folders = folders
        self._kept = kept
        self._readers = {
            name: ThreadPoolExecutor(one.readers, f"files-{name}") for name, one in folders.items()
        }
        self._places: OrderedDict[str, tuple[str, str, FileState]] = OrderedDict()
        """Where the file of each root is: the folder's name, the path in it, and the state that the root is of."""
        self._open: OrderedDict[str, asyncio.Task[ServedFile]] = OrderedDict()
        self._refused: OrderedDict[str, HsparseError] = OrderedDict()
        """Why files could not be opened, by their roots: listings tell it."""

    # --- what is read ------------------------------------------------------------------------------------

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

    # --- what is refused ---------------------------------------------------------------------------------

    async def put(self, key: str, data: Buffer) -> str:
        return await self._below(key).put(key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._below(key).put_if_absent(key, data)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._below(key).put_if_match(key, data, etag)

    async def delete(self, key: str) -> None:
        if not self._is_ours(key):  # there is nothing of ours to delete that a server deletes unasked
            await self._store.delete(key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._below(key).delete_if_match(key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> builtins.list[bool]:
        for entry in entries:
            self._below(entry.key)
        return await self._store.delete_all(entries)

    def _below(self, key: str) -> ObjectStore:
        """Return the store below; `Forbidden` for a key of a file."""
        if not self._is_ours(key):
            return self._store
        if is_map_key(key):  # what is known of chunks is kept in memory alone
            raise PreconditionFailed(f"{key} is not kept.")
        tree = tree_of_key(key)
        name = key.removesuffix(f"/{RECORD}") if tree is None else "/".join(self._places[tree[0]][:2])
        raise Forbidden(
            f"/{name} is a file that is only read (--files): import it, or copy it by hsparse cp, to change it."
        )

    def _is_ours(self, key: str) -> bool:
        tree = tree_of_key(key)
        return key.partition("/")[0] in self._folders if tree is None else tree[0] in self._places

    # --- what there is -----------------------------------------------------------------------------------

    def trusts(self, name: str) -> bool:
        """Say whether only this server changes an object: a file may change at any time, its objects never do."""
        return not name.startswith("/") or name[1:].partition("/")[0] not in self._folders

    async def _found(self, key: str) -> Stored | None:
        """Return an object of the files, None for a key of the store below; `NotFound` where there is no such file."""
        name, _, rest = key.partition("/")
        if name in self._folders:
            if rest != RECORD and not rest.endswith(f"/{RECORD}"):
                raise NotFound(f"There is no object {key}.")
            path = rest.removesuffix(RECORD).rstrip("/")
            return await asyncio.to_thread(self._domain, name, path, key)
        root = await self._known_root(key)
        if root is None:
            return None
        file = await self._file(root)
        readers = self._readers[self._places[root][0]]
        data = await asyncio.get_running_loop().run_in_executor(readers, file.get, key)
        if data is None:
            raise NotFound(f"There is no object {key}.")
        if isinstance(data, FileChunk):
            return DecodedObject(data, root)
        return Stored(bytes(data), root, len(data))

    def _domain(self, name: str, path: str, key: str) -> Stored:
        """Return the record of the domain of a file, or of a folder."""
        folder = self._folders[name]
        record: Record = {"owner": "admin", "acls": readable(), SERVED: True}
        state = folder.state(path)
        if state is None:
            modified, etag = 0.0, "folder"
        else:
            modified, etag = state.modified, state.etag
            root = record["root"] = self._root(name, path, state)
            if (error := self._refused.get(root)) is not None:
                record |= {"error": str(error.kind), "reason": error.message}
                etag += f" {error.kind}"
        data = RecordCodec(key).encode(record | {"created": modified, "lastModified": modified})
        return Stored(data, etag, len(data))

    def _root(self, name: str, path: str, state: FileState) -> str:
        """Return the root group's id of a file in a state, and remember where the file is."""
        digest = sha256(f"{name}\0{path}\0{state.etag}".encode()).digest()
        root = root_id(MARK + digest[:6])
        self._places[root] = name, path, state
        if len(self._places) > MOST_KNOWN:
            self._places.popitem(last=False)
        return root

    async def _known_root(self, key: str) -> str | None:
        """Return the root group's id of the domain that a key belongs to, None if it is no file's."""
        tree = tree_of_key(key)
        if tree is None:
            return None
        root = tree[0]
        if root not in self._places and root.startswith(MARKED):
            await asyncio.to_thread(self._look_for, root)
        return root if root in self._places else None

    def _look_for(self, root: str) -> None:
        """Look for the file of an id in all places: another process, or an earlier one, has told the id."""
        for name, folder in self._folders.items():
            for path, content in walked(folder, ""):
                for file, state in content.files.items():
                    self._root(name, joined(path, file), state)
                if root in self._places:
                    return

    async def _file(self, root: str) -> ServedFile:
        """Return the opened file of an id; `Conflict` if it is not in the state that the id is of."""
        opened = self._open.pop(root, None)
        if opened is None or (opened.done() and opened.exception() is not None):
            name, path, state = self._places[root]
            opened = asyncio.create_task(asyncio.to_thread(self._opened, root, name, path, state))
        self._open[root] = opened
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)  # it is closed once nobody reads it
        return opened.result() if opened.done() else await asyncio.shield(opened)

    def _opened(self, root: str, name: str, path: str, state: FileState) -> ServedFile:
        folder = self._folders[name]
        kept = None
        if self._kept is not None:
            kept = self._kept.of(state.modified, folder.place, path, state.etag, root)
        try:
            return ServedFile(f"/{name}/{path}", root, state.modified, lambda: folder.open(path, state), kept)
        except (Corrupt, Unsupported, BadRequest) as error:
            self._refused[root] = type(error)(error.message)  # without the frames that it has been in
            while len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)
            raise

    async def _keys(self, prefix: str, *, delimiter: bool) -> Sequence[Entry | str] | None:
        """Return what a listing of the files has in order, folders as text; None for a prefix of the store below."""
        name, slash, rest = prefix.partition("/")
        if slash and name in self._folders:
            return await asyncio.to_thread(self._domain_keys, name, rest, delimiter)
        root = await self._known_root(prefix)
        if root is None:
            return None
        file, modified = await self._file(root), self._places[root][2].modified
        found = await asyncio.to_thread(file.keys, prefix)
        if not delimiter:
            return [Entry(key, size, root, modified) for key, size in found.items()]
        items: dict[str, Entry | str] = {}
        for key, size in found.items():
            first, more, _ = key[len(prefix) :].partition("/")
            items[prefix + first + more] = prefix + first + more if more else Entry(key, size, root, modified)
        return [items[key] for key in sorted(items)]

    def _domain_keys(self, name: str, rest: str, delimiter: bool) -> Sequence[Entry | str]:
        """Return the keys of domains below `NAME/rest`, with `delimiter` those directly there, and folders."""
        folder, (path, _, start) = self._folders[name], rest.rpartition("/")
        items: dict[str, Entry | str] = {}

        def add(place: str, modified: float, etag: str) -> None:
            key = joined(name, place, RECORD)
            items[key] = Entry(key, 0, etag, modified)

        with suppress(NotFound):
            for at, content in walked(folder, path) if not delimiter else ((path, folder.content(path)),):
                add(at, 0.0, "folder")
                for file, state in content.files.items():
                    if not delimiter:
                        add(joined(at, file), state.modified, state.etag)
                if delimiter:
                    below = [joined(name, at, one) + "/" for one in (*content.files, *content.folders)]
                    items |= dict(zip(below, below, strict=True))
        begin = joined(name, path, start) if start else joined(name, path) + "/"
        return [items[key] for key in sorted(items) if key.startswith(begin)]


def served_files(
    store: ObjectStore, items: Sequence[str], settings: StoreSettings, cache: Path | None
) -> ServedFiles:
    """Return a store over another one, with the files that the items of `--files` name; `Misconfigured`."""
    return ServedFiles(
        store, named_folders(items, settings), None if cache is None else KeptFiles(cache, SystemClock())
    )


def _pages(found: Sequence[Entry | str]) -> Iterator[Page]:
    for first in range(0, len(found), PAGE):
        some = found[first : first + PAGE]
        yield Page(
            tuple(one for one in some if isinstance(one, Entry)),
            tuple(one for one in some if isinstance(one, str)),
        )


async def _with_folders(pages: AsyncIterator[Page], folders: Sequence[str]) -> AsyncIterator[Page]:
    """Yield the pages of a listing with the prefixes `folders` in their places."""
    left = sorted(folders)
    async for page in pages:
        last = max([one.key for one in page.entries[-1:]] + list(page.prefixes[-1:]), default="")
        here = [one for one in left if one <= last]
        left = left[len(here) :]
        yield Page(page.entries, tuple(sorted({*page.prefixes, *here})))
    if left:
        yield Page((), tuple(left))
