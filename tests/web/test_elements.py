"""Elements of every type as text: compounds with arrays inside, arrays and lists, text that is not UTF-8."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page, expect

from hsparse.cli.main import parse_arguments
from tests.web.conftest import go

pytestmark = pytest.mark.needs("chromium")


def records() -> NDArray[np.void]:
    """Return two records of what a table cannot show as numbers, and of what JSON cannot."""
    inner = np.dtype([("x", "f8"), ("y", "i4", 2)])
    kinds = {"R": 0, "G": 1}
    fields: list[Any] = [
        ("whole", "i8"),
        ("three", "f8", 3),
        ("grid", "f4", (2, 2)),
        ("inner", inner),
        ("parts", inner, (1,)),
        ("list", h5py.vlen_dtype("i4")),
        ("text", h5py.string_dtype()),
        ("fixed", "S2"),
        ("wave", "c16"),
        ("flag", "?"),
        ("kind", h5py.enum_dtype(kinds)),
    ]
    found = np.zeros(2, fields)
    found["text"] = ["é", "b"]
    found["list"][0], found["list"][1] = np.array([4, 5], "i4"), np.array([], "i4")
    found[0]["three"] = [1, np.nan, -np.inf]
    found["grid"][1] = [[0.1, 2], [3, 4]]
    found["inner"]["x"], found["whole"], found["fixed"] = [np.nan, 1.5], 2**60 + 1, b"\xb0C"
    found["wave"], found["flag"], found["kind"] = 1 - 2j, [True, False], [1, 0]
    return found


@pytest.fixture(scope="session")
def nested(site: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A domain of compounds with arrays inside, and of arrays and lists as elements, from a file."""
    path, domain = tmp_path_factory.mktemp("nested") / "nested.h5", "/home/admin/web-compounds.h5"
    with h5py.File(path, "w") as file:
        file["table"] = records()
        file.create_dataset("one", data=records()[0], dtype=records().dtype)
        array = h5py.h5t.array_create(h5py.h5t.IEEE_F64LE, (2, 2))
        space = h5py.h5s.create_simple((2,))
        made = h5py.h5d.create(file.id, b"array", array, space)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(8.0), array)
        pair = h5py.h5t.py_create(np.dtype([("x", "f8"), ("y", "i4", 2)]), logical=True)
        pairs = h5py.h5t.array_create(pair, (2,))
        made = h5py.h5d.create(file.id, b"pairs", pairs, space)
        values = np.zeros((2, 2), [("x", "f8"), ("y", "i4", 2)])
        values["x"], values["y"][1, 1] = [[0.5, np.nan], [1, 2]], [3, 4]
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, pairs)
        lists = file.create_dataset("lists", (2,), h5py.vlen_dtype("f4"))
        lists[0] = [0.1, np.nan]
        file["bytes"] = np.array([b"\xb0C", b"ok"])
        file.attrs["record"] = records()[:1]
        file.attrs["triples"] = np.zeros((2, 3))
        file.attrs["degree"] = np.bytes_(b"\xb0C")
        file.attrs["degrees"] = np.array([b"\xb0C", b"ok"])
        file.attrs["wave"] = 1 - 2j
    args = parse_arguments(["import", str(path), domain, "--endpoint", site, "--quiet"])
    with redirect_stdout(io.StringIO()):
        assert args.run(args) == 0
    return domain


RECORD = [
    str(2**60 + 1),
    "[1, NaN, -Infinity]",
    "[[0, 0], [0, 0]]",
    "{x: NaN, y: [0, 0]}",
    "[{x: 0, y: [0, 0]}]",
    "[4, 5]",
    "é",
    r"\xb0C",
    "1-2j",
    "true",
    "G",
]
"""The first of `records` as the page shows it."""


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("table", [*RECORD[1:], "[[0.1, 2], [3, 4]]", "{x: 1.5, y: [0, 0]}", "[]", "R"]),
        ("one", RECORD[1:8]),
        ("array", ["[[0, 1], [2, 3]]", "[[4, 5], [6, 7]]"]),
        ("pairs", ["[{x: 0.5, y: [0, 0]}, {x: NaN, y: [0, 0]}]", "[{x: 1, y: [0, 0]}, {x: 2, y: [3, 4]}]"]),
        ("lists", ["[0.1, NaN]", "[]"]),
        ("bytes", [r"\xb0C", "ok"]),
    ],
)
def test_elements_with_arrays_inside_are_shown(page: Page, nested: str, name: str, cells: list[str]) -> None:
    page.set_viewport_size({"width": 4200, "height": 900})  # all columns
    go(page, domain=nested, path=f"/{name}")
    for cell in cells:
        expect(page.locator(".h5web").get_by_role("gridcell", name=cell, exact=True).first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("Expected number")).to_have_count(0)


def test_attributes_are_shown_by_their_types(page: Page, nested: str) -> None:
    go(page, domain=nested)
    fields = ("whole", "three", "grid", "inner", "parts", "list", "text", "fixed", "wave", "flag", "kind")
    texts = {
        field: f'"{text}"' if field == "text" else text for field, text in zip(fields, RECORD, strict=True)
    }
    texts["fixed"] = r'"\\xb0C"'
    record = ", ".join(f"{field}: {text}" for field, text in texts.items())
    for name, text in {
        "record": f"[{{{record}}}]",
        "triples": "[[0, 0, 0], [0, 0, 0]]",
        "degree": r"\xb0C",
        "degrees": r'["\\xb0C", "ok"]',
        "wave": "1-2j",
    }.items():
        row = page.locator(".attributes tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))
        expect(row.locator("td").first).to_have_text(text)
