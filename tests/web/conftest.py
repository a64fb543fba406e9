"""The explorer in real Chromium, on the demo's data, with a server in a process of its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from rich.console import Console

from demo.cells import FILE
from demo.frames import FOUND, Frames
from demo.story import Story
from hsparse.cli.main import parse_arguments
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from tests.support.find_program import find_program

CELLS = "/home/admin/web-cells.h5ad"
DETECTOR = "/home/admin/web-detector.h5"
FRAMES = 2
ZEROS = np.array([[1, 0, 0], [1, 500, 500], [1, 1023, 1023]])
"""Pixels of the second frame that were measured as 0."""
FLAGS = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
"""WebGL without a graphics card."""

expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def site(embedded_url: str) -> str:
    """The URL of a server with the demo's data."""
    args = parse_arguments(["import", str(FILE), CELLS, "--endpoint", embedded_url, "--quiet"])
    with redirect_stdout(StringIO()):
        args.run(args)
    with Connection(embedded_url, DETECTOR) as connection:
        connection.json("PUT", "/", {})
        Frames(connection, FRAMES, FRAMES, Story(Console(file=StringIO()))).stream()
        SparseDataset.open(connection, FOUND).write(ZEROS, np.zeros(len(ZEROS), np.uint16))
    return embedded_url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for a module: Playwright has an event loop of its own, beside which no other may run."""
    with sync_playwright() as playwright:
        program = find_program("chromium")
        assert program is not None
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    """A page of a new profile, at the explorer's address."""
    with open_page(browser, site) as page:
        yield page


@contextmanager
def open_page(browser: Browser, url: str, *, expected: str | None = None, **options: Any) -> Iterator[Page]:
    """Open a page that must have no errors but those that have `expected`, and ask no other server for anything."""
    context = browser.new_context(base_url=url, viewport={"width": 1200, "height": 800}, **options)
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # What the server refuses is an error of the browser's, too; the tests look at what the page says.
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    def check(request: Request) -> None:
        if not request.url.startswith((url, "blob:", "data:")):
            errors.append(f"asked for {request.url}")

    page = context.new_page()
    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", check)
    yield page
    context.close()
    assert [error for error in errors if expected is None or expected not in error] == []


def go(page: Page, **address: str) -> None:
    """Open an address of the explorer."""
    fragment = "&".join(f"{key}={value}" for key, value in address.items())
    if page.url == "about:blank":
        page.goto(f"/#{fragment}")
    else:
        page.evaluate("fragment => { location.hash = fragment; }", fragment)


def to_the_end(page: Page) -> None:
    """Scroll a folder to the end of what is read of it, by the keyboard."""
    expect(page.get_by_role("status").filter(has_text=" of ")).to_be_visible()
    page.get_by_role("group", name="Domains").focus()
    page.keyboard.press("End")


def settled(page: Page, text: str) -> None:
    """Wait until the remark that has `text` says that nothing is on its way."""
    expect(page.locator('[role=status][data-loading="false"]').filter(has_text=text)).to_be_visible()


def pixels(page: Page, selector: str) -> NDArray[np.uint8]:
    """Return what a canvas shows, (height, width, 3)."""
    found = page.evaluate(
        """selector => {
            const canvas = document.querySelector(selector);
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let text = '';
            for (let at = 0; at < data.length; at += 30000) {
                text += String.fromCharCode(...data.subarray(at, at + 30000));
            }
            return [canvas.height, canvas.width, btoa(text)];
        }""",
        selector,
    )
    height, width, text = found
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(height, width, 4)[..., :3]
