"""Uploads and downloads."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anndata
import h5py
import imagecodecs
import numpy as np
import pyarrow.ipc
import pytest
import requests
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

import hsparse
from demo.cells import FILE, read_csr
from demo.frames import frame
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.cli.importer.domain_picture import domain_differences
from tests.support.endurance import repeats
from tests.web import test_deeds
from tests.web.conftest import CELLS, DETECTOR, go, open_page, settled
from tests.web.cutting_proxy import cutting_proxy
from tests.web.test_accessibility import check
from tests.web.test_deeds import ANN, EXACT, REFUSED, SCRIPT, ask, entry, make
from tests.web.test_signing_in import PASSWORD, Guarded, sign_in

pytestmark = pytest.mark.needs("chromium")

MIB = 1 << 20
MODIFIED = 1_700_000_000_123
QUICK_TIMERS = (
    "const real = setTimeout; window.setTimeout = (f, t, ...more) => real(f, Math.min(t ?? 0, 20), ...more);"
)
"""Pauses of at most 20 ms, for tests of many of them."""
IMPOSSIBLE = {kind: one for kind, one in REFUSED.items() if kind != "half"} | {
    "end": ("n" * 238, "240 bytes")
}
"""A browser replaces half a character in a file's name; with its end the path of an upload has no room for the last."""

guarded = test_deeds.guarded


@pytest.fixture
def ann(browser: Browser, guarded: Guarded) -> Iterator[Page]:
    with ann_at(browser, guarded.url) as page:
        yield page


@contextmanager
def ann_at(browser: Browser, url: str, script: str = "") -> Iterator[Page]:
    """Open ann's page at a server's address, at her folder; it runs a script first."""
    with open_page(browser, url) as page:
        if script:
            page.add_init_script(script)
        go(page, domain=ANN)
        sign_in(page, "ann", PASSWORD)
        expect(page.get_by_role("button", name="Import files")).to_be_visible()
        yield page


def h5_file(path: Path, nbytes: int = 0) -> bytes:
    """Write an HDF5 file with at least so many bytes; return its bytes."""
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "small"
        file.create_dataset(
            "g/filtered", data=np.arange(600).reshape(20, 30), chunks=(5, 30), compression="gzip"
        )
        file["random"] = np.frombuffer(random.Random(7).randbytes(nbytes + 8), np.uint8)
    return path.read_bytes()


def drop(target: Locator, *files: tuple[str, bytes], modified: int = MODIFIED) -> None:
    """Drop files with these names and bytes on an element."""
    given = [[[ord(c) for c in name], base64.b64encode(data).decode()] for name, data in files]
    transfer = target.page.evaluate_handle(
        """([files, lastModified]) => {
            const transfer = new DataTransfer();
            for (const [name, data] of files) {
                const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
                transfer.items.add(new File([bytes], String.fromCodePoint(...name), {lastModified}));
            }
            return transfer;
        }""",
        [given, modified],
    )
    for event in ("dragover", "drop"):
        target.dispatch_event(event, {"dataTransfer": transfer})


def zone(page: Page) -> Locator:
    return page.locator("section[aria-labelledby=folderName]")


def task(page: Page, text: str = "") -> Locator:
    return page.get_by_role("region", name="Tasks").get_by_role("listitem").filter(has_text=text)


def is_missing(guarded: Guarded, path: str) -> bool:
    return ask(guarded, "ann", "GET", "/", path)[0] in (404, 410)


def received(guarded: Guarded, path: str) -> int:
    root = ask(guarded, "ann", "GET", "/", path)[1]["root"]
    return int(ask(guarded, "ann", "GET", f"/groups/{root}/attributes/received", path)[1]["value"])


def differences(guarded: Guarded, path: Path, domain: str) -> list[str]:
    with (
        h5py.File(path) as file,
        Connection(guarded.url, domain, user="ann", password=PASSWORD) as connection,
    ):
        return domain_differences(file, connection)


def test_a_dropped_file_is_imported(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    data = h5_file(tmp_path / "run.h5", 3 * MIB)
    drop(zone(ann), ("run.h5", data))
    link = task(ann, "Import run.h5 into /home/ann").get_by_role("link", name=f"Open {ANN}/run.h5")
    expect(link).to_be_visible()
    expect(task(ann).get_by_role("status")).to_have_text("imported")
    check(ann)
    expect(entry(ann, "run.h5")).to_be_visible()
    assert differences(guarded, tmp_path / "run.h5", f"{ANN}/run.h5") == []
    assert is_missing(guarded, f"{ANN}/run.h5.upload")
    link.click()
    expect(ann.get_by_role("treeitem", name="random")).to_be_visible()


def test_by_keyboard_several_one_after_the_other(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    for name in ("one.h5", "two.h5"):
        h5_file(tmp_path / name)
    asked: list[str] = []

    def note(request: Request) -> None:
        if request.method in ("PUT", "POST"):
            query = parse_qs(urlsplit(request.url).query)
            asked.append(query["domain"][0] if "domain" in query else request.post_data_json["domain"])

    ann.on("request", note)
    button = ann.get_by_role("button", name="Import files")
    button.focus()
    with ann.expect_file_chooser() as chooser:
        expect(button).to_be_focused()  # asked after the chooser is: keys would overtake that
        ann.keyboard.press("Enter")
    chooser.value.set_files([tmp_path / "one.h5", tmp_path / "two.h5"])
    for name in ("one.h5", "two.h5"):
        expect(task(ann, name).get_by_role("link", name=f"Open {ANN}/{name}")).to_be_visible()
        assert differences(guarded, tmp_path / name, f"{ANN}/{name}") == []
    of_one = [number for number, domain in enumerate(asked) if "one.h5" in domain]
    of_two = [number for number, domain in enumerate(asked) if "two.h5" in domain]
    assert max(of_one) < min(of_two) or max(of_two) < min(of_one)


def test_a_file_dropped_on_a_listed_folder_gets_in(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    make(guarded, f"{ANN}/inner", folder=True)
    go(ann, domain="/home")
    go(ann, domain=ANN)
    drop(ann.get_by_role("row").filter(has=entry(ann, "inner/")), ("a.h5", h5_file(tmp_path / "a.h5")))
    expect(task(ann).get_by_role("link", name=f"Open {ANN}/inner/a.h5")).to_be_visible()
    assert is_missing(guarded, f"{ANN}/a.h5")


def test_what_exists_is_told_before_anything_is_sent(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    make(guarded, f"{ANN}/there.h5")
    changes: list[str] = []
    ann.on("request", lambda request: changes.append(request.url) if request.method != "GET" else None)
    drop(zone(ann), ("there.h5", h5_file(tmp_path / "there.h5")), ("empty.h5", b""))
    expect(task(ann, "there.h5").get_by_role("alert")).to_contain_text(f"{ANN}/there.h5 exists already")
    expect(task(ann, "empty.h5").get_by_role("alert")).to_contain_text("empty.h5 is empty")
    assert changes == []


def test_what_the_importer_refuses_is_told_tried_again_and_deleted(ann: Page, guarded: Guarded) -> None:
    drop(zone(ann), ("junk.h5", b"no HDF5 at all" * 100))
    alert = task(ann).get_by_role("alert")
    expect(alert).to_contain_text("junk.h5")
    words = alert.inner_text()
    expect(ann.get_by_text("unfinished upload: 1.37 KiB of 1.37 KiB are there")).to_be_visible()
    check(ann)
    task(ann).get_by_role("button", name="Try again").click()
    expect(alert).to_have_count(0)
    expect(alert).to_have_text(words.replace("\n", ""))
    task(ann).get_by_role("button", name="Delete the upload").click()
    expect(task(ann)).to_contain_text("The upload is deleted.")
    expect(entry(ann, "junk.h5.upload")).to_have_count(0)
    assert is_missing(guarded, f"{ANN}/junk.h5.upload")
    assert is_missing(guarded, f"{ANN}/junk.h5")


def test_a_new_page_goes_on_and_refuses_another_file(
    browser: Browser, guarded: Guarded, tmp_path: Path
) -> None:
    data = h5_file(tmp_path / "long.h5", 4 * MIB)
    path = f"{ANN}/long.h5.upload"
    with ann_at(browser, guarded.url) as page:
        second = "**/value?*select=%5B1048576*"
        page.route(second, lambda route: None)  # answered never
        page.clock.install(time=0)
        page.clock.pause_at(1)
        with page.expect_request(second):
            drop(zone(page), ("long.h5", data))
        page.clock.run_for(200)  # what is reported in less is told then
        expect(task(page)).to_contain_text("uploaded · 1.00 MiB of 4.0")
    assert received(guarded, path) == MIB
    with ann_at(browser, guarded.url) as page:
        expect(page.get_by_text("unfinished upload: 1.00 MiB of 4.01 MiB are there")).to_be_visible()
        for other in ((data[:-1], MODIFIED), (data, MODIFIED + 1)):
            drop(zone(page), ("long.h5", other[0]), modified=other[1])
            expect(task(page).get_by_role("alert")).to_contain_text(f"{path}: delete that first.")
            expect(task(page).get_by_role("button", name="Delete the upload")).to_have_count(0)
            task(page).get_by_role("button", name="Dismiss").click()
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if "/value?" in request.url else None)
        drop(zone(page), ("long.h5", data))
        expect(task(page).get_by_role("link", name=f"Open {ANN}/long.h5")).to_be_visible()
    starts = [int(parse_qs(urlsplit(url).query)["select"][0][1:].partition(":")[0]) for url in sent]
    assert (min(starts), differences(guarded, tmp_path / "long.h5", f"{ANN}/long.h5")) == (MIB, [])


def test_one_that_is_cancelled_is_there_until_it_is_deleted(ann: Page, guarded: Guarded) -> None:
    ann.route("**/value?*", lambda route: None)  # answered never
    drop(zone(ann), ("stopped.h5", bytes(100)))
    expect(task(ann)).to_contain_text("uploaded · 0 bytes of 100 bytes")
    task(ann).get_by_role("button", name="Cancel").click()
    expect(task(ann)).to_contain_text("stopped")
    expect(ann.get_by_text("unfinished upload: 0 bytes of 100 bytes are there")).to_be_visible()
    ann.get_by_role("button", name="Delete stopped.h5.upload").click()
    dialog = ann.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{ANN}/stopped.h5.upload")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(entry(ann, "stopped.h5.upload")).to_have_count(0)
    assert is_missing(guarded, f"{ANN}/stopped.h5.upload")


def test_an_import_shows_how_far_it_is_and_is_cancelled(ann: Page, guarded: Guarded) -> None:
    job = {
        "id": "j-1",
        "kind": "import",
        "domain": f"{ANN}/slow.h5",
        "status": "running",
        "done": 0,
        "total": 100,
    }
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.method)
        if asked[-1] == "GET" and "DELETE" in asked:
            job["status"] = "cancelled"
        route.fulfill(status=202, json=job | {"done": 10 * asked.count("GET")})

    ann.route(
        "**/jobs",
        lambda route: route.fulfill(json={"jobs": []}) if route.request.method == "GET" else answer(route),
    )
    ann.route("**/jobs/j-1", answer)
    drop(zone(ann), ("slow.h5", bytes(100)))
    expect(task(ann)).to_contain_text("working · 20 bytes of 100 bytes")
    task(ann).get_by_role("button", name="Cancel").click()
    expect(task(ann)).to_contain_text("stopped")
    assert (asked[0], asked.count("POST"), asked.count("DELETE")) == ("POST", 1, 1)
    task(ann).get_by_role("button", name="Delete the upload").click()
    expect(task(ann)).to_contain_text("The upload is deleted.")
    assert is_missing(guarded, f"{ANN}/slow.h5.upload")


def test_a_job_whose_answer_was_lost_is_found(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    started: list[str] = []

    def lose(route: Route) -> None:
        if route.request.method == "POST":
            started.append(route.fetch().json()["id"])
            route.abort()
        else:
            route.fallback()

    ann.route("**/jobs", lose)
    drop(zone(ann), ("lost.h5", h5_file(tmp_path / "lost.h5")))
    expect(task(ann).get_by_role("link", name=f"Open {ANN}/lost.h5")).to_be_visible()
    assert len(started) == 1
    jobs = ask(guarded, "ann", "GET", "/jobs", "/")[1]["jobs"]
    assert [job["id"] for job in jobs if job["domain"] == f"{ANN}/lost.h5"] == started


def test_nothing_goes_on_in_the_name_of_another(ann: Page) -> None:
    ann.route("**/value?*", lambda route: None)  # answered never
    drop(zone(ann), ("left.h5", bytes(100)))
    expect(task(ann)).to_contain_text("uploaded · 0 bytes of 100 bytes")
    ann.get_by_role("button", name="Sign out").click()
    expect(task(ann)).to_contain_text("Somebody else signed in, or nobody is signed in any more.")
    expect(ann.get_by_role("button", name="Import files")).to_have_count(0)


def test_a_server_that_is_away_is_asked_after_growing_pauses(ann: Page, guarded: Guarded) -> None:
    asked: list[str] = []

    def refuse(route: Route) -> None:
        if "away.h5.upload" in route.request.url:
            asked.append(route.request.method)
            route.abort()
        else:
            route.fallback()

    def count(milliseconds: int) -> int:
        before = len(asked)
        ann.clock.run_for(milliseconds)
        expect(task(ann)).to_contain_text("This page asks again.")
        return len(asked) - before

    drop(zone(ann), ("away.h5", bytes(100)))
    expect(task(ann).get_by_role("alert")).to_be_visible()  # it is no file of a known format
    ask(guarded, "ann", "DELETE", "/", f"{ANN}/away.h5.upload")
    ann.clock.install(time=0)
    ann.clock.pause_at(1)  # else it goes on by itself
    ann.route("**/?domain=*", refuse)
    task(ann).get_by_role("button", name="Try again").click()
    expect(task(ann)).to_contain_text("This page asks again.")
    assert len(asked) == 1
    for pause in (500, 1000, 2000, 4000):
        assert count(pause - 50) == 0
        with ann.expect_request("**/?domain=*away*"):
            ann.clock.run_for(100)
        expect(task(ann)).to_contain_text("This page asks again.")


def test_pieces_get_as_small_as_a_proxy_wants(ann: Page, guarded: Guarded, tmp_path: Path) -> None:
    sizes: list[int] = []

    def limit(route: Route) -> None:
        sizes.append(len(route.request.post_data_buffer or b""))
        if sizes[-1] > 300_000:
            route.fulfill(status=413, content_type="text/html", body="<h1>413 Request Entity Too Large</h1>")
        else:
            route.continue_()

    ann.route("**/value?*", limit)
    data = h5_file(tmp_path / "small.h5", 2 * MIB)
    drop(zone(ann), ("small.h5", data))
    expect(task(ann).get_by_role("link", name=f"Open {ANN}/small.h5")).to_be_visible()
    assert (sizes[:3], max(sizes[2:])) == ([MIB, MIB // 2, MIB // 4], MIB // 4)
    assert differences(guarded, tmp_path / "small.h5", f"{ANN}/small.h5") == []


@pytest.mark.endurance
@pytest.mark.timeout(900)
def test_an_upload_cut_at_any_byte_resumes(browser: Browser, guarded: Guarded, tmp_path: Path) -> None:
    size = 3 * MIB
    data = h5_file(tmp_path / "cut.h5", size)
    chosen = random.Random(11)
    rounds = repeats(12, 1)
    with cutting_proxy(guarded.url) as proxy:
        for number in range(rounds):
            name = f"cut{number}.h5"
            with ann_at(browser, proxy.url, QUICK_TIMERS) as page:
                # Bytes between two cuts: a few, in the midst of a header, and as many as a piece has.
                proxy.cut_after([int(2 ** chosen.uniform(4, 21)) for _ in range(12)])
                drop(zone(page), (name, data))
                expect(task(page).get_by_role("link", name=f"Open {ANN}/{name}")).to_be_visible()
                proxy.cut_after([])
            assert differences(guarded, tmp_path / "cut.h5", f"{ANN}/{name}") == []
            assert is_missing(guarded, f"{ANN}/{name}.upload")
        assert proxy.cuts >= 6 * rounds


@pytest.mark.parametrize("name", [one for one in EXACT.values() if len(one) < 230])
def test_a_strange_name_is_the_domains(ann: Page, guarded: Guarded, tmp_path: Path, name: str) -> None:
    title = ann.title()
    name = f"{name}.h5"
    data = h5_file(tmp_path / "odd.h5")
    drop(zone(ann), (name, data))
    expect(task(ann).get_by_role("link", name=f"Open {ANN}/{name}")).to_be_visible()
    expect(ann.locator("td a").get_by_text(name, exact=True)).to_be_visible()
    assert (differences(guarded, tmp_path / "odd.h5", f"{ANN}/{name}"), ann.title()) == ([], title)
    assert SCRIPT not in ann.content()


@pytest.mark.parametrize(("name", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_name_is_refused_before_any_byte_is_sent(ann: Page, name: str, said: str) -> None:
    methods: set[str] = set()
    ann.on("request", lambda request: methods.add(request.method))
    drop(zone(ann), (name, b"x"))
    expect(task(ann).get_by_role("alert")).to_contain_text(said)
    assert methods <= {"GET", "PUT"}  # of the domain, which the server refuses


def test_who_may_not_drops_in_vain_and_is_refused_by_hand(browser: Browser, guarded: Guarded) -> None:
    with open_page(browser, guarded.url) as page:
        go(page, domain=ANN)
        sign_in(page, "bob", PASSWORD)
        expect(page.get_by_role("banner")).to_contain_text("bob")
        expect(page.get_by_role("heading", name="ann")).to_be_visible()
        expect(page.get_by_role("button", name="Import files")).to_have_count(0)
        drop(zone(page), ("bob.h5", b"x"))
        expect(page.get_by_role("region", name="Tasks")).to_have_count(0)
        expect(page.get_by_role("heading", name="ann")).to_be_visible()
    status, answer = ask(guarded, "bob", "PUT", "/", f"{ANN}/bob.h5.upload", {})
    assert (status, answer["error"]["kind"]) == (403, "forbidden")
    body = {"kind": "import", "domain": f"{ANN}/bob.h5", "source": f"upload://{ANN}/any.h5.upload"}
    status, answer = ask(guarded, "bob", "POST", "/jobs", "/", body)
    assert (status, answer["error"]["kind"]) == (403, "forbidden")


DOWNLOAD_EXACT = "/home/admin/web-exact.h5"
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
    assert (arrow.column_names, len(arrow)) == (["dim_0", "dim_1", "value"], part.nnz)
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
    with Connection(site, DOWNLOAD_EXACT) as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_IEEE_F16BE", "shape": [2, 3], "value": HALVES.tolist(), "h5path": "/half"}
        connection.json("POST", "/datasets", body)
        whole = SparseDataset.create(connection, "/whole", (2**33, 2), np.int64, (2**20, 2))
        whole.write(np.array([[0, 1], [2**32 + 1, 0]]), LARGE)
        SparseDataset.create(connection, "/floats", (4,), np.float32, (4,)).write(
            np.arange(4)[:, None], FLOATS
        )
    return DOWNLOAD_EXACT


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
    assert (len(table), {int(row) for row, _, _ in table[1:]}) == (part.nnz + 1, set(part.row + 175))
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
