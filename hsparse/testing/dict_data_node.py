"""A data node that is a dict: the metadata messages with their documented meaning, and nothing else.

It serves tests of service nodes, and is the model the conformance suite compares data nodes with. Nothing in
it is durable, fast or shared; chunk messages are refused.
"""

from __future__ import annotations

import copy
from math import prod
from typing import Any, TypeVar, cast

from hsparse.clock import Clock
from hsparse.dn.extent_changes import TAKEN_SECONDS
from hsparse.errors import BadRequest, Conflict, Gone, HsparseError, Moved, NotFound, TooLarge, Unsupported
from hsparse.model.acl import Right
from hsparse.model.datatype import type_json
from hsparse.model.ids import domain_hex, storage_key, tree_prefix
from hsparse.wire.chunk_message import FenceDeleted, TrimChunks
from hsparse.wire.message import Failure, GetInfo, Message, NodeInfo, Record
from hsparse.wire.record_message import (
    MAX_SECOND_NAMES,
    MOST_DEFERRED,
    AbandonAppends,
    AddSecondName,
    BeginAppend,
    BeginDeletion,
    ChangedLately,
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    DeleteTree,
    EndAppend,
    EndTrim,
    Forget,
    ForgetFirstName,
    ForgetSecondName,
    Listing,
    ListKeys,
    Outcome,
    PutAcl,
    PutAttributes,
    PutLinks,
    PutQuota,
    PutRecord,
    ReadObjects,
    RecordChange,
    SetExtent,
    SettleChanges,
    UpdateJob,
    WithdrawDeletion,
)

R = TypeVar("R")
TIMES = ("created", "lastModified")
RECORD_SIZE = 1000

UNDATED = (CreateObject, PutRecord, AddSecondName, ForgetSecondName, ForgetFirstName)
"""Changes that leave the time of the last one as it is given or was."""


class DictDataNode:
    """A `DataNode` over `records`, by id or domain path; `log` has every message it was sent."""

    def __init__(self, clock: Clock, id: str = "dn-001") -> None:
        self.records: dict[str, Record] = {}
        self.log: list[Message[Any]] = []
        self._clock = clock
        self._id = id
        self._deleted: set[tuple[str, ...]] = set()
        self._changes: dict[str, float] = {}

    async def send(self, message: Message[R], /) -> R:
        """Carry out the message and return its reply."""
        self.log.append(message)
        return cast(R, self._answer(message))

    async def close(self) -> None:
        """Nothing is held."""

    def _answer(self, message: Message[Any]) -> Any:
        match message:
            case ReadObjects(ids):
                return tuple(self._read(id) for id in ids)
            case ChangeObjects(changes, repeated):
                return tuple(self._change(change, repeated) for change in changes)
            case ListKeys():
                return self._list(message)
            case BeginDeletion(id):
                return "created" if id in self.records else ""
            case DeleteTree(tree):
                inside = [id for id in self.records if storage_key(id).startswith(tree_prefix(tree))]
                for id in inside:
                    del self.records[id]
                return len(inside)
            case ChangedLately(root, seconds):
                return self._clock.now() - self._changes.get(domain_hex(root), -seconds) < seconds
            case SettleChanges(root):
                self._changes.pop(domain_hex(root), None)
                return None
            case FenceDeleted() | Forget() | TrimChunks() | WithdrawDeletion():
                return None
            case GetInfo():
                return NodeInfo(self._id, "READY", 0.0, "hsparse", {"records": len(self.records)})
        raise Unsupported(f"DictDataNode does not answer {type(message).__name__}.")

    def _read(self, id: str) -> Outcome:
        if id in self.records:
            return Outcome(copy.deepcopy(self.records[id]))
        return Outcome(failure=Failure.of(self._missing(id)))

    def _missing(self, *name: str) -> HsparseError:
        if name in self._deleted:
            return Gone(f"{' '.join(name)} was deleted.")
        return NotFound(f"{' '.join(name)} does not exist.")

    def _change(self, change: RecordChange, repeated: bool) -> Outcome:
        change = copy.deepcopy(change)
        last = self.records.get(change.id)
        if repeated and isinstance(change, DeleteObject) and not _is_expected(change, last):
            self._deleted.add((change.id,))
            return Outcome({})
        try:
            changed, created = self._apply(change)
        except HsparseError as error:
            return Outcome(failure=Failure.of(error))
        if changed and change.id[0] in "gdt":
            self._changes[domain_hex(change.id)] = self._clock.now()
        record = self.records.get(change.id, last)  # of a deletion: what was deleted
        if record is not None and changed and not isinstance(change, UNDATED):
            record["lastModified"] = self._clock.now()
        if isinstance(change, PutAttributes | DeleteAttributes | PutLinks | DeleteLinks):
            return Outcome(None, changed, created)
        return Outcome(copy.deepcopy(record), changed, created)

    def _apply(self, change: RecordChange) -> tuple[bool, bool]:
        """Apply a change to the records; returns whether anything changed, and whether anything is new."""
        if isinstance(change, CreateObject):
            if change.id in self.records:
                raise Conflict(f"{change.id} exists already.")
            self.records[change.id] = change.record
            self._deleted.discard((change.id,))
            return True, True
        if isinstance(change, PutRecord):
            self.records[change.id] = change.record
            return True, False
        if change.id not in self.records:
            raise self._missing(change.id)
        if isinstance(change, DeleteObject):
            if not _is_expected(change, self.records[change.id]):
                raise NotFound(f"{change.id} is another one now.")
            del self.records[change.id]
            self._deleted.add((change.id,))
            return True, False
        if isinstance(change, PutQuota):
            return _put_quota(change, self.records[change.id]), False
        if isinstance(change, AddSecondName | ForgetSecondName | ForgetFirstName):
            return _name(self.records[change.id], change), False
        return self._alter(change, self.records[change.id])

    def _alter(self, change: RecordChange, record: Record) -> tuple[bool, bool]:
        match change:
            case PutAttributes():
                return self._put(change, record, "attributes", change.attributes)
            case PutLinks():
                return self._put_links(change, record)
            case DeleteAttributes():
                return self._remove(change, record, "attributes", change.names)
            case DeleteLinks():
                return self._remove(change, record, "links", change.titles)
            case PutAcl():
                return True, _put_acl(record, change)
            case UpdateJob(id, fields):
                if "ended" in record:
                    raise Conflict(f"The job {id} has ended.")
                record.update(fields)
                return True, False
            case SetExtent():
                return _set_extent(record, change), False
            case BeginAppend() | EndAppend() | AbandonAppends():
                return _append(record, change, self._clock.now()), False
            case EndTrim(_, generation):
                done = "trim" in record and record.get("generation", 0) == generation
                if done:
                    del record["trim"]
                    record["generation"] = generation + 1
                return done, False
        raise BadRequest(f"{type(change).__name__} is not a change of a record.")

    def _put(
        self, change: PutAttributes | PutLinks, record: Record, kind: str, items: dict[str, Record]
    ) -> tuple[bool, bool]:
        id, there = change.id, record.setdefault(kind, {})
        replace = isinstance(change, PutAttributes) and change.replace
        news = {name: item for name, item in items.items() if not _same(item, there.get(name))}
        for name in news:
            if name in there and not replace:
                raise Conflict(f"{kind} {name!r} of {id} exists with another content.")
        created = any(name not in there for name in news)
        for name, item in news.items():
            first = there.get(name) or {"created": self._clock.now()} | item
            there[name] = {**item, "created": first["created"]}
            self._deleted.discard((id, kind, name))
        return bool(news), created

    def _put_links(self, change: PutLinks, record: Record) -> tuple[bool, bool]:
        there = record.setdefault("links", {})
        kept = {title for title, link in change.links.items() if title in there and _same(link, there[title])}
        for title in change.links.keys() - kept:
            if title in there and title not in change.removed:
                raise Conflict(f"links {title!r} of {change.id} exists with another content.")
        gone = there.keys() & set(change.removed) - kept
        for title in gone:
            del there[title]
            self._deleted.add((change.id, "links", title))
        changed, created = self._put(change, record, "links", change.links)
        return changed or bool(gone), created

    def _remove(
        self, change: DeleteAttributes | DeleteLinks, record: Record, kind: str, names: tuple[str, ...]
    ) -> tuple[bool, bool]:
        id, there = change.id, record.get(kind, {})
        if change.skip_missing:
            names = tuple(name for name in names if name in there)
        for name in names:
            if name not in there:
                raise self._missing(id, kind, name)
        for name in names:
            del there[name]
            self._deleted.add((id, kind, name))
        return bool(names), False

    def _list(self, message: ListKeys) -> Listing:
        keys = sorted(key for key in map(storage_key, self.records) if key.startswith(message.prefix))
        names: dict[str, bool] = {}
        for key in keys:
            head, slash, _ = key[len(message.prefix) :].partition("/")
            folded = message.delimiter and bool(slash)
            names[message.prefix + head + "/" if folded else key] = folded
        after = [name for name in names if name > message.start_after]
        page = after[: message.limit]
        found = [name for name in page if not names[name]]
        return Listing(
            tuple(found),
            (RECORD_SIZE,) * len(found),
            (self._clock.now(),) * len(found),
            tuple(name for name in page if names[name]),
            len(after) > len(page),
        )


def _same(new: Record, there: Record | None) -> bool:
    if there is None:
        return False
    one, other = ({k: v for k, v in item.items() if k not in TIMES} for item in (new, there))
    return one | {"type": type_json(one.get("type"))} == other | {"type": type_json(other.get("type"))}


def _is_expected(change: DeleteObject, record: Record | None) -> bool:
    if record is None:
        return False
    return all(record.get(name) == value for name, value in (change.expect or {}).items())


def _put_acl(record: Record, change: PutAcl) -> bool:
    acls = record["acls"]
    for found, expected in ((record, change.expect), (acls, change.expect_acls)):
        if any(found.get(name) != value for name, value in (expected or {}).items()):
            raise Conflict(f"{change.id} is another one now.")
    new = change.user not in acls
    acls[change.user] = {right.value: False for right in Right} | acls.get(change.user, {})
    acls[change.user].update(change.rights | {"domain": change.origin})
    return new


def _put_quota(change: PutQuota, record: Record) -> bool:
    before = record.pop("quota", {})
    quota = {name: value for name, value in (before | change.fields).items() if value is not None}
    if quota:
        record["quota"] = quota
    return bool(quota != before)


def _name(record: Record, change: AddSecondName | ForgetSecondName | ForgetFirstName) -> bool:
    if isinstance(change, AddSecondName | ForgetSecondName):
        names = record.pop("secondNames", {})
        before = dict(names)
        if isinstance(change, ForgetSecondName):
            names.pop(change.path, None)
        elif change.path in names or len(names) < MAX_SECOND_NAMES:
            names[change.path] = change.by
        else:
            record["secondNames"] = names
            raise TooLarge(f"{change.id} has {len(names)} second names.")
        record |= {"secondNames": names} if names else {}
        return isinstance(change, AddSecondName) or names != before
    name = record.get("firstName", {})
    told = bool((name.get("path"), name.get("created")) == (change.path, change.created))
    if told and change.release:
        told = not name.get("released")
        record["firstName"] = name | {"released": True}
    elif told:
        del record["firstName"]
    return told


def _set_extent(record: Record, change: SetExtent) -> bool:
    """Set the extent and return whether it changed; a shrink leaves `trim` and a new generation."""
    if any(change.token == made["token"] for made in record.get("extents", ())):
        return False
    shape = record["shape"]
    before: list[int] = shape["dims"]
    after = list(change.dims)
    if change.extend_dim >= 0:
        after = [*before]
        after[change.extend_dim] += change.dims[0]
    if change.expect is not None and list(change.expect) != before:
        raise Conflict(f"{change.id} has another extent.")
    _check_limits(change.id, shape, after)
    if after != before and record.get("appends", {}).get("parts"):
        raise Moved(f"{change.id} is being appended to.")
    pairs = list(zip(after, before, strict=True))
    if "trim" in record and any(new > old for new, old in pairs):
        raise Conflict(f"{change.id} is still being shrunk.")
    if any(new < old for new, old in pairs):
        record["generation"] = record.get("generation", 0) + 1
        record["trim"] = True
    shape["dims"] = after
    if change.token and after != before:
        made = {"token": change.token, "before": before, "after": after}
        record["extents"] = [*record.get("extents", ()), made]
    return after != before


def _check_limits(id: str, shape: Record, after: list[int]) -> None:
    too_large = prod(after) >= 2**63 or max(after) >= 2**63
    if "maxdims" not in shape or len(after) != len(shape["dims"]) or too_large:
        raise BadRequest(f"{id} cannot have the extent {after}.")
    for extent, limit in zip(after, shape["maxdims"], strict=True):
        if isinstance(limit, int) and 0 < limit < extent:
            raise Conflict(f"{id} can have at most {limit} elements there, not {extent}.")


def _abandon(record: Record, appends: Record, now: float) -> None:
    parts = appends["parts"]
    if parts and parts[0]["token"] in appends["elements"]:
        for part in parts:
            part |= {"done": False, "until": now + TAKEN_SECONDS}
    else:
        appends["dropped"].update({part["token"]: now for part in parts})
        parts.clear()
    record |= {"generation": record.get("generation", 0) + 1, "trim": True}


def _has_no_room(appends: Record, change: BeginAppend) -> bool:
    """Say whether parts are deferred otherwise than `change`, or have as many elements as fit."""
    texts = [text for elements in appends["elements"].values() for text in elements.values()]
    mixed = bool(appends["parts"]) and bool(appends["elements"]) != (change.elements is not None)
    return mixed or len("".join(texts)) >= MOST_DEFERRED


def _append(record: Record, change: BeginAppend | EndAppend | AbandonAppends, now: float) -> bool:
    """Begin, end or drop parts of the record's `appends`; return whether anything changed."""
    appends = record.get("appends", {"dim": 0, "parts": [], "dropped": {}, "elements": {}})
    parts = appends["parts"]
    key, remembered = change.token.partition(".")[0], record.get("appended", [])
    has_key = "." in change.token
    mine = [
        part
        for part in parts
        if part["token"] == change.token
        or (has_key and isinstance(change, BeginAppend) and part["token"].startswith(f"{key}."))
    ]
    if change.token in appends["dropped"] and not isinstance(change, AbandonAppends):
        raise Moved(f"The append to {change.id} was dropped.")
    if isinstance(change, AbandonAppends):
        late = [part for part in parts if not part["done"] and part["until"] < now]
        if not (mine if change.token else late if change.expired else parts):
            return False
        _abandon(record, appends, now)
    elif isinstance(change, EndAppend):
        if not mine or mine[0]["done"]:
            return False
        is_late = "trim" in record or change.generation != record.get("generation", 0)
        if is_late and change.token in appends["elements"]:
            raise Moved(f"The append to {change.id} was taken over.")
        mine[0]["done"] = True
        _show_done(record, appends, now)
    elif (has_key and any(one["key"] == key for one in remembered)) or (
        mine and mine[0]["token"] != change.token
    ):
        return False
    elif mine:
        mine[0]["until"] = now + change.lease
    else:
        _add_part(record, appends, change, now)
    record.pop("appends", None)
    if parts or appends["dropped"]:
        record["appends"] = appends
    return True


def _add_part(record: Record, appends: Record, change: BeginAppend, now: float) -> None:
    parts, dims = appends["parts"], record["shape"]["dims"]
    elsewhere = bool(parts) and appends["dim"] != change.dim
    elsewhere |= _has_no_room(appends, change)
    beside = [n for dim, n in enumerate(dims) if dim != change.dim]
    if len(change.slab) != len(dims):
        raise BadRequest(f"{change.id} has {len(dims)} dimensions.")
    if "trim" in record or elsewhere or beside != [n for i, n in enumerate(change.slab) if i != change.dim]:
        raise Moved(f"The extent of {change.id} has changed.")
    count = change.slab[change.dim]
    after = [*dims]
    after[change.dim] += sum(part["count"] for part in parts) + count
    _check_limits(change.id, record["shape"], after)
    appends["dim"] = change.dim
    parts.append({"token": change.token, "count": count, "until": now + change.lease, "done": False})
    if change.elements is not None:
        parts[-1]["size"] = sum(map(len, change.elements.values()))
        appends["elements"][change.token] = change.elements


def _show_done(record: Record, appends: Record, now: float) -> None:
    """Grow the extent over the parts that are done, and remember those with keys."""
    parts, dims, dim = appends["parts"], record["shape"]["dims"], appends["dim"]
    while parts and parts[0]["done"]:
        part = parts.pop(0)
        appends["elements"].pop(part["token"], None)
        key, dot, _ = part["token"].partition(".")
        if dot:
            made = {"key": key, "dim": dim, "start": dims[dim], "count": part["count"], "time": now}
            record["appended"] = [*record.get("appended", []), made]
        dims[dim] += part["count"]
