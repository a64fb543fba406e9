"""Addresses that may be opened, and the credentials that go with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.client.errors import InvalidValue
from hsparse.client.http.address import Address, parse_address
from hsparse.client.http.sign_in import SignIn, read_sign_in

SERVER = "http://127.0.0.1:5101"


@pytest.mark.parametrize(
    ("text", "endpoint", "configured", "path", "server"),
    [
        (f"{SERVER}/home/ann/x.h5", None, None, "/home/ann/x.h5", SERVER),
        (f"{SERVER}/home/a%20b.h5", None, "http://other", "/home/a b.h5", SERVER),
        (f"{SERVER}/", None, None, "/", SERVER),
        (SERVER, None, None, "/", SERVER),
        ("hdf5://home/x.h5", None, SERVER, "/home/x.h5", SERVER),
        ("/home/x.h5", SERVER, "http://other", "/home/x.h5", SERVER),
        ("home//x.h5/", SERVER, None, "/home/x.h5", SERVER),
        (f"{SERVER}/home/a%23b%3F.h5", None, None, "/home/a#b?.h5", SERVER),
        (f"{SERVER}/home/ x\n.h5 ", None, None, "/home/ x\n.h5 ", SERVER),
        ("HTTP://host/home/x.h5", None, None, "/home/x.h5", "http://host"),
        ("hdf5://home/a%23#b?.h5", None, SERVER, "/home/a%23#b?.h5", SERVER),
        (f"{SERVER}/lab/home/x.h5", None, f"{SERVER}/lab/", "/home/x.h5", f"{SERVER}/lab"),
        (f"{SERVER}/lab", None, f"{SERVER}/lab", "/", f"{SERVER}/lab"),
        (f"{SERVER}/labour/x.h5", None, f"{SERVER}/lab", "/labour/x.h5", SERVER),
    ],
)
def test_addresses_of_servers(
    text: str, endpoint: str | None, configured: str | None, path: str, server: str
) -> None:
    assert parse_address(text, endpoint, configured) == Address(path, server)


def test_a_path_into_a_store_names_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / ".hsparse").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    expected = Address("/home/ann/x.h5", root=tmp_path / "data")
    assert parse_address("data/home/ann/x.h5", None, SERVER) == expected
    assert parse_address(tmp_path / "data/home/ann/x.h5", None, None) == expected


@pytest.mark.parametrize(
    ("text", "endpoint", "words"),
    [
        ("ftp://host/x", None, "ftp"),
        ("/home/x.h5", None, "HSPARSE_ENDPOINT"),
        (f"{SERVER}/x", SERVER, "omit endpoint"),
        (f"{SERVER}/a#b.h5", None, "%23"),
        (f"{SERVER}/a.h5?bucket=other", None, "%3F"),
        (f"{SERVER}?domain=/a.h5", None, "query"),
        (f"{SERVER}/%ff.h5", None, "UTF-8"),
        (f"{SERVER}/home/../x.h5", None, r"'\.\.'"),
        ("http://ann:secret@host/x.h5", None, "password="),
        ("http://host:port/x.h5", None, "URL of a server"),
        ("http://ho st/x.h5", None, "URL of a server"),
        ("http:///x.h5", None, "URL of a server"),
        ("http://[::1/x.h5", None, "URL of a server"),
    ],
)
def test_what_names_nothing_is_refused(text: str, endpoint: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(text, endpoint, None)


def test_a_password_is_in_no_error() -> None:
    for url in ("http://ann:secret@host/x.h5", "http://ann:secret@host:port/x", "http://ann:secret@host/a#b"):
        with pytest.raises(ValueError, match=r"^(?!.*secret)"):
            parse_address(url, None, None)
        with pytest.raises(ValueError, match=r"^(?!.*secret)"):
            parse_address(url, SERVER, None)


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
