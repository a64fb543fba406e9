"""Journeys through folders, domains and dense data: by mouse, by keyboard, by address, and to what is not there."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import h5py
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import parse_arguments
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.config import load_settings
from tests.web.conftest import CELLS, go, open_page, settled, to_the_end

pytestmark = pytest.mark.needs("chromium")

ODD = "/home/admin/web-odd.h5"
SCRIPT = "<img src=x onerror=\"document.title='run'\">"


def test_from_the_top_level_to_a_dataset(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="home/").click()
    page.get_by_role("link", name="admin/").click()
    page.get_by_role("searchbox", name="Search").fill("web-ce")
    expect(page.get_by_role("status").filter(has_text="1 of")).to_be_visible()
    page.get_by_role("link", name="web-cells.h5ad").click()
    tree = page.get_by_role("tree")
    expect(tree.get_by_role("treeitem", name="raw.X")).to_contain_text("700 × 765 sparse")
    tree.get_by_role("treeitem", name="uns").click()
    expect(page.get_by_role("heading", name="uns", exact=True)).to_be_visible()
    page.get_by_role("searchbox", name="Search objects").fill("categories")
    expect(tree.get_by_role("treeitem")).not_to_have_count(0)
    for item in tree.get_by_role("treeitem").all():
        expect(item).to_contain_text("categories")
    page.go_back()
    expect(page.get_by_role("heading", name="web-cells.h5ad", exact=True)).to_be_visible()


def test_by_keyboard(page: Page) -> None:
    go(page, domain=CELLS)
    page.get_by_role("treeitem").first.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="obs", exact=True)).to_be_visible()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "treeitem"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("treeitem", name="raw.var")).to_be_visible()


def test_an_empty_page_says_how_data_gets_in(browser: Browser, tmp_path: Path) -> None:
    with (
        embedded_server(load_settings(root=tmp_path / "store", port=0, fsync=False)) as url,
        open_page(browser, url) as page,
    ):
        go(page, domain="/")
        expect(page.get_by_text("Nothing here.")).to_be_visible()
        command = page.locator("main pre").inner_text()
        assert command == f"hsparse import FILE.h5 /home/admin/FILE.h5 --endpoint {url}"
        with h5py.File(tmp_path / "FILE.h5", "w") as file:
            file["d"] = 1
        args = parse_arguments(shlex.split(command.replace(" FILE", f" {tmp_path}/FILE", 1))[1:])
        with redirect_stdout(io.StringIO()):
            assert args.run(args) == 0
        go(page, domain="/home/admin")
        expect(page.get_by_role("link", name="FILE.h5")).to_be_visible()
        expect(page.locator("main pre")).to_have_count(0)


def test_a_served_file_that_cannot_be_read_says_why(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with h5py.File(tmp_path / "runs" / "whole.h5", "w") as file:
        file["d"] = 1
    (tmp_path / "runs" / "broken.h5").write_bytes(b"<b>no</b> HDF5" * 99)
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False, files=(str(tmp_path / "runs"),))
    with embedded_server(settings) as url, open_page(browser, url) as page:
        go(page, domain="/runs")
        expect(page.get_by_role("row", name="whole.h5")).to_contain_text("1")
        expect(page.get_by_role("row", name="broken.h5")).to_contain_text("HDF5")


def test_a_large_folder_is_searched_by_the_server_and_read_on(page: Page) -> None:
    def answer(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        names = [f"n{number:04}" for number in range(1000)]
        if "pattern" in query:
            assert query["pattern"] == ["*[nN][eE][eE]-?1*"]
            names = ["Nee-[1.h5"]
        elif "Marker" in query:
            assert query["Marker"] == ["/home/admin/n0999"]
            names = ["o.h5"]
        domains = [{"name": f"/home/admin/{name}", "class": "domain"} for name in names]
        route.fulfill(json={"domains": domains})

    page.route("**/domains?*", answer)
    go(page, domain="/home/admin")
    expect(page.get_by_role("status").filter(has_text="1,000 of 1,000 or more")).to_be_visible()
    search = page.get_by_role("searchbox", name="Search")
    search.fill("nee-[1")
    expect(page.get_by_role("link", name="Nee-[1.h5")).to_be_visible()
    search.fill("")
    to_the_end(page)
    expect(page.get_by_role("status").filter(has_text="1,001 of 1,001")).not_to_contain_text("or more")
    to_the_end(page)
    expect(page.get_by_role("link", name="o.h5", exact=True)).to_be_visible()


LONG = 5000


def answer_long_folder(route: Route) -> None:
    """Answer with a page of a folder of `LONG` domains, of which the last is the newest."""
    query = parse_qs(urlsplit(route.request.url).query)
    first = int(query["Marker"][0][-4:]) + 1 if "Marker" in query else 0
    rows = range(first, min(first + int(query["Limit"][0]), LONG))
    domains = [{"name": f"/home/admin/n{row:04}", "class": "domain", "lastModified": row} for row in rows]
    route.fulfill(json={"domains": domains})


def test_each_entry_of_a_long_folder_is_reached_by_keyboard_and_few_rows_are_drawn(page: Page) -> None:
    page.route("**/domains?*admin*", answer_long_folder)
    go(page, domain="/home/admin")
    table = page.get_by_role("group", name="Domains")
    read = page.get_by_role("status").filter(has_text=" of ")
    expect(read).to_contain_text("1,000 of 1,000 or more")
    while "or more" in read.inner_text():  # the next pages are read as the end comes near
        to_the_end(page)
    expect(read).to_contain_text("5,000 of 5,000")
    to_the_end(page)
    expect(page.get_by_role("link", name="n4999")).to_be_in_viewport()
    page.keyboard.press("Home")
    expect(page.get_by_role("link", name="n0000")).to_be_in_viewport()
    seen = set()
    for row in (*range(120), LONG - 1, LONG - 2):
        if row == 0:
            page.get_by_role("link", name="n0000").focus()
        else:
            page.keyboard.press({LONG - 1: "End", LONG - 2: "ArrowUp"}.get(row, "ArrowDown"))
        focused = page.get_by_role("link", name=f"n{row:04}")
        expect(focused).to_be_focused()
        expect(focused).to_be_in_viewport()
        seen.add(focused.locator("xpath=ancestor::tr").get_attribute("aria-rowindex"))
    assert seen == {str(row + 2) for row in (*range(120), LONG - 1, LONG - 2)}
    assert table.locator("tr").count() < 400
    page.keyboard.press("Enter")
    page.wait_for_url("**/#domain=/home/admin/n4998")


def test_another_order_than_by_name_is_of_all_entries(page: Page) -> None:
    page.route("**/domains?*admin*", answer_long_folder)
    go(page, domain="/home/admin")
    for _ in range(2):
        page.get_by_role("button", name="Changed").click()
    first = page.get_by_role("group", name="Domains").locator("tbody tr").first
    expect(first).to_contain_text("n4999")


def test_all_members_of_a_group_are_listed(page: Page) -> None:
    """The tree has the first of them, and says so."""
    names = [f"m{row:04}" for row in range(LONG)]
    links = {name: {"class": "H5L_TYPE_HARD", "id": "g-1"} for name in names}
    objects = {"g-0": {"id": "g-0", "links": links}, "g-1": {"id": "g-1", "links": {}}}
    domain = {"root": "g-0", "class": "domain", "owner": "admin", "created": 0, "lastModified": 0}
    page.route("**/?domain=**", lambda route: route.fulfill(json=domain | {"domain_objs": objects}))
    go(page, domain="/home/admin/web-members.h5")
    members = page.get_by_role("group", name="Members")
    members.get_by_role("link", name="m0000").focus()
    page.keyboard.press("End")
    expect(members.get_by_role("link", name="m4999")).to_be_focused()


def test_who_leaves_a_folder_waits_for_its_rest_no_more(page: Page) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        if "Marker" in route.request.url:
            asked.append(route.request.url)
            route.abort()
        else:
            names = [f"/home/admin/n{number:04}" for number in range(1000)]
            route.fulfill(json={"domains": [{"name": name, "class": "domain"} for name in names]})

    page.clock.install()
    page.route("**/domains?*admin*", answer)
    go(page, domain="/home/admin")
    to_the_end(page)
    expect(page.get_by_role("alert")).to_contain_text("This page asks again")
    with page.expect_request("**/domains?*Marker*"):
        page.clock.run_for(2000)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text("This page asks again")
    asked.clear()
    with page.expect_request("**/domains?*Marker*"):
        page.clock.run_for(2000)
    expect(page.get_by_role("alert")).to_contain_text("This page asks again")
    page.clock.run_for(1000)
    assert len(asked) == 1, "the first click asks no more"
    go(page, domain="/home")
    expect(page.get_by_role("link", name="admin/")).to_be_visible()
    page.clock.run_for(60_000)
    go(page, domain="/")
    expect(page.get_by_role("link", name="home/")).to_be_visible()
    assert len(asked) == 1


def test_another_bucket_is_another_place(page: Page) -> None:
    go(page, domain=CELLS)
    expect(page.get_by_role("treeitem", name="raw.X")).to_be_visible()
    page.route("**bucket=other**", lambda route: None)  # answered never
    go(page, domain=CELLS, bucket="other")
    expect(page.get_by_role("treeitem")).to_have_count(0)


def test_a_domain_of_many_objects_takes_few_requests(page: Page, site: str) -> None:
    with Connection(site, "/home/admin/web-many.h5") as connection:
        root = connection.json("PUT", "/", {})["root"]
        bodies = [{"link": {"id": root, "name": f"g{n:04}"}} for n in range(1000)]
        connection.json("POST", "/groups", bodies)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if "/explorer/" not in request.url else None)
    go(page, domain="/home/admin/web-many.h5")
    expect(page.get_by_role("treeitem")).to_have_count(1001)
    data = [request for request in asked if request.resource_type == "fetch"]
    assert len(data) <= 5, [request.url for request in data]


def test_soft_links_that_repeat_one_another_do_not_hang_the_page(page: Page, site: str) -> None:
    with Connection(site, "/home/admin/web-links.h5") as connection:
        root = connection.json("PUT", "/", {})["root"]
        for level in range(16):
            connection.json("PUT", f"/groups/{root}/links/s{level:02}", {"h5path": f"/s{level + 1:02}" * 6})
        connection.json("PUT", f"/groups/{root}/links/s16", {"h5path": "/"})
    go(page, domain="/home/admin/web-links.h5")
    expect(page.get_by_role("treeitem")).to_have_count(18)
    expect(page.get_by_role("cell", name="s00", exact=True)).to_be_visible()


def test_links_to_other_domains_say_where_and_are_followed(page: Page, site: str) -> None:
    there, here = "/home/admin/web-there.h5", "/home/admin/web-here.h5"
    with Connection(site, there) as connection:
        root = connection.json("PUT", "/", {})["root"]
        group = connection.json("POST", "/groups", {"link": {"id": root, "name": "g"}})["id"]
        body = {"type": "H5T_IEEE_F64LE", "value": 2.5, "link": {"id": group, "name": "d"}}
        connection.json("POST", "/datasets", body)
    links = {
        "beside": {"file": "web-there.h5", "h5path": "/g"},
        "above": {"file": "../admin/./web-there.h5", "h5path": "g/d"},
        "full": {"file": f"hdf5:/{there}", "h5path": "/"},
        "through": {"h5path": "/beside/d"},
        "nowhere": {"h5path": "/none"},
    }
    with Connection(site, here) as connection:
        root = connection.json("PUT", "/", {})["root"]
        for name, link in links.items():
            connection.json("PUT", f"/groups/{root}/links/{name}", link)
    for name, path in {"beside": "/g", "above": "/g/d", "full": "/", "through": "/g/d"}.items():
        go(page, domain=here)
        text = f"→ {there}{'' if path == '/' else f' {path}'}"
        expect(
            page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        ).to_contain_text(text)
        item = page.get_by_role("treeitem", name=name)
        expect(item).to_contain_text(text)
        item.click()
        page.wait_for_url(f"**/#domain={there}{'' if path == '/' else f'&path={path}'}")
        expect(
            page.get_by_role("heading", name=path.rpartition("/")[2] or "web-there.h5", exact=True)
        ).to_be_visible()
    go(page, domain=here)
    page.get_by_role("cell", name="through").get_by_role("link").click()
    expect(page.get_by_role("heading", name="d", exact=True)).to_be_visible()
    go(page, domain=here, path="/beside/d")
    page.get_by_role("main").get_by_role("link", name=f"{there} /g/d").click()
    page.wait_for_url(f"**/#domain={there}&path=/g/d")
    expect(page.get_by_role("heading", name="d", exact=True)).to_be_visible()
    go(page, domain=here)
    expect(page.get_by_role("treeitem", name="nowhere")).to_contain_text("→ /none, where there is nothing")
    page.get_by_role("treeitem", name="nowhere").click()
    expect(page.get_by_role("alert")).to_contain_text("There is nothing at /nowhere")


def test_groups_nested_deeper_than_calls_can_be_are_searched(page: Page) -> None:
    depth = 20_000
    objects = {
        f"g-{level}": {"id": f"g-{level}", "links": {"a": {"class": "H5L_TYPE_HARD", "id": f"g-{level + 1}"}}}
        for level in range(depth)
    }
    objects[f"g-{depth}"] = {"id": f"g-{depth}", "links": {"last": {"class": "H5L_TYPE_HARD", "id": "g-0"}}}
    domain = {"root": "g-0", "class": "domain", "owner": "admin", "created": 0, "lastModified": 0}
    page.route("**/?domain=**", lambda route: route.fulfill(json=domain | {"domain_objs": objects}))
    go(page, domain="/home/admin/web-nested.h5")
    page.get_by_role("searchbox", name="Search objects").fill("last")
    expect(page.get_by_role("treeitem")).to_have_count(1)


def test_dense_data_is_drawn_by_h5web(page: Page) -> None:
    go(page, domain=CELLS, path="/X", select="[0:20,0:30]")
    display = page.locator(".h5web")
    expect(display.get_by_role("tab", name="Heatmap")).to_have_attribute("aria-selected", "true")
    expect(display.locator("canvas[data-engine]")).to_be_visible()
    display.get_by_role("tab", name="Line").click()
    expect(display.get_by_role("tab", name="Line")).to_have_attribute("aria-selected", "true")
    display.get_by_role("tab", name="Matrix").click()
    expect(display.get_by_role("gridcell", name="\u22123.260e-1").first).to_be_visible()
    go(page, domain=CELLS, path="/obs", view="display")
    expect(display.get_by_text("AAAGCCTGGCTAAC-1")).to_be_visible()


def nexus_file(site: str, domain: str, **named: str) -> None:
    """Make a file of NeXus; `named` are the attributes of its groups root, entry and data that say what is plotted."""
    text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
    with Connection(site, domain) as connection:
        groups = {"root": connection.json("PUT", "/", {})["root"]}
        for name, above in (("entry", "root"), ("data", "entry")):
            body = {"link": {"id": groups[above], "name": name}}
            groups[name] = connection.json("POST", "/groups", body)["id"]
        for name, values in {"counts": [1.0, 4.0, 9.0], "x": [0.5, 1.0, 1.5]}.items():
            body = {"type": "H5T_IEEE_F64LE", "shape": [3], "value": values}
            connection.json("POST", "/datasets", body | {"link": {"id": groups["data"], "name": name}})
        found = SparseDataset.create(connection, "/entry/data/found", (3,), np.float64, (3,))
        found.write(np.array([[1]]), np.array([0.0]))
        attributes = {
            "root": {"NX_class": "NXroot", "default": named.get("root", "entry")},
            "entry": {"NX_class": "NXentry"},
            "data": {"NX_class": "NXdata", "signal": named.get("signal", "counts"), "axes": "x"},
        }
        if "auxiliary" in named:
            attributes["data"]["auxiliary_signals"] = named["auxiliary"]
        for group, values in attributes.items():
            body = {name: {"type": text, "value": value} for name, value in values.items()}
            connection.json("PUT", f"/groups/{groups[group]}/attributes", {"attributes": body})


def test_the_default_plot_of_nexus_is_shown_first(page: Page, site: str) -> None:
    domain = "/home/admin/web-nexus.h5"
    nexus_file(site, domain)
    go(page, domain=domain)
    expect(page.locator(".h5web").get_by_role("tab", name="NX Line", selected=True)).to_be_visible()
    page.get_by_role("link", name="Members", exact=True).click()
    page.get_by_role("cell", name="entry").get_by_role("link").click()
    expect(page.get_by_role("heading", name="entry", exact=True)).to_be_visible()
    expect(page.locator(".h5web").get_by_role("tab", name="NX Line", selected=True)).to_be_visible()


def test_a_sparse_signal_has_the_picture_of_sparse_data(page: Page, site: str) -> None:
    domain = "/home/admin/web-nexus-sparse.h5"
    nexus_file(site, domain, signal="found")
    go(page, domain=domain)
    settled(page, "1 defined elements")
    expect(page.get_by_text("The signal /entry/data/found is sparse")).to_be_visible()
    expect(page.locator(".h5web")).to_have_count(0)
    page.get_by_role("link", name="/entry/data/found").click()
    expect(page.get_by_role("heading", name="found", exact=True)).to_be_visible()


def test_h5web_does_not_show_undefined_as_zero(browser: Browser, site: str) -> None:
    domain = "/home/admin/web-nexus-auxiliary.h5"
    nexus_file(site, domain, auxiliary="found")
    sentence = "/entry/data/found is sparse"
    with open_page(browser, site, expected=sentence) as page:
        go(page, domain=domain)
        expect(page.locator(".h5web")).to_contain_text(sentence)


def test_a_default_that_leads_nowhere_is_told_in_words(page: Page, site: str) -> None:
    domain = "/home/admin/web-nexus-broken.h5"
    nexus_file(site, domain, root="gone")
    go(page, domain=domain)
    expect(page.get_by_role("cell", name="entry")).to_be_visible()
    page.get_by_role("link", name="NeXus plot").click()
    expect(page.get_by_role("alert")).to_contain_text("/gone")


def test_a_large_dense_dataset_is_not_read_whole(page: Page, site: str) -> None:
    with Connection(site, "/home/admin/web-large.h5") as connection:
        connection.json("PUT", "/", {})
        body = {"type": "H5T_STD_U8LE", "shape": [100_000, 100_000], "h5path": "/large"}
        connection.json("POST", "/datasets", body)
    page.route("**/value?*", lambda route: None)  # answered never: what it asks for is enough
    with page.expect_request("**/value?*") as asked:
        go(page, domain="/home/admin/web-large.h5", path="/large")
    assert "select=[0:100000:70,0:100000:70]" in unquote(asked.value.url)
    expect(page.get_by_role("status").filter(has_text="1429 × 1429 of 100000 × 100000")).to_be_visible()


def test_the_api_is_described(page: Page) -> None:
    page.goto("/docs")
    page.locator("#operations-tag-Values").click()
    page.locator('[data-path="/datasets/{id}/density"]').click()
    expect(page.get_by_text("places of a bin in each dimension")).to_be_visible()


def test_what_is_not_there_is_told_in_words(page: Page) -> None:
    go(page, domain="/home/admin/none.h5")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("does not exist")
    expect(alert).to_contain_text("moved or deleted")
    go(page, domain=CELLS, path="/none")
    expect(alert).to_contain_text("There is nothing at /none")
    for path, view in (("/X", "display"), ("/raw.X", "picture"), ("/raw.X", "table")):
        go(page, domain=CELLS, path=path, view=view, select="[0:9999,3]")
        expect(page.get_by_role("heading", name=path[1:], exact=True)).to_be_visible()
        expect(alert).to_contain_text("[0:9999,3] does not fit the extent [700, 765]. The default selection")


def test_a_server_that_goes_away_and_comes_back(page: Page) -> None:
    go(page, domain=CELLS)
    expect(page.get_by_role("heading", name="web-cells.h5ad", exact=True)).to_be_visible()
    away = True

    def refuse(route: Route) -> None:
        if away:
            route.abort()
        else:
            route.continue_()

    page.route("**/?domain=**", refuse)
    go(page, domain="/home/admin")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    away = False
    expect(page.get_by_role("heading", name="admin", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_busy_server_is_asked_again(page: Page) -> None:
    go(page, domain=CELLS, path="/raw.X")
    settled(page, "rows 0 to 699")
    error = {"kind": "busy", "message": "Too much."}
    busy: dict[str, Any] = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"error": error}}
    page.route("**/density?*", lambda route: route.fulfill(**busy))
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_role("alert")).to_contain_text("asks again")
    expect(page.get_by_role("status").filter(has_text="rows 0 to 699")).to_be_visible()
    page.unroute("**/density?*")
    settled(page, "rows 175 to 524")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_failed_is_tried_again(page: Page) -> None:
    page.route("**/?domain=**", lambda route: route.fulfill(status=500, body="broken"))
    go(page, domain=CELLS)
    expect(page.get_by_role("alert")).to_contain_text("The server answered 500")
    page.unroute("**/?domain=**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="web-cells.h5ad", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_redirect_is_told_in_words(page: Page) -> None:
    elsewhere: dict[str, Any] = {"status": 302, "headers": {"Location": "/livez"}}
    page.route("**/?domain=**", lambda route: route.fulfill(**elsewhere))
    go(page, domain=CELLS)
    expect(page.get_by_role("alert")).to_contain_text("sends this page elsewhere")


@pytest.fixture(scope="session")
def odd(site: str) -> str:
    """A domain of what cannot be drawn, and of names that are HTML."""
    with Connection(site, ODD) as connection:
        root = connection.json("PUT", "/", {})["root"]
        text = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
        for name, body in {
            SCRIPT: {"type": text, "value": SCRIPT},
            "null": {"type": "H5T_IEEE_F32LE", "shape": "H5S_NULL"},
            "empty": {"type": "H5T_IEEE_F32LE", "shape": [0, 3], "maxdims": [0, 3]},
            "scalar": {"type": "H5T_IEEE_F64LE", "value": 2.5},
            "opaque": {"type": {"class": "H5T_OPAQUE", "size": 3}, "shape": [2]},
        }.items():
            connection.json("POST", "/datasets", {**body, "link": {"id": root, "name": name}})
        attribute = {"type": text, "value": SCRIPT}
        connection.json("PUT", f"/groups/{root}/attributes", {"attributes": {SCRIPT: attribute}})
    return ODD


def test_names_and_attributes_are_text(page: Page, odd: str) -> None:
    go(page, domain=odd)
    expect(page.get_by_role("treeitem", name=SCRIPT)).to_be_visible()
    expect(page.get_by_role("cell", name=SCRIPT).first).to_be_visible()
    page.get_by_role("treeitem", name=SCRIPT).click()
    expect(page.get_by_role("heading", name=SCRIPT, exact=True)).to_be_visible()
    expect(page.locator(".h5web").get_by_text(SCRIPT).last).to_be_visible()
    assert page.title() != "run"
    assert page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [("null", "null dataspace"), ("empty", "no elements yet"), ("scalar", "2.5"), ("opaque", "opaque")],
)
def test_what_cannot_be_drawn_is_shown_as_far_as_it_goes(page: Page, odd: str, name: str, text: str) -> None:
    go(page, domain=odd, path=f"/{name}")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(page.locator("article").get_by_text(re.compile(text)).first).to_be_visible()
