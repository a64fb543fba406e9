"""Paths of domains: their spellings, which are refused, and which a new domain may not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hsparse.errors import BadRequest
from hsparse.sn.policies.access import request_place
from hsparse.wire.record_message import CreateObject
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient


@pytest.mark.parametrize(
    "spelled",
    [DOMAIN, DOMAIN + "/", "hdf5:/" + DOMAIN, "hdf5://" + DOMAIN[1:], "hsparse" + DOMAIN],
)
async def test_one_domain_has_many_spellings(rest: RestClient, root: str, spelled: str) -> None:
    assert (await rest("GET", "/", domain=spelled))["root"] == root
    assert (await rest("GET", f"/groups/{root}", domain=spelled)).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/home/../x",
        "/home/./x",
        "/home//x",
        "/home/a\nb",
        "/home/" + "x" * 300,
        "/home" + "/x" * 600,
        "/db/x",
        "/db",
        "file.h5",
        "/home/.domain.json",
        "/home/c1\x85",
        "/home/fdp\u202e.5h",
        "/home/isolated\u2066",
        "/home/line\u2028",
        "/home/paragraph\u2029",
        "/home/zero\u200bwidth",
    ],
)
async def test_a_bad_path_is_a_bad_request(rest: RestClient, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        reply = await rest(method, "/", {} if method == "PUT" else None, domain=path, user="admin")
        assert reply.status == 400
        assert reply["error"]["message"].endswith(".")


@pytest.mark.parametrize("path", ["/DB", "/dB/x", "/home/.DOMAIN.json", "/home/.domain.j\u017fon/x"])
async def test_a_path_that_some_file_systems_take_for_the_stores_is_not_created(
    rest: RestClient, path: str
) -> None:
    reply = await rest("PUT", "/", {"folder": 1}, domain=path, user="admin")
    assert reply.status == 400
    assert "in another case" in reply["error"]["message"]
    assert (await rest("GET", "/", domain=path, user="admin")).status == 404


async def test_a_folder_that_has_such_a_path_already_is_read_and_deleted(rest: RestClient) -> None:
    await rest.service.owners.apply(CreateObject("/DB", {"owner": "admin", "acls": {}}))
    assert (await rest("GET", "/", domain="/DB", user="admin")).status == 200
    assert (await rest("PUT", "/", {}, domain="/DB/new.h5", user="admin")).status == 400
    assert (await rest("DELETE", "/", domain="/DB", user="admin")).status == 200


async def test_host_is_not_a_domain(rest: RestClient) -> None:
    assert (await rest("GET", "/", host=DOMAIN)).status == 400


async def test_only_our_bucket(rest: RestClient) -> None:
    assert (await rest("GET", "/", bucket="hsparse")).status == 200
    assert (await rest("GET", "/", bucket="other")).status == 404
    assert (await rest("GET", "/", headers={"X-Hdf-bucket": "other"})).status == 404
    assert (await rest("GET", "/", domain="other" + DOMAIN)).status == 404


@pytest.mark.parametrize(("path", "host"), [("/home/\udcff", "localhost"), ("/home", "\udcff")])
async def test_headers_that_are_not_utf8(rest: RestClient, path: str, host: str) -> None:
    """As aiohttp gives such bytes to a handler; its own client would not send them."""
    request: Any = SimpleNamespace(query={}, headers={"X-Hdf-domain": path}, host=host)
    with pytest.raises(BadRequest, match="UTF-8"):
        request_place(rest.service, request)
