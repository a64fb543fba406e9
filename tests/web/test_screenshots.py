"""The pictures of the docs: taken at each run, and kept with `pytest tests/web/test_screenshots.py --screenshots`."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.web.conftest import CELLS, go, settled

pytestmark = pytest.mark.needs("chromium")

DOCS = Path(__file__).parents[2] / "docs"
SHOTS = {
    "explorer-picture.png": ({"path": "/raw.X", "select": "[0:200,200:500]"}, "rows 0 to 199"),
    "explorer-embedding.png": ({"view": "embedding", "select": "gene:CST3"}, "undefined in"),
}
LARGEST = 200_000


@pytest.mark.parametrize("name", SHOTS)
def test_the_docs_have_this_picture(page: Page, request: pytest.FixtureRequest, name: str) -> None:
    address, text = SHOTS[name]
    page.set_viewport_size({"width": 1100, "height": 760})
    go(page, domain=CELLS, **address)
    settled(page, text)
    shot = page.screenshot()
    assert len(shot) < LARGEST
    if request.config.getoption("screenshots"):
        (DOCS / name).write_bytes(shot)
    assert (DOCS / name).read_bytes().startswith(b"\x89PNG")
