"""The contract between service nodes and data nodes: typed messages, and the protocol that carries them.

A message is a frozen dataclass whose generic parameter is the type of its reply. `DataNode` has two
equal implementations: the data node's own service, called directly, and the same over HTTP.

Ids are object ids (`g-...`, `d-...`, `t-...`) or domain paths (`/home/user/file.h5`): whatever has a
JSON record in the store. Selections in chunk messages are in the chunk's own coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import ERRORS, ErrorKind, HsparseError
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.linked_pieces import Pieces
from hsparse.format.selection import Selection
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.linked_file import LinkedFile
from hsparse.model.variable_array import VariableArray

Record: TypeAlias = dict[str, Any]
R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Message(Generic[R]):
    """Base of all messages; `R` is what the data node answers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels: the kind and the sentence."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: HsparseError) -> Failure:
        return cls(error.kind.value, error.message)

    def error(self) -> HsparseError:
        try:
            return ERRORS[ErrorKind(self.kind)](self.message)
        except ValueError:  # a newer node's kind: keep its sentence
            return HsparseError(self.message)


# --- metadata -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one id or change: `failure`, or success with what there is to tell.

    `changed` is False where the object already was as asked; `created` is True where something new
    came to be. `record` is the object's record after the change (always given by `ReadObjects`).
    """

    record: Record | None = None
    changed: bool = False
    created: bool = False
    failure: Failure | None = None

    def unwrap(self) -> Record:
        """Return the record; raise the failure."""
        if self.failure is not None:
            raise self.failure.error()
        return self.record or {}


@dataclass(frozen=True, slots=True)
class ReadObjects(Message[tuple[Outcome, ...]]):
    """Read records; one outcome an id, in order. Callers must not modify a record they are given."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Store a new record; `Conflict` when the id exists."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class PutRecord:
    """Store a record whatever is there; what it says follows from other objects."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Remove the record; `NotFound` or `Gone` when there is none."""

    id: str


@dataclass(frozen=True, slots=True)
class PutAttributes:
    """Set attributes, all or none.

    Each value is `{"type":..., "shape":..., "value":...}` without `created`, which the data node adds.
    One that exists with another content is a `Conflict` unless `replace`: then it is a new one, the last
    in creation order, or with `in_place` the same one with another value.
    """

    id: str
    attributes: dict[str, Record]
    replace: bool = False
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class DeleteAttributes:
    """Remove attributes, all or none; `NotFound` or `Gone` names the first missing one.

    With `again` those that were deleted before are passed over.
    """

    id: str
    names: tuple[str, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class PutLinks:
    """Set a group's links, all or none; one that exists with another target is a `Conflict`.

    Each value is `{"class": "H5L_TYPE_HARD", "id":...}`, `{"class": "H5L_TYPE_SOFT", "h5path":...}` or
    `{"class": "H5L_TYPE_EXTERNAL", "h5path":..., "h5domain":...}`; the data node adds `created`.
    """

    id: str
    links: dict[str, Record]


@dataclass(frozen=True, slots=True)
class DeleteLinks:
    """Remove links, all or none; `NotFound` or `Gone` names the first missing one.

    With `again` those that were deleted before are passed over.
    """

    id: str
    titles: tuple[str, ...]
    again: bool = False


@dataclass(frozen=True, slots=True)
class PutAcl:
    """Set rights in a domain's ACL: `rights` is merged over what the user has there."""

    id: str
    user: str
    rights: dict[str, bool]


@dataclass(frozen=True, slots=True)
class SetExtent:
    """Set a dataset's extent to `dims`.

    With `extend_dim >= 0`, `dims` has one number: by how much that dimension grows, from whatever it
    is when the change is applied. A shrink leaves `trim` in the record until `EndTrim`: what still
    lies outside must be erased before any dimension grows again (`Conflict` while it is there).
    """

    id: str
    dims: tuple[int, ...]
    extend_dim: int = -1


@dataclass(frozen=True, slots=True)
class EndTrim:
    """Note that everything outside the extent of generation `generation` has been erased.

    A new generation begins: a late `TrimChunks` of the old one is refused where the new one was heard of.
    """

    id: str
    generation: int


Change: TypeAlias = (
    CreateObject
    | PutRecord
    | DeleteObject
    | PutAttributes
    | DeleteAttributes
    | PutLinks
    | DeleteLinks
    | PutAcl
    | SetExtent
    | EndTrim
)


@dataclass(frozen=True, slots=True)
class ChangeObjects(Message[tuple[Outcome, ...]]):
    """Apply changes, each atomically; one outcome a change, in order."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys in order with their sizes in bytes and times in seconds; `more` when the limit cut it."""

    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    modified: tuple[float, ...]
    prefixes: tuple[str, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class ListKeys(Message[Listing]):
    """List store keys, see `ObjectStore.list`; any data node can answer it."""

    prefix: str
    delimiter: bool = False
    start_after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class DeleteTree(Message[int]):
    """Delete every object of a domain, by its root id, or every chunk of a dataset, by its id.

    Answers how many there were. Any data node can.
    """

    id: str


@dataclass(frozen=True, slots=True)
class Forget(Message[None]):
    """Drop what is cached of a domain or, given a dataset's id, of a dataset's chunks."""

    id: str


# --- chunks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One chunk's share of an operation: its scaled coordinates and a selection inside it.

    `full` says that the selection covers every element of the chunk that lies inside the extent.
    """

    scaled: tuple[int, ...]
    selection: Selection
    full: bool = False


@dataclass(frozen=True, slots=True)
class SparseValues:
    """Defined elements of one chunk: row-major `offsets: (n,)` in the chunk, ascending, and values."""

    offsets: NDArray[np.uint32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SparseVariableValues:
    """The same of a variable-length type: `values` has shape (n,)."""

    offsets: NDArray[np.uint32]
    values: VariableArray

    @property
    def nbytes(self) -> int:
        """The bytes of the places and of the values' heap."""
        return self.offsets.nbytes + len(self.values.heap)


@dataclass(frozen=True, slots=True)
class ReadChunks(Message[tuple[NDArray[Any] | None, ...]]):
    """Read values: for each part an array of the selection's shape, None where all is fill value.

    With `fields` the elements have those alone, packed, in that order.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadVariable(Message[tuple[VariableArray | int | None, ...]]):
    """Read values of a variable-length type: for each part an array of the selection's shape.

    None where all is fill value. Where the parts together would have more than `limit` bytes, some are only
    their number of bytes, 0 of those that were not looked at any more: they are to be asked for in pieces.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class ReadSparse(Message[tuple[SparseValues | None, ...]]):
    """Read the defined elements of sparse chunks inside each part's selection.

    With `places_only`, which alone there is for variable-length types, the values are empty.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class ReadSparseVariable(Message[tuple[SparseVariableValues | int | None, ...]]):
    """Read the defined elements of sparse chunks of a variable-length type inside each part's selection.

    Where the parts together would have more than `limit` bytes, places and values, some are only their number of
    bytes, as `ReadVariable` has it; but a single element of a single part comes whatever it has.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class CountDefined(Message[tuple[int, ...]]):
    """Count the defined elements inside each part's selection."""

    spec: ChunkSpec
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class WriteChunks(Message[None]):
    """Write values, one array a part in the selection's order; durable when answered.

    A part's array has the selection's shape, or one element for all. A point given twice: the last
    wins. With `drop_fill` (sparse only) elements equal to the fill value are left as they are. With
    `fields` the values have those alone, packed, in that order, and the others stay: the fill value's where
    nothing was written.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    values: tuple[NDArray[Any] | VariableArray, ...]
    drop_fill: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Elements of one part that answer a query.

    `positions: (n,) uint32`, ascending, are places in the iteration of the part's selection; `values: (n,)`.
    """

    positions: NDArray[np.uint32]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class FindElements(Message[tuple[Found | None, ...]]):
    """Find the elements that answer a query, see `format.query`; None where all of a part is fill value.

    The selections meet each element once, in row-major order. With `limit` a part has at most so many, the
    first ones; `in_order` says that the parts' elements follow one another, so that parts behind those that
    have `limit` together may be answered as having none. `fields` are as for `ReadChunks`; with `places_only`
    the values are empty.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    query: str
    limit: int = 0
    in_order: bool = False
    fields: tuple[str, ...] = ()
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class UpdateElements(Message[tuple[Found, ...]]):
    """Change the elements that answer a query, at the moment of the change; durable when answered.

    `value` is one element of `fields` alone, packed, or without them a whole one. The reply has what was
    changed, as it is now. A chunk is changed at once or not at all. Selections are as for `FindElements`.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    query: str
    value: NDArray[Any]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EraseChunks(Message[None]):
    """Make elements undefined (sparse only); durable when answered."""

    spec: ChunkSpec
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class TrimChunks(Message[None]):
    """Drop what lies outside `extent` in the chunks at `scaled`: undefined, or the fill value if dense.

    From then on the data node refuses, as `Moved`, chunk operations planned for an older generation of
    the dataset than `spec.generation`, as it does after any chunk message of a newer one; it answers when
    those it had accepted are durable. With no chunks named, that is all it does: a fence.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Bury(Message[None]):
    """Refuse, as `Gone`, chunk operations of a deleted dataset from now on.

    The data node answers when those it had accepted are durable: then the chunks can be deleted, and none
    comes after.
    """

    dataset: str


# --- chunks as they are stored ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Some of the stored chunks that were asked for; `marker` is the chunk to go on after, empty at the end.

    There are fewer rows than the limit, even none, where chunks were deleted while the page was made.
    """

    rows: ChunkRows
    marker: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ListChunks(Message[ChunkPage]):
    """List the stored chunks inside `extent` that a selection of it meets; all, without one.

    They come in the order of their keys or, with `by_coords`, in row-major order of their coordinates: those after
    the chunk `after` (empty: from the first), without the first `skip`, at most `limit`. Any data node can; the
    owner of the dataset's chunk map has that in memory.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None
    by_coords: bool = False
    after: tuple[int, ...] = ()
    skip: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class CountChunks(Message[int]):
    """Count the stored chunks inside `extent` that a selection of it meets; all, without one."""

    spec: ChunkSpec
    extent: tuple[int, ...]
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class FindChunk(Message[ChunkRows]):
    """Look at one chunk: one row, or none where it is not stored."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SignKeys(Message[tuple[str, ...]]):
    """Return a URL of each object, by which anybody can read it for so many seconds; any data node can.

    `Unsupported` where the store has no URLs.
    """

    keys: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class DirectChunk:
    """A chunk's bytes as they are stored, `data: (n,) uint8`, without a footer, and its one row."""

    data: NDArray[np.uint8]
    row: ChunkRows


@dataclass(frozen=True, slots=True)
class ReadDirect(Message[DirectChunk | None]):
    """Read a chunk's bytes as they are stored; None where it is not."""

    spec: ChunkSpec
    scaled: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteDirect(Message[None]):
    """Store a chunk's bytes, `data: (n,) uint8`, as they are; durable when answered.

    `sections: (k, 3) uint64` are as in `ChunkRows`: of a dense chunk one, whose unfiltered size is not looked at.
    `BadRequest` says why the bytes are no such chunk inside `extent`; then nothing was changed. A dense chunk whose
    mask is not 0 is put through the whole pipeline first: its object has no place for a mask.
    """

    spec: ChunkSpec
    extent: tuple[int, ...]
    scaled: tuple[int, ...]
    data: NDArray[np.uint8]
    sections: NDArray[np.uint64]


# --- chunks whose data stays in files ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLinked(Message[tuple[NDArray[Any] | None, ...]]):
    """Read values of chunks that are put together of pieces of files; answered as `ReadChunks` is.

    `pieces.chunk` numbers the `parts`, `pieces.file` the `files`. `piece` are a piece's dimensions; empty: a
    piece is unfiltered and has the first elements of its chunk. `Conflict` names a file that is not there any
    more, was changed since it was linked to, or is too short.
    """

    spec: ChunkSpec
    parts: tuple[Part, ...]
    pieces: Pieces
    files: tuple[LinkedFile, ...]
    piece: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadPiece(Message[NDArray[np.uint8]]):
    """Read `size` bytes of a file from `offset`, (size,) uint8, as they are; refused as `ReadLinked` is."""

    file: LinkedFile
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class InspectFile(Message[LinkedFile]):
    """Look at a file that is to be linked to; `NotFound` when there is none. Any data node can."""

    uri: str


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A data node's own account of itself."""

    id: str
    state: str
    start_time: float
    bucket: str
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetInfo(Message[NodeInfo]):
    """Ask a data node who it is and how it does."""


class DataNode(Protocol):
    """Whoever answers messages: the owner of objects and chunks, near or far."""

    async def send(self, message: Message[R], /) -> R:
        """Do what the message says and return its reply; raises the `HsparseError` it failed with."""
        ...

    async def close(self) -> None:
        """Release connections or, for a local data node, drain and stop."""
        ...
