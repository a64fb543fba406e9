"""The workload `explorer`: times that a person waits for the explorer in Chromium.

Times are measured in the page, from the start of the navigation. Bytes are the transferred sizes of its responses.
"""

from __future__ import annotations

import shutil
from urllib.parse import quote

import numpy as np
from playwright.async_api import Browser, Page, async_playwright

from benchmarks import arrow
from benchmarks.bench import Bench
from benchmarks.peers import hsparse
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.rest import Rest
from benchmarks.workloads.points import from_offsets

WORKLOAD = "explorer"
OBJECTS = 1_000
ROWS, COLUMNS = 10_000, 20_000
ELEMENTS = 6_000_000
AT_ONCE = 1_000_000
STEPS = 20
"""Steps of a pan."""
PATIENCE = 60_000.0
FACTS = """async () => {
    while (!(READY)) await new Promise(requestAnimationFrame);
    const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
    return {
        seconds: performance.now() / 1000,
        bytes: entries.reduce((sum, one) => sum + one.transferSize, 0),
        requests: entries.filter(one => one.initiatorType === 'fetch').length,
    };
}"""
"""JavaScript that waits until the expression put for `READY` is true; it returns the seconds, bytes, and requests."""
PAN = """async steps => {
    const canvas = document.querySelector('canvas.main');
    const status = () => document.querySelector('[role=status][data-loading="false"]')?.textContent ?? '';
    const started = performance.now();
    for (let step = 0; step < steps; step += 1) {
        const before = status();
        const key = step < steps / 2 ? 'ArrowRight' : 'ArrowLeft';
        canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        do await new Promise(requestAnimationFrame); while (status() === '' || status() === before);
    }
    return steps / ((performance.now() - started) / 1000);
}"""
"""JavaScript that pans right and back, waits for each complete picture, and returns the pictures per second."""
TREE = f"document.querySelectorAll('[role=treeitem]').length > {OBJECTS}"
PICTURE = "document.querySelector('canvas.main')?.width > 300"
"""Expression that is true when a picture of chunks or of elements is drawn."""
WHOLE = """document.querySelector('[role=status][data-loading="false"]') !== null"""
"""Expression that is true when a picture of elements is drawn."""


async def run(bench: Bench) -> None:
    """Measure the first views and a pan; do nothing if Chromium is not installed."""
    program = shutil.which("chromium")
    if "hsparse" not in bench.peers:
        return
    if program is None:
        bench.report.remark("`explorer` was not measured: chromium is not installed.")
        return
    bench.tell("explorer: starting hsparse")
    async with (
        hsparse.serve(bench.work, bench.serve) as server,
        server.rest() as rest,
        async_playwright() as play,
    ):
        many, wide = await fill(rest, server, 60_000 if bench.quick else ELEMENTS)
        browser = await play.chromium.launch(executable_path=program)
        for repeat in range(bench.repeats):
            bench.tell(f"explorer: repeat {repeat + 1} of {bench.repeats}")
            await first_views(bench, browser, f"{server.base}/#domain={quote(many)}", TREE, "1 000 objects")
            await pictures(bench, browser, f"{server.base}/#domain={quote(wide)}&path=/X")
        await browser.close()


async def fill(rest: Rest, server: Server, count: int) -> tuple[str, str]:
    """Store a domain of many groups, and one with a sparse dataset of about `count` elements; return their paths."""
    many, wide = server.new_domain(), server.new_domain()
    await rest.domain(many)
    bodies = [{"link": {"id": rest.root, "name": f"g{number:04}"}} for number in range(OBJECTS)]
    await rest.json("POST", "/groups", bodies)
    await rest.domain(wide)
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": [1000, 2000], "flags": ["H5D_SPARSE_DATA"]}
    body = {"type": "H5T_IEEE_F32LE", "shape": [ROWS, COLUMNS], "h5path": "/X"}
    dataset = await rest.dataset(body | {"creationProperties": {"layout": layout}})
    rng = np.random.default_rng(15)
    drawn = np.unique(rng.integers(0, ROWS * COLUMNS, count))
    for first in range(0, len(drawn), AT_ONCE):
        offsets = drawn[first : first + AT_ONCE]
        values = rng.random(len(offsets), np.float32)
        points = from_offsets(offsets, (ROWS, COLUMNS), values)
        await rest.write_points(dataset, arrow.encode(points))
    return many, wide


async def first_views(bench: Bench, browser: Browser, url: str, ready: str, name: str) -> Page:
    """Open a URL in a new browser profile, measure until `ready`, a JavaScript expression, is true; return the page."""
    page = await (await browser.new_context()).new_page()
    page.set_default_timeout(PATIENCE)
    await page.goto(url, wait_until="commit")
    facts = await page.evaluate(FACTS.replace("READY", ready))
    for what, unit, value in (
        ("first view", "s", facts["seconds"]),
        ("first view", "MB", facts["bytes"] / 1e6),
        ("first view", "requests", facts["requests"]),
    ):
        bench.report.add(MeasuredMetric(WORKLOAD, f"{name}: {what}", unit, higher=False), "hsparse", value)
    return page


async def pictures(bench: Bench, browser: Browser, url: str) -> None:
    """Measure the first picture of a large matrix, its exact picture, and a pan over a part of it."""
    name = f"{ROWS} x {COLUMNS} places"
    page = await first_views(bench, browser, url, PICTURE, name)
    facts = await page.evaluate(FACTS.replace("READY", WHOLE))
    exact = MeasuredMetric(WORKLOAD, f"{name}: every element in the picture", "s", higher=False)
    bench.report.add(exact, "hsparse", facts["seconds"])
    for _ in range(3):
        await page.get_by_role("button", name="Zoom in").click()
    await page.evaluate(FACTS.replace("READY", f"{WHOLE} && location.hash.includes('select')"))
    rate = await page.evaluate(PAN, STEPS)
    pan = MeasuredMetric(WORKLOAD, f"{name}: panning an eighth of each side", "pictures/s", higher=True)
    bench.report.add(pan, "hsparse", rate)
    await page.context.close()
