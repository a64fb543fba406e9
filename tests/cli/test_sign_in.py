from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hsparse.api_keys.api_key import KeyFile, Role, new_key
from hsparse.cli.service_node import service_parts
from hsparse.cli.sign_in import make_authenticator
from hsparse.config import Settings, load_settings
from hsparse.errors import Misconfigured
from hsparse.model.acl import Principal
from hsparse.sn.auth.authenticator import BASIC, BEARER, Authenticator
from tests.testing.manual_clock import ManualClock

TRUSTED = {"oidc_issuer": "https://login.example.org", "oidc_audience": "hsparse"}


def signed_in(settings: Settings) -> Authenticator:
    clock = ManualClock()
    schemes = [scheme for one in service_parts(settings, clock) for scheme in one.schemes]
    return make_authenticator(settings.sign_in, schemes, clock)


def challenges(**flags: Any) -> tuple[str, ...]:
    return signed_in(load_settings(**flags)).challenges


async def test_without_any_everybody_is_the_one_user() -> None:
    authenticator = signed_in(load_settings(user="me"))
    assert await authenticator.principal("Bearer x") == Principal("me", admin=True)


def test_each_way_is_set_up_alone(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "keys").write_text("")
    assert challenges(password_file=tmp_path / "passwords") == (BASIC,)
    assert challenges(key_file=tmp_path / "keys") == (BASIC, BEARER)
    assert challenges(**TRUSTED) == (BEARER,)


async def test_groups_and_admins_are_of_everybody_who_signs_in(tmp_path: Path) -> None:
    text, key = new_key(ManualClock(), "a", "ann", Role.USER, (), None)
    KeyFile(tmp_path / "keys").add(key)
    (tmp_path / "groups").write_text("ops: ann\n")
    settings = load_settings(key_file=tmp_path / "keys", group_file=tmp_path / "groups", admins="bob, g:ops")
    principal = await signed_in(settings).principal(f"Bearer {text}")
    assert principal == Principal("ann", admin=True, groups=frozenset({"ops"}))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"key_file": "none"}, "There is no key file none; make one"),
        ({"password_file": "none"}, "There is no password file none"),
        ({**TRUSTED, "group_file": "none"}, "There is no group file none"),
        ({"oidc_issuer": "https://login.example.org"}, "needs --oidc-audience"),
        ({"oidc_audience": "hsparse"}, "--oidc-audience needs --oidc-issuer"),
        ({**TRUSTED, "oidc_issuer": "http://login.example.org"}, "must begin with https"),
        ({"oidc_client_id": "explorer"}, "--oidc-client-id needs --oidc-issuer"),
        ({"admins": "ann"}, "need users"),
        ({"group_file": "none"}, "need users"),
    ],
)
def test_settings_that_cannot_work_are_found_at_the_start(
    flags: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured, match=message):
        challenges(**flags)
