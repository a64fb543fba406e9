"""What a record or a store says it needs, known here or not."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.model.schema import (
    APPENDS,
    CHUNK_STATISTICS,
    MAX_FEATURES,
    STRIPES,
    Schema,
    parse_schema,
    schema_of,
)


def test_a_record_needs_what_is_new_in_it_since_0_1() -> None:
    assert schema_of({"id": "d-1", "generation": 3, "trim": True}) is None
    appended = {"id": "d-1", "appends": {"dim": 0, "parts": [], "dropped": {}}}
    assert schema_of(appended) == Schema(write_features=(APPENDS,))
    striped = {"layout": {"class": "H5D_CHUNKED_STRIPED", "stripes": 3, "layout": {}}}
    assert schema_of(striped) == Schema(read_features=(STRIPES,))
    both = schema_of(appended | striped)
    assert both == Schema(1, (STRIPES,), (APPENDS,))
    assert parse_schema(both.to_json(), "it") == both


def test_what_is_known_is_readable_and_writable() -> None:
    for schema in (Schema(), Schema(write_features=(APPENDS,)), parse_schema({"version": 1}, "it")):
        schema.check_readable("it")
        schema.check_writable("it")
        assert schema.writable


@pytest.mark.parametrize(
    ("schema", "named"), [(Schema(version=2), "version 2"), (Schema(read_features=("spirals",)), "'spirals'")]
)
def test_an_unknown_version_or_read_feature_is_refused(schema: Schema, named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        schema.check_readable("The object x")
    for part in ("The object x", named, "newer hsparse"):
        assert part in refused.value.message


def test_an_unknown_write_feature_leaves_reading() -> None:
    schema = Schema(write_features=(APPENDS, "spirals"))
    schema.check_readable("The object x")
    assert not schema.writable
    with pytest.raises(Unsupported) as refused:
        schema.check_writable("The object x")
    for part in ("The object x", "'spirals'", "newer hsparse"):
        assert part in refused.value.message


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"version": "1"},
        {"version": True},
        {"version": 1, "readFeatures": "x"},
        {"version": 1, "readFeatures": None},
        {"version": 1, "writeFeatures": [1]},
        {"version": 1, "writeFeatures": ["x"] * (MAX_FEATURES + 1)},
    ],
)
def test_what_is_no_schema_is_corrupt(value: Any) -> None:
    with pytest.raises(Corrupt, match="The object x"):
        parse_schema(value, "The object x")


def test_chunks_with_statistics_are_a_feature_to_read() -> None:
    assert schema_of({"id": "d-1", "chunkStatistics": True}) == Schema(read_features=(CHUNK_STATISTICS,))
    assert schema_of({"id": "d-1", "chunkStatistics": False}) is None
