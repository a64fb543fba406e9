"""From a request to its domain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hsparse.errors import BadRequest
from hsparse.sn.access import domain_path
from hsparse.testing.rest_client import RestClient
from tests.sn.conftest import DOMAIN


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
    ],
)
async def test_a_bad_path_is_a_bad_request(rest: RestClient, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        reply = await rest(method, "/", {} if method == "PUT" else None, domain=path, user="admin")
        assert reply.status == 400
        assert reply["error"]["message"].endswith(".")


async def test_host_is_not_a_domain(rest: RestClient) -> None:
    assert (await rest("GET", "/", host=DOMAIN)).status == 400


async def test_only_our_bucket(rest: RestClient) -> None:
    assert (await rest("GET", "/", bucket="hsparse")).status == 200
    assert (await rest("GET", "/", bucket="other")).status == 404
    assert (await rest("GET", "/", headers={"X-Hdf-bucket": "other"})).status == 404
    assert (await rest("GET", "/", domain="other" + DOMAIN)).status == 404


async def test_a_folder_has_no_objects(rest: RestClient, root: str) -> None:
    assert (await rest("GET", f"/groups/{root}", domain="/home/test_user1")).status == 400
    assert (await rest("GET", "/groups", domain="/home/test_user1"))["groups"] == []
    assert (await rest("POST", "/groups", {}, domain="/home/test_user1")).status == 400
    assert (await rest("GET", "/", domain="/home/test_user1", h5path="/x")).status == 400


@pytest.mark.parametrize(("path", "host"), [("/home/\udcff", "localhost"), ("/home", "\udcff")])
async def test_headers_that_are_not_utf8(rest: RestClient, path: str, host: str) -> None:
    """As aiohttp gives such bytes to a handler; its own client would not send them."""
    request: Any = SimpleNamespace(query={}, headers={"X-Hdf-domain": path}, host=host)
    with pytest.raises(BadRequest, match="UTF-8"):
        domain_path(rest.service, request)
