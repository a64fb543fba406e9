"""The changes of records, as functions from an old record to a new one and an outcome.

A change modifies neither the old record nor the deleted names, so it can be applied again if another writer has put
first. It is not pure: the error for a missing name depends on the names deleted so far.

A record has a size limit, because it is read, kept and sent whole, and takes about eight times its bytes of memory.
Only changes that enlarge a record are measured; a change that shrinks it is allowed beyond the limit.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any, TypeAlias

import orjson

from hsparse.bounded_cache import BoundedCache
from hsparse.errors import BadRequest, Conflict, Gone, HsparseError, NotFound, TooLarge
from hsparse.model.acl import ORIGIN, Right
from hsparse.model.dataset_state import abandon_appends, begin_append, end_append, end_trim, set_extent
from hsparse.model.datatype import type_json
from hsparse.model.link import same_link
from hsparse.model.schema import check_changeable
from hsparse.wire.message import Record
from hsparse.wire.record_message import (
    MAX_SECOND_NAMES,
    AbandonAppends,
    AddSecondName,
    BeginAppend,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    EndAppend,
    EndTrim,
    ForgetFirstName,
    ForgetSecondName,
    Outcome,
    PutAcl,
    PutAttributes,
    PutLinks,
    PutRecord,
    RecordChange,
    SetExtent,
    SetFields,
    is_expected,
)

Changed = tuple[Record | None, Outcome]


MAX_NAMES = 100_000


class DeletedNames:
    """Names of deleted objects, attributes and links; the oldest are forgotten first.

    Only hashes are kept, since names may be long; a collision turns a `NotFound` into a `Gone`.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._names: BoundedCache[int, None] = BoundedCache.of_entries(limit)

    def add(self, *name: str) -> None:
        """Remember a deleted name."""
        self._names.keep(hash(name), None)

    def remove(self, *name: str) -> None:
        """Forget a name, because it exists again."""
        self._names.forget(hash(name))

    def missing(self, sentence: str, *name: str) -> HsparseError:
        """Return the error for a missing name, with the subject `sentence`: `Gone` if deleted, else `NotFound`."""
        kind, end = (Gone, "was deleted") if hash(name) in self._names else (NotFound, "does not exist")
        return kind(f"{sentence} {end}.")

    def __contains__(self, id: str) -> bool:
        return hash((id,)) in self._names


def change_record(
    change: RecordChange, record: Record | None, now: float, deleted: DeletedNames, *, repeated: bool = False
) -> Changed:
    """Return a pair: the record after `change`, or None if it was deleted, and the outcome. Raise refusals as errors.

    `record` is not modified. `now` is in seconds since the Unix epoch; `repeated` is as in `ChangeObjects`.
    """
    if repeated:
        again = _again(change, record)
        if isinstance(again, Outcome):
            return record, again
        change = again
    if isinstance(change, CreateObject | PutRecord):
        return _store(change, record, deleted)
    if record is None:
        raise deleted.missing(f"{change.id}", change.id)
    if isinstance(change, DeleteObject) and not is_expected(change.expect, record):
        raise NotFound(f"{change.id} was deleted already, and another object was created in its place.")
    if "schema" in record:
        check_changeable(change.id, record)
    return _apply(change, record, now, deleted)


def _again(change: RecordChange, record: Record | None) -> RecordChange | Outcome:
    """Return the outcome of a change that was applied before, or else a change that is safe to apply again."""
    match change:
        case CreateObject(_, new) if record == new:
            return Outcome(record, changed=True, created=True)
        case DeleteObject(_, expect) if record is None or not is_expected(expect, record):
            return Outcome({})
        case PutAcl() if record is not None and _acl_after(change, record)[1]:
            return replace(change, expect=None, expect_acls=None)
        case DeleteAttributes() | DeleteLinks():
            return replace(change, skip_missing=True)
    return change


def changed_entries(change: RecordChange) -> tuple[str, tuple[str, ...]]:
    """Return a pair: the dict that a change may touch, `links`, `attributes` or "", and the names in this dict."""
    match change:
        case PutAttributes(_, attributes):
            return "attributes", tuple(attributes)
        case DeleteAttributes(_, names):
            return "attributes", names
        case PutLinks(_, links, removed):
            return "links", tuple({**links, **dict.fromkeys(removed)})
        case DeleteLinks(_, titles):
            return "links", titles
    return "", ()


def _store(change: CreateObject | PutRecord, record: Record | None, deleted: DeletedNames) -> Changed:
    created = isinstance(change, CreateObject)
    if created and record is not None:
        raise Conflict(f"{change.id} exists already.")
    if created and change.id.startswith("d-") and change.id in deleted:
        raise Conflict(f"{change.id} was deleted, and its chunks may still be there: choose another id.")
    return change.record, Outcome(change.record, changed=True, created=created)


@singledispatch
def _apply(change: Any, record: Record, now: float, deleted: DeletedNames) -> Changed:
    raise BadRequest(f"{type(change).__name__} is not a change of a record.")


@_apply.register
def _(change: DeleteObject, record: Record, now: float, deleted: DeletedNames) -> Changed:
    return None, Outcome(record, changed=True)


@_apply.register
def _(change: PutAttributes, record: Record, now: float, deleted: DeletedNames) -> Changed:
    attributes = dict(record.get("attributes") or {})
    created = changed = False
    for name, attribute in change.attributes.items():
        there = attributes.get(name)
        if there is not None and _same(attribute, there):
            continue
        if there is not None and not change.replace:
            raise Conflict(f"Attribute {name!r} of {change.id} exists with another content; use replace=1.")
        created |= there is None
        changed = True
        first = (attribute if there is None else there).get("created", now)
        attributes[name] = {**attribute, "created": first, "lastModified": now}
    return _renew(record, now, attributes=attributes, changed=changed, created=created)


@_apply.register
def _(change: DeleteAttributes, record: Record, now: float, deleted: DeletedNames) -> Changed:
    return _without(change, "attribute", change.names, record, now, deleted)


@_apply.register
def _(change: PutLinks, record: Record, now: float, deleted: DeletedNames) -> Changed:
    before, removed = record.get("links") or {}, set(change.removed)
    links = {title: link for title, link in before.items() if title not in removed or title in change.links}
    changed = len(links) < len(before)
    for title, link in change.links.items():
        there = links.get(title)
        if there is not None and same_link(link, there):
            continue
        if there is not None and title not in removed:
            raise Conflict(f"Link {title!r} of {change.id} exists with another target; delete it first.")
        links[title] = {"created": now} | link
        changed = True
    return _renew(record, now, links=links, changed=changed, created=True)


@_apply.register
def _(change: DeleteLinks, record: Record, now: float, deleted: DeletedNames) -> Changed:
    return _without(change, "link", change.titles, record, now, deleted)


@_apply.register
def _(change: PutAcl, record: Record, now: float, deleted: DeletedNames) -> Changed:
    acls = record.get("acls") or {}
    if not is_expected(change.expect, record) or not is_expected(change.expect_acls, acls):
        raise Conflict(f"{change.id} was changed, or deleted and created again, meanwhile; try again.")
    entry, is_there = _acl_after(change, record)
    if entry is None:
        others = {user: rights for user, rights in acls.items() if user != change.user}
        return _renew(record, now, acls=others, changed=not is_there)
    created = change.user not in acls
    return _renew(record, now, acls={**acls, change.user: entry}, changed=True, created=created)


def _acl_after(change: PutAcl, record: Record) -> tuple[Record | None, bool]:
    """Return a pair: the user's ACL entry after a change, or None if there is none, and whether it is there already."""
    there = (record.get("acls") or {}).get(change.user)
    if change.rights is None:
        return None, there is None
    rights = {right.value: False for right in Right} | (there or {}) | change.rights
    entry = rights | {ORIGIN: change.origin}
    return entry, entry == there


@_apply.register
def _(change: SetFields, record: Record, now: float, deleted: DeletedNames) -> Changed:
    if change.unless and change.unless in record:
        raise Conflict(f"{change.id} has the field {change.unless} already.")
    fields, within = change.fields, change.within
    if within:
        fields = {within: _without_none((record.get(within) or {}) | fields) or None}
    new = _without_none({**record, **fields})
    if change.renew:
        new["lastModified"] = now
    return (record, Outcome(record)) if new == record else (new, Outcome(new, changed=True))


def _without_none(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value is not None}


@_apply.register
def _(change: AddSecondName, record: Record, now: float, deleted: DeletedNames) -> Changed:
    names = {path: by for path, by in (record.get("secondNames") or {}).items() if path != change.path}
    if len(names) >= MAX_SECOND_NAMES:
        raise TooLarge(
            f"{change.id} has {len(names)} second names, the most allowed: delete a second name first."
        )
    named = {**record, "secondNames": names | {change.path: change.by}}
    return named, Outcome(named, changed=True)


@_apply.register
def _(change: ForgetSecondName, record: Record, now: float, deleted: DeletedNames) -> Changed:
    before = record.get("secondNames") or {}
    names = {path: by for path, by in before.items() if path != change.path}
    if len(names) == len(before):
        return record, Outcome(record)
    rest = {name: value for name, value in record.items() if name != "secondNames"}
    rest |= {"secondNames": names} if names else {}
    return rest, Outcome(rest, changed=True)


@_apply.register
def _(change: ForgetFirstName, record: Record, now: float, deleted: DeletedNames) -> Changed:
    first = {"path": change.path, "created": change.created}
    released = first | {"released": True}
    if record.get("firstName") not in ((first,) if change.release else (first, released)):
        return record, Outcome(record)
    own = {name: value for name, value in record.items() if name != "firstName"}
    own |= {"firstName": released} if change.release else {}
    return own, Outcome(own, changed=True)


StateChange: TypeAlias = SetExtent | EndTrim | BeginAppend | EndAppend | AbandonAppends


@_apply.register(SetExtent)
@_apply.register(EndTrim)
@_apply.register(BeginAppend)
@_apply.register(EndAppend)
@_apply.register(AbandonAppends)
def _(change: StateChange, record: Record, now: float, deleted: DeletedNames) -> Changed:
    after = _state_after(change, record, now)
    if after is not record and isinstance(change, SetExtent | EndAppend):
        after = {**after, "lastModified": now}
    return after, Outcome(after, changed=after is not record)


def _state_after(change: StateChange, record: Record, now: float) -> Record:
    """Return the record after a transition of the dataset's state, such as a new extent or an append."""
    match change:
        case SetExtent(_, dims, extend_dim, expect, token, below, lower, expect_lower, minlower):
            return set_extent(
                record,
                dims,
                extend_dim,
                expect,
                token,
                below=below,
                lower=lower,
                expect_lower=expect_lower,
                minlower=minlower,
            )
        case EndTrim(_, generation):
            return end_trim(record, generation)
        case BeginAppend(_, token, slab, dim, lease, keys, below, lower):
            return begin_append(record, token, slab, dim, lease, now, keys, below=below, lower=lower)
        case EndAppend(_, token):
            return end_append(record, token, now)
        case AbandonAppends(_, token, expired):
            return abandon_appends(record, now, token, expired=expired)


def _renew(record: Record, now: float, *, changed: bool, created: bool = False, **fields: Any) -> Changed:
    if not changed:
        return record, Outcome(record)
    renewed = {**record, **fields, "lastModified": now}
    return renewed, Outcome(renewed, changed=True, created=created)


def _same(new: Record, there: Record) -> bool:
    """Return whether attributes are equal except for times and the form of their types, which h5pyd changes."""
    one, other = ({**item, "created": 0, "lastModified": 0} for item in (new, there))
    if one != other and "type" in one and "type" in other:
        one["type"], other["type"] = type_json(one["type"]), type_json(other["type"])
    return one == other


def _without(
    change: DeleteAttributes | DeleteLinks,
    kind: str,
    names: tuple[str, ...],
    record: Record,
    now: float,
    deleted: DeletedNames,
) -> Changed:
    before = record.get(f"{kind}s") or {}
    rest = dict(before)
    for name in names:
        if rest.pop(name, None) is None and not change.skip_missing:
            raise deleted.missing(f"{kind.title()} {name!r} of {change.id}", change.id, kind, name)
    fields: Record = {f"{kind}s": rest}
    return _renew(record, now, changed=len(rest) < len(before), **fields)


UNMEASURED_BYTES = 64 * 1024
"""A change of fewer bytes is measured only if the size of its record is unknown or above half the limit."""


def grown_bytes(change: RecordChange) -> int:
    """Return the number of bytes that a change may add to its record, or 0 if the growth is negligible."""
    match change:
        case PutAttributes(_, attributes):
            return len(orjson.dumps(attributes))
        case PutLinks(_, links, _):
            return len(orjson.dumps(links))
        case CreateObject(_, record):
            return len(orjson.dumps(record))
        case PutAcl(_, user):
            return len(user.encode())
    return 0


def must_measure(change: RecordChange, stored: int | None, most: int) -> bool:
    """Return whether a change may make a record of `stored` bytes (None: unknown) larger than `most` bytes."""
    growth = grown_bytes(change)
    return growth > UNMEASURED_BYTES or (growth > 0 and (stored is None or stored > most // 2))


def check_size(record: Record, most: int) -> None:
    """Raise `TooLarge` for a record whose JSON has more than `most` bytes."""
    size = len(orjson.dumps(record))
    if size > most:
        raise TooLarge(
            f"The record of {record.get('id', 'a domain')} would have {size} bytes with its attributes and links; the "
            f"limit is {most} (max_record_size). Keep large values in datasets, and many links in several groups."
        )
