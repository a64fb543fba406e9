"""A stored record has a checksum: a flipped bit in it is found, and other programs may store it again without."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.record_form import (
    RecordCodec,
    add_checksum,
    check_checksum,
    drop_checksum,
    has_checksum,
)
from hsparse.dn.record_objects import RecordDelta, decode_delta
from hsparse.errors import Corrupt
from hsparse.model.ids import storage_key
from tests.support.stored_attribute import remove_checksum

ROOT = "g-00000001-00000002-8888-888988-88888a"
GROUP = "g-00000001-00000002-0000-000000-000003"
OTHER = "g-00000001-00000002-0000-000000-000005"
DATASET = "d-00000001-00000002-0000-000000-000004"
TYPE = "t-00000001-00000002-0000-000000-000004"
SHAPE = {"class": "H5S_SIMPLE", "dims": [10], "maxdims": [10]}
OBJECT: dict[str, Any] = {"root": ROOT, "created": 1.5, "lastModified": 2.5, "attributes": {}}
RECORDS: dict[str, dict[str, Any]] = {
    GROUP: OBJECT | {"id": GROUP, "links": {"x": {"class": "H5L_TYPE_HARD", "id": DATASET}}},
    DATASET: OBJECT | {"id": DATASET, "type": "H5T_STD_I8LE", "shape": SHAPE},
    TYPE: OBJECT | {"id": TYPE, "type": "H5T_STD_I8LE"},
    "/home/f.h5": {"root": ROOT, "owner": "ada", "acls": {}, "created": 1.5, "lastModified": 2.5},
}
every_record = pytest.mark.parametrize("id", RECORDS)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def flipped(data: bytes) -> list[bytes]:
    """Return the bytes with each of their bits flipped."""
    return [
        data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
        for place in range(len(data))
        for bit in range(8)
    ]


@given(st.dictionaries(st.text(), JSON, min_size=1))
def test_json_with_a_checksum_is_the_same_json(value: dict[str, Any]) -> None:
    data = orjson.dumps(value)
    stored = add_checksum(data)
    assert has_checksum(stored)
    assert not has_checksum(data)
    check_checksum(stored, "key")
    found = json.loads(stored)
    assert found.keys() == value.keys() | {"crc32"}
    drop_checksum(found)
    assert found == {name: one for name, one in value.items() if name != "crc32"}
    assert remove_checksum(stored) == data


@every_record
def test_a_flipped_bit_in_a_record_is_found(id: str) -> None:
    """One in the checksum's own key makes a record without a checksum of it, which says the same."""
    codec = RecordCodec(storage_key(id))
    data = codec.encode(RECORDS[id])
    assert codec.decode(data) == RECORDS[id]
    for damaged in flipped(data):
        if has_checksum(damaged):
            with pytest.raises(Corrupt, match=re.escape(storage_key(id))):
                codec.decode(damaged)
            continue
        with suppress(Corrupt):
            found = codec.decode(damaged)
            assert RECORDS[id].items() <= found.items(), damaged
            assert len(found) <= len(RECORDS[id]) + 1


def test_a_flipped_bit_in_a_delta_is_found() -> None:
    token = "0123456789abcdef"
    before: dict[str, Any] = {"links": {}, "attributes": {}}
    delta = RecordDelta(token, 10**6).then(before, before | {"links": {"a": {"id": GROUP}}}, "links", ("a",))
    assert delta is not None
    data = delta.encode()
    found, _ = decode_delta(data, token, 10**6, "key")
    assert found.links == delta.links
    for damaged in flipped(data):
        if has_checksum(damaged):
            with pytest.raises(Corrupt, match="key"):
                decode_delta(damaged, token, 10**6, "key")
            continue
        with suppress(Corrupt):
            found, sealed = decode_delta(damaged, token, 10**6, "key")
            assert (found.links, found.fields, sealed) == (delta.links, delta.fields, False)


@every_record
@pytest.mark.parametrize("dumps", [orjson.dumps, lambda value: json.dumps(value).encode()])
def test_a_record_that_another_program_has_changed_is_read(id: str, dumps: Any) -> None:
    """HSDS and older versions of hsparse keep the checksum of the record that they have read."""
    codec = RecordCodec(storage_key(id))
    read = json.loads(codec.encode(RECORDS[id]))
    changed = read | {"lastModified": 3.5}
    assert codec.decode(dumps(changed)) == RECORDS[id] | {"lastModified": 3.5}
    moved = {"crc32": changed.pop("crc32"), **changed}
    assert codec.decode(dumps(moved)) == RECORDS[id] | {"lastModified": 3.5}


@every_record
def test_a_record_without_a_checksum_is_read(id: str) -> None:
    assert RecordCodec(storage_key(id)).decode(orjson.dumps(RECORDS[id])) == RECORDS[id]


@pytest.mark.parametrize("id", [GROUP, DATASET, TYPE])
def test_a_record_without_a_checksum_must_be_that_of_its_key(id: str) -> None:
    codec = RecordCodec(storage_key(id))
    other_root = "g-00000001-00000003-8888-888988-88888b"
    for wrong in ({"id": OTHER}, {"id": "g-1"}, {"id": "d-x"}, {"root": OTHER}, {"root": other_root}):
        with pytest.raises(Corrupt, match=next(iter(wrong))):
            codec.decode(orjson.dumps(RECORDS[id] | wrong))
    for name in RECORDS[id].keys() - {"created", "lastModified"}:
        lacking = {key: value for key, value in RECORDS[id].items() if key != name}
        with pytest.raises(Corrupt, match=name):
            codec.decode(orjson.dumps(lacking))


def test_other_objects_have_no_checksum() -> None:
    assert RecordCodec("db/.jobs/1.json").encode({"id": "j-1"}) == b'{"id":"j-1"}'
