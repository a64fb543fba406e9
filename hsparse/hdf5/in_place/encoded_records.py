"""Encoded records of a file's objects: all built at once for a small file, each on request for a large one.

A record is the metadata of a group, dataset or committed type in the form in which an object store keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from hsparse.bounded_cache import BoundedCache
from hsparse.dn.record_form import RecordCodec
from hsparse.errors import LeftOut
from hsparse.hdf5.importer.file_objects import FileObject, FileObjects
from hsparse.hdf5.in_place.file_records import FileRecords
from hsparse.model.ids import storage_key
from hsparse.wire.message import Record

CACHED_BYTES = 32 * 1024 * 1024
"""Bytes of recently requested records that are cached per file."""


class EncodedRecords(Protocol):
    """Records of a file's objects, encoded as a store keeps them. All methods may block and are thread-safe."""

    def get(self, id: str) -> bytes | None:
        """Return the encoded record of an id, or None if the id is unknown; raise `LeftOut` if it cannot be served."""
        ...

    def object(self, id: str) -> FileObject | None:
        """Return the file's object with an id, or None if no object has the id or the object has no record."""
        ...

    def ids(self) -> Collection[str]:
        """Return the ids of all objects that have a record."""
        ...


class AllRecords:
    """Records of all objects, encoded when the file was opened or restored from the on-disk cache of parsed files."""

    def __init__(self, objects: FileObjects, records: Mapping[str, bytes]) -> None:
        self._failed = objects.failed
        self._objects = {one.id: one for one in objects.by_address.values()}
        self._records = records

    def get(self, id: str) -> bytes | None:
        one = self._objects.get(id)
        if one is not None and id not in self._records and one.address in self._failed:
            raise LeftOut(self._failed[one.address])
        return self._records.get(id)

    def object(self, id: str) -> FileObject | None:
        return self._objects.get(id) if id in self._records else None

    def ids(self) -> Collection[str]:
        return self._records.keys()


class RequestedRecords:
    """Records that are built and encoded on request; the most recently used ones are cached."""

    def __init__(self, found: FileRecords) -> None:
        self._found = found
        self._recent: BoundedCache[str, bytes] = BoundedCache(CACHED_BYTES, CACHED_BYTES)

    def get(self, id: str) -> bytes | None:
        data = self._recent.use(id)
        if data is None:
            one = self._found.find(id)
            record = None if one is None else self._found.of(one)
            if record is not None:
                data = encoded(id, record)
                self._recent.keep(id, data, len(data))
            elif why := self._found.why_not(id):
                raise LeftOut(why)
        return data

    def object(self, id: str) -> FileObject | None:
        one = self._found.find(id)
        return one if one is not None and self._found.has(one) else None

    def ids(self) -> Collection[str]:
        return self._found.ids()


def encoded(id: str, record: Record) -> bytes:
    """Return the bytes of a record as a store keeps them."""
    return RecordCodec(storage_key(id)).encode(record)
