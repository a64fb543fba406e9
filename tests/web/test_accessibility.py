"""The explorer for everybody: axe finds no violation, in light and dark, on a desk and on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from demo.frames import FOUND
from tests.web.conftest import CELLS, DETECTOR, go, open_page, settled

pytestmark = pytest.mark.needs("chromium")

H5WEB = {"exclude": [[".h5web"]]}
"""H5Web's own displays are not ours to change."""


def check(page: Page) -> None:
    found = Axe().run(page, context=H5WEB).response
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
        go(page, domain="/home/none")
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_role("button", name="Sign in").click()
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
