"""Signing in at an OpenID Connect issuer, in a window of its own: let in, refused, forged, and out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings
from tests.support.token_issuer import AUDIENCE, TokenIssuer, serving_in_thread
from tests.web.conftest import go, open_page
from tests.web.test_signing_in import kept

pytestmark = pytest.mark.needs("chromium")

DOMAIN = "/home/ann/of-ann.h5"


@dataclass(frozen=True, slots=True)
class Guarded:
    url: str
    issuer: TokenIssuer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server that trusts an issuer, with a domain that only one of its users may read."""
    with serving_in_thread(TokenIssuer(users={"ann": "x", "bob": "y"})) as issuer:
        settings = load_settings(
            root=tmp_path_factory.mktemp("store"),
            port=0,
            fsync=False,
            oidc_issuer=issuer.url,
            oidc_audience=AUDIENCE,
            oidc_user_claim="preferred_username",
            oidc_client_id="explorer",
            admins="ann",
        )
        with embedded_server(settings) as url:
            with Connection(url, DOMAIN, token=issuer.token("ann")) as connection:
                connection.json("PUT", "/", {})
                connection.json("PUT", "/acls/default", {"read": False})
                body = {"type": "H5T_STD_I32LE", "shape": [3], "value": [7, 8, 9], "h5path": "/data"}
                connection.json("POST", "/datasets", body)
            yield Guarded(url, issuer)


@pytest.fixture
def page(browser: Browser, guarded: Guarded) -> Iterator[Page]:
    """A page that asks its own server alone: windows of the issuer are others."""
    with open_page(browser, guarded.url) as page:
        go(page, domain=DOMAIN)
        expect(page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
        yield page


def open_issuer(page: Page, guarded: Guarded) -> Page:
    """Return the window of the issuer."""
    page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    popup.value.wait_for_url(f"{guarded.issuer.url}/authorize?**")
    return popup.value


def test_signed_in_and_out(page: Page, guarded: Guarded) -> None:
    popup = open_issuer(page, guarded)
    assert page.evaluate("document.querySelector('dialog').textContent").count("Waiting for the window") == 1
    with popup.expect_event("close"):
        popup.get_by_role("link", name="Sign in as ann").click()
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()
    expect(page.get_by_role("banner")).to_contain_text("ann")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert guarded.issuer.codes.keys() != set(), (
        "the code of the other user is left, that of this one is used up"
    )
    for secret in ("eyJ", "code=", "state="):
        assert secret not in kept(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
    expect(page.get_by_role("treeitem")).to_have_count(0)


def test_another_user_is_refused(page: Page, guarded: Guarded) -> None:
    open_issuer(page, guarded).get_by_role("link", name="Sign in as bob").click()
    expect(page.get_by_role("banner")).to_contain_text("bob")
    expect(page.get_by_role("alert")).to_contain_text("ask its owner for the right to read")


def test_who_refuses_at_the_issuer_is_not_signed_in(page: Page, guarded: Guarded) -> None:
    open_issuer(page, guarded).get_by_role("link", name="Refuse").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("access_denied")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("banner").get_by_role("button", name="Sign in")).to_be_visible()


def test_an_answer_to_another_request_signs_nobody_in(page: Page, guarded: Guarded) -> None:
    popup = open_issuer(page, guarded)
    code = guarded.issuer.code({"redirect_uri": f"{guarded.url}/sign-in"}, "bob")
    forged = page.context.new_page()
    forged.goto(f"{guarded.url}/sign-in?code={code}&state=forged")
    expect(forged.get_by_role("status")).to_contain_text("No page of the explorer waits")
    assert forged.url == f"{guarded.url}/sign-in", "the code is not in the history"
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("Waiting")
    popup.get_by_role("link", name="Sign in as ann").click()
    expect(page.get_by_role("banner")).to_contain_text("ann")


def test_who_closes_the_dialog_waits_no_more(page: Page, guarded: Guarded) -> None:
    popup = open_issuer(page, guarded)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    popup.get_by_role("link", name="Sign in as ann").click()
    expect(popup.get_by_role("status")).to_contain_text("No page of the explorer waits")
    expect(page.get_by_role("banner").get_by_role("button", name="Sign in")).to_be_visible()


def test_an_issuer_without_an_address_is_waited_for_by_nobody(page: Page, guarded: Guarded) -> None:
    """A page in which somebody waits on has an error of the browser's when the dialog is closed."""
    client = {
        "issuer": guarded.issuer.url,
        "authorization_endpoint": "none",
        "client_id": "x",
        "scope": "openid",
    }
    page.route("**/sign-in/client", lambda route: route.fulfill(json=client))
    page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("URL")
    assert popup.value.is_closed()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    # What is opened next is drawn after all that the closing has caused.
    page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_a_busy_server_is_asked_again_by_hand(page: Page) -> None:
    page.route("**/sign-in/client", lambda route: route.abort())
    page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_have_text("The server does not answer.Try again in a moment.")


def test_a_token_of_another_sign_in_is_refused(page: Page, guarded: Guarded) -> None:
    guarded.issuer.changed = {"nonce": "n" * 43}
    try:
        open_issuer(page, guarded).get_by_role("link", name="Sign in as ann").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("another sign-in")
    finally:
        guarded.issuer.changed = {}
