"""Pictures of sparse data with colours compared with ones computed from the data; tables, embeddings, chunks."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote

import h5py
import imagecodecs
import matplotlib
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, Route, expect
from scipy.sparse import csr_array

from demo.cells import FILE, read_csr
from demo.frames import FOUND, frame
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.web.conftest import CELLS, DETECTOR, ZEROS, go, pixels, settled

pytestmark = pytest.mark.needs("chromium")

UNDEFINED = (200, 200, 206)
CLOSE = 11
"""By how much a channel may differ: the explorer's scale has eleven places of viridis, and is straight in between."""
MATRIX = "/raw.X"
CANVAS = "canvas.main"


@cache
def matrix() -> csr_array:
    with h5py.File(FILE) as file:
        return read_csr(file[MATRIX])


def colours(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the colours of values, of which NaN is undefined."""
    low, high = np.nanmin(values), np.nanmax(values)
    scale = matplotlib.colormaps["viridis"](np.nan_to_num((values - low) / (high - low)))[..., :3] * 255
    return np.where(np.isnan(values)[..., None], UNDEFINED, scale)


def second_frame() -> NDArray[np.float64]:
    """Return what was stored of the second frame: some groups of pixels, and measured zeros."""
    one = frame(1)
    image = np.where(one.found, one.image.astype(float), np.nan)
    image[tuple(ZEROS[:, 1:].T)] = 0
    return image


def box(page: Page, selector: str) -> dict[str, float]:
    """Return where an element is on the page, and its size."""
    found = page.locator(selector).bounding_box()
    assert found is not None
    return {"x": found["x"], "y": found["y"], "width": found["width"], "height": found["height"]}


def test_undefined_is_no_colour_of_the_scale() -> None:
    scale = matplotlib.colormaps["viridis"](np.linspace(0, 1, 256))[:, :3] * 255
    assert np.abs(scale - UNDEFINED).max(axis=1).min() > 4 * CLOSE


def test_a_picture_has_the_colours_of_its_data(page: Page) -> None:
    rows, columns = (slice(400, 700), slice(300, 700))
    go(page, domain=DETECTOR, path=FOUND, select="[1:2,400:700,300:700]")
    settled(page, "defined elements in rows 400 to 699")
    wanted = colours(second_frame()[rows, columns])
    found = pixels(page, CANVAS).astype(int)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= CLOSE
    is_undefined = np.isnan(second_frame()[rows, columns])
    assert ((found == UNDEFINED).all(axis=2) == is_undefined).all()
    assert not is_undefined[100, 200], "a measured 0 is in the picture"
    expect(page.locator(".legend")).to_contain_text("measured 0")


def test_bins_have_the_mean_of_their_elements(page: Page) -> None:
    go(page, domain=CELLS, path=MATRIX)
    settled(page, f"{matrix().nnz:,} defined elements")
    dense = np.full((702, 766), np.nan)
    dense[:700, :765] = np.where(matrix().toarray() == 0, np.nan, matrix().toarray())
    blocks = dense.reshape(234, 3, 383, 2)
    counts = np.isfinite(blocks).sum(axis=(1, 3))
    means = np.where(counts > 0, np.nansum(blocks, axis=(1, 3)) / np.maximum(counts, 1), np.nan)
    assert np.abs(pixels(page, CANVAS) - colours(means)).max() <= CLOSE
    page.get_by_label("Show").select_option("density")
    expect(page.locator(".legend")).to_contain_text("logarithmic")
    assert ((pixels(page, CANVAS).astype(int) == UNDEFINED).all(axis=2) == (counts == 0)).all()


def test_places_are_squares_until_the_picture_is_to_fill_the_page(page: Page) -> None:
    def ratio() -> float:
        return box(page, CANVAS)["width"] / box(page, CANVAS)["height"]

    go(page, domain=DETECTOR, path=FOUND)
    settled(page, "rows 0 to 1,023")
    assert ratio() == pytest.approx(1, abs=0.02)
    for counts, place, length in ((".rowCounts", "y", "height"), (".columnCounts", "x", "width")):
        assert box(page, counts)[place] == box(page, CANVAS)[place]
        assert box(page, counts)[length] == box(page, CANVAS)[length]
    page.get_by_role("checkbox", name="Keep ratio").uncheck()
    assert ratio() > 1.2
    go(page, domain=DETECTOR, path=FOUND, select="[0:1,0:400,0:800]")
    settled(page, "rows 0 to 399")
    page.get_by_role("checkbox", name="Keep ratio").check()
    assert ratio() == pytest.approx(2, abs=0.02)


def test_a_long_matrix_fills_the_page_from_the_start(page: Page, site: str) -> None:
    domain = "/home/admin/web-column.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        SparseDataset.create(connection, "/long", (100_000, 3), np.uint8, (1000, 3))
    go(page, domain=domain, path="/long")
    expect(page.get_by_role("checkbox", name="Keep ratio")).not_to_be_checked()


def test_a_scale_has_logarithms_and_limits(page: Page) -> None:
    go(page, domain=DETECTOR, path=FOUND, select="[1:2,400:700,300:700]")
    settled(page, "rows 400 to 699")
    values = second_frame()[400:700, 300:700]
    page.get_by_label("Scale").select_option("log")
    expect(page.locator(".legend")).to_contain_text("value, logarithmic")
    logs = np.log(np.maximum(values, values[values > 0].min()))
    assert np.abs(pixels(page, CANVAS) - colours(logs)).max() <= CLOSE
    page.get_by_label("Scale").select_option("linear")
    low, high = np.nanquantile(values, [0.4, 0.9])
    page.get_by_label("Min", exact=True).fill(str(low))
    page.get_by_label("Max", exact=True).fill(str(high))
    assert np.abs(pixels(page, CANVAS) - colours(np.clip(values, low, high))).max() <= CLOSE
    page.get_by_label("Min", exact=True).fill(str(high + 1))
    expect(page.get_by_label("Min", exact=True)).to_have_attribute("aria-invalid", "true")
    assert np.abs(pixels(page, CANVAS) - colours(values)).max() <= CLOSE


def test_dense_frames_are_square_too(page: Page, site: str) -> None:
    domain = "/home/admin/web-square.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        connection.json("POST", "/datasets", {"type": "H5T_STD_U8LE", "shape": [64, 64], "h5path": "/square"})
    go(page, domain=domain, path="/square")
    canvas = ".h5web canvas[data-engine]"
    expect(page.locator(canvas)).to_be_visible()
    image = imagecodecs.png_decode(page.locator(canvas).screenshot())
    is_dark = image[..., 1] < 128
    assert is_dark.any(axis=1).sum() == pytest.approx(is_dark.any(axis=0).sum(), abs=4)


def test_zooming_changes_the_address(page: Page) -> None:
    go(page, domain=CELLS, path=MATRIX)
    settled(page, "rows 0 to 699")
    page.get_by_role("button", name="Zoom in").click()
    settled(page, "rows 175 to 524")
    assert "select=[175:525,191:574]" in page.url
    page.locator(CANVAS).focus()
    page.keyboard.press("ArrowUp")
    settled(page, "rows 105 to 454")
    page.keyboard.press("-")
    settled(page, "rows 0 to 699")
    page.mouse.move(700, 500)
    page.mouse.wheel(0, -100)
    expect(page.get_by_role("status").filter(has_text="rows 0 to 699")).to_have_count(0)
    address = page.url
    page.reload()
    assert page.url == address
    expect(page.get_by_role("status").filter(has_text="rows 0 to 699")).to_have_count(0)
    page.get_by_role("button", name="Fit").click()
    settled(page, "rows 0 to 699")


def test_a_place_is_named(page: Page) -> None:
    go(page, domain=CELLS, path=MATRIX, select="[0:4,0:8]")
    settled(page, "rows 0 to 3")
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 3.5 / 8, box["y"] + box["height"] / 8)
    pointed = page.locator(".pointed")
    expect(pointed).to_contain_text("AAAGCCTGGCTAAC-1")
    expect(pointed).to_contain_text("PARK7")
    expect(pointed).to_contain_text("1.591")
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    expect(pointed).to_contain_text("undefined")


def test_a_table_has_places_values_and_names(page: Page) -> None:
    go(page, domain=CELLS, path=MATRIX, view="table", select="[0:3,0:765]")
    part = matrix()[:3].tocoo()
    expect(page.get_by_role("status").filter(has_text=f"{part.nnz} defined elements")).to_be_visible()
    table = page.get_by_role("table").first
    expect(table.get_by_role("row")).to_have_count(min(500, part.nnz) + 1)
    expect(table.get_by_role("row").nth(1)).to_contain_text("PARK7 3")
    by_value = table.get_by_role("button", name="Value")
    by_value.click()
    by_value.click()
    expect(table.get_by_role("row").nth(1)).to_contain_text(f"{part.data.max():.4}"[:4])
    expect(page.get_by_role("columnheader", name="Value")).to_have_attribute("aria-sort", "descending")


def test_a_table_is_sorted_by_all_values_and_has_their_names(page: Page) -> None:
    with h5py.File(FILE) as file:
        genes, cells = ([name.decode() for name in file[table]["index"]] for table in ("raw.var", "obs"))
    part = matrix().tocoo()
    best = part.data.argmax()
    row, column = int(part.row[best]), int(part.col[best])
    go(page, domain=CELLS, path=MATRIX, view="table")
    expect(page.get_by_role("status").filter(has_text="the first of [0:700,0:765]")).to_be_visible()
    table = page.get_by_role("table").first
    table.get_by_role("button", name="Value").click()
    settled(page, "The 500 least of [0:700,0:765]")
    table.get_by_role("button", name="Value").click()
    settled(page, "The 500 greatest of [0:700,0:765]")
    first = table.get_by_role("row").nth(1)
    expect(first).to_contain_text(f"{cells[row]} {row}")
    expect(first).to_contain_text(f"{genes[column]} {column}")
    expect(first).to_contain_text(str(part.data[best]))


def test_what_is_undefined_is_in_no_table_whatever_the_fill_value(page: Page, site: str) -> None:
    domain = "/home/admin/web-fills.h5"
    fills: dict[str, tuple[str, float]] = {
        "largest": ("u8", 2**64 - 1),
        "least": ("i8", -(2**63)),
        "infinite": ("f4", np.inf),
        "nan": ("f8", np.nan),
        "half": ("f2", 0.1),
        "third": ("f4", 1 / 3),
        "zero": ("u8", 0),
    }
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        for name, (dtype, fill) in fills.items():
            shape = (2, 2, 2)
            found = SparseDataset.create(connection, f"/{name}", shape, dtype, shape, fillvalue=fill)
            found.write(np.array([[0, 1, 1], [1, 0, 0]]), np.array([7, 8], dtype))
    for name in fills:
        go(page, domain=domain, path=f"/{name}", view="table")
        settled(page, "1 defined elements in [0:1,0:2,0:2], the first of")
        by_value = page.get_by_role("button", name="Value")
        by_value.click()
        by_value.click()
        is_sorted = name in ("nan", "half", "third", "zero")
        settled(
            page, "The 2 greatest of" if is_sorted else "1 defined elements in [0:1,0:2,0:2], the first of"
        )
        expect(page.get_by_role("row").nth(1)).to_contain_text("8" if is_sorted else "7")


def test_the_first_rows_of_a_table_are_found_without_all_chunks(page: Page, site: str) -> None:
    domain = "/home/admin/web-tall.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        shape = (1_000_000, 200)
        dataset = SparseDataset.create(connection, "/tall", shape, np.uint8, (200, 200))
        places = np.stack([np.arange(25_000) // 200, np.arange(25_000) % 200], axis=1)
        dataset.write(np.concatenate([places, [[999_999, 0]]]), np.ones(25_001, np.uint8))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(unquote(request.url)))
    go(page, domain=domain, path="/tall", view="table")
    settled(page, "25,000 defined elements in [0:196,0:200], the first of [0:1000000,0:200]")
    assert [re.findall(r"select=([^&]*)", url) for url in asked if "density" in url] == [["[0:200000,0:200]"]]


def test_a_table_of_no_places_is_empty(page: Page, site: str) -> None:
    domain = "/home/admin/web-none.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        SparseDataset.create(connection, "/none", (0, 4), np.float32, (4, 4), maxshape=(None, 4))
    go(page, domain=domain, path="/none", view="table")
    settled(page, "0 defined elements in [0:0,0:4]")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_table_says_that_another_selection_loads(page: Page) -> None:
    go(page, domain=CELLS, path=MATRIX, view="table", select="[0:3,0:765]")
    settled(page, "defined elements in [0:3,0:765]")
    page.route("**/value?*", lambda route: None)  # answered never
    go(page, domain=CELLS, path=MATRIX, view="table", select="[3:6,0:765]")
    expect(page.get_by_role("status").filter(has_text="Loading…")).to_be_visible()


def test_an_embedding_is_coloured_by_a_gene_and_by_a_column(page: Page) -> None:
    with h5py.File(FILE) as file:
        gene = [name.decode() for name in file["raw.var"]["index"]].index("CST3")
    column = matrix().tocsc()[:, [gene]]
    go(page, domain=CELLS, view="embedding", select="gene:CST3")
    settled(page, f"undefined in {700 - column.nnz}")
    assert (pixels(page, ".scatter canvas") == UNDEFINED).all(axis=2).sum() > 700 - column.nnz
    page.get_by_label("Colour by").select_option("louvain")
    settled(page, "coloured by louvain")
    expect(page.locator(".key li")).to_have_count(11)
    assert (pixels(page, ".scatter canvas") == UNDEFINED).all(axis=2).sum() == 0
    assert "select=obs:louvain" in page.url
    go(page, domain=CELLS, view="embedding", select="gene:CST3")
    settled(page, "coloured by CST3")


def test_cells_without_a_category_or_a_place(page: Page, site: str) -> None:
    domain = "/home/admin/web-missing.h5ad"
    text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
    corners = [[1, 1], [2, 2], ["nan", "nan"], [1, 2]]
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        for path, kind, value in (
            ("/obs/_index", text, ["a", "b", "c", "d"]),
            ("/obs/kind/categories", text, ["T", "B"]),
            ("/obs/kind/codes", "H5T_STD_I8LE", [0, 1, 0, -1]),
            ("/obsm/X_umap", "H5T_IEEE_F16LE", corners),
        ):
            shape = [4, 2] if value is corners else [len(value)]
            body = {"type": kind, "shape": shape, "value": value, "h5path": path}
            connection.json("POST", "/datasets", body, implicit=1)
    go(page, domain=domain, view="embedding")
    settled(page, "coloured by kind; undefined in 1")
    expect(page.locator(".key li")).to_have_text(["B", "T", "undefined"])
    shown = pixels(page, ".scatter canvas")
    # The first cell is at the lower left, the last one above it: NaN has no place, and moves none.
    assert tuple(shown[632, 8]) not in (UNDEFINED, (0, 0, 0))
    assert tuple(shown[8, 8]) == UNDEFINED


def test_chunks_are_listed(page: Page) -> None:
    go(page, domain=DETECTOR, path="/detector/full", view="chunks")
    expect(page.get_by_text("4 stored chunks of 1 × 512 × 512 places")).to_be_visible()
    assert pixels(page, "canvas.map").shape == (2, 2, 3)
    expect(page.get_by_role("cell", name=f"{512 * 512:,}")).to_have_count(4)


def test_a_dataset_of_very_many_places_opens(page: Page, site: str) -> None:
    domain = "/home/admin/web-wide.h5"
    with Connection(site, domain) as connection:
        connection.json("PUT", "/", {})
        side = 1_000_000
        dataset = SparseDataset.create(connection, "/wide", (side, side), np.float32, (1000, 1000))
        dataset.write(np.array([[0, 0], [side - 1, side - 1]]), np.array([1, 2], np.float32))
    asked: list[str] = []

    def one_by_one(route: Route) -> None:
        asked.append(unquote(route.request.url))
        route.continue_(url=re.sub(r"Limit=\d+", "Limit=1", route.request.url))

    page.route("**/density?*approximate=1*", one_by_one)
    go(page, domain=domain, path="/wide")
    settled(page, "2 defined elements")
    assert ["Marker=0_0" in url for url in asked] == [False, True], "chunks are counted page by page"
    shown = (pixels(page, CANVAS) != UNDEFINED).any(axis=2)
    assert shown.sum() == 2
    assert shown[0, 0]
    assert shown[-1, -1]
