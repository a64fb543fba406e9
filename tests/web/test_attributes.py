"""Attributes made, changed and deleted: every type, to the last digit, by whoever may, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings
from hsparse.errors import Forbidden, NotFound
from tests.web.conftest import go, open_page
from tests.web.test_frames import SCRIPT, load
from tests.web.test_signing_in import DOMAIN as SECRET
from tests.web.test_signing_in import PASSWORD, Guarded, guarded_server, sign_in

pytestmark = pytest.mark.needs("chromium")

DOMAIN = "/home/admin/attributes.h5"
BIG = 2**60 + 1
TEXT = {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}
Json = dict[str, Any]


def integer(name: str) -> str:
    return f"H5T_STD_{name}LE"


def flag() -> Json:
    return {"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"FALSE": 0, "TRUE": 1}}


def fixed(length: int, pad: str = "NULLPAD", characters: str = "UTF8") -> Json:
    return {
        "class": "H5T_STRING",
        "length": length,
        "charSet": f"H5T_CSET_{characters}",
        "strPad": f"H5T_STR_{pad}",
    }


class Object:
    """An object of a domain, whose attributes are set and looked at by REST."""

    def __init__(self, connection: Connection, path: str = "/") -> None:
        self.connection = connection
        id = connection.json("GET", "/", h5path=path)["id"]
        self.place = f"/{ {'g': 'groups', 'd': 'datasets', 't': 'datatypes'}[id[0]] }/{id}/attributes"

    def put(self, attributes: dict[str, Json]) -> None:
        self.connection.json("PUT", self.place, {"attributes": attributes}, replace=1)

    def all(self) -> dict[str, Json]:
        found = self.connection.json("GET", self.place, IncludeData=1, CreateOrder=1)["attributes"]
        return {one["name"]: one for one in found}


@pytest.fixture
def root(site: str) -> Iterator[Object]:
    """The root group of a new domain."""
    with Connection(site, DOMAIN) as connection:
        with suppress(NotFound):
            connection.json("DELETE", "/")
        connection.json("PUT", "/", {})
        yield Object(connection)


def row(page: Page, name: str) -> Locator:
    return page.locator(".attributes tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def shown(page: Page, name: str) -> Locator:
    return row(page, name).locator("td").first


def button(page: Page, deed: str, name: str) -> Locator:
    return row(page, name).get_by_role("button", name=f"{deed} {name}", exact=True)


def change(page: Page, name: str, text: str) -> None:
    button(page, "Change", name).click()
    page.get_by_role("dialog").get_by_label("Value").fill(text)
    page.get_by_role("dialog").get_by_role("button", name="Save").click()


CHANGES: list[tuple[Json, str, str, Any]] = [
    ({"type": integer("I64"), "value": 2**63 - 1}, str(2**63 - 1), str(-(2**63)), -(2**63)),
    ({"type": integer("U64"), "value": 2**64 - 1}, str(2**64 - 1), str(2**64 - 3), 2**64 - 3),
    ({"type": "H5T_STD_I16BE", "value": -5}, "-5", "+32767", 32767),
    ({"type": "H5T_IEEE_F64LE", "value": "nan"}, "NaN", "0.1", 0.1),
    ({"type": "H5T_IEEE_F64LE", "value": 0.1}, "0.1", "-inf", float("-inf")),
    ({"type": "H5T_IEEE_F64LE", "value": "inf"}, "Infinity", "1e-300", 1e-300),
    ({"type": "H5T_IEEE_F64LE", "value": 2}, "2", "-0", -0.0),
    ({"type": "H5T_IEEE_F32LE", "value": 1.5}, "1.5", "0.1", 0.1),
    ({"type": flag(), "value": True}, "true", "false", False),
    ({"type": TEXT, "value": "a"}, "a", "two\nlines é 🧬", "two\nlines é 🧬"),
    ({"type": TEXT, "value": "a\r\u202e\x01"}, r"a\u000d\u202e\u0001", r'"b\r\u202e"', "b\r\u202e"),
    ({"type": fixed(4), "value": "abcd"}, "abcd", "éab", "éab"),
    ({"type": integer("I64"), "shape": [2], "value": [BIG, 2]}, f"[{BIG}, 2]", f"1, {BIG + 2}", [1, BIG + 2]),
    ({"type": integer("I8"), "shape": [2], "value": [1, 2]}, "[1, 2]", "1 2 3", [1, 2, 3]),
    ({"type": "H5T_IEEE_F64LE", "shape": [2], "value": ["nan", 1]}, "[NaN, 1]", "nan, -1", [float("nan"), -1]),
    ({"type": flag(), "shape": [2], "value": [True, False]}, "[true, false]", "false, false", [False, False]),
    ({"type": TEXT, "shape": [2], "value": ["a,b", '"']}, r'["a,b", "\""]', r'["\"c\"", ""]', ['"c"', ""]),
    ({"type": integer("I32"), "shape": [2]}, "not written: zero, or empty", "3, 4", [3, 4]),
]  # fmt: skip


def test_each_type_is_changed_and_kept(page: Page, root: Object) -> None:
    names = [f"a{at:02}" for at in range(len(CHANGES))]
    root.put(dict(zip(names, (body for body, *_ in CHANGES), strict=True)))
    before = root.all()
    go(page, domain=DOMAIN)
    page.locator("summary").filter(has_text=f"{len(CHANGES)} attributes").click()
    dialog = page.get_by_role("dialog")
    for name, (_, text, typed, value) in zip(names, CHANGES, strict=True):
        expect(shown(page, name)).to_have_text(text)
        change(page, name, typed)
        expect(dialog).to_have_count(0)
        after = root.all()[name]
        assert (repr(after["value"]), after["type"]) == (repr(value), before[name]["type"])
    assert list(root.all()) == names
    stored = root.all()
    for name in names:  # what the field has is what is there
        button(page, "Change", name).click()
        field = dialog.get_by_label("Value")
        text = field.input_value()
        field.fill("")
        field.fill(text)
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
    assert repr(root.all()) == repr(stored)


REFUSALS: list[tuple[Json, str, str]] = [
    ({"type": integer("U8"), "value": 1}, "256", "256 is not in uint8: write a number from 0 to 255."),
    ({"type": integer("I64"), "value": 1}, str(2**63), f"write a number from {-(2**63)} to {2**63 - 1}."),
    ({"type": integer("I32"), "value": 1}, "1.5", '"1.5" is no integer: write digits alone, as in 42.'),
    ({"type": integer("I32"), "value": 1}, "", '"" is no integer'),
    ({"type": integer("I32"), "shape": [2], "value": [1, 2]}, "1, x", '"x" is no integer'),
    ({"type": "H5T_IEEE_F64LE", "value": 1}, "1e999", "1e999 is too large for float64"),
    ({"type": "H5T_IEEE_F64LE", "value": 1}, "1e-999", "1e-999 is too small for float64"),
    (
        {"type": "H5T_IEEE_F32LE", "value": 1},
        "1e39",
        "1e39 is too large for float32: write a number up to 3.40",
    ),
    (
        {"type": "H5T_IEEE_F64LE", "value": 1},
        "0x10",
        "is no number: write one as in -1.5e3, or nan, inf, -inf.",
    ),
    ({"type": flag(), "value": True}, "yes", '"yes" is no truth value: write true or false.'),
    ({"type": fixed(4), "value": "a"}, "éabc", "The text has 5 bytes, and the type of this attribute 4"),
    (
        {"type": fixed(4, "NULLTERM"), "value": "a"},
        "abcd",
        "The text has 4 bytes, and the type of this attribute 3",
    ),
    ({"type": fixed(4, characters="ASCII"), "value": "a"}, "é", "has ASCII alone"),
    ({"type": TEXT, "shape": [1], "value": ["a"]}, "a, b", "This is no list of texts"),
]


def test_what_does_not_fit_is_told_and_changes_nothing(page: Page, root: Object) -> None:
    root.put({f"a{at:02}": body for at, (body, *_) in enumerate(REFUSALS)})
    before = root.all()
    go(page, domain=DOMAIN)
    page.locator("summary").filter(has_text=f"{len(REFUSALS)} attributes").click()
    for at, (_, typed, sentence) in enumerate(REFUSALS):
        change(page, f"a{at:02}", typed)
        expect(page.get_by_role("alert")).to_contain_text(sentence)
        page.get_by_role("button", name="Cancel").click()
    assert root.all() == before


def test_a_refusal_of_the_server_is_in_its_words(page: Page, root: Object) -> None:
    root.put({"a": {"type": integer("I64"), "value": 1}})
    go(page, domain=DOMAIN)
    expect(shown(page, "a")).to_have_text("1")
    root.connection.json("DELETE", f"{root.place}/a")
    change(page, "a", "2")
    expect(page.get_by_role("alert")).to_contain_text("Attribute 'a' of")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="New attribute").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("b" * 70_000)
    dialog.get_by_role("button", name="Make").click()
    expect(page.get_by_role("alert")).to_contain_text("An attribute's name must be text of 1 to 65534 bytes")
    assert root.all() == {}


MADE: list[tuple[str, bool, str, str, Any]] = [
    ("text", False, SCRIPT, "H5T_STRING", SCRIPT),
    ("text", True, '["a", ""]', "H5T_STRING", ["a", ""]),
    ("integer", False, str(-(2**63)), "H5T_INTEGER", -(2**63)),
    ("integer", True, "", "H5T_INTEGER", []),
    ("float", False, "-inf", "H5T_FLOAT", float("-inf")),
    ("float", True, "nan 0.1", "H5T_FLOAT", [float("nan"), 0.1]),
    ("true or false", False, "true", "H5T_ENUM", True),
    ("true or false", True, "true,false", "H5T_ENUM", [True, False]),
]


def test_new_attributes(page: Page, root: Object) -> None:
    go(page, domain=DOMAIN)
    dialog = page.get_by_role("dialog")
    for at, (kind, is_list, text, wanted, value) in enumerate(MADE):
        page.get_by_role("button", name="New attribute").click()
        expect(dialog.get_by_role("button", name="Make")).to_be_disabled()
        dialog.get_by_label("Name").fill(f"a{at}")
        dialog.get_by_label("Type").select_option(kind)
        dialog.get_by_label("a list").set_checked(is_list)
        dialog.get_by_label("Value").fill(text)
        dialog.get_by_role("button", name="Make").click()
        expect(dialog).to_have_count(0)
        expect(row(page, f"a{at}")).to_be_visible()
        found = root.all()[f"a{at}"]
        assert (found["type"]["class"], repr(found["value"])) == (wanted, repr(value))
        assert found["shape"] == (
            {"class": "H5S_SIMPLE", "dims": [len(value)]} if is_list else {"class": "H5S_SCALAR"}
        )
    page.get_by_role("button", name="New attribute").click()
    dialog.get_by_label("Name").fill("a0")
    dialog.get_by_role("button", name="Make").click()
    expect(page.get_by_role("alert")).to_contain_text("There is an attribute of that name")
    assert page.title() != "run"


NAMES = [
    *(SCRIPT, "'\"&?#;--", "a\u202eb\u200f", "x" * 1000, "\u5b57" * 1000, "nul\0name", "..", "a/b", "a%2Fb"),
    *("__proto__", " ", "1e999"),
]


def test_hostile_names_and_values(page: Page, root: Object) -> None:
    root.put({name: {"type": TEXT, "value": f"{name} of {name}"[:1500]} for name in NAMES})
    go(page, domain=DOMAIN)
    rows = page.locator(".attributes tr")
    expect(rows).to_have_count(len(NAMES))
    dialog = page.get_by_role("dialog")
    for at, name in enumerate(NAMES):
        code = name.replace("\0", r"\u0000").replace("\u202e", r"\u202e").replace("\u200f", r"\u200f")
        assert rows.nth(at).locator("th").inner_text() == code
        rows.nth(at).get_by_role("button", name="Change").click()
        field = dialog.get_by_label("Value")
        value = json.loads(field.input_value()) if code != name else field.input_value()
        assert value == f"{name} of {name}"[:1500]
        field.fill(f'"{at} \\u0000"' if code != name else f"{at} <b>")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        assert root.all()[name]["value"] == (f"{at} \0" if code != name else f"{at} <b>")
    for at, name in enumerate(NAMES):
        rows.first.get_by_role("button", name="Delete").click()
        expect(dialog).to_contain_text("with its value? Nothing brings it back.")
        dialog.get_by_role("button", name="Cancel").click()
        assert name in root.all()
        rows.first.get_by_role("button", name="Delete").click()
        dialog.get_by_role("button", name="Delete").click()
        expect(dialog).to_have_count(0)
        assert list(root.all()) == NAMES[at + 1 :]
    assert page.title() != "run"
    assert page.locator("article img, article b").count() == 0


@pytest.fixture(scope="session")
def kinds(site: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A domain of what cannot be changed, and of objects of each kind."""
    path = tmp_path_factory.mktemp("kinds") / "kinds.h5"
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype("i4")
        file["data"] = np.arange(3)
        file["group/data"] = 1
        attributes = file.attrs
        attributes["compound"] = np.zeros((), [("a", "i8"), ("b", "f4", 2)])
        attributes["reference"] = file["data"].ref
        attributes["enumeration"] = np.array(1, h5py.enum_dtype({"R": 0, "G": 1}))
        attributes["matrix"] = np.zeros((2, 2))
        attributes["large"] = np.zeros(1001, "i1")
        attributes["null"] = h5py.Empty("f4")
        attributes["bytes"] = np.bytes_(b"\xb0C")
        sequences = np.empty(1, object)
        sequences[0] = np.arange(2, dtype="i4")
        attributes.create("sequence", sequences, dtype=h5py.vlen_dtype("i4"))
    return load(site, path, "/home/admin/kinds.h5")


def test_what_cannot_be_changed_says_why(page: Page, kinds: str) -> None:
    go(page, domain=kinds)
    for name, reason in {
        "compound": "it is a compound",
        "reference": "it has references",
        "enumeration": "it is an enumeration",
        "matrix": "it has 2 dimensions",
        "large": "it has more than 1000 elements",
        "null": "it has no value",
        "bytes": "its bytes are not UTF-8",
        "sequence": "it has sequences",
    }.items():
        expect(row(page, name)).to_contain_text(f"cannot be changed here: {reason}")
        expect(button(page, "Change", name)).to_have_count(0)
        expect(button(page, "Delete", name)).to_be_visible()


@pytest.mark.parametrize("path", ["/type", "/data", "/group"])
def test_objects_of_every_kind(page: Page, site: str, kinds: str, path: str) -> None:
    go(page, domain=kinds, path=path)
    page.get_by_role("button", name="New attribute").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("note")
    dialog.get_by_label("Value").fill("first")
    dialog.get_by_role("button", name="Make").click()
    expect(shown(page, "note")).to_have_text("first")
    change(page, "note", "second")
    expect(shown(page, "note")).to_have_text("second")
    with Connection(site, kinds) as connection:
        assert Object(connection, path).all()["note"]["value"] == "second"
    button(page, "Delete", "note").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".attributes tr")).to_have_count(0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server(tmp_path_factory.mktemp("guarded")) as guarded:
        with Connection(guarded.url, SECRET, user="ann", password=PASSWORD) as connection:
            Object(connection).put({"a": {"type": TEXT, "value": "kept"}})
        yield guarded


@pytest.mark.parametrize(
    ("rights", "buttons"),
    [
        ({}, []),
        ({"create": True}, ["New attribute"]),
        ({"update": True}, ["Change"]),
        ({"delete": True}, ["Delete"]),
        ({"create": True, "update": True, "delete": True}, ["Change", "Delete", "New attribute"]),
    ],
    ids=["none", "create", "update", "delete", "all"],
)
def test_who_may_not_sees_no_button_and_is_refused_by_hand(
    browser: Browser, guarded: Guarded, rights: dict[str, bool], buttons: list[str]
) -> None:
    everything = dict.fromkeys(["create", "update", "delete"], False)
    with Connection(guarded.url, SECRET, user="ann", password=PASSWORD) as ann:
        ann.json("PUT", "/acls/bob", {"read": True} | everything | rights)
    with open_page(browser, guarded.url) as page:
        go(page, domain=SECRET)
        sign_in(page, "bob", PASSWORD)
        with page.expect_response("**/explorer/rights?*"):
            go(page, domain=SECRET, path="/")
            page.reload()
            sign_in(page, "bob", PASSWORD)
        expect(shown(page, "a")).to_have_text("kept")
        found = page.get_by_role("region", name="Attributes").get_by_role("button")
        expect(found).to_have_text(buttons)
    new: Json = {"attributes": {"b": {"type": TEXT, "value": ""}}}
    with Connection(guarded.url, SECRET, user="bob", password=PASSWORD) as bob:
        place = Object(bob).place
        for right, method, path, body in (
            ("create", "PUT", place, new),
            ("update", "PUT", f"{place}/a/value", {"value": "changed"}),
            ("delete", "DELETE", f"{place}/a", None),
        ):
            if right not in rights:
                with pytest.raises(Forbidden, match=f"does not have the right {right}"):
                    bob.json(method, path, body)


@pytest.mark.parametrize("is_served", [True, False], ids=["a served file", "a read-only server"])
def test_what_is_only_read_has_no_buttons(browser: Browser, tmp_path: Path, *, is_served: bool) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["a"] = "kept"
    store = load_settings(root=tmp_path / "store", port=0, fsync=False)
    with embedded_server(store) as url:
        load(url, tmp_path / "x.h5", "/home/admin/x.h5")
    (tmp_path / "files").mkdir()
    (tmp_path / "x.h5").rename(tmp_path / "files" / "x.h5")
    files: dict[str, Any] = {"files": (str(tmp_path / "files"),)} if is_served else {"read_only": True}
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False, **files)
    domain = "/files/x.h5" if is_served else "/home/admin/x.h5"
    with embedded_server(settings) as url, open_page(browser, url) as page:
        with page.expect_response("**/explorer/rights?*"):
            go(page, domain=domain)
        expect(shown(page, "a")).to_have_text("kept")
        expect(page.get_by_role("region", name="Attributes").get_by_role("button")).to_have_count(0)
        with Connection(url, domain) as connection, pytest.raises(Forbidden, match="read"):
            Object(connection).put({"b": {"type": TEXT, "value": ""}})
