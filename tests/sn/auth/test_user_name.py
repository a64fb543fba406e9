from __future__ import annotations

import pytest

from hsparse.errors import BadRequest
from hsparse.sn.auth.user_name import check_group_name, check_user_name, is_user_name


@pytest.mark.parametrize("name", ["a", "Ada.L_0-9@x", "a" * 128, "..."])
def test_names_that_can_be(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a" * 129, "default", "anonymous", "g:staff", ".", "..", "a b", "a/b", "é", "٣", "a\n", "a:b", "#a"],
)
def test_names_that_cannot_be(name: str) -> None:
    assert not is_user_name(name)
    with pytest.raises(BadRequest, match="cannot be a user's name"):
        check_user_name(name)


@pytest.mark.parametrize("group", ["", "a,b", "a:b", "g:a", "a" * 129, "a\n"])
def test_groups_that_cannot_be(group: str) -> None:
    with pytest.raises(BadRequest, match="cannot be a group's name"):
        check_group_name(group)
