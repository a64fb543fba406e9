"""The walk of a request is measured as it is, and limits are held."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path

from benchmarks import walk
from hsparse.model.ids import chunk_key
from hsparse.model.short_text import shorten

DATASET = "d-00000000-00000001-0000-000000-000001"


def test_a_tracer_notes_the_functions_that_threads_call() -> None:
    tracer = walk.Tracer()

    def work() -> None:
        chunk_key(DATASET, (1, 2))
        tracer.on = True
        for _ in range(3):
            chunk_key(DATASET, (1, 2))
            shorten("a text", 40)
        tracer.on = False
        chunk_key(DATASET, (1, 2))

    tracer.install()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.setprofile(None)
    names = {code.co_name for code in tracer.walk.functions}
    assert {"chunk_key", "shorten"} <= names
    figures = tracer.walk.figures
    ids, texts = (Path(walk.PACKAGE) / "model" / name for name in ("ids.py", "short_text.py"))
    assert figures["files"] == 2
    assert figures["lines of files"] == walk.count_lines(ids) + walk.count_lines(texts)
    assert figures["moves"] == 6
    assert figures["functions"] == len(names)
    assert figures["lines of functions"] >= 2 * len(names)


def test_what_is_beyond_a_limit_is_named() -> None:
    figures = {"read": {"files": 31, "moves": 5}, "write": {"files": 3, "moves": 9}}
    assert walk.beyond(figures, {"read": {"files": 30}, "write": {"files": 3, "moves": 9}}) == [
        "read: 31 files; the limit is 30"
    ]


def test_each_walk_and_each_part_has_limits() -> None:
    limits = tomllib.loads(walk.LIMITS.read_text())
    assert set(limits["walks"]) == {"sparse read", "sparse write", "attribute PUT", "GET of a dataset"}
    assert all(set(limit) == {"files", "moves", "lines of functions"} for limit in limits["walks"].values())
    assert set(limits["sizes"]) == set(limits["parts"])
    sizes = walk.measured_sizes(limits["parts"])
    assert all(one["files"] for one in sizes.values())
