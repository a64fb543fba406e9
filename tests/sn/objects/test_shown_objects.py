"""Objects that are kept encoded are those that would have been made."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hsparse.clock import SystemClock
from hsparse.model.objid import new_id, new_root_id
from hsparse.sn.json_text import encode_floats
from hsparse.sn.objects.shown import shown_object
from hsparse.sn.objects.shown_objects import RECORD, ShownObjects

CLOCK = SystemClock()
ROOT = new_root_id(CLOCK)
IDS = [new_id("groups", ROOT, CLOCK) for _ in range(4)]


def group(id: str, value: Any = 1.5) -> dict[str, Any]:
    scalar = {"type": {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}, "shape": {"class": "H5S_SCALAR"}}
    times = {"created": 1.0, "lastModified": 2.0}
    return {"id": id, "root": ROOT, **times, "links": {}, "attributes": {"a": scalar | {"value": value}}}


def fresh(record: dict[str, Any], ignore_nan: bool) -> bytes:
    return encode_floats(shown_object(record, links=True, attributes=True, ignore_nan=ignore_nan))


@given(
    st.lists(
        st.tuples(st.sampled_from(IDS), st.sampled_from([1.5, "nan", "inf"]), st.booleans()), max_size=30
    ),
    st.sampled_from([0, 3_000, 10**9]),
)
def test_what_is_kept_is_of_the_record(asked: list[tuple[str, Any, bool]], budget: int) -> None:
    """Records of the same id come and go; some come again."""
    shown = ShownObjects(budget)
    records: dict[tuple[str, Any], dict[str, Any]] = {}
    for id, value, ignore_nan in asked:
        record = records.setdefault((id, value), group(id, value))
        assert shown.whole(record, ignore_nan=ignore_nan) == fresh(record, ignore_nan)


def test_it_is_made_once() -> None:
    shown, record = ShownObjects(), group(IDS[0])
    assert shown.whole(record) is shown.whole(record)
    assert shown.whole(dict(record)) is not shown.whole(record)


def test_floats_that_are_ignored_are_kept_apart() -> None:
    shown, record = ShownObjects(), group(IDS[0], "nan")
    assert orjson.loads(shown.whole(record, ignore_nan=True))["attributes"]["a"]["value"] is None
    assert b"NaN" in shown.whole(record)


def test_the_budget_is_kept() -> None:
    size = (1 + RECORD) * len(fresh(group(IDS[0]), False))
    shown, records = ShownObjects(2 * size), [group(id) for id in IDS[:3]]
    first, second, third = (shown.whole(record) for record in records)
    assert shown.whole(records[2]) is third
    assert shown.whole(records[1]) is second
    assert shown.whole(records[0]) is not first
