"""Users who are known by their credentials."""

from __future__ import annotations

import pytest

from hsparse.sn.http import known_users
from hsparse.sn.http.known_users import KnownUsers


def test_a_user_is_known_by_a_credential_that_was_valid() -> None:
    users = KnownUsers()
    users.learn("Basic a", "ann")
    users.learn("Basic b", "bob")
    assert [users.get("Basic a"), users.get("Basic b"), users.get("Basic c"), users.get(None)] == [
        "ann",
        "bob",
        None,
        None,
    ]
    assert "Basic" not in repr(vars(users))


def test_the_credential_used_least_recently_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_users, "MOST", 2)
    users = KnownUsers()
    for name in ("a", "b", "a", "c"):
        users.learn(name, name)
    assert [users.get(name) for name in "abc"] == ["a", None, "c"]
