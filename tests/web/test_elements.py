"""Elements of a dataset, also of one with a lower bound, and domains as they were."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect

import hsparse
from hsparse.cli.main import parse_arguments
from hsparse.client.connection import Connection
from tests.web.conftest import go, open_page, settled
from tests.web.test_accessibility import check
from tests.web.test_signing_in import DOMAIN, PASSWORD, guarded_server, sign_in

pytestmark = pytest.mark.needs("chromium")


def records() -> NDArray[np.void]:
    """Return two records of what a table cannot show as numbers, and of what JSON cannot."""
    inner = np.dtype([("x", "f8"), ("y", "i4", 2)])
    kinds = {"R": 0, "G": 1}
    fields: list[Any] = [
        ("whole", "i8"),
        ("three", "f8", 3),
        ("grid", "f4", (2, 2)),
        ("inner", inner),
        ("parts", inner, (1,)),
        ("list", h5py.vlen_dtype("i4")),
        ("text", h5py.string_dtype()),
        ("fixed", "S2"),
        ("wave", "c16"),
        ("flag", "?"),
        ("kind", h5py.enum_dtype(kinds)),
    ]
    found = np.zeros(2, fields)
    found["text"] = ["é", "b"]
    found["list"][0], found["list"][1] = np.array([4, 5], "i4"), np.array([], "i4")
    found[0]["three"] = [1, np.nan, -np.inf]
    found["grid"][1] = [[0.1, 2], [3, 4]]
    found["inner"]["x"], found["whole"], found["fixed"] = [np.nan, 1.5], 2**60 + 1, b"\xb0C"
    found["wave"], found["flag"], found["kind"] = 1 - 2j, [True, False], [1, 0]
    return found


@pytest.fixture(scope="session")
def nested(site: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A domain of compounds with arrays inside, and of arrays and lists as elements, from a file."""
    path, domain = tmp_path_factory.mktemp("nested") / "nested.h5", "/home/admin/web-compounds.h5"
    with h5py.File(path, "w") as file:
        file["table"] = records()
        file.create_dataset("one", data=records()[0], dtype=records().dtype)
        array = h5py.h5t.array_create(h5py.h5t.IEEE_F64LE, (2, 2))
        space = h5py.h5s.create_simple((2,))
        made = h5py.h5d.create(file.id, b"array", array, space)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(8.0), array)
        pair = h5py.h5t.py_create(np.dtype([("x", "f8"), ("y", "i4", 2)]), logical=True)
        pairs = h5py.h5t.array_create(pair, (2,))
        made = h5py.h5d.create(file.id, b"pairs", pairs, space)
        values = np.zeros((2, 2), [("x", "f8"), ("y", "i4", 2)])
        values["x"], values["y"][1, 1] = [[0.5, np.nan], [1, 2]], [3, 4]
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, pairs)
        lists = file.create_dataset("lists", (2,), h5py.vlen_dtype("f4"))
        lists[0] = [0.1, np.nan]
        file["bytes"] = np.array([b"\xb0C", b"ok"])
        file.attrs["record"] = records()[:1]
        file.attrs["triples"] = np.zeros((2, 3))
        file.attrs["degree"] = np.bytes_(b"\xb0C")
        file.attrs["degrees"] = np.array([b"\xb0C", b"ok"])
        file.attrs["wave"] = 1 - 2j
    args = parse_arguments(["import", str(path), domain, "--endpoint", site, "--quiet"])
    with redirect_stdout(io.StringIO()):
        assert args.run(args) == 0
    return domain


RECORD = [
    str(2**60 + 1),
    "[1, NaN, -Infinity]",
    "[[0, 0], [0, 0]]",
    "{x: NaN, y: [0, 0]}",
    "[{x: 0, y: [0, 0]}]",
    "[4, 5]",
    "é",
    r"\xb0C",
    "1-2j",
    "true",
    "G",
]
"""The first of `records` as the page shows it."""


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("table", [*RECORD[1:], "[[0.1, 2], [3, 4]]", "{x: 1.5, y: [0, 0]}", "[]", "R"]),
        ("one", RECORD[1:8]),
        ("array", ["[[0, 1], [2, 3]]", "[[4, 5], [6, 7]]"]),
        ("pairs", ["[{x: 0.5, y: [0, 0]}, {x: NaN, y: [0, 0]}]", "[{x: 1, y: [0, 0]}, {x: 2, y: [3, 4]}]"]),
        ("lists", ["[0.1, NaN]", "[]"]),
        ("bytes", [r"\xb0C", "ok"]),
    ],
)
def test_elements_with_arrays_inside_are_shown(page: Page, nested: str, name: str, cells: list[str]) -> None:
    page.set_viewport_size({"width": 4200, "height": 900})  # all columns
    go(page, domain=nested, path=f"/{name}")
    for cell in cells:
        expect(page.locator(".h5web").get_by_role("gridcell", name=cell, exact=True).first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("Expected number")).to_have_count(0)


def test_attributes_are_shown_by_their_types(page: Page, nested: str) -> None:
    go(page, domain=nested)
    fields = ("whole", "three", "grid", "inner", "parts", "list", "text", "fixed", "wave", "flag", "kind")
    texts = {
        field: f'"{text}"' if field == "text" else text for field, text in zip(fields, RECORD, strict=True)
    }
    texts["fixed"] = r'"\\xb0C"'
    record = ", ".join(f"{field}: {text}" for field, text in texts.items())
    for name, text in {
        "record": f"[{{{record}}}]",
        "triples": "[[0, 0, 0], [0, 0, 0]]",
        "degree": r"\xb0C",
        "degrees": r'["\\xb0C", "ok"]',
        "wave": "1-2j",
    }.items():
        row = page.locator(".attributes tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        expect(row.locator("td").first).to_have_text(text)


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
