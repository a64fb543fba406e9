"""The past of a domain in the explorer: snapshots are listed, opened, taken and, when it is confirmed, restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

import hsparse
from hsparse.client.connection import Connection
from tests.web.conftest import go, open_page
from tests.web.test_accessibility import check
from tests.web.test_signing_in import DOMAIN, PASSWORD, guarded_server, sign_in

pytestmark = pytest.mark.needs("chromium")

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def path(embedded_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A domain of which there is a snapshot, and that has lost a dataset since."""
    found = f"/home/admin/{request.node.originalname}.h5"
    with hsparse.open(embedded_url + found, "w") as file:
        assert isinstance(file, hsparse.File)
        file["first"] = [1, 2, 3]
        file.snapshot(HOSTILE)
        del file["first"]
        file["second"] = [4, 5]
    yield found
    with Connection(embedded_url, found) as connection:
        connection.json("DELETE", "/")


def opened(page: Page, path: str) -> None:
    """Show a domain with its list of snapshots."""
    go(page, domain=path)
    page.locator("summary", has_text="Snapshots").click()


def test_a_snapshot_is_taken_and_opened(page: Page, path: str, embedded_url: str) -> None:
    opened(page, path)
    expect(page.get_by_role("button", name="New attribute")).to_be_visible()
    rows = page.get_by_role("table", name="Snapshots").get_by_role("row")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(HOSTILE)
    page.get_by_label("Message").fill("with the second")
    page.get_by_role("button", name="Take a snapshot").click()
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("with the second")
    expect(rows.nth(1)).to_contain_text("admin")
    check(page)
    rows.nth(2).get_by_role("link", name="1", exact=True).click()
    banner = page.get_by_role("note", name="Snapshot")
    expect(banner).to_contain_text("Snapshot 1, of ")
    expect(banner).to_contain_text(f"UTC by admin: {HOSTILE}. It never changes.")
    expect(page.locator("main img, main script")).to_have_count(0)
    expect(page.get_by_role("treeitem", name="first")).to_be_visible()
    for name in ("New attribute", "Take a snapshot"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    check(page)
    page.get_by_role("treeitem", name="first").click()
    expect(banner).to_be_visible()
    banner.get_by_role("link", name="as it is now").click()
    expect(page.get_by_role("treeitem", name="second")).to_be_visible()
    expect(banner).to_have_count(0)
    with hsparse.open(embedded_url + path) as file:
        assert isinstance(file, hsparse.File)
        assert [one.message for one in file.snapshots()] == [HOSTILE, "with the second"]


def test_a_snapshot_is_restored_when_that_is_confirmed(page: Page, path: str) -> None:
    opened(page, path)
    page.get_by_role("button", name="Restore snapshot 1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What was changed since the newest snapshot is lost")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("treeitem", name="second")).to_be_visible()
    page.get_by_role("button", name="Restore snapshot 1").click()
    dialog.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("status").filter(has_text="as it was at snapshot 1")).to_be_visible()
    expect(page.get_by_role("treeitem", name="first")).to_be_visible()
    expect(page.get_by_role("treeitem", name="second")).to_have_count(0)


def test_who_may_only_read_sees_them_and_changes_nothing(browser: Browser, tmp_path: Path) -> None:
    with guarded_server(tmp_path) as guarded:
        with Connection(guarded.url, DOMAIN, user="ann", password=PASSWORD) as connection:
            connection.json("PUT", "/acls/bob", {"read": True})
            connection.json("POST", "/snapshots", {"message": "ann's"})
        with open_page(browser, guarded.url) as page:
            go(page, domain="/home/ann")
            sign_in(page, "bob", PASSWORD)
            opened(page, DOMAIN)
            expect(page.get_by_role("table", name="Snapshots")).to_contain_text("ann's")
            for name in ("Take a snapshot", "Restore snapshot 1"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)
            go(page, domain=f"{DOMAIN}@1")
            expect(page.get_by_role("note", name="Snapshot")).to_contain_text("by ann: ann's")
