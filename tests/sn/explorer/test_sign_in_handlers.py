"""What the explorer asks before and after it sends somebody to an issuer, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from hsparse.errors import BadRequest
from hsparse.openid.code_flow import read_grant
from tests.sn.auth.test_code_flow import CHALLENGE, CLIENT, NONCE, REDIRECT, VERIFIER
from tests.support.rest_client import RestClient
from tests.support.token_issuer import AUDIENCE, TokenIssuer, serving_in_thread

BODY = {"code": "c", "verifier": VERIFIER, "nonce": NONCE, "redirect_uri": REDIRECT}


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with serving_in_thread(TokenIssuer(users={"ann": "x"})) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def url(issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = load_settings(
        root=tmp_path_factory.mktemp("store"),
        port=0,
        fsync=False,
        oidc_issuer=issuer.url,
        oidc_audience=f"{AUDIENCE},{CLIENT}",
        oidc_user_claim="preferred_username",
        oidc_client_id=CLIENT,
    )
    with embedded_server(settings) as url:
        yield url


@pytest.mark.parametrize("opaque", [False, True])
def test_a_code_signs_in(issuer: TokenIssuer, url: str, opaque: bool) -> None:
    assert requests.get(f"{url}/about").json()["sign_in_issuer"] == issuer.url
    client = requests.get(f"{url}/sign-in/client").json()
    assert (client["client_id"], client["scope"]) == (CLIENT, "openid")
    issuer.opaque = opaque
    asked = {"client_id": CLIENT, "redirect_uri": REDIRECT, "code_challenge": CHALLENGE, "nonce": NONCE}
    answer = requests.post(f"{url}/sign-in/token", json=BODY | {"code": issuer.code(asked, "ann")})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["username"], answer.headers["Cache-Control"]) == ("ann", "no-store")
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    assert requests.get(f"{url}/about", headers=headers).json()["username"] == "ann"


def test_what_is_refused(issuer: TokenIssuer, url: str) -> None:
    answer = requests.post(f"{url}/sign-in/token", json=BODY)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "unauthenticated")
    forged = requests.post(
        f"{url}/sign-in/token",
        data=b"{}",
        headers={
            "Content-Type": "text/plain",
            "Origin": "https://evil.example",
            "Sec-Fetch-Site": "cross-site",
        },
    )
    assert forged.status_code == 403


async def test_a_server_without_a_client_of_an_issuer(bare: RestClient) -> None:
    assert "sign_in_issuer" not in (await bare("GET", "/about", user=None)).body
    assert (await bare("GET", "/sign-in/client", user=None)).status == 404
    assert (await bare("POST", "/sign-in/token", BODY, user=None)).status == 404


@pytest.mark.parametrize(
    "changed",
    [
        {"code": ""},
        {"code": 1},
        {"verifier": "v" * 42},
        {"nonce": "n" * 42 + "é"},
        {"redirect_uri": "x" * 2049},
    ],
)
def test_a_body_that_is_wrong(changed: dict[str, Any]) -> None:
    (name,) = changed
    with pytest.raises(BadRequest, match=name):
        read_grant(BODY | changed)


def test_a_body_that_is_no_object() -> None:
    with pytest.raises(BadRequest):
        read_grant([])
