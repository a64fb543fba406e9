"""Names of users and groups, the group file, and the admins of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.errors import BadRequest, Misconfigured
from hsparse.model.acl import Principal
from hsparse.sn.auth.roles import GroupFile, Roles, check_group_name, check_user_name, is_user_name


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups"


def test_users_are_in_the_groups_whose_lines_name_them(path: Path) -> None:
    path.write_text("# groups\nbeam: ann  bob\nstaff : bob\nempty:\n")
    file = GroupFile(path)
    file.entries()
    assert file.groups_of("ann") == {"beam"}
    assert file.groups_of("bob") == {"beam", "staff"}
    assert file.groups_of("eve") == frozenset()


def test_changes_act_at_once(path: Path) -> None:
    path.write_text("beam: ann\n")
    file = GroupFile(path)
    assert file.groups_of("ann") == {"beam"}
    path.write_text("beam: bob bob eve\n")
    assert file.groups_of("ann") == frozenset()
    assert file.groups_of("bob") == {"beam"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam ann", "written as group: user user"),
        ("a b: ann", "'a b' cannot be a group's name"),
        ("beam: ann,bob", "'ann,bob' cannot be a user's name"),
        ("beam: default", "'default' cannot be a user's name"),
        ("beam: ann\nbeam: bob", "names beam a second time"),
    ],
)
def test_a_wrong_line_is_named(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(Misconfigured, match=message):
        GroupFile(path).entries()


ANN = Principal("ann", groups=frozenset({"beam"}))


def test_without_settings_a_principal_is_as_it_was() -> None:
    assert Roles().of(ANN) is ANN


def test_groups_of_the_file_are_added(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("staff: ann\n")
    roles = Roles(GroupFile(tmp_path / "groups"), ("g:ops",))
    assert roles.of(ANN) == Principal("ann", groups=frozenset({"beam", "staff"}))
    (tmp_path / "groups").write_text("staff: ann\nops: ann\n")
    assert roles.of(ANN).admin, "a member of an admin group, by the file"


def test_admins_are_named_or_in_a_named_group() -> None:
    assert Roles(admins=("ann",)).of(ANN).admin
    assert Roles(admins=("g:beam",)).of(ANN).admin
    for other in ("beam", "g:ann", "an", ""):
        assert Roles(admins=(other,)).of(ANN) == ANN


def test_who_is_an_admin_stays_one() -> None:
    root = Principal("root", admin=True)
    assert Roles(admins=("ann",)).of(root) is root
