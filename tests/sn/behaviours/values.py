"""Values, and what clients make of them; fill values, linked layouts and filters."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from tests.sn.recording import Ask, ask, differs, make, part, same

I32 = "H5T_STD_I32LE"
LINE = make("datasets", "<d1>", type=I32, shape=[10], maxdims=[0])
GRID = make("datasets", "<d1>", type=I32, shape=[4, 5])
CUBE = make("datasets", "<d1>", type=I32, shape=[2, 3, 5])
NUMBERED = make(
    "datasets", "<d1>", type=I32, shape=[4, 5], value=[[10 * r + c for c in range(5)] for r in range(4)]
)
COUNTED = make("datasets", "<d1>", type=I32, shape=[10], value=list(range(10)))
VALUE = "/datasets/<d1>/value"
ROW = [1, 2, 3, 4, 5]
PLANE = [list(range(5 * row, 5 * row + 5)) for row in range(3)]
BYTES = {"Accept": "application/octet-stream"}
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
TEXTS = ["123456", "1234567", "12345678", "123456789"]
CLIPPED = ["123456", "1234567", "1234567", "1234567"]


def s7(pad: str = "NULLPAD", charset: str = "ASCII") -> dict[str, Any]:
    """Return a type of text of 7 bytes."""
    return {"class": "H5T_STRING", "charSet": f"H5T_CSET_{charset}", "strPad": f"H5T_STR_{pad}", "length": 7}


def put(body: Any, status: int = 200, **options: Any) -> Ask:
    """Return a write."""
    return ask("PUT", VALUE, body, status, **options)


def there(value: Any) -> Ask:
    """Return the request for all values."""
    return ask("GET", VALUE, reply=part(value=value))


def picked(select: Any, value: Any) -> Ask:
    """Return the request for a selection that is a list."""
    return ask("POST", VALUE, {"select": select}, reply=part(value=value))


def flat(values: Any) -> bytes:
    """Return values as bytes."""
    return np.array(values, "<i4").tobytes()


ROWS = (
    same(
        "one value for all",
        LINE,
        *(step for value in (42, [42], [[42]]) for step in (
            put({"value": 0}, element_count=1), put({"value": value}, element_count=1), there([42] * 10)
        )),
        put(flat([7]), element_count=1),
        there([7] * 10),
        put({"value_base64": base64.b64encode(flat([8])).decode(), "element_count": 1}),
        there([8] * 10),
    ),
    same(
        "one value for a selection",
        LINE,
        put({"value": [7]}, element_count=1, select="[2:4]"),
        put({"value": [9], "element_count": 1, "start": [4], "stop": [6]}),
        there([0, 0, 7, 7, 9, 9, 0, 0, 0, 0]),
    ),
    same("one value appended", LINE, put({"value": [5]}, element_count=1, append=2), there([0] * 10 + [5, 5])),
    same(
        "a row for all rows",
        GRID,
        *(step for body in ({"value": ROW}, {"value": [ROW]}, flat(ROW)) for step in (
            put({"value": 0}, element_count=1), put(body, element_count=5), there([ROW] * 4)
        )),
        put({"value": [9, 8]}, element_count=2, select="[0:2,0:2]"),
        there([[9, 8, 3, 4, 5]] * 2 + [ROW] * 2),
    ),
    same(
        "a plane for all planes",
        CUBE,
        *(step for body in ({"value": PLANE}, {"value": list(range(15))}, flat(PLANE)) for step in (
            put({"value": 0}, element_count=1), put(body, element_count=15), there([PLANE] * 2)
        )),
    ),
    same(
        "counts that fit nothing",
        GRID,
        *(put({"value": [1] * count}, 400, element_count=count) for count in (4, 10)),
    ),
    same(
        "counts that fit no planes",
        CUBE,
        *(put({"value": [1] * count}, 400, element_count=count) for count in (3, 6)),
    ),
    same(
        "counts that fit no elements",
        LINE,
        *(put({"value": [1] * count}, 400, element_count=count) for count in (2, 5)),
        *(put({"value": 1}, 400, element_count=count) for count in (0, -1, "x")),
        put({"value": [1, 2]}, 400, element_count=1),
        put({"value": [7]}, 400),
    ),
    differs(
        "the whole count",
        "a client may say how many elements it sends",
        LINE,
        put({"value": list(range(10))}, 400, element_count=10, ours=200),
        there(list(range(10))),
    ),
    # --- selections
    same(
        "a selection as a list, of one dimension",
        COUNTED,
        picked([[0, 1, 3, 7]], [0, 1, 3, 7]),
        picked([[7, 3]], [7, 3]),
        picked([[1, 1]], [1, 1]),
        picked([3], [3]),
        picked([[]], []),
        ask("POST", VALUE, {"select": [[7, 3]]}, sent=BYTES, data=flat([7, 3])),
    ),
    same(
        "a selection as a list, of two dimensions",
        NUMBERED,
        picked([1, [0, 2]], [[10, 12]]),
        picked(["1:3", [0, 2]], [[10, 12], [20, 22]]),
        picked([[0, 1, 3], [1, 2, 4]], [1, 12, 34]),
        *(
            ask("POST", VALUE, {"select": bad}, 400)
            for bad in ([[0, 1], [0]], [9, 0], [0], [0, 0, 0], [0, 1.5], [0, {}])
        ),
    ),
    # --- text and numbers
    *(
        same(
            f"text longer than its type, {pad}",
            make("datasets", "<d1>", type=s7(pad), shape=[4]),
            put({"value": TEXTS}),
            there(CLIPPED),
            ask("GET", VALUE, sent=BYTES, data=b"123456\0" + 3 * b"1234567"),
        )
        for pad in ("NULLPAD", "NULLTERM", "SPACEPAD")
    ),
    same(
        "text longer than its type, in a compound",
        make("datasets", "<d1>", type={"class": "H5T_COMPOUND", "fields": [{"name": "s", "type": s7()}]}, shape=[1]),
        put({"value": [["12345678"]]}),
        there([["1234567"]]),
    ),
    differs(
        "text clipped inside a character",
        "HSDS cuts the bytes, and can then not answer in JSON (400)",
        make("datasets", "<d1>", type=s7(charset="UTF8"), shape=[1]),
        put({"value": ["123456\u00e9"]}),
        there(["123456"]),
    ),
    differs(
        "numbers that do not fit",
        "300 is no number of 8 bits: 400, where HSDS fails with a 500; a fraction is not cut to an integer",
        make("datasets", "<d1>", type="H5T_STD_I8LE", shape=[2]),
        put({"value": [300, 1]}, 500, ours=400),
        put({"value": [1.7, 1]}, 200, ours=400),
        ask("PUT", "/groups/<g0>/attributes/a", {"type": I32, "value": 1.7}, 201, ours=400),
        ask("POST", "/datasets", {"type": I32, "shape": [2], "creationProperties": {"fillValue": 1.7}}, 201, ours=400),
    ),
    differs(
        "sequences and text that were never written",
        "HSDS answers with the number 0 where a list or a text is expected",
        make("datasets", "<d1>", type={"class": "H5T_VLEN", "base": I32}, shape=[2]),
        put({"value": [[]]}, select="[0]"),
        there([[], []]),
    ),
    differs(
        "text that was never written",
        "HSDS answers with the number 0",
        make("datasets", "<d1>", type=TEXT, shape=[2]),
        there(["", ""]),
        ask("GET", VALUE, sent=BYTES, data=bytes(8)),
    ),
    differs(
        "bytes of an array of texts in a compound",
        "HSDS and its client's encoder append zero bytes; ours has none, and a body with them is accepted",
        make("datasets", "<d1>", shape=[2], type={"class": "H5T_COMPOUND", "fields": [
            {"name": "n", "type": "H5T_STD_U64LE"},
            {"name": "s", "type": s7() | {"length": 8}},
            {"name": "t", "type": {"class": "H5T_ARRAY", "dims": [2], "base": TEXT}},
        ]}),
        put({"value": [[1, "a", ["x", "yz"]], [2, "b", ["", "uvw"]]]}),
        ask("GET", VALUE, sent=BYTES, data=b"".join((
            np.uint64(1).tobytes(), b"a".ljust(8, b"\0"), b"\1\0\0\0x\2\0\0\0yz",
            np.uint64(2).tobytes(), b"b".ljust(8, b"\0"), b"\0\0\0\0\3\0\0\0uvw",
        ))),
    ),
    same(
        "floats that are not finite",
        make("datasets", "<d1>", type="H5T_IEEE_F64LE", shape=[2], value=["nan", 1.5]),
        there([float("nan"), 1.5]),
        ask("GET", VALUE, ignore_nan=1, reply=part(value=[None, 1.5])),
    ),
    # --- queries
    same(
        "rows of a query are the fields alone",
        make(
            "datasets", "<d1>", type={"class": "H5T_COMPOUND", "fields": [{"name": "f", "type": s7()}]}, shape=[2],
            value=[["A"], ["C"]],
        ),
        ask("GET", VALUE, query="f == b'A'", reply=part(value=[["A"]])),
        ask("GET", VALUE, query="f == b'A'", sent=BYTES, data=b"A".ljust(7, b"\0")),
        why="the row's index is first in HSDS 0.9; `index` beside `value` is an addition",
    ),
    differs(
        "a query for one of several values",
        "HSDS 1.0.2 refuses what its documentation has",
        make(
            "datasets", "<d1>", type={"class": "H5T_COMPOUND", "fields": [{"name": "f", "type": s7()}]}, shape=[2],
            value=[["A"], ["C"]],
        ),
        ask("GET", VALUE, query="where f in (b'A', b'B')", status=400, ours=200),
    ),
    # --- clients
    same(
        "growth seen through refresh() of h5pyd 1.0",
        why="tests/clients/test_h5pyd.py has it; the answer is that of a new domain",
    ),
    same(
        "what h5pyd 1.0 does alike against HSDS",
        why="a scalar read by () is float32; index lists may repeat; tables have no cursor; hsinfo is no script",
    ),
    same(
        "what h5pyd marks as known failures",
        why="scalar arrays, fixed UTF-8, subarrays, reused compound types and nested sequences succeed against both",
    ),
)  # fmt: skip


F64 = "H5T_IEEE_F64LE"
XYZ = {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": F64} for name in "xyz"]}
ELSEWHERE = "s3://a-storage-bucket/some-file.h5"
CONTIGUOUS = {
    "class": "H5D_CONTIGUOUS_REF", "file_uri": ELSEWHERE, "offset": 1234, "size": 1600000000000,
}  # fmt: skip
CHUNKED = {"class": "H5D_CHUNKED_REF", "file_uri": ELSEWHERE, "dims": [5], "chunks": {"1": [0, 20]}}
INDIRECT = {
    "class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": ELSEWHERE, "dims": [5], "chunk_table": "<d2>",
}  # fmt: skip
TABLE = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "offset", "type": "H5T_STD_I64LE"}, {"name": "size", "type": "H5T_STD_I32LE"}],
}
F32 = "H5T_IEEE_F32LE"


def filled(type: Any, value: Any, status: int = 201, id: str = "<d1>") -> Ask:
    """Return the creation of a dataset with a fill value."""
    body = {"type": type, "shape": [2], "creationProperties": {"fillValue": value}}
    return ask("POST", "/datasets", body, status, part(id=id) if status == 201 else None)


def linked(layout: dict[str, Any], shape: list[int], id: str = "<d1>", **options: Any) -> Ask:
    """Return the creation of a dataset whose data is in a file."""
    body = {"type": F32, "shape": shape, "creationProperties": {"layout": layout}}
    reply = part(id=id, creationProperties=part(layout=layout)) if "ours" not in options else None
    return ask("POST", "/datasets", body, 201, reply, **options)


def shown(value: Any, **parameters: Any) -> Ask:
    """Return the request for the fill value."""
    return ask("GET", "/datasets/<d1>", reply=part(creationProperties=part(fillValue=value)), **parameters)


DATASETS = (
    same(
        "one number fills every field",
        filled(XYZ, 3.12),
        shown(3.12),
        ask("GET", "/datasets/<d1>/value", reply=part(value=[[3.12] * 3] * 2)),
        *(filled(XYZ, value, 400) for value in ([3.12], [1, 2], "abc")),
    ),
    same("a fill value by name", filled(F64, "nan"), shown("nan"), shown("nan", ignore_nan=1)),
    same("a fill value that is no number", filled(F64, math.nan), shown(math.nan)),
    same("an infinite fill value", filled(F64, math.inf), shown(math.inf)),
    same("a negative infinite fill value", filled(F64, -math.inf), shown(-math.inf)),
    same("a fill value that is no number, ignored", filled(F64, math.nan), shown("nan", ignore_nan=1)),
    differs(
        "an infinite fill value, ignored",
        "`inf` by name, as elsewhere under ignore_nan",
        filled(F64, math.inf),
        shown("inf", ignore_nan=1),
    ),
    same("fill values of integers", filled("H5T_STD_I32LE", math.nan, 400), filled("H5T_STD_I32LE", "nan", 400)),
    # --- linked layouts
    same(
        "files in another bucket are linked to",
        linked(CONTIGUOUS, [50000, 8000000]),
        linked(CONTIGUOUS | {"size": 0}, [0, 10], "<d3>"),
        linked(CHUNKED, [10], "<d4>"),
        ask("POST", "/datasets", {"type": TABLE, "shape": [2]}, 201, part(id="<d2>")),
        linked(INDIRECT, [10], "<d5>"),
    ),
    same(
        "files that are not there are linked to",
        linked(CONTIGUOUS | {"file_uri": "data/none.h5", "size": 40}, [10]),
        linked(CHUNKED | {"file_uri": "memory/data/none.h5"}, [10], "<d2>"),
    ),
    same(
        "elements without an entry need no file",
        linked(CHUNKED, [10]),
        ask("GET", "/datasets/<d1>/value", select="[0:5]", reply=part(value=[0.0] * 5)),
    ),
    differs(
        "a read of a file in another bucket",
        "HSDS answers with fill values, or with 500 after 26 s; neither says what is missing",
        linked(CHUNKED, [10]),
        ask("GET", "/datasets/<d1>/value", ours=403),
    ),
    differs(
        "a read of a file that is not there",
        "HSDS answers with fill values; 404 names the file",
        linked(CONTIGUOUS | {"file_uri": "data/none.h5", "size": 40}, [10]),
        ask("GET", "/datasets/<d1>/value", ours=404),
    ),
    differs(
        "references that are not well-formed",
        "HSDS checks nothing at creation; a path out of the bucket or into the server's objects never names a file",
        *(
            linked(CHUNKED | {"file_uri": uri}, [10], ours=400)
            for uri in ("/data/f.h5", "data/../f.h5", "http://x/f.h5", "db/0/.group.json", "s3://b/.hidden")
        ),
    ),
    same(
        "a file of the bucket",
        linked(CONTIGUOUS | {"file_uri": "data/file.h5", "offset": 0, "size": 40}, [10]),
    ),
    # --- the rest
    same(
        "no limit is H5S_UNLIMITED",
        ask("POST", "/datasets", {"type": F32, "shape": [2], "maxdims": [0]}, 201, part(id="<d1>")),
        ask("GET", "/datasets/<d1>", reply=part(shape=part(maxdims=["H5S_UNLIMITED"]))),
        ask("GET", "/datasets/<d1>/shape", reply=part(shape=part(maxdims=["H5S_UNLIMITED"]))),
        why="0 in HSDS 0.9",
    ),
    same(
        "a chunk that is too large",
        ask("POST", "/datasets", {"type": F32, "shape": [1000, 1000, 1000], "creationProperties": {
            "layout": {"class": "H5D_CHUNKED", "dims": [1000, 1000, 1000]}}}, 400),
    ),
    same(
        "filters on a contiguous layout",
        ask("POST", "/datasets", {"type": F32, "shape": [10], "creationProperties": {
            "layout": {"class": "H5D_CONTIGUOUS"}, "filters": ["gzip"]}}, 400),
    ),
    same(
        "a filter of class USER",
        ask("POST", "/datasets", {"type": F32, "shape": [10], "creationProperties": {
            "filters": [{"class": "H5Z_FILTER_USER", "name": "lz4", "level": 5}]}}, 201, part(creationProperties=part(
                filters=[{"class": "H5Z_FILTER_LZ4", "name": "lz4", "level": 5, "id": 32004}]))),
        why="class USER in HSDS 0.9",
    ),
)  # fmt: skip
