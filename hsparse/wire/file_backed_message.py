"""Messages about chunks whose data stays in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.file_backed import ChunkPieces
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.model.file_backed import BackingFile
from hsparse.wire.message import Message


@dataclass(frozen=True, slots=True)
class ReadFileBacked(Message[tuple[NDArray[Any] | None, ...]]):
    """Read values of chunks that are put together of pieces of files; answered as `ReadChunks` is.

    `pieces.chunk` numbers the `parts`, `pieces.file` the `files`. `piece` are a piece's dimensions; empty: a
    piece is unfiltered and has the first elements of its chunk. `Conflict` names a file that is not there any
    more, was changed since it was linked to, or is too short.
    """

    spec: ChunkSpec
    parts: tuple[ChunkSelection, ...]
    pieces: ChunkPieces
    files: tuple[BackingFile, ...]
    piece: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPiece(Message[NDArray[np.uint8]]):
    """Read `size` bytes of a file from `offset`, (size,) uint8, as they are; refused as `ReadFileBacked` is.

    With `exact` the file must have its etag still: `Moved` where it begins as it did, but has another.
    """

    file: BackingFile
    offset: int
    size: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class InspectFile(Message[BackingFile]):
    """Look at a file that is to be linked to; `NotFound` when there is none. Any data node can."""

    uri: str
