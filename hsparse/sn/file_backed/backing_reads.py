"""Reads of the files that datasets are linked to: all go through `read_backing_files`, which says who may see what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.errors import BadRequest
from hsparse.model.file_backed import BackingFile
from hsparse.sn.records.dataset import Dataset

T = TypeVar("T")
Files = tuple[BackingFile, ...]


async def read_backing_files(dataset: Dataset, files: Files, read: Callable[[Files], Awaitable[T]]) -> T:
    """Return `read(files)`; `Forbidden` without the right to a file that was not there when it was linked.

    The rights to files that a chunk table names were checked where it was read.
    """
    unseen = [file.uri for file in files if file.unseen]
    if unseen:
        await require_file_rights(dataset, *unseen)
    return await read(files)


async def require_file_rights(dataset: Dataset, *uris: str) -> None:
    """Raise `Forbidden` unless the reader of the dataset has the right to read the files."""
    if dataset.rights is None:
        raise BadRequest(f"{dataset.id} can be read by requests for its values only.")
    await dataset.rights.require(*uris)
