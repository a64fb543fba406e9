"""The pages can be used by all, and are as the pictures of the docs show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from demo.frames import FOUND
from hsparse.client.connection import Connection
from tests.web.conftest import CELLS, DETECTOR, go, open_page, settled
from tests.web.test_signing_in import PASSWORD, guarded_server, sign_in

pytestmark = pytest.mark.needs("chromium")


def check(page: Page) -> None:
    found = Axe().run(page).response
    assert len(found["passes"]) > 10, "axe has looked at nothing"
    problems = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]]
    assert problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_there_are_no_violations(browser: Browser, site: str, scheme: Any) -> None:
    with open_page(browser, site, color_scheme=scheme) as page:
        page.goto("/")
        expect(page.get_by_role("link", name="home/")).to_be_visible()
        check(page)
        go(page, domain=CELLS)
        expect(page.get_by_role("treeitem", name="raw.X")).to_be_visible()
        check(page)
        go(page, domain=DETECTOR, path=FOUND)
        settled(page, "defined elements in rows 0 to 1,023")
        check(page)
        go(page, domain=CELLS, path="/raw.X", view="table")
        expect(page.get_by_role("cell", name="PARK7 3").first).to_be_visible()
        check(page)
        go(page, domain=CELLS, view="embedding")
        settled(page, "coloured by")
        check(page)
        go(page, domain=CELLS, path="/obs")
        settled(page, "Rows 0 to 99 of 700")
        page.get_by_label("Filter by").select_option("louvain")
        page.get_by_role("region", name="Summary").get_by_role("combobox").select_option("n_genes")
        expect(page.get_by_role("table", name="Summary")).to_be_visible()
        check(page)
        page.get_by_role("button", name="New attribute").click()
        page.get_by_role("dialog").get_by_label("Name").fill("n")
        page.get_by_role("dialog").get_by_label("Type").select_option("integer")
        page.get_by_role("dialog").get_by_role("button", name="Make").click()
        expect(page.get_by_role("alert")).to_be_visible()
        check(page)
        page.get_by_role("button", name="Cancel").click()
        go(page, domain="/home/admin")
        page.get_by_role("button", name=f"Change {CELLS.rpartition('/')[2]}").click()
        for deed in ("Rename", "Delete"):
            page.get_by_role("dialog").get_by_role("button", name=f"{deed}…").click()
            check(page)
            page.keyboard.press("Escape")
            page.get_by_role("button", name=f"Change {CELLS.rpartition('/')[2]}").click()
        page.keyboard.press("Escape")
        page.get_by_label("Files to import").set_input_files({"name": "e.h5", "mimeType": "", "buffer": b""})
        expect(page.get_by_role("alert")).to_contain_text("e.h5 is empty")
        check(page)
        page.get_by_role("button", name="Dismiss").click()
        go(page, domain="/home/none")
        expect(page.get_by_role("alert")).to_be_visible()
        check(page)


def test_the_top_level_for_admins(browser: Browser, tmp_path: Path) -> None:
    with guarded_server(tmp_path) as guarded, open_page(browser, guarded.url, color_scheme="light") as page:
        go(page, domain="/")
        page.get_by_role("button", name="Sign in").click()
        check(page)
        page.get_by_role("button", name="Cancel").click()
        sign_in(page, "root", PASSWORD)
        page.get_by_text("Users and groups").click()
        expect(page.get_by_role("table", name="Groups")).to_be_visible()
        page.get_by_text("Jobs").click()
        expect(page.get_by_text("No jobs.")).to_be_visible()
        check(page)
        page.emulate_media(color_scheme="dark")
        check(page)


def test_the_description_of_the_api(browser: Browser, embedded_url: str) -> None:
    with open_page(browser, embedded_url, color_scheme="light") as page:
        page.goto("/docs")
        expect(page.locator("#operations-tag-Values")).to_be_visible()
        check(page)
        page.emulate_media(color_scheme="dark")
        page.locator("#operations-tag-Values").click()
        for method in ("get", "put", "post", "delete"):
            page.locator(f".opblock-{method} .opblock-summary-control").last.click()
            expect(page.locator(f".opblock-{method} .responses-table").last).to_be_visible()
        check(page)


def test_displays_of_dense_data(browser: Browser, site: str) -> None:
    """H5Web is light, also on a dark page."""
    domain = "/home/admin/web-displays.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        for path, shape, value in (
            ("/matrix", [2, 3], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
            ("/one", [], 3.0),
        ):
            body = {"type": "H5T_IEEE_F64LE", "shape": shape, "value": value, "h5path": path}
            connection.json("POST", "/datasets", body)
    with open_page(browser, site, color_scheme="dark") as page:
        go(page, domain=domain, path="/matrix")
        displays = page.locator(".h5web").get_by_role("tablist", name="Visualization").get_by_role("tab")
        for name in ("Heatmap", "Line", "Matrix"):
            displays.filter(has_text=name).click()
            expect(displays.filter(has_text=name)).to_have_attribute("aria-selected", "true")
            check(page)
        page.get_by_role("tab", name="Inspect").click()
        expect(page.get_by_role("tab", name="Inspect", selected=True)).to_be_visible()
        check(page)
        go(page, domain=domain, path="/one")
        expect(displays.filter(has_text="Scalar")).to_be_visible()
        check(page)


def test_a_phone_shows_the_tree_and_tables(browser: Browser, site: str) -> None:
    with open_page(browser, site) as page:
        page.set_viewport_size({"width": 360, "height": 700})
        go(page, domain=CELLS)
        expect(page.get_by_role("cell", name="raw.X", exact=True)).to_be_visible()
        expect(page.get_by_role("tree")).to_be_hidden()
        page.get_by_role("button", name="Tree").click()
        page.get_by_role("treeitem", name="raw.X").click()
        expect(page.get_by_role("heading", name="raw.X", exact=True)).to_be_visible()
        page.get_by_role("link", name="Table").click()
        expect(page.get_by_role("cell", name="PARK7 3").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        check(page)
        go(page, domain="/home/admin")
        page.get_by_role("button", name=f"Change {CELLS.rpartition('/')[2]}").click()
        page.get_by_role("dialog").get_by_role("button", name="Rename…").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        check(page)


DOCS = Path(__file__).parents[2] / "docs"
SHOTS = {
    "explorer-picture.png": ({"path": "/raw.X", "select": "[0:200,200:500]"}, "rows 0 to 199"),
    "explorer-embedding.png": ({"view": "embedding", "select": "gene:CST3"}, "undefined in"),
}
LARGEST = 200_000


@pytest.mark.parametrize("name", SHOTS)
def test_the_docs_have_this_picture(page: Page, request: pytest.FixtureRequest, name: str) -> None:
    address, text = SHOTS[name]
    page.set_viewport_size({"width": 1100, "height": 760})
    go(page, domain=CELLS, **address)
    settled(page, text)
    shot = page.screenshot()
    assert len(shot) < LARGEST
    if request.config.getoption("screenshots"):
        (DOCS / name).write_bytes(shot)
    assert (DOCS / name).read_bytes().startswith(b"\x89PNG")
