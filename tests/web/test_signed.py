"""Datasets with lower bounds: their places, also negative ones, in pictures, tables and addresses, and live."""

from __future__ import annotations

from urllib.parse import unquote

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import hsparse
from tests.web.conftest import go, settled

pytestmark = pytest.mark.needs("chromium")

PATH = "/home/admin/web-signed.h5"
PLACES = [(-5, 1), (-1, 3), (2, 0)]


@pytest.fixture(scope="module")
def signed(site: str) -> str:
    with hsparse.open(f"{site}{PATH}", "w") as file:
        made = file.create_sparse(
            "sparse", shape=(9, 4), dtype="f4", chunks=(2, 4), maxshape=(None, 4), lower=(-5, 0)
        )
        for at, (row, column) in enumerate(PLACES):
            made[row, column] = at + 1.0
        file.create_dataset("dense", data=np.arange(12).reshape(4, 3), maxshape=(None, 3), lower=(-2, 0))
    return PATH


def test_a_picture_and_a_table_have_the_places_that_there_are(page: Page, signed: str) -> None:
    go(page, domain=signed, path="/sparse")
    expect(page.locator(".title")).to_contain_text("from the place -5, 0 on")
    settled(page, "3 defined elements in rows -5 to 3 and columns 0 to 3")
    page.locator("canvas.main").hover(position={"x": 2, "y": 2})
    expect(page.locator(".pointed")).to_contain_text("row -5")
    page.get_by_label("Selection").fill("[-1:3,0:4]")
    page.get_by_role("button", name="Show").click()
    settled(page, "2 defined elements in rows -1 to 2")
    page.get_by_role("button", name="Zoom out").click()
    settled(page, "2 defined elements in rows -4 to 3")
    page.get_by_role("link", name="Table", exact=True).click()
    page.get_by_role("button", name="All").click()
    settled(page, "3 defined elements in [-5:4,0:4]")
    rows = page.get_by_role("group", name="Elements").locator("tbody tr")
    assert [row.split() for row in rows.all_inner_texts()] == [
        [str(row), str(column), str(at + 1)] for at, (row, column) in enumerate(PLACES)
    ]
    page.get_by_role("link", name="Chunks", exact=True).click()
    expect(page.get_by_role("cell", name="-3, 0")).to_be_visible()


def test_a_display_reads_what_is_selected_by_its_places(page: Page, signed: str) -> None:
    with page.expect_response(
        lambda reply: "/value?" in reply.url and "[-2:2,0:3]" in unquote(reply.url)
    ) as read:
        go(page, domain=signed, path="/dense")
    assert read.value.ok
    assert read.value.body() == np.arange(12).astype("<i8").tobytes()
    expect(page.get_by_text("counts from 0 at the first place of the selection")).to_be_visible()


def test_live_sees_a_window_that_rolls(page: Page, site: str, signed: str) -> None:
    """The lower bound moves, and the length stays: between two looks the extent may be the same."""
    with hsparse.open(f"{site}/home/admin/web-window.h5", "w") as file:
        made = file.create_sparse(
            "d", shape=(4, 2), dtype="f4", chunks=(2, 2), maxshape=(None, 2), lower=(-3, 0)
        )
        go(page, domain="/home/admin/web-window.h5", path="/d")
        with page.expect_request(lambda asked: "wait=25" in asked.url and "expect_lower" in asked.url):
            page.get_by_role("checkbox", name="Live").check()
        made.drop_before(-1)
        expect(page.locator(".title")).to_contain_text("from the place -1, 0 on")
        settled(page, "rows -1 to 0")
