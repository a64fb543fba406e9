"""What whoever may does in folders: makes, renames, copies and deletes, and sets rights; and who may not."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings
from hsparse.model.acl import Right
from tests.support.server_process import server_process
from tests.web.conftest import go, open_page
from tests.web.test_accessibility import check
from tests.web.test_signing_in import DOMAIN, PASSWORD, Guarded, guarded_server, sign_in

pytestmark = pytest.mark.needs("chromium")

ANN = "/home/ann"
CHANGE = re.compile("^Change ")


@contextmanager
def jobs_server(root: Path) -> Iterator[Guarded]:
    """Run a server in a process of its own, which runs jobs, with the users and the domain of `guarded_server`."""
    with guarded_server(root):
        pass
    users = ("--password-file", str(root / "passwords"))
    with server_process("--root", str(root / "store"), "--no-fsync", *users, log=root / "log") as running:
        yield Guarded(running.url, "")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with jobs_server(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture
def ann(browser: Browser, guarded: Guarded) -> Iterator[Page]:
    """Ann's page, at her folder."""
    with open_page(browser, guarded.url) as page:
        go(page, domain=ANN)
        sign_in(page, "ann", PASSWORD)
        expect(page.get_by_role("button", name="New folder")).to_be_visible()
        yield page


def ask(
    guarded: Guarded, user: str, method: str, path: str, domain: str, body: Any = None
) -> tuple[int, Any]:
    """Send a request by hand; return its status and answer."""
    credentials = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    request = Request(f"{guarded.url}{path}?domain={quote(domain, safe='')}", method=method)
    request.add_header("Authorization", f"Basic {credentials}")
    request.add_header("Content-Type", "application/json")
    try:
        with urlopen(request, None if body is None else json.dumps(body).encode()) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except HTTPError as error:
        return error.code, json.loads(error.read())


def make(guarded: Guarded, domain: str, folder: bool = False) -> str:
    status, record = ask(guarded, "ann", "PUT", "/", domain, {"folder": folder})
    assert status == 201, record
    return str(record.get("root"))


def entry(page: Page, name: str) -> Locator:
    return page.get_by_role("link", name=name, exact=True)


def open_deed(page: Page, name: str, deed: str) -> Locator:
    """Open the dialog of a deed for an entry of the folder that is shown."""
    page.get_by_role("button", name=f"Change {name}", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=f"{deed}…").click()
    expect(dialog.get_by_role("heading")).to_have_text(f"{deed} {name}")
    return dialog


def test_a_folder_is_made_and_deleted_by_keyboard(ann: Page, guarded: Guarded) -> None:
    ann.get_by_role("button", name="New folder").focus()
    for text in ("Enter", "made by keys", "Enter"):
        if text == "Enter":
            ann.keyboard.press(text)
        else:
            expect(ann.get_by_role("dialog").get_by_label("Name")).to_be_focused()
            ann.keyboard.type(text)
    expect(entry(ann, "made by keys/")).to_be_visible()
    expect(ann.get_by_role("button", name="New folder")).to_be_focused()
    assert ask(guarded, "ann", "GET", "/", f"{ANN}/made by keys")[1]["class"] == "folder"
    ann.get_by_role("button", name="Change made by keys").focus()
    ann.keyboard.press("Enter")
    ann.get_by_role("dialog").get_by_role("button", name="Delete…").focus()
    ann.keyboard.press("Enter")
    dialog = ann.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{ANN}/made by keys is empty. Nothing brings it back.")
    check(ann)
    ann.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(entry(ann, "made by keys/")).to_be_visible()
    delete = open_deed(ann, "made by keys", "Delete").get_by_role("button", name="Delete", exact=True)
    expect(delete).to_be_enabled()
    delete.press("Enter")
    expect(entry(ann, "made by keys/")).to_have_count(0)
    expect(ann.get_by_role("status").filter(has_text="made by keys is deleted.")).to_be_visible()
    assert ask(guarded, "ann", "GET", "/", f"{ANN}/made by keys")[0] in (404, 410)


def test_a_domain_is_renamed_with_its_objects_and_rights(ann: Page, guarded: Guarded) -> None:
    root = make(guarded, f"{ANN}/old.h5")
    ask(guarded, "ann", "PUT", "/acls/bob", f"{ANN}/old.h5", {"read": True})
    ann.reload()
    sign_in(ann, "ann", PASSWORD)
    dialog = open_deed(ann, "old.h5", "Rename")
    check(ann)
    dialog.get_by_label("Name").fill("secret.h5")
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"{DOMAIN} exists already")
    dialog.get_by_label("Name").fill("new.h5")
    dialog.get_by_role("button", name="Rename").click()
    expect(entry(ann, "new.h5")).to_be_visible()
    expect(entry(ann, "old.h5")).to_have_count(0)
    assert ask(guarded, "ann", "GET", "/", f"{ANN}/new.h5")[1]["root"] == root
    assert ask(guarded, "bob", "GET", "/", f"{ANN}/new.h5")[0] == 200
    assert ask(guarded, "ann", "GET", f"/groups/{root}", f"{ANN}/new.h5")[0] == 200
    assert ask(guarded, "ann", "GET", "/", f"{ANN}/old.h5")[0] in (404, 410)


def test_a_rename_that_stops_halfway_loses_nothing_and_goes_on(ann: Page, guarded: Guarded) -> None:
    root = make(guarded, f"{ANN}/half.h5")
    ann.reload()
    sign_in(ann, "ann", PASSWORD)
    dialog = open_deed(ann, "half.h5", "Rename")
    dialog.get_by_label("Name").fill("whole.h5")

    def refuse(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(status=503, json={"error": {"kind": "busy", "message": "Too many."}})
        else:
            route.fallback()

    ann.route("**/?domain=**", refuse)
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Too many.")
    expect(dialog.get_by_role("alert")).to_contain_text("two names of the same objects")
    for name in ("half.h5", "whole.h5"):
        assert ask(guarded, "ann", "GET", "/", f"{ANN}/{name}")[1]["root"] == root
    ann.unroute("**/?domain=**")
    dialog.get_by_role("button", name="Rename").click()
    expect(entry(ann, "whole.h5")).to_be_visible()
    expect(entry(ann, "half.h5")).to_have_count(0)
    assert ask(guarded, "ann", "GET", f"/groups/{root}", f"{ANN}/whole.h5")[0] == 200


def test_a_full_folder_is_renamed_and_deleted_with_all_in_it(ann: Page, guarded: Guarded) -> None:
    for path in ("full", "full/sub"):
        make(guarded, f"{ANN}/{path}", folder=True)
    roots = {name: make(guarded, f"{ANN}/full/{name}") for name in ("a.h5", "sub/b.h5")}
    ann.reload()
    sign_in(ann, "ann", PASSWORD)
    dialog = open_deed(ann, "full", "Rename")
    dialog.get_by_label("Name").fill("moved")
    dialog.get_by_role("button", name="Rename").click()
    tasks = ann.get_by_role("region", name="Tasks")
    expect(tasks.get_by_role("link", name=f"Open {ANN}/moved")).to_be_visible()
    check(ann)
    for name, root in roots.items():
        assert ask(guarded, "ann", "GET", "/", f"{ANN}/moved/{name}")[1]["root"] == root
    expect(entry(ann, "full/")).to_have_count(0)
    tasks.get_by_role("button", name="Dismiss").click()
    dialog = open_deed(ann, "moved", "Delete")
    expect(dialog).to_contain_text("with all that is in it: 2 domains and 1 folder.")
    dialog.get_by_role("button", name="Delete all 4").click()
    expect(tasks).to_contain_text("deleted, 4 in all")
    expect(entry(ann, "moved/")).to_have_count(0)
    assert ask(guarded, "ann", "GET", f"/groups/{roots['a.h5']}", f"{ANN}/moved/a.h5")[0] in (404, 410)


def test_a_folder_whose_rename_stops_halfway_goes_on(ann: Page, guarded: Guarded) -> None:
    make(guarded, f"{ANN}/many", folder=True)
    roots = {name: make(guarded, f"{ANN}/many/{name}") for name in ("a.h5", "b.h5", "c.h5")}
    ann.reload()
    sign_in(ann, "ann", PASSWORD)
    dialog = open_deed(ann, "many", "Rename")
    dialog.get_by_label("Name").fill("other")

    def refuse(route: Route) -> None:
        if route.request.method == "DELETE" and "b.h5" in route.request.url:
            route.fulfill(status=503, json={"error": {"kind": "busy", "message": "Too many."}})
        else:
            route.fallback()

    ann.route("**/?domain=**", refuse)
    dialog.get_by_role("button", name="Rename").click()
    tasks = ann.get_by_role("region", name="Tasks")
    expect(tasks.get_by_role("alert")).to_contain_text(f"What was not moved is in {ANN}/many.")
    for name, folders in {"a.h5": ["other"], "b.h5": ["many", "other"], "c.h5": ["many"]}.items():
        for folder in folders:
            assert ask(guarded, "ann", "GET", "/", f"{ANN}/{folder}/{name}")[1]["root"] == roots[name]
    ann.unroute("**/?domain=**")
    tasks.get_by_role("button", name="Try again").click()
    expect(tasks.get_by_role("link", name=f"Open {ANN}/other")).to_be_visible()
    for name, root in roots.items():
        assert ask(guarded, "ann", "GET", "/", f"{ANN}/other/{name}")[1]["root"] == root
        assert ask(guarded, "ann", "GET", f"/groups/{root}", f"{ANN}/other/{name}")[0] == 200
    expect(entry(ann, "many/")).to_have_count(0)


def test_a_domain_is_copied_by_a_job(ann: Page, guarded: Guarded) -> None:
    dialog = open_deed(ann, "secret.h5", "Copy")
    expect(dialog.get_by_label("Name")).to_have_value("secret copy.h5")
    dialog.get_by_label("Name").fill("secret.h5")
    dialog.get_by_role("button", name="Copy").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"{DOMAIN} exists already")
    dialog.get_by_label("Name").fill("twin #1.h5")
    dialog.get_by_role("button", name="Copy").click()
    link = ann.get_by_role("link", name=f"Open {ANN}/twin #1.h5")
    expect(link).to_be_visible()
    expect(entry(ann, "twin #1.h5")).to_be_visible()
    link.click()
    ann.get_by_role("treeitem", name="data").click()
    expect(ann.locator(".h5web")).to_be_visible()
    root, other = (ask(guarded, "ann", "GET", "/", path)[1]["root"] for path in (DOMAIN, f"{ANN}/twin #1.h5"))
    assert root != other


def test_rights_are_given_changed_and_taken(ann: Page, guarded: Guarded) -> None:
    path = f"{ANN}/shared.h5"
    make(guarded, path)
    go(ann, domain=path)
    ann.get_by_text("Rights", exact=True).click()
    form = ann.locator("form").filter(has_text="User, g:GROUP or default")
    for user in ("bob", "g:staff", "default", "a/b #?%"):
        form.get_by_label("User, g:GROUP or default").fill(user)
        form.get_by_role("button", name="Add").click()
        expect(ann.get_by_role("button", name=f"Save {user}", exact=True)).to_be_visible()
    check(ann)
    rights = {right.value: right is Right.READ for right in Right}

    def acls() -> dict[str, dict[str, bool]]:
        found = ask(guarded, "ann", "GET", "/acls", path)[1]["acls"]
        return {one["userName"]: {right.value: one[right.value] for right in Right} for one in found}

    assert {name: acls()[name] for name in ("bob", "g:staff", "default", "a/b #?%")} == dict.fromkeys(
        ("bob", "g:staff", "default", "a/b #?%"), rights
    )
    ann.get_by_label("bob: update", exact=True).check()
    ann.get_by_role("button", name="Save bob").click()
    expect(ann.get_by_role("button", name="Save bob")).to_be_disabled()
    assert acls()["bob"] == rights | {"update": True}
    ann.get_by_role("button", name="Remove default").click()
    expect(ann.get_by_role("button", name="Remove default")).to_have_count(0)
    assert "default" not in acls()
    form.get_by_label("User, g:GROUP or default").fill("..")
    form.get_by_role("button", name="Add").click()
    expect(ann.get_by_role("alert")).to_contain_text(".. cannot be the name of a user")


def test_who_would_lock_himself_out_is_told_before(ann: Page, guarded: Guarded) -> None:
    path = f"{ANN}/locked.h5"
    make(guarded, path)
    go(ann, domain=path)
    ann.get_by_text("Rights", exact=True).click()
    ann.get_by_label("ann: updateACL").uncheck()
    ann.get_by_role("button", name="Save ann").click()
    dialog = ann.get_by_role("dialog")
    expect(dialog).to_contain_text(f"You (ann) lose the right updateACL in {path}.")
    check(ann)
    dialog.get_by_role("button", name="Cancel").click()
    ann.get_by_role("button", name="Remove ann").click()
    expect(dialog).to_contain_text("You (ann) lose the right read ")
    ann.keyboard.press("Escape")
    assert ask(guarded, "ann", "GET", "/acls/ann", path)[1]["acl"]["updateACL"] is True
    ann.get_by_role("button", name="Save ann").click()
    dialog.get_by_role("button", name="Change them all the same").click()
    expect(dialog).to_have_count(0)
    expect(ann.get_by_role("button", name="Save ann")).to_have_count(0)
    assert ask(guarded, "ann", "GET", "/acls/ann", path)[1]["acl"]["updateACL"] is False
    assert ask(guarded, "ann", "PUT", "/acls/ann", path, {"updateACL": True})[0] == 403


def test_who_may_not_sees_no_button_and_is_refused_by_hand(browser: Browser, guarded: Guarded) -> None:
    make(guarded, f"{ANN}/for-all.h5")
    ask(guarded, "ann", "PUT", "/acls/default", f"{ANN}/for-all.h5", {"read": True})
    make(guarded, f"{ANN}/for-all", folder=True)
    with open_page(browser, guarded.url) as page:
        go(page, domain=ANN)
        for user in (None, "bob"):
            if user is not None:
                sign_in(page, user, PASSWORD)
                expect(page.get_by_role("banner")).to_contain_text(user)
            expect(entry(page, "for-all.h5")).to_be_visible()
            with page.expect_response("**/explorer/rights?*"):
                page.reload()
            if user is not None:
                sign_in(page, user, PASSWORD)
            expect(entry(page, "for-all.h5")).to_be_visible()
            expect(page.get_by_role("button", name="New folder")).to_have_count(0)
            expect(page.get_by_role("button", name=CHANGE)).to_have_count(0)
        page.get_by_text("Rights", exact=True).click()
        expect(page.get_by_text("Your own rights: read.")).to_be_visible()
        entry(page, "for-all.h5").click()
        page.get_by_text("Rights", exact=True).click()
        expect(page.get_by_text("Your own rights: read.")).to_be_visible()
        expect(page.get_by_role("checkbox")).to_have_count(0)
    for method, path, domain, body in (
        ("PUT", "/", f"{ANN}/mine", {"folder": 1}),
        ("PUT", "/", f"{ANN}/mine.h5", {}),
        ("PUT", "/", "/home/bob/mine.h5", {"linked_domain": f"{ANN}/for-all.h5"}),
        ("DELETE", "/", f"{ANN}/for-all.h5", None),
        ("DELETE", "/", f"{ANN}/for-all", None),
        ("PUT", "/acls/bob", f"{ANN}/for-all.h5", {"delete": True}),
        ("DELETE", "/acls/default", f"{ANN}/for-all.h5", None),
    ):
        status, answer = ask(guarded, "bob", method, path, domain, body)
        assert (status, answer["error"]["kind"]) == (403, "forbidden"), (method, domain)
    assert ask(guarded, "ann", "GET", "/", f"{ANN}/for-all.h5")[0] == 200


def test_a_right_that_is_lost_meanwhile_is_told_in_the_servers_words(ann: Page, guarded: Guarded) -> None:
    make(guarded, f"{ANN}/shut", folder=True)
    go(ann, domain=f"{ANN}/shut")
    ann.get_by_role("button", name="New folder").click()
    ask(guarded, "ann", "PUT", "/acls/ann", f"{ANN}/shut", {"create": False})
    ann.get_by_role("dialog").get_by_label("Name").fill("x")
    ann.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(ann.get_by_role("dialog").get_by_role("alert")).to_contain_text(
        f"ann does not have the right create in {ANN}/shut.Ask its owner, or an admin, for that right."
    )


def test_nothing_is_offered_where_the_server_only_reads(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with (
        embedded_server(load_settings(root=root, port=0, fsync=False)) as url,
        Connection(url, "/home/admin/a.h5") as one,
    ):
        one.json("PUT", "/", {})
        with open_page(browser, url) as page:
            go(page, domain="/home/admin")
            expect(page.get_by_role("button", name="Change a.h5")).to_be_visible()
            expect(page.get_by_role("button", name="New folder")).to_be_visible()
    with (
        embedded_server(load_settings(root=root, port=0, fsync=False, read_only=True)) as url,
        open_page(browser, url) as page,
    ):
        with page.expect_response("**/explorer/rights?*"):
            go(page, domain="/home/admin")
        expect(entry(page, "a.h5")).to_be_visible()
        expect(page.get_by_role("button", name="Change a.h5")).to_have_count(0)
        for name in ("New folder", "Import files"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.get_by_text("Rights", exact=True).click()
        expect(page.get_by_role("table", name="Rights").get_by_role("cell", name="admin")).to_be_visible()
        expect(page.get_by_role("checkbox")).to_have_count(0)


SCRIPT = "<img src=x onerror=\"document.title='run'\">"
EXACT = {
    "html": SCRIPT.replace("/", ""),
    "quotes": "a'b\"c`d",
    "escapes": "%2e%2e%2F%00#top?x=1&y;z",
    "pattern": "[a]*?{b}",
    "hidden": ".hidden",
    "spaces": " a  b ",
    "composed": "e\u0301 \u4e2d\U0001f600",
    "property": "__proto__",
    "longest": "n" * 240,
}
REFUSED = {
    "dots": ("..", "must not have the component"),
    "slash": ("a/b", "A name has no /"),
    "longer": ("n" * 241, "240 bytes"),
    "long": ("n" * 1000, "1010 bytes; the limit is 900"),
    "turned": ("gpj.\u202exe", "U+202E"),
    "mark": ("a\u200fb", "U+200F"),
    "control": ("a\u0007b", "U+0007"),
    "half": ("a\ud800b", "half of a character"),
    "record": (".domain.json", ".domain.json"),
}


@pytest.mark.parametrize("name", EXACT.values(), ids=EXACT)
def test_a_strange_name_is_kept_exactly(ann: Page, guarded: Guarded, name: str) -> None:
    title = ann.title()
    ann.get_by_role("button", name="New folder").click()
    dialog = ann.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_have_count(0)
    link = ann.locator("td a").get_by_text(f"{name}/", exact=True)
    expect(link).to_be_visible()
    listed = ask(guarded, "ann", "GET", "/domains", ANN)[1]["domains"]
    assert f"{ANN}/{name}" in [one["name"] for one in listed]
    link.click()
    expect(ann.get_by_role("heading", level=1)).to_have_text(name, use_inner_text=False)
    go(ann, domain=ANN)
    ann.locator("tr").filter(has=link).get_by_role("button", name=CHANGE).click()
    dialog.get_by_role("button", name="Rename…").click()
    dialog.get_by_label("Name").fill(f"{name[:200]}2")
    dialog.get_by_role("button", name="Rename").click()
    renamed = ann.locator("td a").get_by_text(f"{name[:200]}2/", exact=True)
    expect(renamed).to_be_visible()
    expect(link).to_have_count(0)
    ann.locator("tr").filter(has=renamed).get_by_role("button", name=CHANGE).click()
    dialog.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(renamed).to_have_count(0)
    assert ann.title() == title


@pytest.mark.parametrize(("name", "said"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_name_is_refused_in_words(ann: Page, guarded: Guarded, name: str, said: str) -> None:
    before = ask(guarded, "ann", "GET", "/domains", ANN)[1]["domains"]
    ann.get_by_role("button", name="New folder").click()
    dialog = ann.get_by_role("dialog")
    dialog.get_by_label("Name").evaluate(
        """(field, codes) => {
            const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
            set.call(field, String.fromCharCode(...codes));
            field.dispatchEvent(new Event('input', {bubbles: true}));
        }""",
        [ord(character) for character in name],
    )
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text(said)
    assert ask(guarded, "ann", "GET", "/domains", ANN)[1]["domains"] == before
