"""Tokens of changes of the extent that a record remembers, and the time that parts of appends have."""

from __future__ import annotations

import pytest

from hsparse.dn.extent_changes import (
    MOST_DROPPED,
    MOST_REMEMBERED,
    abandon_appends,
    begin_append,
    end_append,
    set_extent,
)
from hsparse.errors import Moved
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, BeginAppend, EndAppend, SetExtent, extents_of_change

ID = "d-01234567-89abcdef-0123-456789-abcdef"
HOUR = 3600.0


def dataset(extent: int) -> Record:
    return {"id": ID, "shape": {"class": "H5S_SIMPLE", "dims": [extent], "maxdims": [0]}}


def test_the_last_changes_of_the_extent_are_remembered() -> None:
    record = dataset(0)
    for number in range(MOST_REMEMBERED + 2):
        record |= set_extent(SetExtent(ID, (1,), 0, token=f"t{number}"), record)
    assert extents_of_change(record, "t1") is None
    assert extents_of_change(record, "t2") == ((2,), (3,))
    assert set_extent(SetExtent(ID, (1,), 0, token="t2"), record) == {}
    assert "extents" not in set_extent(SetExtent(ID, (1,), 0), dataset(0))


@pytest.mark.parametrize("behind", [-HOUR, HOUR])
def test_a_dropped_append_is_not_taken_for_a_visible_one_by_another_clock(behind: float) -> None:
    """Servers change the record in turn, and their times differ."""
    now = 1e9
    record = begin_append(BeginAppend(ID, "a", (2,), 0, 10.0), dataset(4), now)
    record = abandon_appends(AbandonAppends(ID), record, now - behind)
    for number in range(3):
        change = BeginAppend(ID, f"b{number}", (1,), 0, 10.0)
        record = begin_append(change, {key: record[key] for key in record if key != "trim"}, now)
        record = end_append(EndAppend(ID, f"b{number}"), record, now)
    with pytest.raises(Moved):
        end_append(EndAppend(ID, "a"), record, now)
    assert record["shape"]["dims"] == [7]
    assert MOST_DROPPED > 100


def test_a_part_is_out_of_time_unless_it_was_begun_again_or_is_done() -> None:
    def expired(record: Record, now: float) -> bool:
        return abandon_appends(AbandonAppends(ID, expired=True), record, now) is not record

    change = BeginAppend(ID, "b", (2,), 0, 10.0)
    record = begin_append(change, begin_append(BeginAppend(ID, "a", (2,), 0, 99.0), dataset(4), 0.0), 0.0)
    assert [expired(record, now) for now in (9.0, 11.0)] == [False, True]
    again = begin_append(change, record, 8.0)
    assert [expired(again, now) for now in (17.0, 19.0)] == [False, True]
    assert not expired(end_append(EndAppend(ID, "b"), record, 1.0), 11.0)
