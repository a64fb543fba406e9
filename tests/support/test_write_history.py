"""The history of writes at once: what it allows, and what it does not."""

from __future__ import annotations

from tests.support.write_history import WriteHistory

HERE, THERE = (1, 2), (3, 4)


def test_the_last_of_writes_in_order_is_the_one() -> None:
    history = WriteHistory()
    for value in (1, 2):
        history.acknowledge(history.begin([HERE], value))
    assert history.wrong({HERE: 2}) == []
    assert history.wrong({HERE: 1}) == ["(1, 2) is 1, not one of [2]"]
    assert history.wrong({}) == ["(1, 2) is None, not one of [2]"]


def test_either_of_writes_at_once_may_be_the_last() -> None:
    history = WriteHistory()
    first, second = history.begin([HERE], 1), history.begin([HERE, HERE], 2)
    history.acknowledge(second)
    history.acknowledge(first)
    assert history.wrong({HERE: 1}) == history.wrong({HERE: 2}) == []
    assert history.wrong({}) != []


def test_a_write_that_was_not_acknowledged_may_have_happened() -> None:
    history = WriteHistory()
    history.begin([HERE], 1)
    assert history.wrong({HERE: 1}) == history.wrong({}) == []
    history.acknowledge(history.begin([HERE], 2))
    assert history.wrong({HERE: 1}) == history.wrong({HERE: 2}) == []
    assert history.wrong({}) != []


def test_a_write_that_was_given_up_does_not_come_back() -> None:
    history = WriteHistory()
    history.give_up(history.begin([HERE], 1))
    assert history.wrong({HERE: 1}) == history.wrong({}) == []
    history.acknowledge(history.begin([HERE], 2))
    assert history.wrong({HERE: 2}) == []
    assert history.wrong({HERE: 1}) != []


def test_an_erasure_is_a_write_of_nothing() -> None:
    history = WriteHistory()
    history.acknowledge(history.begin([HERE], 1))
    history.acknowledge(history.begin([HERE], None))
    assert history.wrong({}) == []
    assert history.wrong({HERE: 1}) != []


def test_what_nobody_wrote_is_wrong() -> None:
    assert WriteHistory().wrong({THERE: 7}) == ["(3, 4) is 7, never written"]
