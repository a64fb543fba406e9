"""The ledger of writes at once: what it allows, and what it does not."""

from __future__ import annotations

from tests.support.write_history import WriteHistory

HERE, THERE = (1, 2), (3, 4)


def test_the_last_of_writes_in_order_is_the_one() -> None:
    ledger = WriteHistory()
    for value in (1, 2):
        ledger.acknowledge(ledger.begin([HERE], value))
    assert ledger.wrong({HERE: 2}) == []
    assert ledger.wrong({HERE: 1}) == ["(1, 2) is 1, not one of [2]"]
    assert ledger.wrong({}) == ["(1, 2) is None, not one of [2]"]


def test_either_of_writes_at_once_may_be_the_last() -> None:
    ledger = WriteHistory()
    first, second = ledger.begin([HERE], 1), ledger.begin([HERE, HERE], 2)
    ledger.acknowledge(second)
    ledger.acknowledge(first)
    assert ledger.wrong({HERE: 1}) == ledger.wrong({HERE: 2}) == []
    assert ledger.wrong({}) != []


def test_a_write_that_was_not_acknowledged_may_have_happened() -> None:
    ledger = WriteHistory()
    ledger.begin([HERE], 1)
    assert ledger.wrong({HERE: 1}) == ledger.wrong({}) == []
    ledger.acknowledge(ledger.begin([HERE], 2))
    assert ledger.wrong({HERE: 1}) == ledger.wrong({HERE: 2}) == []
    assert ledger.wrong({}) != []


def test_a_write_that_was_given_up_does_not_come_back() -> None:
    ledger = WriteHistory()
    ledger.give_up(ledger.begin([HERE], 1))
    assert ledger.wrong({HERE: 1}) == ledger.wrong({}) == []
    ledger.acknowledge(ledger.begin([HERE], 2))
    assert ledger.wrong({HERE: 2}) == []
    assert ledger.wrong({HERE: 1}) != []


def test_an_erasure_is_a_write_of_nothing() -> None:
    ledger = WriteHistory()
    ledger.acknowledge(ledger.begin([HERE], 1))
    ledger.acknowledge(ledger.begin([HERE], None))
    assert ledger.wrong({}) == []
    assert ledger.wrong({HERE: 1}) != []


def test_what_nobody_wrote_is_wrong() -> None:
    assert WriteHistory().wrong({THERE: 7}) == ["(3, 4) is 7, never written"]
