"""What the core asks of extensions about data that is not in chunk objects: in files, or in other datasets."""

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


class OtherData(Protocol):
    """Reads datasets of some classes of layouts, `ELSEWHERE`, and checks new ones.

    `check` notes in a new record what reads of it need, as the state of a file.
    """

    def elements(self, owners: Owners, dataset: Dataset) -> ElementSource: ...

    def chunks(self, owners: Owners, dataset: Dataset, bucket: str, read_table: ReadTable) -> FileChunks: ...

    async def counts(self, owners: Owners, record: Record, read_table: ReadTable) -> Record: ...

    async def check(self, request: Request, record: Record) -> None: ...


class FileData(OtherData, Protocol):
    """Has the data of datasets in files.

    `take_locator` removes from creation properties what names the file whose chunks fill a table, None without it;
    `located` returns the elements of that table.
    """

    def take_locator(self, properties: Record, buckets: Collection[str]) -> Any: ...

    async def located(
        self, request: Request, locator: Any, shape: Shape, datatype: Datatype
    ) -> NDArray[Any]: ...


REGISTERED: dict[str, OtherData] = {}
"""The extensions' by the class of the layout."""


def other_data(kind: str) -> OtherData:
    """Return what reads data of a class of layouts; `Unsupported` where no extension does."""
    if kind not in REGISTERED:
        raise Unsupported(f"The dataset has the layout {kind}, which this server does not read.")
    return REGISTERED[kind]


def file_data() -> FileData | None:
    """Return what reads data in files, None where no extension does."""
    return cast("FileData | None", REGISTERED.get(CHUNKED_REF))
