"""Users of the last moment."""

from __future__ import annotations

from hsparse.concurrency.recent_users import SECONDS, RecentUsers


def test_users_are_counted_for_a_moment() -> None:
    users = RecentUsers()
    assert len(users) == 0
    for number in range(10):
        users.add(str(number % 5), number * SECONDS / 10)
    assert len(users) == 5
    users.add("a", SECONDS)
    assert len(users) == 5
    users.add("a", 2 * SECONDS)
    assert len(users) == 1
    users.add("b", 10 * SECONDS)
    assert len(users) == 1
