from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.clock import SystemClock
from hsparse.errors import Conflict, Misconfigured, NotFound
from hsparse.sn.auth.api_key import ApiKey, Role, new_key
from hsparse.sn.auth.key_file import KeyFile


def key(name: str, user: str = "ann") -> ApiKey:
    return new_key(SystemClock(), name, user, Role.USER, (), None)[1]


def test_keys_are_added_and_revoked(tmp_path: Path) -> None:
    file, served = KeyFile(tmp_path / "keys"), KeyFile(tmp_path / "keys")
    one, two, three = key("one"), key("two"), key("three", "bob")
    for each in (one, two, three):
        file.add(each)
    assert dict(served.keys()) == {each.id: each for each in (one, two, three)}
    assert file.revoke(lambda each: each.user == "ann") == [one, two]
    assert list(served.served().values()) == [three]
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600


def test_a_name_is_one_keys(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.add(key("one"))
    with pytest.raises(Conflict, match=r"a key named one .* revoke it"):
        file.add(key("one", "bob"))


def test_a_line_written_by_hand_is_revoked_too(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"0123456789ab:{'0' * 64}:ann:user::2026101T000000Z:never:one\n")
    (found,) = file.revoke(lambda each: each.name == "one")
    assert found.line not in file.path.read_text(), "its time is written otherwise"
    assert dict(file.keys()) == {}


def test_revoking_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    file.add(key("one"))
    path.write_text("# ours\n" + path.read_text())
    before = path.read_text()
    with pytest.raises(NotFound, match="hsparse key list"):
        file.revoke(lambda each: False)
    assert path.read_text() == before
    file.revoke(lambda each: True)
    assert path.read_text() == "# ours\n"


def test_what_is_missing_or_wrong_is_told(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    with pytest.raises(Misconfigured, match=r"There is no key file .* make one with 'hsparse key add'"):
        file.keys()
    file.path.write_text("a:b\n")
    with pytest.raises(Misconfigured, match="Line 1 of the key file"):
        file.keys()
    with pytest.raises(Misconfigured, match="its log says why"):
        file.served()
