"""Attributes."""

from __future__ import annotations

import base64

import numpy as np

from tests.sn.behaviours.behaviour import ask, differs, make, part, same

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

ROWS = (
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
