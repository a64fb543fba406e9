"""An HDF5 file in one state, opened to be served: the objects of a store that its domain would have.

It is closed when nothing refers to it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize

from hsparse.dn.record_form import RecordCodec
from hsparse.errors import Corrupt
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec, chunk_name, chunk_spec
from hsparse.hdf5.format.file_fields import ByteRange
from hsparse.hdf5.format.messages.layout_message import RawStructuredLayout
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.importer.index_columns import look_at_indices
from hsparse.hdf5.importer.matrix_forms import EVENTS, DefinedSet, MatrixForm
from hsparse.hdf5.importer.source import Source, path_in_errors
from hsparse.hdf5.importer.source_files import SourceFiles
from hsparse.hdf5.importer.structured_upload import DefinedData, StructuredData
from hsparse.hdf5.importer.virtual_data import open_data
from hsparse.hdf5.served.file_chunks import (
    DefinedChunks,
    DenseChunks,
    FileChunk,
    FileChunks,
    MatrixChunks,
    StructuredChunks,
)
from hsparse.hdf5.served.file_records import FileRecords
from hsparse.hdf5.served.indexed_chunks import CooChunks, EventChunks
from hsparse.hdf5.served.kept_files import KeptFile
from hsparse.hdf5.served.opening import RememberedSource
from hsparse.model.ids import chunk_of_key, chunk_prefix, storage_key

MATRICES = ("csr", "csc", "coo", EVENTS)
MOST_LOOKED, MOST_FETCHED = 1024 * 1024 * 1024, 64 * 1024 * 1024
"""Bytes of a column in a file, here and far away, that is read when the file is opened."""
CHUNKS: dict[str, type[MatrixChunks]] = {"coo": CooChunks, EVENTS: EventChunks}


class ServedFile:
    """The file at `path`, whose root group is `root`; its methods block, and any number of threads may call them."""

    def __init__(
        self,
        path: str,
        root: str,
        modified: float,
        opened: Callable[[], tuple[Source, SourceFiles]],
        kept: KeptFile | None = None,
    ) -> None:
        """Parse the file, or take what is `kept` of it; `Corrupt`, `Unsupported` and `Conflict` name it."""
        with path_in_errors(path):
            source, self._files = opened()
            self._source = RememberedSource(source)
            try:
                if not self._restore(root, kept and kept.get()):
                    self._parse(root, modified)
                    if kept and not self._files.names_others:  # another file may change any time
                        kept.put(self._content())
            except BaseException:
                source.close()
                raise
            finalize(self, _close, source, self._files)
        self._path = path
        self.skipped = self._objects.skipped
        self._datasets = {chunk_prefix(id): id for id in self._records if id.startswith("d-")}
        self._ids = {storage_key(id): id for id in self._records}
        self._by_id = {one.id: one for one in self._objects.by_address.values()}
        self._chunks: dict[str, tuple[ChunkSpec, FileChunks]] = {}
        self._lock = Lock()

    def _parse(self, root: str, modified: float) -> None:
        if self._source.is_far:
            self._source.remember()
        look = partial(
            look_at_indices, most=MOST_FETCHED if self._source.is_far else MOST_LOOKED, ordered=True
        )
        self._objects = FileObjects(
            self._source, root, matrices=MATRICES, look=look, files=self._files, damaged=True
        )
        records = FileRecords(self._objects, root, modified).records
        self._source.forget()
        self._records = {id: RecordCodec(storage_key(id)).encode(one) for id, one in records.items()}

    def _content(self) -> dict[str, Any]:
        """Return what is known of the file: its records, its objects, and what was read of a file that is far away."""
        objects = [asdict(one) for one in self._objects.by_address.values()]
        ranges = [(*one, data) for one, data in self._source.ranges.items()]
        return {
            "records": self._records,
            "objects": objects,
            "ranges": ranges,
            "skipped": self._objects.skipped,
        }

    def _restore(self, root: str, content: Any) -> bool:
        """Take what was kept of the file; False if that is nothing, or of another form."""
        try:
            ranges = {ByteRange(at, size): data for at, size, data in content["ranges"]}
            known = [_file_object(one) for one in content["objects"]]
            self._records, skipped = dict(content["records"]), dict(content["skipped"])
        except (KeyError, TypeError, ValueError):
            return False
        self._source.ranges |= ranges
        self._objects = FileObjects(self._source, root, matrices=MATRICES, files=self._files, known=known)
        self._objects.skipped |= skipped
        return True

    def get(self, key: str) -> FileChunk | Buffer | None:
        """Return the object at a key, None where there is none; a chunk is maybe decoded."""
        id = self._ids.get(key)
        if id is not None:
            return self._records[id]
        folder, _, name = key.rpartition("/")
        dataset, scaled = self._datasets.get(f"{folder}/"), chunk_of_key(key)
        if dataset is None or scaled is None:
            return None
        with path_in_errors(f"{self._path}: {self._by_id[dataset].path} (chunk {name})"):
            spec, chunks = self._opened(dataset)
            scaled = scaled[: len(spec.dims)]
            return chunks.chunk(scaled) if chunk_name(scaled) == name else None

    def keys(self, prefix: str) -> dict[str, int]:
        """Return the keys below a prefix, in their order, and about how many bytes each object has."""
        found = {key: 0 for key in self._ids if key.startswith(prefix)}
        for folder, dataset in self._datasets.items():
            if folder.startswith(prefix) or prefix.startswith(folder):
                with path_in_errors(f"{self._path}: {self._by_id[dataset].path}"):
                    names = self._opened(dataset)[1].names()
                found |= {
                    key: size for name, size in names.items() if (key := folder + name).startswith(prefix)
                }
        return dict(sorted(found.items()))

    def _opened(self, dataset: str) -> tuple[ChunkSpec, FileChunks]:
        with self._lock:
            found = self._chunks.get(dataset)
            if found is None:
                spec = chunk_spec(RecordCodec(storage_key(dataset)).decode(self._records[dataset]))
                found = self._chunks[dataset] = spec, self._open(self._by_id[dataset], spec)
        return found

    def _open(self, one: FileObject, spec: ChunkSpec) -> FileChunks:
        objects = self._objects
        if one.matrix is not None:
            return CHUNKS.get(one.matrix.kind, MatrixChunks)(objects, one.matrix, spec)
        stored = objects.read(one)
        if stored.dataset is None:
            raise Corrupt("It is no dataset any more.")
        if isinstance(stored.dataset.layout, RawStructuredLayout):
            return StructuredChunks(StructuredData(objects, stored), spec)
        if one.defined is not None:
            return DefinedChunks(DefinedData(objects, stored, one.defined.address), spec)
        return DenseChunks(open_data(objects, stored.dataset), spec)


def _as_tuple(value: Any) -> Any:
    """Return a value with tuples where it has lists."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def _file_object(kept: dict[str, Any]) -> FileObject:
    """Return an object of the fields that it was kept as."""
    forms = {
        name: None if kept[name] is None else form(**{one: _as_tuple(x) for one, x in kept[name].items()})
        for name, form in (("matrix", MatrixForm), ("defined", DefinedSet))
    }
    return FileObject(**{**kept, "kind": ObjectKind(kept["kind"]), "dims": tuple(kept["dims"]), **forms})


def _close(source: Source, files: SourceFiles) -> None:
    files.close()
    source.close()
