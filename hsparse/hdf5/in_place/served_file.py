"""Open an HDF5 file, and return its metadata and chunks in the form of the store objects of an imported domain.

The file is closed when its `ServedFile` is garbage collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize

from hsparse.dn.record_form import RecordCodec
from hsparse.errors import Corrupt, DamagedFile, HsparseError, LeftOut, TooLarge, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.defined_upload import DefinedData
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.importer.index_columns import look_at_indices
from hsparse.hdf5.importer.matrix_forms import EVENTS, DefinedSet, MatrixForm
from hsparse.hdf5.importer.source import InputFile, path_in_errors
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.importer.structured_upload import StructuredData
from hsparse.hdf5.importer.virtual_data import VirtualData, open_data
from hsparse.hdf5.in_place.address_digest import address_digest
from hsparse.hdf5.in_place.encoded_records import AllRecords, EncodedRecords, RequestedRecords, encoded
from hsparse.hdf5.in_place.file_chunks import (
    DefinedChunks,
    DenseChunks,
    FileChunk,
    FileChunks,
    MatrixChunks,
    NoChunks,
    StructuredChunks,
    first_in_chunk,
)
from hsparse.hdf5.in_place.file_records import FileRecords
from hsparse.hdf5.in_place.indexed_chunks import CooChunks, EventChunks
from hsparse.hdf5.in_place.kept_files import KeptFile
from hsparse.hdf5.in_place.opening import RememberedSource
from hsparse.hdf5.in_place.signatures import what_is
from hsparse.model.ids import chunk_of_key, id_of_key, storage_key, tree_of_key
from hsparse.model.schema import VIRTUAL_DATA

MATRICES = ("csr", "csc", "coo", EVENTS)
MOST_LOOKED, MOST_FETCHED = 1024 * 1024 * 1024, 64 * 1024 * 1024
"""Most bytes of an index column that is checked when the file is opened, for local and for remote files."""
NO_OTHERS: Mapping[str, str] = {}
MOST_WHOLE = 1000
"""A file with at most this many objects is parsed whole when opened; objects of a larger file are parsed on request."""
CHUNKS: dict[str, type[MatrixChunks]] = {"coo": CooChunks, EVENTS: EventChunks}


class ServedFile:
    """The served file that is the domain `path`, with root group id `root`. All methods block and are thread-safe."""

    def __init__(
        self,
        path: str,
        root: str,
        modified: float,
        opened: Callable[[], tuple[InputFile, SourceFiles]],
        kept: KeptFile | None = None,
        most: int | None = None,
        others: Mapping[str, str] = NO_OTHERS,
    ) -> None:
        """Parse the file, or restore the metadata in the cache entry `kept`.

        Raises `DamagedFile`, `Unsupported` and `Conflict`; messages name the file. `most` limits the decoded bytes of a
        chunk (`get` raises `TooLarge`). `others` maps other served places to the paths that they are served as.
        """
        self._most = most
        self._records: EncodedRecords
        self._elsewhere: set[str] = set()
        with _named(path):
            source, self._files = opened()
            self._files.others = others
            self._source = RememberedSource(source)
            try:
                if not self._restore(root, kept and kept.get()):
                    self._parse(root, modified, path[: path.find("/", 1)], kept)
            except Corrupt as error:
                what = what_is(source.size, source.fetch)
                source.close()
                if what:
                    raise Unsupported(f"The file {what}.") from error
                raise
            except BaseException:
                source.close()
                raise
            finalize(self, _close, source, self._files)
        self._path, self._root = path, root
        self._chunks: dict[str, tuple[ChunkSpec, FileChunks]] = {}
        self._lock = Lock()

    def _parse(self, root: str, modified: float, place: str, kept: KeptFile | None) -> None:
        """Parse the file. If it has at most `MOST_WHOLE` objects, build all records, and cache them in `kept`."""
        if self._source.is_far:
            self._source.remember(MOST_WHOLE)
        look = partial(
            look_at_indices, most=MOST_FETCHED if self._source.is_far else MOST_LOOKED, ordered=True
        )
        self._objects = FileObjects(
            self._source,
            root,
            matrices=MATRICES,
            look=look,
            files=self._files,
            damaged=True,
            most=MOST_WHOLE,
            digest=address_digest(root),
        )
        found = FileRecords(self._objects, root, modified, place)
        self._elsewhere = found.elsewhere
        if not self._objects.is_whole:
            self._source.forget()
            self._records = RequestedRecords(found)
            return
        records = {id: encoded(id, record) for id, record in found.all()}
        self._source.forget()
        self._records = AllRecords(self._objects, records)
        others = (
            self._elsewhere or self._files.names_others
        )  # a cache entry would hide changes of other files
        if kept and not others:
            kept.put(self._content(records))

    def _content(self, records: dict[str, bytes]) -> dict[str, Any]:
        """Return the content of the cache entry: records, objects, cached ranges, and why objects were skipped."""
        objects = [asdict(one) for one in self._objects.by_address.values()]
        ranges = [(*one, data) for one, data in self._source.ranges.items()]
        return {"records": records, "objects": objects, "ranges": ranges, "skipped": self._objects.skipped}

    def _restore(self, root: str, content: Any) -> bool:
        """Restore the content of a cache entry; return False if there is no content, or if it is not valid."""
        try:
            ranges = {ByteRange(at, size): data for at, size, data in content["ranges"]}
            known = [_file_object(one) for one in content["objects"]]
            records, skipped = dict(content["records"]), dict(content["skipped"])
        except (KeyError, TypeError, ValueError):
            return False
        self._source.ranges |= ranges
        self._objects = FileObjects(self._source, root, matrices=MATRICES, files=self._files, known=known)
        self._objects.skipped |= skipped
        self._records = AllRecords(self._objects, records)
        return True

    def is_elsewhere(self, key: str) -> bool:
        """Return whether the object at a key, or the dataset of the chunk at a key, depends on other files.

        In a file with many objects the answer is False until the object has been requested.
        """
        return bool(self._elsewhere) and (id_of_key(key) or _dataset_of(key)) in self._elsewhere

    @property
    def depends(self) -> bool:
        """Whether any of the objects parsed so far depends on other files."""
        return bool(self._elsewhere)

    def is_changed(self) -> bool:
        """Return whether a file that this file names was changed, created or removed since this file was opened."""
        return self._files.is_changed

    @property
    def etag(self) -> str:
        """An etag of the states of the files that this file names."""
        return self._files.etag

    def get(self, key: str) -> FileChunk | Buffer | None:
        """Return the object at a key (a record as bytes, a chunk as stored bytes or decoded), or None if it is missing.

        Raises `LeftOut` for an object that is not served, `DamagedFile`, and `TooLarge`.
        """
        id = id_of_key(key)
        if id is not None:
            try:
                return self._records.get(id)
            except LeftOut as error:
                raise LeftOut(f"{self._path}: {error.message}") from error
        dataset = _dataset_of(key)
        one = None if dataset is None or chunk_of_key(key) is None else self._records.object(dataset)
        if one is None:
            return None
        with _named(self.name_of(key)):
            spec, chunks = self._opened(one)
            if self._most is not None and chunks.decoded > self._most:
                raise TooLarge(
                    f"The file has chunks of {chunks.decoded} bytes, but at most {self._most} bytes can be decoded at "
                    "a time: raise --chunk-memory."
                )
            scaled = (spec.scaled_of(key) or ())[: len(spec.dims)]
            is_there = spec.key(scaled) == key and min(scaled, default=0) >= 0
            return chunks.chunk(scaled) if is_there else None

    def name_of(self, key: str) -> str:
        """Return the name by which errors call the object at a key: the file and, for a chunk, its dataset and key."""
        dataset, chunk = _dataset_of(key), key.rpartition("/")[2]
        one = None if dataset is None else self._records.object(dataset)
        return self._path if one is None else f"{self._path}: {one.path} (chunk {chunk})"

    def keys(self, prefix: str) -> dict[str, int]:
        """Return a dict that maps each key below a prefix, in sorted order, to its object's approximate size in bytes.

        In a listing of the whole file, the root group's size is the number of the file's bytes outside of chunks, and
        a dataset whose chunks cannot be found (its source files are not served, say) has no chunk keys.
        """
        id = id_of_key(prefix) or _dataset_of(prefix)
        objects = map(self._records.object, self._records.ids() if id is None else (id,))
        found: dict[str, int] = {}
        left = self._source.size
        for one in filter(None, objects):
            found[storage_key(one.id)] = 0
            if one.id.startswith("d-") and id_of_key(prefix) is None:
                try:
                    with _named(f"{self._path}: {one.path}"):
                        spec, chunks = self._opened(one)
                        sizes = {spec.key(at): size for at, size in chunks.sizes().items()}
                except HsparseError:
                    if id is None:
                        continue
                    raise
                left -= 0 if one.id in self._elsewhere else sum(sizes.values())
                found |= sizes
        if id is None:
            found[storage_key(self._root)] = max(0, left)
        return {key: found[key] for key in sorted(found) if key.startswith(prefix)}

    def _opened(self, one: FileObject) -> tuple[ChunkSpec, FileChunks]:
        with self._lock:
            found = self._chunks.get(one.id)
            if found is None:
                data = self._records.get(one.id)
                assert data is not None
                record = RecordCodec(storage_key(one.id)).decode(data)
                spec = chunk_spec(record)
                if VIRTUAL_DATA in record:
                    found = self._chunks[one.id] = spec, NoChunks()
                else:
                    chunks = self._open(one, spec, first_in_chunk(record))
                    found = self._chunks[one.id] = spec, chunks
        return found

    def _open(self, one: FileObject, spec: ChunkSpec, first: tuple[int, ...]) -> FileChunks:
        objects = self._objects
        if one.matrix is not None:
            return CHUNKS.get(one.matrix.kind, MatrixChunks)(objects, one.matrix, spec, first)
        stored = objects.read(one)
        if stored.dataset is None:
            raise Corrupt("The object is no longer a dataset.")
        if isinstance(stored.dataset.layout, RawStructuredLayout):
            return StructuredChunks(StructuredData(objects, stored), spec)
        if one.defined is not None:
            return DefinedChunks(DefinedData(objects, stored, one.defined.address), spec, first)
        data = open_data(objects, stored.dataset)
        if isinstance(data, VirtualData):
            data.find_sources()
        return DenseChunks(data, spec, first)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """A context that puts a name before the messages of errors, and raises `DamagedFile` in place of `Corrupt`."""
    try:
        with path_in_errors(name):
            yield
    except Corrupt as error:
        raise DamagedFile(error.message) from error


def _dataset_of(key: str) -> str | None:
    """Return the id of the dataset that a key belongs to, or None if the key belongs to no dataset."""
    tree = tree_of_key(key)
    return None if tree is None else tree[1]


def _as_tuple(value: Any) -> Any:
    """Return a value whose lists, at all levels of nesting, are converted to tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _file_object(kept: dict[str, Any]) -> FileObject:
    """Return the file object that a cache entry describes: the inverse of `asdict`."""
    forms = {
        name: None if kept[name] is None else form(**{one: _as_tuple(x) for one, x in kept[name].items()})
        for name, form in (("matrix", MatrixForm), ("defined", DefinedSet))
    }
    return FileObject(**{**kept, "kind": ObjectKind(kept["kind"]), "dims": tuple(kept["dims"]), **forms})


def _close(source: InputFile, files: SourceFiles) -> None:
    files.close()
    source.close()
