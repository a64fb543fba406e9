"""Messages about records: reading, changing, listing and deleting them.

Ids are object ids (`g-...`, `d-...`, `t-...`), domain paths (`/home/user/file.h5`), and ids of summaries (`s-...`) and
jobs (`j-...`): all objects of the store that are JSON records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from hsparse.wire.message import Failure, Message, ReadMessage, Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one id or change: a `failure`, or success.

    `changed` is False if the object already was as requested; `created` is True if the change created an object,
    attribute or link. `record` is the object's record after the change; `ReadObjects` always returns it, and changes of
    links or attributes never do.
    """

    record: Record | None = None
    changed: bool = False
    created: bool = False
    failure: Failure | None = None

    def unwrap(self) -> Record:
        """Return the record, or raise the failure."""
        if self.failure is not None:
            raise self.failure.error()
        return self.record or {}


@dataclass(frozen=True, slots=True)
class ReadObjects(ReadMessage[tuple[Outcome, ...]]):
    """Read records; one outcome per id, in order. Callers must not modify the records.

    A record that does not fit into the reply fails with `TooLarge`; the first record always fits.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Store a new record; raise `Conflict` if the id exists."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class PutRecord:
    """Store a record that is derived from other objects, replacing any record with its id."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Remove a record; raise `NotFound` or `Gone` if there is none.

    `expect` maps fields to their expected values, or to None if missing. A record with other values counts as missing.
    """

    id: str
    expect: Record | None = None


@dataclass(frozen=True, slots=True)
class PutAttributes:
    """Set attributes, all or none.

    Each value is `{"type":..., "shape":..., "value":...}`; the data node adds `created` if it is missing. An attribute
    that exists with other content is a `Conflict` unless `replace` is set; then it keeps its `created`, and thereby its
    place in creation order.
    """

    id: str
    attributes: dict[str, Record]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class DeleteAttributes:
    """Remove attributes, all or none; `NotFound` or `Gone` names the first missing attribute.

    With `skip_missing`, missing names are ignored.
    """

    id: str
    names: tuple[str, ...]
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class PutLinks:
    """Set a group's links, all or none; a link that exists with another target is a `Conflict`.

    Each value is `{"class": "H5L_TYPE_HARD", "id":...}`, `{"class": "H5L_TYPE_SOFT", "h5path":...}` or `{"class":
    "H5L_TYPE_EXTERNAL", "h5path":..., "h5domain":...}`; the data node adds `created` if it is missing. The same change
    removes the links in `removed`. A removed link may be set again with another target; missing links are ignored.
    """

    id: str
    links: dict[str, Record]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteLinks:
    """Remove links, all or none; `NotFound` or `Gone` names the first missing link.

    With `skip_missing`, missing names are ignored.
    """

    id: str
    titles: tuple[str, ...]
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class PutAcl:
    """Set rights in a domain's ACL: `rights` is merged into the user's entry; None removes the entry.

    `origin`, the bucket and path of the domain, is kept in the entry as `domain`, also if another domain inherits it.
    `expect` (fields of the record) and `expect_acls` (entries of its ACL) are the values from which the user's right to
    make this change was determined (None: missing). `Conflict` is raised if the record has other values.
    """

    id: str
    user: str
    rights: dict[str, bool] | None
    origin: str
    expect: Record | None = None
    expect_acls: Record | None = None


@dataclass(frozen=True, slots=True)
class SetFields:
    """Set fields of a record, or of the map `within` in it; the value None removes a field.

    Raises `Conflict` if the record has the field `unless`. With `renew`, `lastModified` is set to the current time.
    """

    id: str
    fields: Record
    within: str = ""
    unless: str = ""
    renew: bool = False


MAX_SECOND_NAMES = 100
"""The most second names of a domain."""


@dataclass(frozen=True, slots=True)
class AddSecondName:
    """Add the second name `path`, given by the user `by`, to a domain's `secondNames`.

    `TooLarge` is raised beyond `MAX_SECOND_NAMES`.
    """

    id: str
    path: str
    by: str


@dataclass(frozen=True, slots=True)
class ForgetSecondName:
    """Remove the second name `path` from a domain's `secondNames` if it is there."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class ForgetFirstName:
    """Remove a domain's `firstName` if it names the domain at `path` that was created at `created`.

    With `release`, mark `firstName` as `released` instead, which takes effect once the domain at `path` is gone.
    """

    id: str
    path: str
    created: float | None
    release: bool = False


@dataclass(frozen=True, slots=True)
class SetExtent:
    """Set a dataset's extent to `dims`.

    With `extend_dim >= 0`, `dims` has one number: how much that dimension grows when the change is applied. `expect` is
    the extent that the dataset must have (`Conflict` otherwise). `Moved` is raised while the dataset is appended to. A
    shrink leaves `trim` in the record until `EndTrim`, because the elements outside must be erased before a dimension
    grows again (`Conflict` until then). A change with a `token` is applied once: the record remembers the last tokens.

    A signed dataset has further options. With `below` the dimension grows at its lower end. `lower` sets the lower
    bounds; the upper bounds stay if `dims` is empty. `expect_lower` are the lower bounds that the dataset must have
    (`Conflict` otherwise). `minlower` sets limits of the lower bounds, with `Conflict` if a limit is above its bound.
    """

    id: str
    dims: tuple[int, ...]
    extend_dim: int = -1
    expect: tuple[int, ...] | None = None
    token: str = ""
    below: bool = False
    lower: tuple[int, ...] = ()
    expect_lower: tuple[int, ...] = ()
    minlower: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndTrim:
    """Record that all elements outside the extent of `generation` have been erased.

    A new generation begins: nodes that have seen it refuse a late `TrimChunks` of the old one.
    """

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class BeginAppend:
    """Reserve the end of dimension `dim` for elements of the shape `slab`; the extent does not change yet.

    The reserved part becomes the last in the record's `appends`, behind the earlier parts, until `EndAppend` ends it by
    its `token`. Repeating the change renews the part's lease for `lease` seconds. `Moved` is raised if the dataset is
    being shrunk, has another length than `slab` in a dimension other than `dim`, is being appended to along another
    dimension, or has dropped the part.

    `keys` identify the requests that the elements come from: key, first position in the slab, and count. They are
    remembered once the part is visible. `Moved` is raised if a key belongs to another part or to earlier appends.

    With `below`, the lower end of a signed dataset is reserved. `lower` are the lower bounds that the slab assumes,
    except along `dim`; `Moved` is raised if the dataset has other lower bounds.
    """

    id: str
    token: str
    slab: tuple[int, ...]
    dim: int
    lease: float
    keys: tuple[tuple[str, int, int], ...] = ()
    below: bool = False
    lower: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EndAppend:
    """Record that the part that `BeginAppend` reserved under `token` is written; raise `Moved` if it was dropped.

    The part is visible once its token is no longer in the record's `appends`. The change may be repeated.
    """

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class AbandonAppends:
    """Drop all unfinished appends if the append of `token` is among them; a later trim erases their elements.

    Without a token, drop all; with `expired`, only if the lease of an append has ended without a `BeginAppend`.
    """

    id: str
    token: str = ""
    expired: bool = False


def is_expected(expect: Record | None, record: Record) -> bool:
    """Return whether a record has the values in `expect` (None: the field is missing), or True if `expect` is None."""
    return expect is None or all(record.get(name) == value for name, value in expect.items())


RecordChange: TypeAlias = (
    CreateObject
    | PutRecord
    | DeleteObject
    | PutAttributes
    | DeleteAttributes
    | PutLinks
    | DeleteLinks
    | PutAcl
    | SetFields
    | AddSecondName
    | ForgetSecondName
    | ForgetFirstName
    | SetExtent
    | EndTrim
    | BeginAppend
    | EndAppend
    | AbandonAppends
)


@dataclass(frozen=True, slots=True)
class ChangeObjects(Message[tuple[Outcome, ...]]):
    """Apply changes, each atomically; one outcome per change, in order.

    With `repeated`, the changes may have been applied before: creating an object that exists with the same content, and
    deleting a missing object, succeed. Such a deletion has `changed=False`: another request may have deleted it.
    """

    changes: tuple[RecordChange, ...]
    repeated: bool = False

    def as_repeated(self) -> Self:
        return replace(self, repeated=True)


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys in order, with sizes in bytes and times in Unix seconds; `more` is True if the limit cut the listing."""

    keys: tuple[str, ...]
    sizes: tuple[int, ...]
    modified: tuple[float, ...]
    prefixes: tuple[str, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class ListKeys(ReadMessage[Listing]):
    """List store keys, see `ObjectStore.list`; any data node answers."""

    prefix: str
    delimiter: bool = False
    start_after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class BeginDeletion(Message[str]):
    """Store a note that a deletion begins: of the domain at `domain` (`id` is its root) or of the dataset `id`.

    The note must be stored before the first object is deleted, so that any node can finish the deletion. The reply
    identifies the root group for `DeleteTree`; it is empty for a dataset or a missing group. Any data node answers.

    After the domain's record is deleted, the message is sent again with that reply in `decided`. The note then says
    that the deletion is final: the objects will be deleted, even if no `DeleteTree` is sent.

    `token` is kept in the note that this message stores, until another deletion of the same objects relies on the note.
    """

    id: str
    domain: str = ""
    decided: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class WithdrawDeletion(Message[None]):
    """Withdraw the note that `BeginDeletion` stored with this `token`, because the domain's record was not deleted.

    A decided note, and a note that another deletion relies on, stay. Any data node answers.
    """

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class DeleteTree(Message[int]):
    """Delete every object of a domain (`id` is its root) or every chunk of the dataset `id`, and then the note.

    `born` is the reply to `BeginDeletion`: a root group that was created later is kept with its objects. Without
    `born`, all objects are deleted. The reply is the number of objects. Any data node answers.
    """

    id: str
    born: str = ""


@dataclass(frozen=True, slots=True)
class Forget(Message[None]):
    """Drop the cached objects of a domain or, given a dataset's id, the dataset's cached chunks.

    With `renewed` the root group belongs to a new domain, so `FenceDeleted` does not refuse its chunks any more.
    """

    id: str
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class ChangedLately(Message[bool]):
    """Return whether this node changed records in the domain of `root` in the last `seconds`; values do not count."""

    root: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SettleChanges(Message[None]):
    """Stop counting the earlier changes of a domain's objects as recent."""

    root: str


@dataclass(frozen=True, slots=True)
class AskStore(Message[Record]):
    """Ask an extension's store a question that the extension defines; any data node answers.

    With `settles`, a root group's id, the reply waits until earlier changes of the domain's objects have ended. With
    `renews`, the node checks its cached objects of the domain, because the store itself changes them.
    """

    question: str
    arguments: Record
    settles: str = ""
    renews: bool = False
