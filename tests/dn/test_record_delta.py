"""A delta leads from its base to the record that it was made for, links and attributes in the same order."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.record_changes import DeletedNames, change_record, changed_entries
from hsparse.dn.record_objects import RecordDelta, decode_delta
from hsparse.errors import Corrupt, HsparseError
from hsparse.wire.record_message import (
    DeleteAttributes,
    DeleteLinks,
    PutAttributes,
    PutLinks,
    RecordChange,
    SetFields,
)
from tests.support.stored_attribute import remove_checksum

TOKEN = "0123456789abcdef"
KEY = f"db/1/g/2/.record/v1/{TOKEN}.json"
LARGE = 10**9
NAMES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True)


def put_links(names: list[str]) -> RecordChange:
    return PutLinks("g-1", {name: {"class": "H5L_TYPE_SOFT", "h5path": "/"} for name in names})


def put_attributes(names: list[str], value: int) -> RecordChange:
    return PutAttributes("g-1", {name: {"value": value} for name in names}, replace=True)


CHANGES = st.one_of(
    NAMES.map(put_links),
    NAMES.map(lambda names: DeleteLinks("g-1", tuple(names), skip_missing=True)),
    st.builds(put_attributes, NAMES, st.integers(0, 3)),
    NAMES.map(lambda names: DeleteAttributes("g-1", tuple(names))),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3)).map(
        lambda fields: SetFields("g-1", fields, renew=True)
    ),
)


def changed(record: dict[str, Any], change: RecordChange) -> dict[str, Any]:
    try:
        return change_record(change, record, 1.0, DeletedNames())[0] or {}
    except HsparseError:
        return record


def ordered(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return a record and the order in its long dicts, to compare."""
    return record, list(record.get("links", ())), list(record["attributes"])


@given(st.lists(CHANGES, max_size=6), st.lists(st.one_of(CHANGES, st.none()), max_size=12), st.booleans())
def test_a_delta_and_its_base_are_the_record(
    first: list[RecordChange], later: list[RecordChange | None], has_links: bool
) -> None:
    """None stands for a restart: the delta is read from what was stored."""
    record: dict[str, Any] = {"id": "g-1", "attributes": {}} | ({"links": {}} if has_links else {})
    for change in first:
        record = changed(record, change)
    base, delta = deepcopy(record), RecordDelta(TOKEN, LARGE)
    for step in later:
        if step is None:
            data = delta.encode()
            delta, sealed = decode_delta(data, TOKEN, LARGE, KEY)
            assert not sealed
            continue
        after = changed(record, step)
        kept = delta
        delta = delta.then(record, after, *changed_entries(step)) or kept
        assert delta is not kept
        record = after
    found = deepcopy(base)
    delta.apply(found)
    assert ordered(found) == ordered(record)


def test_a_base_is_stored_again_when_deltas_have_cost_as_much() -> None:
    """Then small changes and large ones both cost about the least: twice the base, however often it is changed."""
    base = 10_000
    for count in (1, 20):
        record: dict[str, Any] = {"links": {}}
        delta: RecordDelta | None = RecordDelta(TOKEN, base)
        written = states = 0
        while delta is not None:
            written, states = delta.written, states + 1
            after = changed(record, change := put_links([f"{states}-{n}" for n in range(count)]))
            delta = delta.then(record, after, *changed_entries(change))
            record = after
            if delta is not None:
                delta = delta.stored(len(delta.encode()))
        assert base / 2 < written <= base * 1.1
        assert states > 3


def test_a_table_that_another_change_has_replaced_is_stored_as_a_whole() -> None:
    record: dict[str, Any] = {"links": {}, "attributes": {}}
    delta = RecordDelta(TOKEN, LARGE)
    assert delta.then(record, {"links": {"a": {}}, "attributes": {}}, "attributes", ("a",)) is None
    assert delta.then(record, {"attributes": {}}, "links", ("a",)) is None


def test_a_sealed_delta_says_so() -> None:
    delta = RecordDelta(TOKEN, 5).then({}, {"x": 1}, "", ()) or RecordDelta(TOKEN, LARGE)
    found, sealed = decode_delta(delta.encode(sealed=True), TOKEN, 5, KEY)
    assert sealed
    assert found.fields == delta.fields


WHOLE = json.loads(remove_checksum(RecordDelta(TOKEN, 0).encode()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        *(
            json.dumps({name: value for name, value in WHOLE.items() if name != gone}).encode()
            for gone in WHOLE
        ),
        *(json.dumps(WHOLE | {name: 3.5}).encode() for name in WHOLE),
        json.dumps(WHOLE | {"links": {"removed": {}, "put": {}}}).encode(),
        json.dumps(WHOLE | {"links": {"removed": [[]], "put": {}}}).encode(),
    ],
)
def test_what_is_no_delta_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=TOKEN):
        decode_delta(data, TOKEN, 0, KEY)
