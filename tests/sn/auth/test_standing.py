from __future__ import annotations

from pathlib import Path

from hsparse.model.principal import Principal
from hsparse.sn.auth.group_file import GroupFile
from hsparse.sn.auth.standing import Standing

ANN = Principal("ann", groups=frozenset({"beam"}))


def test_without_settings_a_principal_is_as_it_was() -> None:
    assert Standing().of(ANN) is ANN


def test_groups_of_the_file_are_added(tmp_path: Path) -> None:
    (tmp_path / "groups").write_text("staff: ann\n")
    standing = Standing(GroupFile(tmp_path / "groups"), ("g:ops",))
    assert standing.of(ANN) == Principal("ann", groups=frozenset({"beam", "staff"}))
    (tmp_path / "groups").write_text("staff: ann\nops: ann\n")
    assert standing.of(ANN).admin, "a member of an admin group, by the file"


def test_admins_are_named_or_in_a_named_group() -> None:
    assert Standing(admins=("ann",)).of(ANN).admin
    assert Standing(admins=("g:beam",)).of(ANN).admin
    for other in ("beam", "g:ann", "an", ""):
        assert Standing(admins=(other,)).of(ANN) == ANN


def test_who_is_an_admin_stays_one() -> None:
    root = Principal("root", admin=True)
    assert Standing(admins=("ann",)).of(root) is root
