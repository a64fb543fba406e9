"""A store that is read and never written."""

from __future__ import annotations

from collections.abc import Sequence

from hsparse.errors import HsparseError
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.object_store import Buffer, Entry, ObjectStore


class ReadOnlyStore(DelegatingStore):
    """An `ObjectStore` over another one: puts and deletes raise an error of the type and message of `error`."""

    def __init__(self, store: ObjectStore, error: HsparseError) -> None:
        super().__init__(store)
        self._error = error

    async def put(self, key: str, data: Buffer) -> str:
        raise self._refused()

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        raise self._refused()

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        raise self._refused()

    async def delete(self, key: str) -> None:
        raise self._refused()

    async def delete_if_match(self, key: str, etag: str) -> None:
        raise self._refused()

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        raise self._refused()

    def _refused(self) -> HsparseError:
        return type(self._error)(self._error.message)
