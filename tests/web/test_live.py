"""Data that grows: followed live, and shown as it is when somebody comes back to the page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import unquote

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.web.conftest import go, settled

pytestmark = pytest.mark.needs("chromium")


def test_live_shows_what_is_appended(page: Page, site: str) -> None:
    domain = "/home/admin/web-live.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        shape = (4, 8)
        dataset = SparseDataset.create(connection, "/live", shape, np.float32, (4, 8), maxshape=(None, 8))
        go(page, domain=domain, path="/live")
        with page.expect_request("**/shape?*wait=25*"):
            page.get_by_role("checkbox", name="Live").check()
        dataset.resize((6, 8))
        expect(page.locator(".title")).to_contain_text("6 × 8", timeout=5000)


def test_what_was_changed_meanwhile_is_shown(page: Page, site: str) -> None:
    domain, old = "/home/admin/web-meanwhile.h5", 1_500_000_000.0
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        shape = (4, 8)
        dataset = SparseDataset.create(connection, "/live", shape, np.float32, shape, maxshape=(None, 8))

        def was_loaded_long_ago(route: Route) -> None:
            found = route.fetch().json()
            if "verbose" not in route.request.url:
                found["lastModified"] = old
                for made in found["domain_objs"].values():
                    made["lastModified"] = old
            route.fulfill(json=found)

        page.route("**/?domain=**", was_loaded_long_ago)
        title = page.locator(".title")
        go(page, domain=domain)
        changed = connection.json("GET", "/", verbose=1)["lastModified"]
        expect(title).to_contain_text(f"changed {datetime.fromtimestamp(changed, UTC):%Y-%m-%d %H:%M:%S} UTC")
        go(page, domain=domain, path="/live")
        changed = connection.json("GET", f"/datasets/{dataset.id}")["lastModified"]
        expect(title).to_contain_text(f"changed {datetime.fromtimestamp(changed, UTC):%Y-%m-%d %H:%M:%S} UTC")
        settled(page, "rows 0 to 3")
        connection.json("PUT", f"/datasets/{dataset.id}/value", {"append": 1, "value": [[1.0] * 8]})
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(title).to_contain_text("5 × 8")
        expect(page.get_by_role("treeitem", name="live")).to_contain_text("5 × 8")
        settled(page, "8 defined elements in rows 0 to 4")


SHOWN = """start => {
    window.shown = [];
    new MutationObserver(() => {
        const text = document.querySelector('.picture [role=status]')?.textContent ?? '';
        const rows = /rows 0 to ([0-9,]+)/.exec(text)?.[1].replace(',', '');
        if (rows !== undefined) window.shown.push([Date.now(), Number(rows) + 1]);
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
"""Keeps the number of rows in the picture whenever the page changes, with the time."""


def test_live_sees_an_append_within_a_second(page: Page, site: str) -> None:
    domain = "/home/admin/web-appended.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        dataset = SparseDataset.create(connection, "/live", (4, 8), np.float32, (4, 8), maxshape=(None, 8))
        go(page, domain=domain, path="/live")
        settled(page, "rows 0 to 3")
        page.evaluate(SHOWN)
        with page.expect_request("**/shape?*wait=25*"):
            page.get_by_role("checkbox", name="Live").check()
        delays = []
        for rows in range(5, 10):
            body = {"append": 1, "value": [[float(rows)] * 8]}
            connection.json("PUT", f"/datasets/{dataset.id}/value", body)
            appended = 1000 * time.time()
            settled(page, f"{8 * (rows - 4)} defined elements in rows 0 to {rows - 1}")
            delays.append(
                page.evaluate("rows => window.shown.find(one => one[1] === rows)[0]", rows) - appended
            )
    assert sorted(delays)[2] < 1000, f"milliseconds from the answer to an append to its picture: {delays}"


def test_live_follows_the_last_frame_and_asks_for_no_more(page: Page, site: str) -> None:
    domain = "/home/admin/web-frames.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        shape = (1, 4, 8)
        dataset = SparseDataset.create(connection, "/live", shape, np.float32, shape, maxshape=(None, 4, 8))
        go(page, domain=domain, path="/live")
        with page.expect_request("**/shape?*wait=25*"):
            page.get_by_role("checkbox", name="Live").check()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        dataset.resize((3, 4, 8))
        expect(page.get_by_label("Dimension 0")).to_have_value("2")
        assert "select=[2:3,0:4,0:8]" in page.url
        page.get_by_role("link", name="Table", exact=True).click()
        expect(page.get_by_role("checkbox", name="Live")).to_be_checked()
        with page.expect_request("**/shape?*wait=25*"):
            dataset.resize((4, 4, 8))
        expect(page.locator(".title")).to_contain_text("4 × 4 × 8")
        assert [url for url in asked if "getobjs" in url] == []


def test_live_keeps_the_display_of_dense_data(page: Page, site: str) -> None:
    domain = "/home/admin/web-grown.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_IEEE_F64LE", "shape": [3, 4], "maxdims": [0, 4], "h5path": "/grown"}
        id = connection.json("POST", "/datasets", body)["id"]
        go(page, domain=domain, path="/grown")
        expect(page.locator(".h5web").get_by_role("tablist", name="Visualization")).to_be_visible()
        with page.expect_request("**/shape?*wait=25*"):
            page.get_by_role("checkbox", name="Live").check()
        page.evaluate("document.querySelector('.h5web [role=tablist]').isSame = true")
        with page.expect_request(
            lambda request: "/value?" in request.url and "[0:5," in unquote(request.url)
        ):
            connection.json("PUT", f"/datasets/{id}/shape", {"shape": [5, 4]})
        expect(page.locator(".title")).to_contain_text("5 × 4")
        assert page.evaluate("document.querySelector('.h5web [role=tablist]').isSame") is True
