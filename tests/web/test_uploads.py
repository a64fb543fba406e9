"""Files that are dropped on a folder: uploaded in pieces, imported by the server, resumed after any cut, or refused."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import h5py
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from hsparse.client.connection import Connection
from tests.cli.importer.domain_picture import domain_differences
from tests.support.endurance import repeats
from tests.web import test_deeds
from tests.web.conftest import go, open_page
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


def test_a_file_dropped_on_a_folder_of_the_list_gets_in_there(
    ann: Page, guarded: Guarded, tmp_path: Path
) -> None:
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


def test_what_the_importer_refuses_is_told_tried_again_and_deleted(
    ann: Page,
    guarded: Guarded,
) -> None:
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


def test_a_page_loaded_anew_goes_on_and_another_file_is_refused(
    browser: Browser,
    guarded: Guarded,
    tmp_path: Path,
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
    assert min(starts) == MIB
    assert differences(guarded, tmp_path / "long.h5", f"{ANN}/long.h5") == []


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


def test_pieces_get_smaller_where_a_proxy_takes_no_larger_ones(
    ann: Page, guarded: Guarded, tmp_path: Path
) -> None:
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
    assert sizes[:3] == [MIB, MIB // 2, MIB // 4]
    assert max(sizes[2:]) == MIB // 4
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
    assert differences(guarded, tmp_path / "odd.h5", f"{ANN}/{name}") == []
    assert ann.title() == title
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
