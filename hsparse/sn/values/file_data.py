"""The protocols of extensions that read data outside of chunk objects: in files, or in other datasets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.selections.points import Selection
from hsparse.model.dataspace import Shape
from hsparse.model.datatype import Datatype
from hsparse.model.file_backed import CHUNKED_REF
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.stored_chunks import StoredChunks
from hsparse.sn.request import Request
from hsparse.sn.values.element_source import ElementSource
from hsparse.wire.message import Record

ReadTable = Callable[[StoredDataset, Selection], Awaitable[NDArray[Any]]]
"""A function that reads the selected rows of a chunk table, a dataset that locates chunks in files."""


class ChunkLocations(StoredChunks, Protocol):
    """The chunks of one dataset in files. `locate` returns a chunk's (file, offset, size, filter mask), or None."""

    async def locate(self, scaled: tuple[int, ...]) -> tuple[Any, int, int, int] | None: ...

    async def stored_bytes(self, file: Any, offset: int, size: int) -> NDArray[np.uint8]: ...


class OtherData(Protocol):
    """Reads the datasets of layout classes whose data is not in chunk objects (`ELSEWHERE`).

    `check` validates the record of a new dataset, and adds facts that later reads need, such as a file's etag.
    """

    def elements(self, owners: Owners, dataset: StoredDataset) -> ElementSource: ...

    def chunks(
        self, owners: Owners, dataset: StoredDataset, bucket: str, read_table: ReadTable
    ) -> ChunkLocations: ...

    async def counts(self, owners: Owners, record: Record, read_table: ReadTable) -> Record: ...

    async def check(self, request: Request, record: Record) -> None: ...


class FileData(OtherData, Protocol):
    """Reads datasets whose data is in files, and makes chunk tables of such files.

    `take_locator` removes the description of a file from creation properties and returns it, or None if there is none;
    `located` returns the elements of a chunk table that locates the chunks of the described file.
    """

    def take_locator(self, properties: Record, buckets: Collection[str]) -> Any: ...

    async def located(
        self, request: Request, locator: Any, shape: Shape, datatype: Datatype
    ) -> NDArray[Any]: ...


REGISTERED: dict[str, OtherData] = {}
"""The readers that extensions have registered, by layout class."""


def other_data(kind: str) -> OtherData:
    """Return the reader of a layout class; raise `Unsupported` if no extension registered one."""
    if kind not in REGISTERED:
        raise Unsupported(f"The layout {kind} of the dataset needs an extension that is not installed.")
    return REGISTERED[kind]


def file_data() -> FileData | None:
    """Return the reader of data in files, or None if no extension registered one."""
    return cast("FileData | None", REGISTERED.get(CHUNKED_REF))
