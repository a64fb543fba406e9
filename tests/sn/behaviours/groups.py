"""Object ids, groups, links and attributes."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tests.sn.recording import Ask, ask, differs, make, part, same

OLD = "ab753b78-e63d-11f1-8b62-02fc00000001"
ODD = ("foobar", "g-ab753b78-e63d-11f1-8b62-02fc0000000")
X = {"h5path": "/x"}


def child(id: str, parent: str, name: str) -> Ask:
    """Return the creation of a group `id` with a link to it."""
    return make("groups", id, link={"id": parent, "name": name})


def title(name: str) -> dict[str, Any]:
    """Return the part of a link in a list that is compared."""
    return part(title=name)


TREE = (child("<g1>", "<g0>", "ga"), child("<g2>", "<g1>", "gc"), child("<g3>", "<g1>", "gd"))

ROWS = (
    # --- ids
    same(
        "an id of the old schema was never made",
        *(ask("GET", f"/{name}/{name[0]}-{OLD}{end}", status=404) for name, end in (("groups", ""),
            ("groups", "/links"), ("groups", "/attributes"), ("groups", "/attributes/a"), ("datasets", ""),
            ("datasets", "/value"), ("datasets", "/shape"), ("datasets", "/attributes/a"))),
        ask("GET", f"/datatypes/t-{OLD}", status=404),
        *(ask("DELETE", f"/{name}-{OLD}", status=404) for name in ("groups/g", "datasets/d", "datatypes/t")),
        ask("PUT", "/groups/<g0>/links/l1", {"id": f"g-{OLD}"}, 404),
    ),
    same(
        "what has no form of an id",
        *(ask("GET", f"/groups/{id}", status=400) for id in (*ODD, f"d-{OLD}")),
        make("datasets", "<d1>", type="H5T_STD_I8LE"),
        ask("GET", "/groups/<d1>", status=400),
    ),
    differs(
        "an id of a domain that is unknown",
        "ids of a domain begin alike, so one of another domain is refused without a look at the store; an object that "
            "another domain has is 400 in both",
        ask("GET", "/groups/g-00000000-00000000-0000-000000-000000", status=404, ours=400),
    ),
    same(
        "an id that was deleted",
        make("groups", "<g1>"),
        ask("DELETE", "/groups/<g1>"),
        ask("GET", "/groups/<g1>", status=410),
        ask("POST", "/groups", {"id": "<g1>"}, 201),
    ),
    same(
        "a group has no type",
        ask("POST", "/groups", {"type": "H5T_IEEE_F32LE"}, 400),
        ask("POST", "/groups", [{}, {"type": "H5T_IEEE_F32LE"}], 400),
        ask("POST", "/groups", {"colour": "red"}, 201),
    ),
    differs(
        "an id that is in use",
        "409, as for everything else that exists; no client tells the two apart",
        make("groups", "<g1>"),
        make("datasets", "<d1>", type="H5T_STD_I8LE"),
        make("datatypes", "<t1>", type="H5T_STD_I8LE"),
        ask("POST", "/groups", {"id": "<g1>"}, 400, ours=409),
        ask("POST", "/datasets", {"id": "<d1>", "type": "H5T_STD_I8LE"}, 400, ours=409),
        ask("POST", "/datatypes", {"id": "<t1>", "type": "H5T_STD_I8LE"}, 400, ours=409),
    ),
    # --- times
    same(
        "a link's time of creation",
        ask("PUT", "/groups/<g0>/links/a", X | {"created": "<number0>"}, 201),
        ask("GET", "/groups/<g0>/links/a", reply=part(created="<number0>", lastModified="<number0>")),
        ask("PUT", "/groups/<g0>/links/a", X | {"created": "<number1>"}, 200),
        ask("GET", "/groups/<g0>/links/a", reply=part(created="<number0>")),
    ),
    same(
        "times of creation of several links",
        ask("PUT", "/groups/<g0>/links", {"links": {"a": X | {"created": "<number1>"}}}, 201),
        ask("PUT", "/groups/<g0>/links",
            {"grp_ids": {"<g0>": {"links": {"b": X | {"created": "<number0>"}}}}}, 201),
        ask("GET", "/groups/<g0>/links", CreateOrder=1,
            reply=part(links=[part(title="b", created="<number0>"), part(title="a", created="<number1>")])),
    ),
    same(
        "times of creation in a new group",
        make("groups", "<g1>", links={"l": X | {"created": "<number0>"}},
            attributes={"a": {"type": "H5T_STD_I8LE", "value": 1, "created": "<number1>"}}),
        ask("GET", "/groups/<g1>/links/l", reply=part(created="<number0>")),
        ask("GET", "/groups/<g1>/attributes/a", reply=part(created="<number1>")),
        ask("POST", "/groups", [{"links": {"l": X | {"created": "now"}}}], 400),
    ),
    same(
        "a time of creation beyond the window is ignored",
        ask("PUT", "/groups/<g0>/links/now", X, 201),
        ask("PUT", "/groups/<g0>/links/old", X | {"created": 999}, 201),
        ask("PUT", "/groups/<g0>/links/far", X | {"created": 99999999999}, 201),
        ask("GET", "/groups/<g0>/links", CreateOrder=1,
            reply=part(links=[title("now"), title("old"), title("far")])),
        ask("PUT", "/groups/<g0>/links/bad", X | {"created": "now"}, 400),
    ),
    same(
        "an object's own time is the server's",
        ask("POST", "/groups", {"created": 5}, 201, part(created="<number2>")),
    ),
    # --- lists
    same(
        "links by title, some not there",
        ask("PUT", "/groups/<g0>/links", {"links": {"#link1#": X, "z": X}}, 201),
        ask("DELETE", "/groups/<g0>/links", titles="#link1#"),
        ask("GET", "/groups/<g0>/links", titles="#link1#", reply=part(links=[])),
        ask("GET", "/groups/<g0>/links", titles="zz", reply=part(links=[])),
        ask("POST", "/groups/<g0>/links", {"titles": ["z", "zz"]}, 404),
        ask("POST", "/groups/<g0>/links", {"titles": ["#link1#"]}, 410),
        ask("POST", "/groups/<g0>/links", {"grp_ids": {"<g0>": ["z", "zz"]}}, 404),
    ),
    differs(
        "titles filter a list",
        "HSDS ignores `titles` in a GET and lists everything; the filter is useful",
        ask("PUT", "/groups/<g0>/links", {"links": {"y": X, "z": X}}, 201),
        ask("GET", "/groups/<g0>/links", titles="z", reply=part(links=[title("z")])),
    ),
    same(
        "titles and follow_links",
        ask("PUT", "/groups/<g0>/links/a", X, 201),
        ask("POST", "/groups/<g0>/links", {"grp_ids": ["<g0>"], "titles": ["a"]}, 400, follow_links=1),
        ask("POST", "/groups/<g0>/links", {"titles": ["a"]}, 400, follow_links=1),
        ask("GET", "/groups/<g0>/links", titles="a", follow_links=1,
            reply=part(links={"<g0>": [title("a")]})),
    ),
    same(
        "the limit with follow_links is of the whole reply",
        *TREE,
        *(ask(method, "/groups/<g0>/links", body, follow_links=1, Limit=2,
            reply=part(links={"<g0>": [title("ga")], "<g1>": [title("gc")]})) for method,
            body in (("GET", None), ("POST", {"grp_ids": ["<g0>"]}))),
        ask("POST", "/groups/<g0>/links", {"grp_ids": ["<g0>", "<g1>"]}, follow_links=1, Limit=1,
            reply=part(links=part())),
        ask("GET", "/groups/<g0>/links", follow_links=1, Limit=0, reply=part(links={"<g0>": [title("ga")],
            "<g1>": [title("gc"), title("gd")], "<g2>": [], "<g3>": []})),
    ),
    same(
        "groups that are seen but not reached",
        child("<g1>", "<g0>", "ga"),
        child("<g2>", "<g1>", "gc"),
        ask("PUT", "/groups/<g0>/links/z", X, 201),
        ask("GET", "/groups/<g0>/links", follow_links=1, Limit=3,
            reply=part(links={"<g0>": [title("ga"), title("z")], "<g1>": [title("gc")]})),
    ),
    same(
        "attributes of all below with a limit",
        *TREE[:1],
        ask("PUT", "/groups/<g0>/attributes", {"obj_ids": ["<g0>", "<g1>"],
            "attributes": {"a": {"type": "H5T_STD_I8LE", "value": 1},
            "b": {"type": "H5T_STD_I8LE", "value": 1}}}, 201),
        ask("GET", "/groups/<g0>/attributes", follow_links=1, Limit=3,
            reply=part(attributes={"<g0>": [part(name="a"), part(name="b")], "<g1>": [part(name="a")]})),
    ),
    differs(
        "an external link has two names of its file",
        "h5pyd 0.24 takes a link without `h5domain` for a soft one; HSDS 1.0.2 has `file` alone",
        ask("PUT", "/groups/<g0>/links/x", {"h5path": "/a", "h5domain": "/home/b.h5"}, 201),
        ask("GET", "/groups/<g0>/links/x", reply=part(link={"title": "x", "class": "H5L_TYPE_EXTERNAL",
            "h5path": "/a", "file": "/home/b.h5", "h5domain": "/home/b.h5"})),
        ask("GET", "/groups/<g0>/links", follow_links=1,
            reply=part(links={"<g0>": [part(h5domain="/home/b.h5")]})),
    ),
    # --- deletions
    differs(
        "deleting one that is not there",
        "404 tells a program that it has a wrong name, 410 that it deleted it before",
        ask("DELETE", "/groups/<g0>/links/zz", status=200, ours=404),
        ask("DELETE", "/groups/<g0>/attributes/zz", status=200, ours=404),
        ask("PUT", "/groups/<g0>/links/a", X, 201),
        ask("DELETE", "/groups/<g0>/links/a"),
        ask("DELETE", "/groups/<g0>/links/a", status=200, ours=410),
    ),
    same(
        "deleting several that are not there",
        ask("PUT", "/groups/<g0>/links/a", X, 201),
        ask("DELETE", "/groups/<g0>/links", titles="a/zz"),
        ask("DELETE", "/groups/<g0>/links", titles="a/zz"),
        ask("DELETE", "/groups/<g0>/attributes", attr_names="zz"),
        ask("GET", "/groups/<g0>/links/a", status=410),
        ask("GET", "/groups/<g0>/links/zz", status=404),
    ),
)  # fmt: skip


INT = {"type": "H5T_STD_I32LE", "value": 1}
PAIR = {"class": "H5T_COMPOUND", "fields": [
    {"name": "temp", "type": "H5T_STD_I32LE"}, {"name": "pressure", "type": "H5T_IEEE_F32LE"},
]}  # fmt: skip
OWN = "/groups/<g0>/attributes"
S7 = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 7}
TEXTS = ["123456", "1234567", "12345678", "123456789"]
CLIPPED = b"123456\0" + 3 * b"1234567"
LONG = "\u00e9" * 2 + "x" * 51
BYTES = {"Accept": "application/octet-stream"}

ATTRIBUTES = (
    same(
        "a time of creation",
        ask("PUT", f"{OWN}/a", INT | {"created": "<number0>"}, 201),
        ask("GET", f"{OWN}/a", reply=part(created="<number0>")),
        ask("PUT", f"{OWN}/a", INT | {"created": "<number1>"}, 200),
        ask("GET", f"{OWN}/a", reply=part(created="<number0>")),
        ask("PUT", OWN, {"attributes": {"b": INT | {"created": "<number1>"}}}, 201),
        ask("GET", f"{OWN}/b", reply=part(created="<number1>")),
    ),
    differs(
        "a time of creation that is no number",
        "a mistake of the client is a 400; HSDS fails with a 500, which clients repeat",
        ask("PUT", f"{OWN}/a", INT | {"created": "now"}, 500, ours=400),
    ),
    same(
        "a replaced attribute keeps its time",
        ask("PUT", f"{OWN}/a", INT | {"created": "<number0>"}, 201),
        ask("PUT", f"{OWN}/b", INT | {"created": "<number1>"}, 201),
        ask("PUT", f"{OWN}/a", INT | {"value": 2, "created": "<number1>"}, 201, replace=1),
        ask("GET", OWN, CreateOrder=1, IncludeData=1, reply=part(attributes=[
            part(name="a", value=2, created="<number0>"), part(name="b"),
        ])),
    ),
    same(
        "a name asked of one of several objects must be there",
        make("groups", "<g1>"),
        ask("PUT", OWN, {"obj_ids": ["<g0>", "<g1>"], "attributes": {"a1": INT}}, 201),
        ask("POST", OWN, {"obj_ids": {"<g0>": ["a1"], "<g1>": ["a1"]}}),
        ask("POST", OWN, {"obj_ids": {"<g0>": ["a1"], "<g1>": ["a1", "zz"]}}, 404),
        ask("POST", OWN, {"obj_ids": {"<g1>": ["zz"]}}, 404),
    ),
    same(
        "links asked of several groups may be missing",
        make("groups", "<g1>"),
        ask("PUT", "/groups/<g0>/links/a", {"h5path": "/x"}, 201),
        ask("POST", "/groups/<g0>/links", {"grp_ids": {"<g0>": ["a"], "<g1>": ["a"]}}, reply={
            "links": {"<g0>": [part(title="a")], "<g1>": []},
        }),
    ),
    differs(
        "names filter the attributes of several objects",
        "HSDS 1.0.2 ignores `attr_names` beside a list of ids, which is a bug",
        ask("PUT", OWN, {"attributes": {"a": INT, "b": INT}}, 201),
        make("groups", "<g1>"),
        ask("POST", OWN, {"obj_ids": ["<g0>", "<g1>"], "attr_names": ["a"]}, reply={
            "attributes": {"<g0>": [part(name="a")], "<g1>": []},
        }),
        ask("POST", OWN, {"obj_ids": ["<g0>"], "attr_names": ["a"]}, follow_links=1, reply={
            "attributes": {"<g0>": [part(name="a")]},
        }),
    ),
    same(
        "attributes by name, some not there",
        ask("PUT", f"{OWN}/a", INT, 201),
        ask("GET", OWN, attr_names="a/zz", reply=part(attributes=[part(name="a")])),
    ),
    # --- values
    same(
        "a value is answered as it was written",
        ask("PUT", f"{OWN}/c", {"type": PAIR, "shape": "H5S_SCALAR", "value": [42, 0.42]}, 201),
        ask("GET", f"{OWN}/c", reply=part(value=[42, 0.42])),
        ask("GET", f"{OWN}/c/value", reply=part(value=[42, 0.42])),
        ask("GET", OWN, IncludeData=1, reply=part(attributes=[part(value=[42, 0.42])])),
        *(step for name, value in (("f", 0.42), ("i", 3), ("j", 3.0)) for step in (
            ask("PUT", f"{OWN}/{name}", {"type": "H5T_IEEE_F32LE", "value": value}, 201),
            ask("GET", f"{OWN}/{name}", reply=part(value=value)),
        )),
    ),
    same(
        "a value written as bytes is answered as it is stored",
        ask("PUT", f"{OWN}/f", {"type": "H5T_IEEE_F32LE", "encoding": "base64",
            "value": base64.b64encode(np.float32(0.42).tobytes()).decode()}, 201),
        ask("GET", f"{OWN}/f", reply=part(value=0.41999998688697815)),
        ask("GET", f"{OWN}/f/value", sent=BYTES, data=np.float32(0.42).tobytes()),
        ask("PUT", f"{OWN}/c", {"type": PAIR, "value": [42, 0.42]}, 201),
        ask("GET", f"{OWN}/c/value", sent=BYTES, data=np.int32(42).tobytes() + np.float32(0.42).tobytes()),
    ),
    same(
        "text longer than its type",
        ask("PUT", f"{OWN}/s", {"type": S7, "shape": [4], "value": TEXTS}, 201),
        ask("GET", f"{OWN}/s", reply=part(value=TEXTS)),
        ask("GET", f"{OWN}/s/value", sent=BYTES, data=CLIPPED),
        ask("GET", f"{OWN}/s", encoding="base64", reply=part(value=base64.b64encode(CLIPPED).decode())),
    ),
    differs(
        "text of as many characters as its type has bytes",
        "the bytes end with a whole character, so that they are text; HSDS cuts inside the last one",
        ask("PUT", f"{OWN}/u", {"type": S7 | {"charSet": "H5T_CSET_UTF8", "length": 54}, "value": LONG}, 201),
        ask("GET", f"{OWN}/u", reply=part(value=LONG)),
        ask("GET", f"{OWN}/u/value", sent=BYTES, data=LONG.encode()[:54]),
        ask("PUT", f"{OWN}/v", {"type": S7 | {"charSet": "H5T_CSET_UTF8", "length": 2}, "value": "x\u00e9"}, 201),
        ask("GET", f"{OWN}/v/value", sent=BYTES, data=b"x\0"),
    ),
)  # fmt: skip
