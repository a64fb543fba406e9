"""Signing in: by passwords, keys and an issuer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from playwright.sync_api import Browser, Page, Request, Route, expect

from hsparse.api_keys.api_key import KeyFile, Role, new_key
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.clock import SystemClock
from hsparse.config import load_settings
from hsparse.model.acl import Right
from hsparse.sn.auth.password_file import PasswordFile, User
from hsparse.sn.auth.password_hash import PasswordHash
from tests.support.token_issuer import AUDIENCE, TokenIssuer, serving_in_thread
from tests.web.conftest import go, open_page, to_the_end

pytestmark = pytest.mark.needs("chromium")

PASSWORD = "söme:thing"
DOMAIN = "/home/ann/secret.h5"


@dataclass(frozen=True, slots=True)
class Guarded:
    url: str
    key: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@contextmanager
def guarded_server(root: Path) -> Iterator[Guarded]:
    """Run a server with an admin and two users, of whom one has a domain that others may not read."""
    passwords, keys = PasswordFile(root / "passwords"), KeyFile(root / "keys")
    cheap = PasswordHash(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    for name in ("ann", "bob"):
        passwords.add(User(name, cheap.hash(PASSWORD), groups=("staff",)))
    passwords.add(User("root", cheap.hash(PASSWORD), admin=True, groups=("ops",)))
    text, key = new_key(SystemClock(), "laptop", "ann", Role.ACCOUNT, (), None)
    keys.add(key)
    settings = load_settings(
        root=root / "store", port=0, fsync=False, password_file=root / "passwords", key_file=root / "keys"
    )
    with embedded_server(settings) as url:
        with Connection(url, DOMAIN, user="ann", password=PASSWORD) as connection:
            connection.json("PUT", "/", {})
            connection.json("PUT", "/acls/default", {"read": False})
            body = {"type": "H5T_STD_I32LE", "shape": [3], "value": [7, 8, 9], "h5path": "/data"}
            connection.json("POST", "/datasets", body)
        yield Guarded(url, text)


@pytest.fixture
def page(browser: Browser, guarded: Guarded) -> Iterator[Page]:
    with open_page(browser, guarded.url) as page:
        yield page


def sign_in(page: Page, name: str, secret: str) -> None:
    """Sign in by the button, or with the dialog that a page opens itself where somebody was signed in before."""
    if page.evaluate("sessionStorage.length"):
        expect(page.get_by_role("dialog")).to_be_visible()
    else:
        page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    fill_in(page, name, secret)


def fill_in(page: Page, name: str, secret: str) -> None:
    """Sign in with the dialog, which is open."""
    dialog = page.get_by_role("dialog")
    if name:
        dialog.get_by_label("name and password").check()
        dialog.get_by_label("Name", exact=True).fill(name)
        dialog.get_by_label("Password", exact=True).fill(secret)
    else:
        dialog.get_by_label("key or token").check()
        dialog.get_by_label("Key or token", exact=True).fill(secret)
    dialog.get_by_role("button", name="Sign in").click()


def kept(page: Page) -> str:
    """Return all that a page leaves in the browser and in its address."""
    script = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])"
    found = page.evaluate(script)
    assert isinstance(found, str)
    return found + repr(page.context.cookies())


def test_nobody_signs_in_where_there_are_no_users(page: Page, browser: Browser, embedded_url: str) -> None:
    go(page, domain="/")
    expect(page.get_by_role("banner").get_by_role("button", name="Sign in")).to_be_visible()
    with open_page(browser, embedded_url) as other:
        go(other, domain="/")
        expect(other.get_by_role("banner")).to_contain_text("admin")
        expect(other.get_by_role("banner").get_by_role("button", name="Sign in")).to_have_count(0)


def test_an_empty_folder_names_who_signs_in(page: Page, guarded: Guarded) -> None:
    page.route("**/domains?*", lambda route: route.fulfill(json={"domains": []}))
    go(page, domain="/")
    command = page.locator("main pre")
    url = f"--endpoint {guarded.url}"
    expect(command).to_have_text(f"hsparse import FILE.h5 /home/YOU/FILE.h5 {url} --user YOU")
    sign_in(page, "ann", PASSWORD)
    expect(command).to_have_text(f"hsparse import FILE.h5 /home/ann/FILE.h5 {url} --user ann")
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "", guarded.key)
    expect(command).to_have_text(f"hsparse import FILE.h5 /home/ann/FILE.h5 {url} --token-file KEY_FILE")


def test_by_password_and_out(page: Page) -> None:
    go(page, domain=DOMAIN)
    expect(page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
    sign_in(page, "ann", "wrong")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    sign_in(page, "ann", PASSWORD)
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()
    expect(page.get_by_role("banner")).to_contain_text("ann")
    for secret in (PASSWORD, "c8O2bWU", "Basic"):
        assert secret not in kept(page)
    button = page.get_by_role("button", name="Download .h5", exact=True)
    size = button.locator("xpath=following-sibling::span")
    expect(size).to_contain_text("bytes")
    with page.expect_download() as download:
        button.click()
    data = Path(download.value.path()).read_bytes()
    assert data.startswith(b"\x89HDF\r\n")
    expect(size).to_have_text(f"{len(data)} bytes")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
    expect(page.get_by_role("treeitem")).to_have_count(0)


def test_an_admin_sees_users_groups_jobs_and_rights(page: Page) -> None:
    go(page, domain="/")
    sign_in(page, "bob", PASSWORD)
    expect(page.get_by_role("banner")).to_contain_text("bob")
    expect(page.get_by_text("Users and groups")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "root", PASSWORD)
    page.get_by_text("Users and groups").click()
    users, groups = (page.get_by_role("table", name=name) for name in ("Users", "Groups"))
    expect(users.get_by_role("row")).to_have_text(
        ["UserRoleGroups", "annuserstaff", "bobuserstaff", "rootadminops"]
    )
    expect(groups.get_by_role("row")).to_have_text(["GroupUsers", "opsroot", "staffann, bob"])
    page.get_by_text("Jobs").click()
    expect(page.get_by_text("No jobs.")).to_be_visible()
    users.get_by_role("link", name="ann").click()
    page.get_by_text("Rights").click()
    for right in Right:
        expect(page.get_by_role("checkbox", name=f"ann: {right}", exact=True)).to_be_checked()


def test_a_busy_server_is_asked_again_by_hand(page: Page) -> None:
    go(page, domain="/")
    error = {"kind": "busy", "message": "Too many."}
    busy: dict[str, Any] = {"status": 429, "headers": {"Retry-After": "1"}, "json": {"error": error}}
    page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    page.route("**/about", lambda route: route.fulfill(**busy))
    fill_in(page, "ann", PASSWORD)
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("Too many.Try again in a moment.")
    page.unroute("**/about")
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("banner")).to_contain_text("ann")


def test_nobody_else_asks_for_the_rest_of_a_folder(page: Page) -> None:
    asked: list[Request] = []

    def answer(route: Route) -> None:
        if "Marker" in route.request.url:
            asked.append(route.request)
            route.abort()
        else:
            names = [f"/n{number:04}" for number in range(1000)]
            route.fulfill(json={"domains": [{"name": name, "class": "folder"} for name in names]})

    page.clock.install()
    page.route("**/domains?*", answer)
    go(page, domain="/")
    sign_in(page, "ann", PASSWORD)
    expect(page.get_by_role("banner")).to_contain_text("ann")
    with page.expect_request("**/domains?*Marker*"):
        to_the_end(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="n0000/")).to_be_visible()
    page.clock.run_for(60_000)
    sign_in(page, "bob", PASSWORD)
    expect(page.get_by_role("banner")).to_contain_text("bob")
    assert len(asked) == 1


def test_by_key(page: Page, guarded: Guarded) -> None:
    go(page, domain=DOMAIN, path="/data")
    sign_in(page, "", guarded.key)
    expect(page.locator(".h5web")).to_be_visible()
    assert guarded.key not in kept(page)
    page.reload()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text("sign in again as ann")
    expect(dialog.get_by_label("Key or token", exact=True)).to_be_focused()
    page.keyboard.insert_text(guarded.key)
    page.keyboard.press("Enter")
    expect(page.locator(".h5web")).to_be_visible()
    expect(dialog).to_have_count(0)


def test_a_page_that_is_loaded_again_asks_for_the_same_user_once(page: Page) -> None:
    go(page, domain=DOMAIN, path="/data")
    sign_in(page, "ann", PASSWORD)
    expect(page.locator(".h5web")).to_be_visible()
    page.reload()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name", exact=True)).to_have_value("ann")
    dialog.get_by_role("button", name="Cancel").click()
    page.reload()
    page.get_by_role("alert").get_by_role("button", name="Sign in").click()
    fill_in(page, "ann", PASSWORD)
    expect(page.locator(".h5web")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("anonymous")
    expect(dialog).to_have_count(0)


def test_who_is_refused_meanwhile_signs_in_again_and_goes_on(page: Page) -> None:
    go(page, domain=DOMAIN)
    sign_in(page, "ann", PASSWORD)
    page.get_by_role("button", name="New attribute").click()
    name = page.get_by_role("dialog").get_by_label("Name", exact=True)
    name.fill("typed")
    page.get_by_role("dialog").get_by_label("Type").select_option("integer")
    page.get_by_role("dialog").get_by_label("Value").fill("7")
    error = {"kind": "unauthenticated", "message": "The token has expired."}
    refuse = {"status": 401, "json": {"error": error}}
    page.route("**/attributes?*", lambda route: route.fulfill(**refuse))  # type: ignore[arg-type]
    page.get_by_role("dialog").get_by_role("button", name="Make").click()
    asking = page.get_by_role("dialog", name="Sign in")
    expect(asking.get_by_role("status")).to_contain_text("does not accept the credentials of ann any more")
    page.unroute("**/attributes?*")
    asking.get_by_label("Password", exact=True).fill(PASSWORD)
    asking.get_by_role("button", name="Sign in").click()
    expect(asking).to_have_count(0)
    expect(name).to_have_value("typed")
    page.get_by_role("dialog").get_by_role("button", name="Make").click()
    expect(page.get_by_role("row", name="typed")).to_contain_text("7")


def test_nothing_of_one_user_stays_for_another_who_signs_in_instead(page: Page) -> None:
    go(page, domain=DOMAIN)
    sign_in(page, "ann", PASSWORD)
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()
    error = {"kind": "unauthenticated", "message": "The token has expired."}
    page.route("**/domains?*", lambda route: route.fulfill(status=401, json={"error": error}))
    go(page, domain="/home/ann")
    asking = page.get_by_role("dialog", name="Sign in")
    asking.get_by_role("button", name="Cancel").click()
    expect(asking).to_have_count(0)
    page.unroute("**/domains?*")
    page.get_by_role("alert").get_by_role("button", name="Sign in").click()
    fill_in(page, "bob", PASSWORD)
    expect(page.get_by_role("banner")).to_contain_text("bob")
    go(page, domain=DOMAIN)
    expect(page.get_by_role("alert")).to_contain_text("bob does not have the right")
    expect(page.get_by_role("treeitem")).to_have_count(0)


def test_lines_for_programs_have_the_way_one_is_signed_in(browser: Browser, guarded: Guarded) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with open_page(browser, guarded.url, permissions=permissions) as page:
        go(page, domain=DOMAIN, path="/data")
        for secret, python, shell in (
            (guarded.key, "token=...", '-H "Authorization: Bearer $HS_API_KEY"'),
            (PASSWORD, 'user="ann", password=...', "-u 'ann'"),
        ):
            sign_in(page, "ann" if secret == PASSWORD else "", secret)
            for name, part in (("Python", python), ("curl", shell)):
                page.get_by_role("button", name=f"Copy as {name}").click()
                expect(page.get_by_role("status").filter(has_text=f"{name} copied")).to_be_visible()
                line = page.evaluate("navigator.clipboard.readText()")
                assert part in line
                assert secret not in line
            page.get_by_role("button", name="Sign out").click()


def test_nothing_stays_after_signing_out(page: Page) -> None:
    go(page, domain=DOMAIN)
    sign_in(page, "ann", PASSWORD)
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()
    page.route("**/?domain=**", lambda route: None)  # answered never
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("treeitem")).to_have_count(0)
    expect(page.get_by_role("heading", name="secret.h5")).to_have_count(0)


def test_another_user_is_refused(page: Page) -> None:
    go(page, domain=DOMAIN)
    sign_in(page, "bob", PASSWORD)
    expect(page.get_by_role("banner")).to_contain_text("bob")
    expect(page.get_by_role("alert")).to_contain_text("ask its owner for the right to read")


def test_a_stolen_address_opens_nothing(page: Page, browser: Browser, guarded: Guarded) -> None:
    go(page, domain=DOMAIN, path="/data")
    sign_in(page, "ann", PASSWORD)
    expect(page.locator(".h5web")).to_be_visible()
    with open_page(browser, guarded.url) as other:
        other.goto(page.url)
        expect(other.get_by_role("alert")).to_contain_text("Sign in")


def test_a_page_of_another_origin_has_no_credentials_to_send(page: Page, guarded: Guarded, site: str) -> None:
    go(page, domain=DOMAIN)
    sign_in(page, "ann", PASSWORD)
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{site}/about")  # another origin, in the same browser
    forge = """async url => {
        const answers = [];
        for (const method of ['GET', 'DELETE']) {
            answers.push((await fetch(url, {method, credentials: 'include'}).catch(error => error)).status ?? 0);
        }
        return answers;
    }"""
    statuses = other.evaluate(forge, f"{guarded.url}/?domain={DOMAIN}")
    assert all(status in (0, 401, 403) for status in statuses)
    page.reload()
    fill_in(page, "ann", PASSWORD)
    expect(page.get_by_role("treeitem", name="data")).to_be_visible()


ISSUER_DOMAIN = "/home/ann/of-ann.h5"


@dataclass(frozen=True, slots=True)
class IssuerGuarded:
    url: str
    issuer: TokenIssuer


@pytest.fixture(scope="module")
def issuer_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IssuerGuarded]:
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
            with Connection(url, ISSUER_DOMAIN, token=issuer.token("ann")) as connection:
                connection.json("PUT", "/", {})
                connection.json("PUT", "/acls/default", {"read": False})
                body = {"type": "H5T_STD_I32LE", "shape": [3], "value": [7, 8, 9], "h5path": "/data"}
                connection.json("POST", "/datasets", body)
            yield IssuerGuarded(url, issuer)


@pytest.fixture
def issuer_page(browser: Browser, issuer_guarded: IssuerGuarded) -> Iterator[Page]:
    """A page that asks its own server alone: windows of the issuer are others."""
    with open_page(browser, issuer_guarded.url) as issuer_page:
        go(issuer_page, domain=ISSUER_DOMAIN)
        expect(issuer_page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
        yield issuer_page


def open_issuer(issuer_page: Page, issuer_guarded: IssuerGuarded) -> Page:
    """Return the window of the issuer."""
    issuer_page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    with issuer_page.expect_popup() as popup:
        issuer_page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    popup.value.wait_for_url(f"{issuer_guarded.issuer.url}/authorize?**")
    return popup.value


def test_signed_in_and_out(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    popup = open_issuer(issuer_page, issuer_guarded)
    assert (
        issuer_page.evaluate("document.querySelector('dialog').textContent").count("Waiting for the window")
        == 1
    )
    with popup.expect_event("close"):
        popup.get_by_role("link", name="Sign in as ann").click()
    expect(issuer_page.get_by_role("treeitem", name="data")).to_be_visible()
    expect(issuer_page.get_by_role("banner")).to_contain_text("ann")
    expect(issuer_page.get_by_role("dialog")).to_have_count(0)
    assert issuer_guarded.issuer.codes.keys() != set(), (
        "the code of the other user is left, that of this one is used up"
    )
    for secret in ("eyJ", "code=", "state="):
        assert secret not in kept(issuer_page)
    issuer_page.get_by_role("button", name="Sign out").click()
    expect(issuer_page.get_by_role("alert")).to_contain_text("Sign in as a user who may read it")
    expect(issuer_page.get_by_role("treeitem")).to_have_count(0)


def test_another_user_of_the_issuer_is_refused(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    open_issuer(issuer_page, issuer_guarded).get_by_role("link", name="Sign in as bob").click()
    expect(issuer_page.get_by_role("banner")).to_contain_text("bob")
    expect(issuer_page.get_by_role("alert")).to_contain_text("ask its owner for the right to read")


def test_who_refuses_at_the_issuer_is_not_signed_in(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    open_issuer(issuer_page, issuer_guarded).get_by_role("link", name="Refuse").click()
    expect(issuer_page.get_by_role("dialog").get_by_role("alert")).to_contain_text("access_denied")
    issuer_page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(issuer_page.get_by_role("banner").get_by_role("button", name="Sign in")).to_be_visible()


def test_another_request_s_answer_signs_nobody_in(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    popup = open_issuer(issuer_page, issuer_guarded)
    code = issuer_guarded.issuer.code({"redirect_uri": f"{issuer_guarded.url}/sign-in"}, "bob")
    forged = issuer_page.context.new_page()
    forged.goto(f"{issuer_guarded.url}/sign-in?code={code}&state=forged")
    expect(forged.get_by_role("status")).to_contain_text("No page of the explorer waits")
    assert forged.url == f"{issuer_guarded.url}/sign-in", "the code is not in the history"
    expect(issuer_page.get_by_role("dialog").get_by_role("status")).to_contain_text("Waiting")
    popup.get_by_role("link", name="Sign in as ann").click()
    expect(issuer_page.get_by_role("banner")).to_contain_text("ann")


def test_who_closes_the_dialog_waits_no_more(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    popup = open_issuer(issuer_page, issuer_guarded)
    issuer_page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    popup.get_by_role("link", name="Sign in as ann").click()
    expect(popup.get_by_role("status")).to_contain_text("No page of the explorer waits")
    expect(issuer_page.get_by_role("banner").get_by_role("button", name="Sign in")).to_be_visible()


def test_nobody_waits_for_an_issuer_without_address(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    """A page in which somebody waits on has an error of the browser's when the dialog is closed."""
    client = {
        "issuer": issuer_guarded.issuer.url,
        "authorization_endpoint": "none",
        "client_id": "x",
        "scope": "openid",
    }
    issuer_page.route("**/sign-in/client", lambda route: route.fulfill(json=client))
    issuer_page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    with issuer_page.expect_popup() as popup:
        issuer_page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    expect(issuer_page.get_by_role("dialog").get_by_role("alert")).to_contain_text("URL")
    assert popup.value.is_closed()
    issuer_page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    # What is opened next is drawn after all that the closing has caused.
    issuer_page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    expect(issuer_page.get_by_role("dialog")).to_be_visible()


def test_a_busy_server_of_an_issuer_is_asked_again_by_hand(issuer_page: Page) -> None:
    issuer_page.route("**/sign-in/client", lambda route: route.abort())
    issuer_page.get_by_role("banner").get_by_role("button", name="Sign in").click()
    issuer_page.get_by_role("button", name="Sign in at 127.0.0.1").click()
    alert = issuer_page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_have_text("The server does not answer.Try again in a moment.")


def test_a_token_of_another_sign_in_is_refused(issuer_page: Page, issuer_guarded: IssuerGuarded) -> None:
    issuer_guarded.issuer.changed = {"nonce": "n" * 43}
    try:
        open_issuer(issuer_page, issuer_guarded).get_by_role("link", name="Sign in as ann").click()
        expect(issuer_page.get_by_role("dialog").get_by_role("alert")).to_contain_text("another sign-in")
    finally:
        issuer_guarded.issuer.changed = {}
