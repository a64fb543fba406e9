"""The fair queue, against a round robin that is trivially right."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.concurrency import memory_budget as fair_queue
from hsparse.concurrency.admission import RECENT, RecentUsers
from hsparse.concurrency.memory_budget import FairQueue

USERS = "abcde"


@given(st.lists(st.sampled_from(USERS)))
def test_pushed_at_once_is_served_by_turns(users: list[str]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    waiting: dict[str, deque[tuple[str, int]]] = {}
    for number, user in enumerate(users):
        queue.push(user, (user, number))
        waiting.setdefault(user, deque()).append((user, number))
    expected = []
    while any(waiting.values()):
        heads = sorted((one for one in waiting.values() if one), key=lambda one: one[0][1])
        expected += sorted((one.popleft() for one in heads), key=lambda item: item[1])
    assert [queue.pop() for _ in users] == expected
    assert not queue


@given(st.lists(st.tuples(st.sampled_from(USERS), st.floats(0.1, 5.0)), min_size=1, max_size=60))
def test_users_who_wait_are_served_equal_costs(pushes: list[tuple[str, float]]) -> None:
    queue: FairQueue[tuple[str, float]] = FairQueue()
    left: Counter[str] = Counter()
    for user, cost in pushes:
        queue.push(user, (user, cost), cost)
        left[user] += 1
    served = dict.fromkeys(left, 0.0)
    most = 2 * max(cost for _, cost in pushes)
    while all(left.values()):
        user, cost = queue.pop()
        served[user] += cost
        left[user] -= 1
        assert max(served.values()) - min(served.values()) <= most + 1e-9


@given(st.data())
def test_ahead_is_how_many_are_served_before(data: st.DataObject) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, user in enumerate(data.draw(st.lists(st.sampled_from(USERS), max_size=40))):
        queue.push(user, number, data.draw(st.sampled_from([0.5, 1.0, 3.0])))
    for _ in range(data.draw(st.integers(0, len(queue)))):
        queue.pop()
    user = data.draw(st.sampled_from(USERS))
    ahead = queue.ahead(user)
    queue.push(user, -1)
    assert [queue.pop() for _ in range(len(queue))].index(-1) == ahead


@given(st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(["push", "pop", "remove"])), max_size=80))
def test_nothing_is_lost_or_served_twice(moves: list[tuple[str, str]]) -> None:
    queue: FairQueue[int] = FairQueue()
    entries = {}
    for number, (user, move) in enumerate(moves):
        if move == "push":
            entries[number] = queue.push(user, number)
        elif entries and move == "pop":
            first = queue.peek().item
            assert queue.pop() == first
            del entries[first]
        elif entries:
            entry = entries.pop(min(entries))
            queue.remove(entry)
            queue.remove(entry)  # again: it is not there
        assert len(queue) == len(entries)
    assert sorted(queue.pop() for _ in range(len(queue))) == sorted(entries)


def test_a_user_who_comes_late_waits_one_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(1000):
        queue.push("greedy", f"greedy {number}")
    for _ in range(500):
        queue.pop()
    assert queue.ahead("modest") <= 1
    queue.push("modest", "modest")
    assert "modest" in [queue.pop(), queue.pop()]


def test_a_lower_cost_is_a_greater_weight() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(30):
        queue.push("heavy", "heavy", 1 / 2)
        queue.push("light", "light")
    assert Counter(queue.pop() for _ in range(30)) == {"heavy": 20, "light": 10}


def test_what_was_taken_back_is_not_counted() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("other", "other")
    for entry in [queue.push("user", "withdrawn") for _ in range(100)]:
        queue.remove(entry)
    for _ in range(3):
        queue.push("other", "other")
    assert queue.ahead("user") <= 2


def test_users_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "REMEMBERED", 10)
    queue: FairQueue[int] = FairQueue()
    queue.push("stays", -1)
    for number in range(1000):
        queue.push(str(number), number)
        queue.push("stays", -1)
        queue.pop()
        queue.pop()
        assert len(queue._ends) < 20


def test_users_who_may_not_are_passed_over() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "b1", "a3"):
        queue.push(item[0], item)
    assert queue.pop_of(lambda user: user == "b") == "b1"
    assert queue.pop_of(lambda user: user == "b") is None
    queue.push("b", "b2")
    assert [queue.pop_of(lambda user: True) for _ in range(5)] == ["a1", "a2", "b2", "a3", None]


def test_users_are_counted_for_a_moment() -> None:
    users = RecentUsers()
    assert len(users) == 0
    for number in range(10):
        users.add(str(number % 5), number * RECENT / 10)
    assert len(users) == 5
    users.add("a", RECENT)
    assert len(users) == 5
    users.add("a", 2 * RECENT)
    assert len(users) == 1
    users.add("b", 10 * RECENT)
    assert len(users) == 1
