"""Reads of the files that datasets are linked to: all go through `read_backing_files`, which says who may see what.

Who links a file shows to all readers of the dataset what was there then: the file in that state. Any other state, of a
file that was changed or was not there yet, is for those who have the right to the file themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hsparse.errors import BadRequest, Conflict, Forbidden
from hsparse.model.file_backed import BackingFile
from hsparse.sn.records.dataset import Dataset

T = TypeVar("T")
Files = tuple[BackingFile, ...]


async def read_backing_files(dataset: Dataset, files: Files, read: Callable[[Files], Awaitable[T]]) -> T:
    """Return `read(files)`, of files in states that the reader of the dataset may see.

    `Forbidden` without the right to a file that was not there when it was linked, `Conflict` without the right to one
    that was changed since. The rights to files that a chunk table names were checked where it was read.
    """
    unseen = [file.uri for file in files if file.unseen]
    if unseen:
        await require_file_rights(dataset, *unseen)
    known = [file.uri for file in files if file.etag and not file.unseen]
    if not known:
        return await read(files)
    try:
        return await read(tuple(file.unchanged() for file in files))
    except Conflict:
        if not await _may_read(dataset, known):
            raise
    return await read(files)


async def require_file_rights(dataset: Dataset, *uris: str) -> None:
    """Raise `Forbidden` unless the reader of the dataset has the right to read the files."""
    if dataset.rights is None:
        raise BadRequest(f"{dataset.id} can be read by requests for its values only.")
    await dataset.rights.require(*uris)


async def _may_read(dataset: Dataset, uris: list[str]) -> bool:
    try:
        await require_file_rights(dataset, *uris)
    except (Forbidden, BadRequest):
        return False
    return True
