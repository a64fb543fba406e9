"""Messages about records: reading, changing, listing and deleting them.

Ids are object ids (`g-...`, `d-...`, `t-...`), domain paths (`/home/user/file.h5`), or those of summaries (`s-...`) and
jobs (`j-...`): all objects of the store that are JSON records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from hsparse.wire.message import Failure, Message, ReadMessage, Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one id or change: `failure`, or success.

    `changed` is False where the object already was as requested; `created` is True where the change created an object,
    attribute or link. `record` is the object's record after the change (always given by `ReadObjects`, and not
    after a change of links or attributes).
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
class ReadObjects(ReadMessage[tuple[Outcome, ...]]):
    """Read records; one outcome an id, in order. Callers must not modify a record they are given.

    Records that the reply has no room for fail as `TooLarge`, never the first one.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Store a new record; `Conflict` when the id exists."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class PutRecord:
    """Store a record, with or without one there: it is derived from other objects."""

    id: str
    record: Record


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Remove the record; `NotFound` or `Gone` when there is none.

    With `expect`, fields of a record and their values, None for what is missing, another record counts as none.
    """

    id: str
    expect: Record | None = None


@dataclass(frozen=True, slots=True)
class PutAttributes:
    """Set attributes, all or none.

    Each value is `{"type":..., "shape":..., "value":...}`; the data node adds `created` where it is not given.
    One that exists with another content is a `Conflict` unless `replace`: then it keeps its `created`, and so its
    place in creation order.
    """

    id: str
    attributes: dict[str, Record]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class DeleteAttributes:
    """Remove attributes, all or none; `NotFound` or `Gone` names the first missing one.

    With `skip_missing` such names are passed over.
    """

    id: str
    names: tuple[str, ...]
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class PutLinks:
    """Set a group's links, all or none; one that exists with another target is a `Conflict`.

    Each value is `{"class": "H5L_TYPE_HARD", "id":...}`, `{"class": "H5L_TYPE_SOFT", "h5path":...}` or
    `{"class": "H5L_TYPE_EXTERNAL", "h5path":..., "h5domain":...}`; the data node adds `created`
    where it is not given. The links in `removed` are removed by the same change, and one of them that is set again may
    have another target; those that are not there are passed over.
    """

    id: str
    links: dict[str, Record]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteLinks:
    """Remove links, all or none; `NotFound` or `Gone` names the first missing one.

    With `skip_missing` such names are passed over.
    """

    id: str
    titles: tuple[str, ...]
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class PutAcl:
    """Set rights in a domain's ACL: `rights` is merged over what the user has there; None removes the entry.

    `origin`, bucket and path of the domain, is kept in the entry as `domain`, also where another domain inherits it.
    `Conflict` if not all fields of `expect` are in the record, or all entries of `expect_acls` in its ACL, as they are
    there: what was seen of the record when the change was allowed. None is the value of what is missing.
    """

    id: str
    user: str
    rights: dict[str, bool] | None
    origin: str
    expect: Record | None = None
    expect_acls: Record | None = None


@dataclass(frozen=True, slots=True)
class PutQuota:
    """Set fields of a folder's quota, which is in its record; None removes a field.

    `bytes` is the quota, `used` what the domains below the folder took by a count, `counted` when that count began.
    """

    id: str
    fields: Record


MAX_SECOND_NAMES = 100
"""The most second names that a domain has."""


@dataclass(frozen=True, slots=True)
class AddSecondName:
    """Note in a domain's `secondNames` that the user `by` gives its objects the second name `path`.

    `TooLarge` beyond `MAX_SECOND_NAMES`.
    """

    id: str
    path: str
    by: str


@dataclass(frozen=True, slots=True)
class ForgetSecondName:
    """Remove the second name `path` from a domain's `secondNames`, if it is there."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class ForgetFirstName:
    """Make a second name of the domain that was at `path`, since `created`, a name of its own; else change nothing.

    With `release` it becomes one as soon as that domain is not there any more: `released` in its `firstName`.
    """

    id: str
    path: str
    created: float | None
    release: bool = False


@dataclass(frozen=True, slots=True)
class SetExtent:
    """Set a dataset's extent to `dims`.

    With `extend_dim >= 0`, `dims` has one number: by how much that dimension grows when the change is applied. With
    `expect` it is a `Conflict` if that is not the extent. `Moved` while the dataset is appended to. A shrink leaves
    `trim` in the record until `EndTrim`: elements outside must be erased before any dimension grows again (`Conflict`
    until then). A change with a `token` is made once, however often it is sent: the record remembers the last tokens.

    Of a signed dataset: with `below` the dimension grows at its lower end; `lower` are new lower bounds, where without
    `dims` the upper ones stay; with `expect_lower` it is a `Conflict` if these are not the lower bounds.
    """

    id: str
    dims: tuple[int, ...]
    extend_dim: int = -1
    expect: tuple[int, ...] | None = None
    token: str = ""
    below: bool = False
    lower: tuple[int, ...] = ()
    expect_lower: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EndTrim:
    """Note that everything outside the extent of generation `generation` has been erased.

    A new generation begins: a late `TrimChunks` of the old one is refused by nodes that have seen the new one.
    """

    id: str
    generation: int


@dataclass(frozen=True, slots=True)
class BeginAppend:
    """Reserve the end of dimension `dim` for elements of the shape `slab`; the extent stays as it is.

    They are written after all parts in the record's `appends`, of which this becomes the last, until its `token` is
    given to `EndAppend`. The same change again gives the part `lease` more seconds from then. `Moved` if the dataset
    is being shrunk, has other lengths than `slab` beside `dim`, is appended to along another dimension, or has
    dropped the part.

    `keys` are those of the requests whose elements these are: key, first place in the slab, count. Once the part is
    visible they are remembered. `Moved` if one of them is that of another part, or of what was appended before.

    With `below` it is the lower end of a signed dataset that is reserved. `lower` are its lower bounds as the slab
    assumes them, that along `dim` excepted: `Moved` if they are others.
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
    """Note that a part is written. It is visible once its token is no longer in the record's `appends`.

    It may be said again. `Moved` if the part was dropped.
    """

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class AbandonAppends:
    """Drop all parts that are appended, to be erased as what a shrink cuts off, if the part of `token` is there.

    Without a token, drop them if there are any, with `expired` only if a part has had no `BeginAppend` for its lease.
    """

    id: str
    token: str = ""
    expired: bool = False


def is_expected(expect: Record | None, record: Record) -> bool:
    """Say whether a record has all fields of `expect`, None for one that is missing; without `expect` it has."""
    return expect is None or all(record.get(name) == value for name, value in expect.items())


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Set fields of a job's record, and the time of its heartbeat (`lastModified`); `Conflict` when the job has ended.

    A job has ended once its record has `ended`.
    """

    id: str
    fields: Record


RecordChange: TypeAlias = (
    CreateObject
    | PutRecord
    | DeleteObject
    | PutAttributes
    | DeleteAttributes
    | PutLinks
    | DeleteLinks
    | PutAcl
    | PutQuota
    | AddSecondName
    | ForgetSecondName
    | ForgetFirstName
    | SetExtent
    | EndTrim
    | BeginAppend
    | EndAppend
    | AbandonAppends
    | UpdateJob
)


@dataclass(frozen=True, slots=True)
class ChangeObjects(Message[tuple[Outcome, ...]]):
    """Apply changes, each atomically; one outcome a change, in order.

    With `repeated` they may have been applied before: it is a success to create what is there with the same content,
    and to delete what is not there. Such a deletion is not `changed`: others may have deleted the object.
    """

    changes: tuple[RecordChange, ...]
    repeated: bool = False

    def as_repeated(self) -> Self:
        return replace(self, repeated=True)


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys in order with their sizes in bytes and times in seconds; `more` when there are more than the limit."""

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
    """Note in the store that a deletion begins: of the domain at `domain`, by its root id, or of a dataset, by its id.

    To be answered before the first object is deleted: whoever finds the note can finish the deletion. The reply says
    which root group it is about, for `DeleteTree`: empty if there is none, and for a dataset. Any data node answers.

    Sent again with that reply in `decided`, once the domain's record is gone, it notes that nothing takes the deletion
    back: then the objects will be deleted, also if no `DeleteTree` comes.

    `token` is in a note that this message stores, until another deletion of the same objects counts on the note, too.
    """

    id: str
    domain: str = ""
    decided: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class WithdrawDeletion(Message[None]):
    """Withdraw the note that `BeginDeletion` stored with this `token`: the domain's record was not deleted.

    A note that another deletion counts on, and one that is decided, stay. Any data node answers.
    """

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class DeleteTree(Message[int]):
    """Delete every object of a domain, by its root id, or every chunk of a dataset, by its id; the note of it last.

    `born` is the reply to `BeginDeletion`: a root group that was created since is left alone with its objects.
    Without it, whatever is there is deleted. The reply is how many objects there were. Any data node answers.
    """

    id: str
    born: str = ""


@dataclass(frozen=True, slots=True)
class Forget(Message[None]):
    """Drop the cached objects of a domain or, given a dataset's id, the dataset's cached chunks."""

    id: str


@dataclass(frozen=True, slots=True)
class ChangedLately(Message[bool]):
    """Say whether this node changed objects of the domain of `root` in the last `seconds`; values do not count."""

    root: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SettleChanges(Message[None]):
    """Let the changes of a domain's objects so far not count as recent any more."""

    root: str


@dataclass(frozen=True, slots=True)
class AskStore(Message[Record]):
    """Ask an extension's store, by the service of the same extension; any data node answers.

    With `settles`, a root group's id, the reply comes once the changes of its domain's objects of before have ended.
    With `renews` this node confirms all that it knows of them: the store has changed them itself.
    """

    question: str
    arguments: Record
    settles: str = ""
    renews: bool = False
