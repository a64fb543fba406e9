"""What leaves the page: files that h5py, anndata, numpy and pyarrow open, and lines that run as they are."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any

import anndata
import h5py
import imagecodecs
import numpy as np
import pyarrow.ipc
import pytest
import requests
from playwright.sync_api import Browser, Page, expect

import hsparse
from demo.cells import FILE, read_csr
from demo.frames import frame
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.web.conftest import CELLS, DETECTOR, go, open_page, settled

pytestmark = pytest.mark.needs("chromium")

EXACT = "/home/admin/web-exact.h5"
HALVES = np.array([[1.5, 2.25, np.nan], [np.inf, -65504, 2**-24]], np.float16)
LARGE = np.array([2**53 + 1, -(2**62) - 1])
FLOATS = np.array([np.nan, np.inf, 1 / 3, 2**24], np.float32)
SELECT = "[10:20,100:200]"
BOX = (slice(10, 20), slice(100, 200))


def downloaded(page: Page, name: str) -> bytes:
    with page.expect_download() as download:
        page.get_by_text(name, exact=True).click()
    return Path(download.value.path()).read_bytes()


def wanted(box: tuple[slice, slice] = BOX) -> Any:
    with h5py.File(FILE) as file:
        return read_csr(file["raw.X"])[box].tocoo()


def test_domains_are_files(page: Page, tmp_path: Path) -> None:
    go(page, domain=CELLS)
    path = tmp_path / "cells.h5ad"
    path.write_bytes(downloaded(page, "Download .h5ad"))
    with h5py.File(FILE) as file, h5py.File(path) as copy:
        assert (read_csr(copy["raw.X"]) != read_csr(file["raw.X"])).nnz == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file's own form is an old one
        assert anndata.read_h5ad(path).raw.shape == (700, 765)
    go(page, domain=DETECTOR)
    path.write_bytes(downloaded(page, "Download .h5"))
    with h5py.File(path) as copy:
        assert np.array_equal(copy["/detector/found"][0][frame(0).found], frame(0).image[frame(0).found])


def test_a_download_says_its_size_before(page: Page, site: str) -> None:
    go(page, domain=CELLS)
    for name, layout in (("Download .h5ad", {}), ("Download structured .h5", {"layout": "structured"})):
        size = int(requests.head(f"{site}/files{CELLS}", params=layout).headers["Content-Length"])
        text = f"{size / 2**10:.3g} KiB" if size < 2**20 else f"{size / 2**20:.3g} MiB"
        link = page.get_by_role("link", name=name, exact=True)
        expect(link.locator("xpath=following-sibling::span")).to_have_text(text)
    # Where there are many chunks to look at, the size is asked for when somebody is about to download.
    domain = "/home/admin/web-chunks.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        found = SparseDataset.create(connection, "/many", (1001,), np.uint8, (1,))
        found.write(np.arange(1001)[:, None], np.ones(1001, np.uint8))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "HEAD" else None)
    with page.expect_response("**/?domain=*verbose=1*"):
        go(page, domain=domain)
    link = page.get_by_role("link", name="Download .h5", exact=True)
    expect(link).to_be_visible()
    assert asked == []
    link.hover()
    expect(link.locator("xpath=following-sibling::span")).to_contain_text("KiB")


def test_selections_are_tables_and_arrays(page: Page) -> None:
    go(page, domain=CELLS, path="/raw.X", select=SELECT)
    table = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))
    assert table[0] == ["dim_0", "dim_1", "value"]
    part = wanted()
    places = {(row + 10, column + 100) for row, column in zip(part.row, part.col, strict=True)}
    assert {(int(row), int(column)) for row, column, _ in table[1:]} == places
    assert np.array_equal(np.load(io.BytesIO(downloaded(page, "Save NPY"))), part.toarray())
    assert np.array_equal(imagecodecs.tiff_decode(downloaded(page, "Save TIFF")), part.toarray())
    arrow = pyarrow.ipc.open_stream(downloaded(page, "Save Arrow")).read_all()
    assert arrow.column_names == ["dim_0", "dim_1", "value"]
    assert len(arrow) == part.nnz
    go(page, domain=CELLS, path="/X", select=SELECT)
    with h5py.File(FILE) as file:
        dense = file["X"][BOX]
    expect(page.get_by_role("heading", name="X", exact=True)).to_be_visible()
    assert np.array_equal(np.load(io.BytesIO(downloaded(page, "Save NPY"))), dense)
    rows = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))
    np.testing.assert_allclose(np.array(rows, float), dense, rtol=1e-6)


@pytest.fixture(scope="session")
def exact(site: str) -> str:
    """A domain of numbers that are easily spoiled: half floats, NaN, infinity, and integers above 2^53."""
    with Connection(site, EXACT) as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_IEEE_F16BE", "shape": [2, 3], "value": HALVES.tolist(), "h5path": "/half"}
        connection.json("POST", "/datasets", body)
        whole = SparseDataset.create(connection, "/whole", (2**33, 2), np.int64, (2**20, 2))
        whole.write(np.array([[0, 1], [2**32 + 1, 0]]), LARGE)
        SparseDataset.create(connection, "/floats", (4,), np.float32, (4,)).write(
            np.arange(4)[:, None], FLOATS
        )
    return EXACT


def test_half_floats_are_saved_as_they_are(page: Page, exact: str) -> None:
    go(page, domain=exact, path="/half")
    expect(page.get_by_role("heading", name="half", exact=True)).to_be_visible()
    saved = np.load(io.BytesIO(downloaded(page, "Save NPY")))
    assert saved.dtype == np.float16
    np.testing.assert_array_equal(saved, HALVES)
    np.testing.assert_array_equal(imagecodecs.tiff_decode(downloaded(page, "Save TIFF")), HALVES)
    rows = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))
    np.testing.assert_array_equal(np.array(rows, np.float16), HALVES)


def test_numbers_are_exact_in_tables(page: Page, exact: str) -> None:
    go(page, domain=exact, path="/whole", view="table")
    expect(page.get_by_role("cell", name=str(LARGE[0]), exact=True)).to_be_visible()
    rows = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))[1:]
    assert [[int(cell) for cell in row] for row in rows] == [[0, 1, LARGE[0]], [2**32 + 1, 0, LARGE[1]]]
    go(page, domain=exact, path="/floats", view="table")
    expect(page.get_by_role("cell", name="16777216", exact=True)).to_be_visible()
    for text in ("NaN", "Infinity", "0.33333334"):
        expect(page.get_by_role("cell", name=text, exact=True)).to_be_visible()
    rows = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))[1:]
    np.testing.assert_array_equal(np.array([float(value) for _, value in rows], np.float32), FLOATS)


def test_texts_are_no_formulas_in_a_table(page: Page, site: str) -> None:
    texts = ["=1+1", "@x", "-2", "a,b", "+cmd"]
    text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
    with Connection(site, "/home/admin/web-texts.h5") as connection:
        connection.json("PUT", "/", {})
        body = {"type": text, "shape": [len(texts)], "value": texts, "h5path": "/texts"}
        connection.json("POST", "/datasets", body)
    go(page, domain="/home/admin/web-texts.h5", path="/texts")
    rows = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))
    assert rows == [["'=1+1"], ["'@x"], ["-2"], ["a,b"], ["'+cmd"]]


def test_a_large_table_is_not_made_as_one_text(page: Page, site: str) -> None:
    values = np.random.default_rng(3).random(100_000)
    with Connection(site, "/home/admin/web-long.h5") as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_IEEE_F64LE", "shape": [len(values)], "h5path": "/long"}
        id = connection.json("POST", "/datasets", body)["id"]
        connection.json("PUT", f"/datasets/{id}/value", {"value": values.tolist()})
    page.add_init_script(
        """const {join} = Array.prototype;
        Array.prototype.join = function (...given) {
            const text = join.apply(this, given);
            if (text.length > 1.5e6) throw new RangeError('Invalid string length');
            return text;
        };"""
    )
    go(page, domain="/home/admin/web-long.h5", path="/long")
    saved = downloaded(page, "Save CSV")
    assert len(saved) > 1_500_000
    assert np.array_equal(np.array(saved.split(), float), values)


def test_what_is_saved_is_what_is_zoomed_to(page: Page) -> None:
    go(page, domain=CELLS, path="/raw.X")
    settled(page, "rows 0 to 699")
    page.get_by_role("button", name="Zoom in").click()
    settled(page, "rows 175 to 524")
    part = wanted((slice(175, 525), slice(191, 574)))
    table = list(csv.reader(io.StringIO(downloaded(page, "Save CSV").decode())))
    assert len(table) == part.nnz + 1
    assert {int(row) for row, _, _ in table[1:]} == set(part.row + 175)
    tab = page.get_by_role("link", name="Table", exact=True)
    expect(tab).to_have_attribute("href", re.compile(r"select=\[175:525,191:574\]"))


def test_lines_for_programs_run_as_they_are(browser: Browser, site: str) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with open_page(browser, site, permissions=permissions) as page:
        go(page, domain=CELLS, path="/raw.X", select=SELECT)
        page.get_by_role("button", name="Copy as Python").click()
        expect(page.get_by_role("status").filter(has_text="Python copied")).to_be_visible()
        program = page.evaluate("navigator.clipboard.readText()")
        names: dict[str, Any] = {}
        exec(compile(program, "copied", "exec"), names)
        assert np.array_equal(names["data"].toarray(), wanted().toarray())
        page.get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_role("status").filter(has_text="curl copied")).to_be_visible()
        line = page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=30)
        assert sorted(json.loads(done.stdout)["value"]) == sorted(wanted().data.tolist())


def test_lines_for_an_anndata_return_one(browser: Browser, site: str) -> None:
    data = anndata.AnnData(np.arange(6, dtype=np.float32).reshape(2, 3))
    with hsparse.open(f"{site}/home/admin/web-two.h5mu", "w") as file:
        file.write_anndata(data, "mod/rna")
    with open_page(browser, site, permissions=["clipboard-read", "clipboard-write"]) as page:
        for address, line, shape in (
            ({"domain": CELLS}, "file.to_anndata()", (700, 765)),
            (
                {"domain": "/home/admin/web-two.h5mu", "path": "/mod/rna"},
                'file.to_anndata("/mod/rna")',
                (2, 3),
            ),
            ({"domain": "/home/admin/web-two.h5mu", "path": "/mod"}, 'file["/mod"]', None),
        ):
            go(page, **address)
            expect(
                page.get_by_role("heading", name=Path(list(address.values())[-1]).name, exact=True)
            ).to_be_visible()
            page.get_by_role("button", name="Copy as Python").click()
            expect(page.get_by_role("status").filter(has_text="Python copied")).to_be_visible()
            program = page.evaluate("navigator.clipboard.readText()")
            assert f"= {line}\n" in program
            names: dict[str, Any] = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the file of the cells has an old form
                exec(compile(program, "copied", "exec"), names)
            assert shape is None or names["data"].shape == shape
