from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.model.acl import (
    ANONYMOUS,
    Principal,
    Right,
    check_rights,
    deciding_entries,
    full_rights,
    is_granted,
)
from hsparse.sn.request import Domain
from tests.support.characters import CHARACTERS

RIGHTS = ["create", "read", "update", "delete", "readACL", "updateACL"]
NAMES = ["ada", "bob", "default", "anonymous", "g:staff", "g:ada"]

entries = st.dictionaries(st.sampled_from(RIGHTS), st.booleans())
acl_maps = st.dictionaries(st.sampled_from(NAMES), entries)
rights = st.sampled_from(list(Right))


def expected(acls: dict[str, dict[str, bool]], name: str, groups: list[str], right: str) -> bool:
    """The order of decision, spelled out."""
    own = acls.get(name)
    if own is not None:
        return own.get(right, False)
    granting = [g for g in groups if acls.get(f"g:{g}", {}).get(right, False)]
    return bool(granting) or acls.get("default", {}).get(right, False)


@given(acl_maps, st.sampled_from(["ada", "bob"]), st.lists(st.sampled_from(["staff", "ada", "none"])), rights)
def test_own_entry_then_groups_then_default(
    acls: dict[str, dict[str, bool]], name: str, groups: list[str], right: Right
) -> None:
    principal = Principal(name, groups=frozenset(groups))
    assert is_granted(acls, principal, right) is expected(acls, name, groups, right.value)


@given(acl_maps, rights)
def test_admin_has_every_right(acls: dict[str, dict[str, bool]], right: Right) -> None:
    assert Domain("/", {"acls": acls}).allows(Principal("ada", admin=True), right)


@given(acl_maps, rights)
def test_anonymous_has_only_what_default_grants_or_may_read_by_an_entry(
    acls: dict[str, dict[str, bool]], right: Right
) -> None:
    default = acls.get("default", {})
    deciding = acls.get("anonymous", default) if right is Right.READ else default
    assert is_granted(acls, ANONYMOUS, right) is deciding.get(right.value, False)


@given(acl_maps, acl_maps, st.sampled_from(["ada", "anonymous"]), st.booleans(), rights)
def test_other_entries_than_the_deciding_ones_decide_nothing(
    acls: dict[str, dict[str, bool]], others: dict[str, dict[str, bool]], name: str, admin: bool, right: Right
) -> None:
    principal = Principal(name, admin, frozenset({"staff", "none"}))
    deciding = deciding_entries(acls, principal)
    later = {who: entry for who, entry in others.items() if who not in deciding}
    later |= {who: entry for who, entry in deciding.items() if entry is not None}
    assert deciding_entries(later, principal) == deciding
    assert Domain("/", {"acls": later}).allows(principal, right) is Domain("/", {"acls": acls}).allows(
        principal, right
    )


def test_own_entry_denies_what_group_and_default_grant() -> None:
    acls = {"ada": {"read": False}, "g:staff": full_rights(), "default": full_rights()}
    ada = Principal("ada", groups=frozenset({"staff"}))
    assert not is_granted(acls, ada, Right.READ)
    assert not is_granted(acls, ada, Right.UPDATE)


def test_group_that_does_not_grant_leaves_it_to_default() -> None:
    acls = {"g:staff": {"read": False}, "default": {"read": True}}
    assert is_granted(acls, Principal("ada", groups=frozenset({"staff"})), Right.READ)


def test_a_group_of_a_users_name_is_not_that_user() -> None:
    assert not is_granted({"g:ada": full_rights()}, Principal("ada"), Right.READ)


@pytest.mark.parametrize("entry", [None, True, [], "read", {"read": 1}, {"read": "true"}, {"read": None}])
def test_malformed_stored_entries_deny(entry: Any) -> None:
    acls = {"ada": entry, "default": entry}
    assert not is_granted(acls, Principal("ada"), Right.READ)
    assert not is_granted(acls, ANONYMOUS, Right.READ)


def test_full_rights_is_every_right_and_a_new_dict_each_time() -> None:
    assert full_rights() == dict.fromkeys(RIGHTS, True)
    assert full_rights() is not full_rights()


@given(entries)
def test_check_rights_returns_what_was_sent(body: dict[str, bool]) -> None:
    checked = check_rights(body)
    assert checked == body
    assert checked is not body


@given(entries, st.text(CHARACTERS).filter(lambda key: key not in RIGHTS))
def test_check_rights_refuses_an_unknown_key(body: dict[str, bool], key: str) -> None:
    with pytest.raises(BadRequest, match="is not a right"):
        check_rights({**body, key: True})


@given(
    st.sampled_from(RIGHTS), st.one_of(st.none(), st.integers(), st.text(CHARACTERS), st.lists(st.booleans()))
)
def test_check_rights_refuses_a_value_that_is_no_boolean(key: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"The right {key} must be true or false"):
        check_rights({key: value})
