"""What may be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.client.http.address import Address, parse_address

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
        (f"{SERVER}/x", SERVER, "alone"),
    ],
)
def test_what_names_nothing_is_refused(text: str, endpoint: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(text, endpoint, None)
