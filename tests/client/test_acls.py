"""The rights of users of domains and folders, as a mapping."""

from __future__ import annotations

import pytest

import hsparse
from hsparse.client.acls import RIGHTS
from hsparse.client.file import File
from hsparse.client.opening import Folder


def test_rights_are_a_mapping(url: str) -> None:
    with hsparse.open(url) as top:
        assert isinstance(top, Folder)
        folder = top.create_folder("acls")
        with hsparse.open(f"{url}/acls/a.h5", "x", user="ann") as file:
            assert isinstance(file, File)
            for place in (folder, file):
                before = set(place.acls)
                place.acls["bob"] = ["read", "update"]
                place.acls["g:team"] = "read"
                assert place.acls["bob"] == {"read", "update"}
                assert set(place.acls) - before == {"bob", "g:team"}
                place.acls["bob"] = []
                assert place.acls["bob"] == set()
                assert place.acls["g:team"] == {"read"}
                assert "nobody" not in place.acls
                assert place.acls.get("nobody") is None
                with pytest.raises(KeyError, match="nobody"):
                    place.acls["nobody"]
                del place.acls["g:team"]
                assert "g:team" not in place.acls
                with pytest.raises(KeyError, match="g:team"):
                    del place.acls["g:team"]
                with pytest.raises(ValueError, match="'write'"):
                    place.acls["bob"] = ["read", "write"]
            assert file.acls[file.owner] == set(RIGHTS)
        with hsparse.open(f"{url}/acls/a.h5", "r") as file:
            assert isinstance(file, File)
            with pytest.raises(ValueError, match="mode 'r'"):
                file.acls["bob"] = RIGHTS
