"""Credentials from the environment and from h5pyd's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.client.errors import InvalidValue
from hsparse.client.http.sign_in import SignIn, read_sign_in

FILE = """
# comment = no
hs_endpoint = http://file.example.org
hs_username = ann
hs_password = se=cret
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_file_of_h5pyd(tmp_path: Path, encoding: str) -> None:
    (tmp_path / ".hscfg").write_text(FILE, encoding=encoding)
    assert read_sign_in({}, tmp_path) == SignIn("http://file.example.org", "ann", "se=cret")
    assert read_sign_in({"HS_API_KEY": "key"}, tmp_path) == SignIn(token="key")
    both = {"HS_API_KEY": "key", "HSPARSE_ENDPOINT": "http://here"}
    assert read_sign_in(both, tmp_path) == SignIn("http://here")


def test_nothing_is_configured(tmp_path: Path) -> None:
    assert read_sign_in({}, tmp_path).is_empty


def test_a_credential_goes_to_its_own_server_alone() -> None:
    known = SignIn("http://file.example.org", "ann", "secret")
    assert known.for_server("http://file.example.org/") == SignIn("http://file.example.org/", "ann", "secret")
    assert known.for_server("http://evil.example.org") == SignIn("http://evil.example.org")
    assert "secret" not in repr(known)


def test_a_token_for_no_server_stays_on_the_machine() -> None:
    token = SignIn(token="key")
    for place in ("http://localhost:5101", "https://127.1.2.3", "http://[::1]:5101"):
        assert token.for_server(place) == SignIn(place, token="key")
    for place in ("http://evil.example.org", "http://localhost@evil.example", "http://10.0.0.1"):
        with pytest.raises(InvalidValue, match="HSPARSE_ENDPOINT"):
            token.for_server(place)
    assert SignIn(user="ann", password="secret").for_server("http://there").user == "ann"
