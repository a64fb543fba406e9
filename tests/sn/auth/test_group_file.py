from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.errors import Misconfigured
from hsparse.sn.auth.group_file import GroupFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups"


def test_users_are_in_the_groups_whose_lines_name_them(path: Path) -> None:
    path.write_text("# groups\nbeam: ann  bob\nstaff : bob\nempty:\n")
    file = GroupFile(path)
    file.check()
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
        GroupFile(path).check()
