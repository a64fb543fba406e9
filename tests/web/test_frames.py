"""Frames of a stack, and those that come while one looks."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, Page, Route, expect

import hsparse
from hsparse.cli.main import parse_arguments
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.cli.importer.test_file_formats import contacts, loom
from tests.web.conftest import CELLS, go, settled

pytestmark = pytest.mark.needs("chromium")

FRAMES, LARGE, ODD = (
    "/home/admin/frames-frames.h5ad",
    "/home/admin/frames-million.h5ad",
    "/home/admin/frames-odd-frames.h5",
)
ROWS = 250
MILLION = 1_000_000
SCRIPT = "<img src=x onerror=\"document.title='run'\">"
HOSTILE = [SCRIPT, "'\"; --", "a\u202eb", "x" * 1000, "", " two  spaces ", "\u05d0\u05d1", "=1+1", "missing"]


def obs() -> pd.DataFrame:
    """Return a frame with a column of each kind that AnnData writes."""
    numbers = np.arange(ROWS)
    sizes = pd.Categorical.from_codes(numbers % 4 - 1, ["small", "middle", "large"], ordered=True)
    integers = pd.array(numbers * 1000, dtype="Int64")
    integers[1] = pd.NA
    flags = pd.array(numbers % 3 == 0, dtype="boolean")
    flags[2] = pd.NA
    words = pd.array([f"w{number}" for number in numbers], dtype="string")
    words[0] = pd.NA
    texts = [HOSTILE[number] if number < len(HOSTILE) else f"t{number:03}" for number in numbers]
    floats = numbers / 8
    floats[:4] = [np.nan, np.inf, -np.inf, 0.1]
    columns = {
        "size": sizes,
        SCRIPT: pd.Categorical([HOSTILE[number % 3] for number in numbers]),
        "big": numbers + 2**60 + 1,
        "float": floats,
        "single": floats.astype("f4"),
        "flag": numbers % 2 == 0,
        "maybe": integers,
        "perhaps": flags,
        "text": texts,
        "words": words,
    }
    return pd.DataFrame(columns, index=[f"cell {number}" for number in numbers])


def load(site: str, path: Path, domain: str) -> str:
    args = parse_arguments(["import", str(path), domain, "--endpoint", site, "--quiet"])
    with redirect_stdout(io.StringIO()):
        assert args.run(args) == 0
    return domain


@pytest.fixture(scope="session")
def frames(site: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An AnnData with its genes in `raw`, too."""
    path = tmp_path_factory.mktemp("frames") / "frames.h5ad"
    data = anndata.AnnData(np.zeros((ROWS, 2), "f4"), obs(), pd.DataFrame(index=["g0", "g1"]))
    data.raw = data
    with anndata.settings.override(allow_write_nullable_strings=True):
        data.write_h5ad(path, convert_strings_to_categoricals=False)
    return load(site, path, FRAMES)


@pytest.fixture(scope="session")
def odd(site: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Frames that are not as they should be, or have little."""
    path = tmp_path_factory.mktemp("odd") / "odd.h5"
    empty = pd.DataFrame({"a": np.zeros(0)}, index=pd.Index([], dtype=str))
    with h5py.File(path, "w") as file:
        anndata.io.write_elem(file, "odd", obs()[["big", "size"]])
        anndata.io.write_elem(file, "empty", empty)
        wide = pd.DataFrame({"c" * 300 + str(number): [number] for number in range(130)}, index=["r"])
        anndata.io.write_elem(file, "wide", wide)
        odd = file["odd"]
        odd.attrs["column-order"] = ["big", "gone", "short", "wide", "size", "list", "halves"]
        odd["short"], odd["wide"], odd["extra"] = np.zeros(3), np.zeros((ROWS, 2)), np.zeros(ROWS)
        odd["size/codes"][0] = 7
        odd.create_group("list").attrs["encoding-type"] = "awkward-array"
        halves = odd.create_group("halves")
        halves.attrs["encoding-type"] = "nullable-integer"
        halves["values"] = np.zeros(ROWS, "i4")
        bare = file.create_group("bare")
        bare.attrs["encoding-type"] = "dataframe"
        bare["n"] = np.arange(3)
    return load(site, path, ODD)


def head(page: Page) -> list[str]:
    return page.locator("table.frame thead th .exact").all_inner_texts()


def row(page: Page, number: int) -> Locator:
    return page.locator(f'tr[data-row="{number}"]').locator("th, td")


def sorting(page: Page, name: str) -> Locator:
    return page.locator("table.frame thead button").filter(has_text=re.compile(f"^{name}$"))


def open_frame(page: Page, domain: str, path: str, text: str) -> None:
    go(page, domain=domain, path=path)
    settled(page, text)


BIG = 2**60 + 1
CUT = "x" * 400 + "… Show all 1,000 characters"
CELLS_OF_ROWS = {
    0: ["missing", SCRIPT, str(BIG), "NaN", "NaN", "true", "0", "true", SCRIPT, "missing"],
    1: ["small", HOSTILE[1], str(BIG + 1), *["Infinity"] * 2, "false", "missing", "false", HOSTILE[1], "w1"],
    3: ["large", SCRIPT, str(BIG + 3), "0.1", "0.1", "false", "3000", "true", CUT, "w3"],
}


def test_columns_of_every_kind(page: Page, frames: str) -> None:
    open_frame(page, frames, "/obs", "Rows 0 to 99 of 250")
    assert head(page) == ["_index", *(name for name in obs().columns)]
    expect(page.get_by_role("columnheader", name="size")).to_contain_text("ordered category")
    for number, cells in CELLS_OF_ROWS.items():
        expect(row(page, number)).to_have_text([f"cell {number}", *cells])
    expect(row(page, 2).nth(8)).to_have_text("missing")
    expect(row(page, 2).nth(9)).to_have_text(r"a\u202eb")
    assert row(page, 5).nth(9).inner_text() == " two  spaces "
    assert page.locator("td i.missing").count() == 25 + 1 + 1 + 1, "text that says so is not missing"
    page.get_by_role("button", name="Show all 1,000 characters").click()
    expect(row(page, 3).nth(9)).to_have_text("x" * 1000)
    assert page.title() != "run"
    assert page.locator("img").count() == 0


def test_pages(page: Page, frames: str) -> None:
    open_frame(page, frames, "/obs", "Rows 0 to 99 of 250")
    pages = page.get_by_role("form", name="Pages")
    expect(pages.get_by_role("button", name="Previous")).to_be_disabled()
    pages.get_by_role("button", name="Last").click()
    settled(page, "Rows 200 to 249 of 250")
    expect(row(page, 249).first).to_have_text("cell 249")
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    expect(page).to_have_url(re.compile(r"&select=\[200:250\]$"))
    pages.get_by_role("textbox", name="Row").fill("250")
    expect(pages.get_by_role("button", name="Go")).to_be_disabled()
    pages.get_by_role("textbox", name="Row").fill("123")
    pages.get_by_role("button", name="Go").click()
    settled(page, "Rows 100 to 199 of 250")
    page.reload()
    settled(page, "Rows 100 to 199 of 250")


def test_sorting_and_filtering(page: Page, frames: str) -> None:
    open_frame(page, frames, "/obs", "Rows 0 to 99 of 250")
    column = sorting(page, "float")
    column.click()
    rows = page.locator("tr[data-row] th")
    expect(rows.first).to_have_text("cell 2")
    assert rows.all_inner_texts()[:3] == ["cell 2", "cell 3", "cell 4"]
    column.click()
    expect(rows.first).to_have_text("cell 1")
    page.get_by_role("button", name="Last").click()
    expect(rows.last).to_have_text("cell 0")
    sorting(page, "big").click()
    expect(rows.first).to_have_text("cell 0")
    page.get_by_label("Filter by").select_option("size")
    page.get_by_label("that is").select_option("large")
    settled(page, "Rows 0 to 61 of 62: 62 rows with size large")
    assert rows.all_inner_texts() == [f"cell {number}" for number in range(3, ROWS, 4)]
    page.get_by_label("that is").select_option("missing")
    settled(page, "63 rows with size missing")
    page.get_by_label("Filter by").select_option("perhaps")
    page.get_by_label("that is").select_option("missing")
    settled(page, "Rows 0 to 0 of 1: 1 row with perhaps missing")
    expect(rows).to_have_text(["cell 2"])
    page.get_by_label("Filter by").select_option("")
    page.get_by_role("button", name="Order of the frame").click()
    settled(page, "Rows 0 to 99 of 250")


SUMMARIES: dict[str, dict[str, str]] = {
    "size": {"small": "63", "middle": "62", "large": "62", "missing": "63"},
    SCRIPT: {"'\"; --": "83", SCRIPT: "84", r"a\u202eb": "83"},
    "big": {"numbers": "250", "least": str(2**60 + 1), "greatest": str(2**60 + 250)},
    "float": {"numbers": "249", "least": "-Infinity", "greatest": "Infinity", "NaN": "1"},
    "flag": {"false": "125", "true": "125"},
    "maybe": {"numbers": "249", "least": "0", "greatest": "249000", "missing": "1"},
    "perhaps": {"false": "165", "true": "84", "missing": "1"},
    "text": {"values": "250", "different values": "250", "missing": "0"},
    "words": {"values": "249", "different values": "249", "missing": "1"},
}


def test_summaries(page: Page, frames: str) -> None:
    open_frame(page, frames, "/obs", "Rows 0 to 99 of 250")
    summary = page.get_by_role("region", name="Summary of a column")
    for name, numbers in SUMMARIES.items():
        summary.get_by_role("combobox").select_option(name)
        expect(summary.locator("th")).to_have_text(list(numbers))
        expect(summary.locator("td")).to_have_text(list(numbers.values()))
    summary.get_by_role("combobox").select_option("size")
    expect(summary.get_by_role("status")).to_have_text("3 categories, ordered from the least")


def test_hostile_names_and_values(page: Page, site: str) -> None:
    """Names and values that h5py cannot write, but any client of the server can."""
    text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
    names = ["nul\0", "\u200frtl\u202e", "y" * 1000, "__proto__", "constructor", "1e999", "'><b>"]
    values = ["a\0b", "\r\u2028", "1e999", "NaN", "</td><script>", "\ufeff"]
    domain = "/home/admin/frames-hostile.h5"
    with Connection(site, domain) as connection:
        root = connection.json("PUT", "/", {})["root"]
        body = {"attributes": {"encoding-type": {"type": text, "value": "dataframe"}}}
        body["attributes"]["_index"] = {"type": text, "value": "i"}
        body["attributes"]["column-order"] = {"type": text, "shape": [len(names)], "value": names}
        frame = connection.json("POST", "/groups", {"link": {"id": root, "name": "f"}} | body)["id"]
        for name in ["i", *names]:
            body = {
                "type": text,
                "shape": [len(values)],
                "value": values,
                "link": {"id": frame, "name": name},
            }
            connection.json("POST", "/datasets", body)
    open_frame(page, domain, "/f", "Rows 0 to 5 of 6")
    codes = {"\0": r"\u0000", "\u200f": r"\u200f", "\u202e": r"\u202e", "\r": r"\u000d", "\u2028": r"\u2028"}
    codes["\ufeff"] = r"\ufeff"
    shown = ["".join(codes.get(one, one) for one in name) for name in names + values]
    assert head(page) == ["i", *shown[: len(names)]]
    for number, value in enumerate(shown[len(names) :]):
        expect(row(page, number)).to_have_text([value] * (1 + len(names)))
    sorting(page, "__proto__").click()
    expect(page.locator("tr[data-row] th").first).to_have_text(r"\u000d\u2028")
    expect(page.locator(".problem")).to_have_count(0)
    assert page.locator("article b, article script").count() == 0


def test_what_is_wrong_with_a_frame_is_told(page: Page, odd: str) -> None:
    open_frame(page, odd, "/odd", "Rows 0 to 99 of 250")
    assert head(page) == ["_index", "big", "size"]
    expect(page.locator(".problem")).to_have_text(
        [
            "The column gone is not shown: there is nothing of that name in the group.",
            "The column wide is not shown: it has 2 dimensions, not one.",
            "The column list is not shown: a table has no form for the encoding awkward-array.",
            "The column halves is not shown: it has no mask.",
            "The column short is not shown: it has 3 values, and the frame 250 rows.",
            "The attribute column-order does not name what is in the group, too: extra.",
        ]
    )
    expect(row(page, 0)).to_have_text(["cell 0", str(2**60 + 1), "code 7, without a category"])
    open_frame(page, odd, "/empty", "No rows")
    assert head(page) == ["_index", "a"]
    go(page, domain=odd, path="/odd/list")
    expect(page.get_by_text("The group has no members.")).to_be_visible()
    open_frame(page, odd, "/bare", "Rows 0 to 2 of 3")
    expect(page.locator(".problem")).to_have_count(2)
    expect(row(page, 2)).to_have_text(["2", "2"])


def test_a_hundred_columns_are_shown_at_a_time(page: Page, odd: str) -> None:
    open_frame(page, odd, "/wide", "Rows 0 to 0 of 1")
    assert head(page) == ["_index", *("c" * 300 + str(number) for number in range(100))]
    expect(row(page, 0).last).to_have_text("99")
    page.get_by_role("button", name="Columns after").click()
    expect(row(page, 0).last).to_have_text("129")
    assert len(head(page)) == 31
    expect(page.get_by_text("Columns 100 to 129 of 130")).to_be_visible()
    expect(page.get_by_role("button", name="Columns after")).to_be_disabled()


def test_a_frame_of_names_alone(page: Page, frames: str) -> None:
    open_frame(page, frames, "/var", "Rows 0 to 1 of 2")
    expect(page.get_by_text("The frame has no columns.")).to_be_visible()
    expect(page.locator("tr[data-row]")).to_have_text(["g0", "g1"])


def copied(page: Page, site: str) -> Any:
    """Run the lines of "Copy as Python", and return their `data`."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("status").filter(has_text="Python copied")).to_be_visible()
    found: dict[str, Any] = {}
    exec(page.evaluate("navigator.clipboard.readText()"), found)
    return found["data"]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::anndata.OldFormatWarning")
@pytest.mark.parametrize(
    ("domain", "path", "wanted"),
    [
        (FRAMES, "/obs", lambda data: data.obs),
        (FRAMES, "/var", lambda data: data.var),
        (FRAMES, "/raw/var", lambda data: data.raw.var),
        (CELLS, "/obs", lambda data: data.obs),
        (CELLS, "/raw.var", lambda data: data.raw.var),
    ],
)
def test_the_frame_in_python(
    page: Page, site: str, frames: str, domain: str, path: str, wanted: Callable[[Any], Any]
) -> None:
    go(page, domain=domain, path=path)
    with hsparse.open(site + domain) as file:
        pd.testing.assert_frame_equal(copied(page, site), wanted(file.to_anndata()), check_column_type=False)


def test_frames_before_0_7_are_compounds(page: Page) -> None:
    open_frame(page, CELLS, "/obs", "Rows 0 to 99 of 700")
    assert head(page)[:2] == ["index", "bulk_labels"]
    expect(row(page, 0).nth(0)).to_have_text("AAAGCCTGGCTAAC-1")
    expect(row(page, 0).nth(1)).to_have_text("CD14+ Monocyte")
    page.get_by_label("Filter by").select_option("bulk_labels")
    page.get_by_label("that is").select_option("Dendritic")
    settled(page, "240 rows with bulk_labels Dendritic")


def test_categories_of_0_7(page: Page, site: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "old.h5ad", "w") as file:
        frame = file.create_group("obs")
        frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.1.0", "_index": "index"})
        frame.attrs["column-order"] = ["kind"]
        frame["index"], frame["kind"] = ["a", "b", "c"], np.array([1, -1, 0], "i1")
        frame["__categories/kind"] = ["x", "y"]
        frame["__categories/kind"].attrs["ordered"] = True
        frame["kind"].attrs["categories"] = frame["__categories/kind"].ref
    open_frame(
        page, load(site, tmp_path / "old.h5ad", "/home/admin/frames-old.h5ad"), "/obs", "Rows 0 to 2 of 3"
    )
    expect(page.locator("tr[data-row]")).to_have_text(["ay", "bmissing", "cx"])
    expect(page.get_by_role("columnheader", name="kind")).to_contain_text("ordered category")
    expect(page.locator(".problem")).to_have_count(0)


@pytest.mark.parametrize(
    ("make", "path", "names", "cells"),
    [
        (loom, "/obs", ["CellID", "depth"], ["ACGT0000-1"]),
        (contacts, "/bins", ["_index", "chrom", "start", "end", "weight"], ["0", "chr1", "0"]),
    ],
)
def test_frames_of_other_formats(
    page: Page,
    site: str,
    tmp_path: Path,
    make: Callable[[Path], Path],
    path: str,
    names: list[str],
    cells: list[str],
) -> None:
    suffix = "loom" if make is loom else "cool"
    domain = load(site, make(tmp_path / f"x.{suffix}"), f"/home/admin/frames-{suffix}.h5")
    open_frame(page, domain, path, "Rows 0 to")
    assert head(page) == names
    for number, cell in enumerate(cells):
        expect(row(page, 0).nth(number)).to_have_text(cell)
    expect(page.locator(".problem")).to_have_count(0)


@pytest.fixture(scope="session")
def million(site: str) -> str:
    """A frame of a million rows."""
    with hsparse.open(site + LARGE, "w") as file:
        numbers = np.arange(MILLION)
        sizes = pd.Categorical.from_codes(
            (numbers % 1001 != 0) - 1 + (numbers == 999_998), ["common", "once"]
        )
        frame = pd.DataFrame(
            {"n": numbers[::-1] + 2**60, "size": sizes, "flag": numbers == 5}, index=numbers.astype(str)
        )
        file.write_anndata(anndata.AnnData(np.zeros((MILLION, 0), "f4"), frame))
    return LARGE


def test_of_a_million_rows_few_are_read(page: Page, million: str) -> None:
    asked: list[Any] = []
    read: list[int] = []

    def note(response: Any) -> None:
        if "/datasets/" in response.url:
            asked.append(response.request.post_data)
            read.append(int(response.headers.get("content-length", "0")))

    page.on("response", note)
    open_frame(page, million, "/obs", "Rows 0 to 99 of 1,000,000")
    page.get_by_role("textbox", name="Row").fill("654321")
    page.get_by_role("button", name="Go").click()
    settled(page, "Rows 654,300 to 654,399 of 1,000,000")
    expect(row(page, 654_321).nth(1)).to_have_text(str(2**60 + MILLION - 1 - 654_321))
    parts = [one["select"] for body in asked if body for one in json.loads(body)["reads"]]
    assert {"[0:100]", "[654300:654400]"} <= {part for part in parts if isinstance(part, str)}
    expect(page.get_by_role("columnheader", name="flag")).to_contain_text("too many rows to sort")
    sorting(page, "n").click()
    settled(page, "the 1,000 least of n in 1,000,000 rows")
    expect(page.locator("tr[data-row] th").first).to_have_text("999999")
    page.get_by_role("button", name="Order of the frame").click()
    page.get_by_label("Filter by").select_option("size")
    page.get_by_label("that is").select_option("once")
    settled(page, "Rows 0 to 0 of 1: 1 row with size once")
    expect(page.locator("tr[data-row] th")).to_have_text(["999998"])
    page.get_by_label("that is").select_option("common")
    settled(page, "the first 10,000 rows with size common")
    summary = page.get_by_role("region", name="Summary of a column")
    for name, numbers in {
        "size": {"common": "998,999", "once": "1", "missing": "1,000"},
        "n": {"least": str(2**60), "greatest": str(2**60 + MILLION - 1)},
        "flag": {"false": "999,999", "true": "1"},
    }.items():
        summary.get_by_role("combobox").select_option(name)
        expect(summary.locator("th")).to_have_text(list(numbers))
        expect(summary.locator("td")).to_have_text(list(numbers.values()))
    assert sum(read) < 1_000_000, "no column was read whole"


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
