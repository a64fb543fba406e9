"""Fill values, linked layouts and filters."""

from __future__ import annotations

import math
from typing import Any

from tests.sn.behaviours.behaviour import Ask, ask, differs, part, same

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


ROWS = (
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
