"""What a record takes in memory: as much as its JSON is long, times what parsed JSON takes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import orjson
import pytest

from hsparse.dn.record_form import RecordCodec, memory_of_json
from hsparse.dn.record_objects import WholeRecord
from hsparse.errors import Corrupt

CODEC = RecordCodec("key")


def weight(record: dict[str, Any]) -> int:
    data = CODEC.encode(record)
    assert CODEC.decode(data) == record
    return CODEC.nbytes(record, data)


@pytest.mark.parametrize(
    "more",
    [
        {"links": {str(i): {"id": "g-1"} for i in range(100)}},
        {"attributes": {str(i): {"value": 1} for i in range(100)}},
        {"attributes": {"a": {"value": list(range(1000))}}},
        {"creationProperties": {"layout": {"chunks": {str(i): [i, 9] for i in range(100)}}}},
    ],
)
def test_what_is_long_counts(more: dict[str, Any]) -> None:
    assert weight(more) > weight({}) + 8_000


def test_work_is_a_part_of_the_memory() -> None:
    links = {str(n): {"class": "H5L_TYPE_HARD", "id": "g-" + "0" * 36, "created": 1.5} for n in range(100)}
    assert 2_500 < weight({"links": links}) // WholeRecord.speed < 3_500


ARRAY = {"class": "H5T_ARRAY", "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}, "dims": [2, 2]}
SHAPE = {"class": "H5S_SIMPLE", "dims": [10, 10], "maxdims": [10, 0]}
LAYOUT = {"class": "H5D_CHUNKED", "dims": [5, 5]}


@pytest.mark.parametrize(
    "record",
    [
        {"id": "g-" + "0" * 36, "root": "g-" + "1" * 36, "created": 1.5, "attributes": {}, "links": {}},
        {
            "links": {
                f"g{n}": {"class": "H5L_TYPE_HARD", "id": f"g-{n:036}", "created": 1.5 * n} for n in range(99)
            }
        },
        {"attributes": {f"a{n}": {"type": ARRAY, "shape": SHAPE, "value": [1.5, 2.5]} for n in range(9)}},
        {"attributes": {"a": {"value": [1.5 * n for n in range(999)]}}},
        {"attributes": {"a": {"value": [f"text {n}" for n in range(999)]}}},
        {
            "type": "H5T_IEEE_F32LE",
            "shape": SHAPE,
            "layout": LAYOUT,
            "creationProperties": {"layout": LAYOUT},
        },
        {
            "links": {
                f"g{n}": {"class": "H5L_TYPE_HARD", "id": f"g-{n:036}", "created": 1.5} for n in range(2000)
            }
        },
        {"a": "x" * 9999},
    ],
)
def test_the_memory_of_json_is_estimated(record: dict[str, Any]) -> None:
    data = orjson.dumps(record)
    gc.collect()
    tracemalloc.start()
    parsed = [orjson.loads(data) for _ in range(64)]  # the first ones take what was freed before
    nbytes = tracemalloc.get_traced_memory()[0] / len(parsed)
    tracemalloc.stop()
    assert 0.8 * nbytes < memory_of_json(data) < 1.7 * nbytes


def test_floats_that_are_no_json_are_read_by_name() -> None:
    data = b'{"a": {"value": [NaN, Infinity, -Infinity, 1.5]}, "b": "NaN"}'
    assert CODEC.decode(data) == {"a": {"value": ["nan", "inf", "-inf", 1.5]}, "b": "NaN"}


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"NaN", b"{'NaN': 1}", b'{"a": "NaN', b"\xff NaN"])
def test_what_is_no_record_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="key"):
        CODEC.decode(data)
