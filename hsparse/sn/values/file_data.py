"""What the core asks of the extension that has the data of datasets in files: it registers itself here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.selections.points import Selection
from hsparse.model.dataspace import Shape
from hsparse.model.datatype import Datatype
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset
from hsparse.sn.records.stored_chunks import StoredChunks
from hsparse.sn.request import Request
from hsparse.sn.values.element_source import ElementSource
from hsparse.wire.message import Record

ReadTable = Callable[[Dataset, Selection], Awaitable[NDArray[Any]]]
"""Reads a chunk table, a dataset like any other."""


class FileChunks(StoredChunks, Protocol):
    """The chunks of one dataset in files: `locate` returns file, offset, size and filter mask, None without a chunk."""

    async def locate(self, scaled: tuple[int, ...]) -> tuple[Any, int, int, int] | None: ...

    async def stored_bytes(self, file: Any, offset: int, size: int) -> NDArray[np.uint8]: ...


class FileData(Protocol):
    """Reads datasets whose data stays in files, and checks new ones.

    `check` notes the state of the file in a new record. `take_locator` removes from creation properties what names the
    file whose chunks fill a table, None without it; `located` returns the elements of that table.
    """

    def elements(self, owners: Owners, dataset: Dataset, read_table: ReadTable) -> ElementSource: ...

    def chunks(self, owners: Owners, dataset: Dataset, bucket: str, read_table: ReadTable) -> FileChunks: ...

    async def counts(self, owners: Owners, record: Record, read_table: ReadTable) -> Record: ...

    async def check(self, request: Request, record: Record) -> None: ...

    def take_locator(self, properties: Record, buckets: Collection[str]) -> Any: ...

    async def located(
        self, request: Request, locator: Any, shape: Shape, datatype: Datatype
    ) -> NDArray[Any]: ...


REGISTERED: list[FileData] = []
"""The extension's, if it is there."""


def file_data() -> FileData:
    """Return what reads data in files; `Unsupported` where no extension does."""
    if not REGISTERED:
        raise Unsupported("The data of this dataset is in a file, which this server does not read.")
    return REGISTERED[0]
