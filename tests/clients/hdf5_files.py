"""HDF5 files of every kind that h5py can make, by topic: `FILES` has the functions that fill them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h5py
import hdf5plugin
import numpy as np

Maker = Callable[[h5py.File], None]
FILES: dict[str, Maker] = {}
OPTIONS: dict[str, dict[str, Any]] = {
    "creation order": {"track_order": True},
    "user block": {"userblock_size": 512},
}
"""Options that a file is made with."""

ORDERS = "<>"
NUMBERS = [f"{order}{kind}" for order in ORDERS for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
FLOATS = [f"{order}{kind}" for order in ORDERS for kind in ("f2", "f4", "f8")]
POINT = np.dtype([("x", "<f4"), ("y", ">i2")])


def file(topic: str) -> Callable[[Maker], Maker]:
    """Register a function that fills a file."""

    def register(maker: Maker) -> Maker:
        FILES[topic] = maker
        return maker

    return register


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def typed(parent: h5py.Group, name: str, kind: h5py.h5t.TypeID, data: np.ndarray) -> h5py.h5d.DatasetID:
    """Create a one-dimensional dataset of a type that h5py's high level has no dtype of."""
    space = h5py.h5s.create_simple(data.shape)
    made = h5py.h5d.create(parent.id, name.encode(), kind, space)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
    return made


@file("numbers")
def _(out: h5py.File) -> None:
    for name in NUMBERS:
        limits = np.iinfo(name)
        out[f"integers/{name}"] = np.array([limits.min, 0, 1, limits.max], name)
    for name in FLOATS:
        limits = np.finfo(name)
        out[f"floats/{name}"] = np.array(
            [[0.0, -0.0, 1.5, limits.max], [np.inf, -np.inf, np.nan, limits.tiny]], name
        )
    for name in ("<c8", ">c8", "<c16", ">c16"):
        out[f"complex/{name}"] = np.array([1 + 2j, -3.5j, complex(np.nan, np.inf)], name)
    out["booleans"] = np.array([[True, False], [False, True]])


@file("enums")
def _(out: h5py.File) -> None:
    for base in NUMBERS:
        kind = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, base)
        out.create_dataset(base, data=np.array([0, 42, 1], base), dtype=kind)
    signed = h5py.enum_dtype({"minus": -5, "plus": 7}, "<i2")
    out.create_dataset("negative", data=np.array([[-5], [7]], "<i2"), dtype=signed)


@file("text")
def _(out: h5py.File) -> None:
    words = ["a", "", "x" * 3000]
    out.create_dataset("ascii", data=objects(*words), dtype=h5py.string_dtype("ascii"))
    out.create_dataset("utf-8", data=objects("ü", "日本語", ""), dtype=h5py.string_dtype())
    out.create_dataset("scalar", data="héllo")
    out.create_dataset("chunked", data=objects(*map(str, range(100))), dtype=h5py.string_dtype(), chunks=(7,))
    out.create_dataset("table", data=objects(*"abcdef").reshape(2, 3), dtype=h5py.string_dtype())
    out.create_dataset("never written", (3,), dtype=h5py.string_dtype())


@file("fixed text")
def _(out: h5py.File) -> None:
    out["ascii"] = np.array([b"a", b"", b"abcdef"], "S6")
    out["scalar"] = np.bytes_(b"abc")
    kind = h5py.string_dtype("utf-8", 6)
    out.create_dataset("utf-8", data=np.array(["ü".encode(), "日本".encode()], kind))
    null_terminated = h5py.h5t.C_S1.copy()
    null_terminated.set_size(5)
    typed(out, "null terminated", null_terminated, np.array([b"abcd", b"x"], "S5"))
    spaces = h5py.h5t.FORTRAN_S1.copy()
    spaces.set_size(5)
    typed(out, "padded by spaces", spaces, np.array([b"ab   ", b"abcde"], "S5"))


@file("opaque")
def _(out: h5py.File) -> None:
    out["opaque"] = np.array([b"abc", b"\xff\x01\x02\x03"], "V4")
    out["scalar"] = np.void(b"\x01\x02\x03")


@file("dates")
def _(out: h5py.File) -> None:
    dates = np.array(["2020-01-01", "1969-12-31T23:59"], "M8[ns]")
    out["dates"] = dates.astype(h5py.opaque_dtype(dates.dtype))


@file("bit fields")
def _(out: h5py.File) -> None:
    typed(out, "u1", h5py.h5t.STD_B8LE, np.array([1, 128, 255], "u1"))
    typed(out, "u2", h5py.h5t.STD_B16BE, np.array([1, 256, 65535], ">u2"))


@file("arrays")
def _(out: h5py.File) -> None:
    numbers = out.create_dataset("numbers", (3,), dtype=np.dtype("(2,3)<i2"))
    numbers[...] = np.arange(18).reshape(3, 2, 3)
    out.create_dataset("scalar", (), dtype=np.dtype("(4,)>f4"))[...] = np.arange(4)
    texts = out.create_dataset("fixed text", (2,), dtype=np.dtype("(2,)S3"))
    texts[...] = np.array([[b"a", b"bcd"], [b"", b"e"]])
    points = out.create_dataset("points", (2,), dtype=np.dtype((POINT, (2,))))
    points[...] = np.array([[(1, 2), (3, 4)], [(5, 6), (7, 8)]], POINT)


@file("compounds")
def _(out: h5py.File) -> None:
    nested = np.dtype([("p", POINT), ("n", "<i8"), ("deeper", [("q", POINT), ("flag", "?")])])
    rows = np.zeros(4, nested)
    rows["p"]["x"], rows["n"], rows["deeper"]["q"]["y"] = np.arange(4) / 2, -7, np.arange(4)
    rows["deeper"]["flag"][2] = True
    out["nested"] = rows
    out["scalar"] = rows[1]
    colour = h5py.enum_dtype({"RED": 0, "BLUE": 1}, "i1")
    fields = [("text", "S5"), ("grid", "<f4", (2, 2)), ("colour", colour), ("o", "V3"), ("n", "<i4")]
    mixed = np.zeros(3, fields)
    mixed["text"], mixed["grid"], mixed["colour"] = [b"a", b"bcdef", b""], 1.5, [0, 1, 0]
    mixed["o"], mixed["n"] = np.array(b"\x01\x02\x03", "V3"), 9
    out["mixed"] = mixed
    out.create_dataset("chunked", data=rows.repeat(50), chunks=(30,), compression="gzip", shuffle=True)


@file("complex numbers in compounds")
def _(out: h5py.File) -> None:
    out["x"] = np.array([(1, 1 + 2j)], [("n", "<i4"), ("c", "<c8")])


@file("field names that are not ASCII")
def _(out: h5py.File) -> None:
    out["x"] = np.array([(1, 2)], [("n", "<i4"), ("é", "<i4")])


@file("compounds with gaps")
def _(out: h5py.File) -> None:
    aligned = np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<i2")], align=True)
    out["aligned"] = np.array([(1, 2.5, 3), (4, 5.5, 6)], aligned)


@file("text in compounds")
def _(out: h5py.File) -> None:
    kind = np.dtype(
        [("n", "<i4"), ("s", h5py.string_dtype()), ("t", "S3"), ("a", h5py.string_dtype("ascii"))]
    )
    rows = np.zeros(3, kind)
    for place in range(3):
        rows[place] = (place, "ä" * place, b"xyz", b"b" * place)
    out.create_dataset("rows", data=rows)
    texts = np.zeros(2, np.dtype([("s", h5py.string_dtype(), (2,)), ("n", "<i4")]))
    texts[0]["s"][:], texts[1]["s"][:], texts["n"] = ["a", "bb"], ["", "c"], 4
    out.create_dataset("arrays of text", data=texts)


@file("sequences in compounds")
def _(out: h5py.File) -> None:
    rows = np.zeros(2, np.dtype([("n", "<i4"), ("v", h5py.vlen_dtype("<f4"))]))
    rows[0], rows[1] = (1, np.array([2.5], "<f4")), (2, np.array([1.5, 2], "<f4"))
    out["rows"] = rows


@file("sequences")
def _(out: h5py.File) -> None:
    for base in ("<i4", "<f8", "u1", "?"):  # h5py forgets the order of bytes in sequences
        kind = h5py.vlen_dtype(np.dtype(base))
        out.create_dataset(base, (2,), dtype=kind)[...] = objects(
            np.array([1, 0, 1], base), np.array([1], base)
        )
    grid = out.create_dataset("grid", (2, 2), dtype=h5py.vlen_dtype(np.dtype("<i2")), chunks=(1, 2))
    for place in np.ndindex(2, 2):
        grid[place] = np.arange(1 + sum(place))


@file("sequences with nothing in them")
def _(out: h5py.File) -> None:
    data = out.create_dataset("x", (2,), dtype=h5py.vlen_dtype(np.dtype("<i4")))
    data[0] = [1, 2]


@file("sequences of one length")
def _(out: h5py.File) -> None:
    out.create_dataset("x", (1,), dtype=h5py.vlen_dtype(np.dtype("<i4")))[0] = [1, 2]


@file("sequences of compounds")
def _(out: h5py.File) -> None:
    rows = out.create_dataset("points", (2,), dtype=h5py.vlen_dtype(POINT))
    rows[0], rows[1] = np.array([(1, 2), (3, 4)], POINT), np.array([(5, 6)], POINT)


@file("sequences of sequences")
def _(out: h5py.File) -> None:
    kind = h5py.h5t.vlen_create(h5py.h5t.vlen_create(h5py.h5t.STD_I32LE))
    h5py.h5d.create(out.id, b"deep", kind, h5py.h5s.create_simple((2,)))


@file("object references")
def _(out: h5py.File) -> None:
    group, target = out.create_group("g"), out.create_dataset("t", data=np.arange(4))
    data = out.create_dataset("to objects", (3,), dtype=h5py.ref_dtype)
    data[0], data[1] = group.ref, target.ref
    rows = out.create_dataset("in compounds", (2,), dtype=np.dtype([("r", h5py.ref_dtype), ("n", "<i4")]))
    rows[0], rows[1] = (target.ref, 3), (group.ref, 4)
    out.attrs["one"] = target.ref
    out.attrs.create("several", np.array([group.ref, target.ref], h5py.ref_dtype), dtype=h5py.ref_dtype)


@file("references in sequences")
def _(out: h5py.File) -> None:
    group, target = out.create_group("g"), out.create_dataset("t", data=np.arange(4))
    lists = out.create_dataset("x", (2,), dtype=h5py.vlen_dtype(h5py.ref_dtype))
    lists[0] = np.array([target.ref, group.ref], h5py.ref_dtype)
    lists[1] = np.array([target.ref], h5py.ref_dtype)


@file("region references")
def _(out: h5py.File) -> None:
    target = out.create_dataset("t", data=np.arange(40).reshape(4, 10))
    out.create_dataset("regions", (2,), dtype=h5py.regionref_dtype)[0] = target.regionref[1:3, 2:5]


@file("attributes with region references")
def _(out: h5py.File) -> None:
    target = out.create_dataset("t", data=np.arange(40).reshape(4, 10))
    out.attrs["region"] = target.regionref[0:2, 0:1]
    out.attrs["after"] = 1


@file("committed types")
def _(out: h5py.File) -> None:
    out["point"] = POINT
    out["g/number"] = np.dtype(">i4")
    out["text"] = h5py.string_dtype()
    out["colour"] = h5py.enum_dtype({"RED": 0, "BLUE": 1}, "i1")
    out["point"].attrs["what"] = "a place"
    out.create_dataset("points", (3,), dtype=out["point"])[1] = (1.5, 2)
    out.attrs.create("home", np.array((1, 2), POINT), dtype=out["point"])


@file("extents")
def _(out: h5py.File) -> None:
    out["null"] = h5py.Empty("<f4")
    out["null text"] = h5py.Empty(h5py.string_dtype())
    out["scalar"] = 3.25
    out["one"] = np.array([3.25])
    out["none"] = np.zeros((0,), "<i2")
    out.create_dataset("none of some", (4, 0), dtype="<f8", maxshape=(4, None), chunks=(2, 2))
    out["seven dimensions"] = np.arange(2**7, dtype="<u2").reshape((2,) * 7)


@file("resizable")
def _(out: h5py.File) -> None:
    add = out.create_dataset
    add("without limit", data=np.arange(10.0), maxshape=(None,))
    add("limited", data=np.arange(12).reshape(3, 4), maxshape=(30, 4), chunks=(2, 2))
    add("both", data=np.arange(12).reshape(3, 4), maxshape=(None, 9), chunks=(2, 3))
    shrunk = add(
        "shrunk", data=np.arange(40).reshape(8, 5), maxshape=(None, None), chunks=(3, 3), fillvalue=-1
    )
    shrunk.resize((4, 3))
    shrunk.resize((6, 6))


@file("layouts")
def _(out: h5py.File) -> None:
    rng = np.random.default_rng(4)
    add = out.create_dataset
    add("contiguous", data=rng.random((60, 50)))
    add("contiguous never written", (60, 50), dtype="<f4")
    add("chunked", data=rng.integers(0, 99, (60, 50)), chunks=(7, 11))
    add("chunked in part", (1000, 1000), dtype="<i4", chunks=(100, 100))[250:260, 90:310] = 7
    add("larger", data=rng.integers(0, 9, (700, 800), "<i4"), chunks=(256, 256), compression="gzip")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((3, 4))
    compact = h5py.h5d.create(out.id, b"compact", h5py.h5t.STD_I16BE, space, plist)
    compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(12, dtype=">i2").reshape(3, 4))


@file("filters")
def _(out: h5py.File) -> None:
    gzip, shuffle, checksum = {"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True}
    named = {
        "gzip": {**gzip, "compression_opts": 7},
        "shuffle": shuffle,
        "shuffle and gzip": gzip | shuffle,
        "fletcher32": checksum,
        "all of them": gzip | shuffle | checksum,
        "scaleoffset": {"scaleoffset": 0},
    }
    data = np.random.default_rng(5).integers(0, 50, (60, 50), "<i4")
    for name, options in named.items():
        out.create_dataset(name, data=data, chunks=(32, 25), **options)


PLUGINS = {
    "lzf": "lzf",
    "zstd": hdf5plugin.Zstd(3),
    "lz4": hdf5plugin.LZ4(),
    "blosc": hdf5plugin.Blosc("zstd", 7, 2),
    "blosc2": hdf5plugin.Blosc2(),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="lz4"),
    "bzip2": hdf5plugin.BZip2(),
}


def filtered(compression: Any) -> Maker:
    """Return what fills a file with a dataset that has a filter which does not come with HDF5."""

    def fill(out: h5py.File) -> None:
        data = np.random.default_rng(5).integers(0, 50, (60, 50), "<i4")
        out.create_dataset("x", data=data, chunks=(32, 25), compression=compression)

    return fill


FILES |= {f"filter {name}": filtered(compression) for name, compression in PLUGINS.items()}


@file("filter nbit")
def _(out: h5py.File) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((32, 25))
    plist.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
    made = h5py.h5d.create(out.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((60, 50)), plist)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3000, dtype="<i4").reshape(60, 50))


@file("filter szip")
def _(out: h5py.File) -> None:
    data = np.arange(3000, dtype="<i4").reshape(60, 50)
    out.create_dataset("x", data=data, chunks=(32, 25), compression="szip")


@file("fill values")
def _(out: h5py.File) -> None:
    add = out.create_dataset
    for name, value in {"<i4": -7, ">u2": 65535, "<f4": 2.5, ">f8": 1e300, "<u8": 2**64 - 1}.items():
        add(name, (5,), dtype=name, fillvalue=value)[1] = 1
    add("zero", (5,), dtype="<i4", fillvalue=0)
    add("chunked", (50, 50), dtype="<i2", chunks=(10, 10), fillvalue=3)[20:25, 5:30] = 8
    add("fixed text", (3,), dtype="S4", fillvalue=b"ab")[0] = b"x"
    add("boolean", (3,), dtype="?", fillvalue=True)[0] = False
    add("enum", (3,), dtype=h5py.enum_dtype({"A": 0, "B": 1}, "i1"), fillvalue=1)[0] = 0


@file("fill values that are not numbers")
def _(out: h5py.File) -> None:
    out.create_dataset("nan", (3,), dtype="<f8", fillvalue=np.nan)[0] = 1
    out.create_dataset("infinite", (3,), dtype="<f4", fillvalue=-np.inf)[0] = 1


@file("fill values of compounds")
def _(out: h5py.File) -> None:
    out.create_dataset("points", (3,), dtype=POINT, fillvalue=np.array((1.5, 2), POINT)[()])[0] = (9, 9)


@file("fill values of text")
def _(out: h5py.File) -> None:
    out.create_dataset("text", (3,), dtype=h5py.string_dtype(), fillvalue="none")[0] = "some"


@file("groups and links")
def _(out: h5py.File) -> None:
    for path in ("a/b/c/d", "empty", "é/日本", "with space"):
        out.create_group(path)
    data = out["a/b"].create_dataset("x", data=np.arange(3))
    out["hard"] = data
    out["a/b/c/again"] = data
    out["group again"] = out["a/b"]
    out["soft"] = h5py.SoftLink("/a/b/x")
    out["a/relative"] = h5py.SoftLink("b/x")
    out["dangling"] = h5py.SoftLink("/nowhere")
    out["away"] = h5py.ExternalLink("other.h5", "/x/y")
    for number in range(300):
        out.create_group(f"many/{number}")


@file("a group in itself")
def _(out: h5py.File) -> None:
    group = out.create_group("a")
    group["itself"] = group
    group["up"] = out["/"]


@file("creation order")
def _(out: h5py.File) -> None:
    for name in "zebra":
        out.create_group(name, track_order=True)
    for name in ("t", "s", "r"):
        out["z"].create_dataset(name, data=1)
        out.attrs[name] = name
        out["z/t"].attrs[name] = name


@file("attributes")
def _(out: h5py.File) -> None:
    group, data = out.create_group("g"), out.create_dataset("d", data=np.arange(3))
    for holder in (out, group, data):
        holder.attrs["text"] = "hé llo"
        holder.attrs["empty text"] = ""
        holder.attrs["number"] = np.int16(42)
    for kind in (*NUMBERS, *FLOATS, "<c16"):
        data.attrs[kind] = np.array([1, 2, 3], kind)
    values: dict[str, Any] = {
        "scalar": 1.5,
        "int": 7,
        "bytes": np.bytes_(b"abc"),
        "several bytes": np.array([b"a", b"bcd"]),
        "texts": ["a", "bü", ""],
        "table": np.arange(6, dtype=">i2").reshape(2, 3),
        "true": True,
        "booleans": np.array([True, False]),
        "complex": 1 + 2j,
        "nan": np.array([np.nan, np.inf, -np.inf, -0.0]),
        "opaque": np.void(b"\x00\x01\xff"),
        "point": np.array((1.5, 2), POINT),
        "points": np.array([(1.5, 2), (3, 4)], POINT),
        "none": np.zeros(0, "<f4"),
        "null": h5py.Empty("<f4"),
        "long": np.arange(1000.0),
        "a name/with slash": 1,
        "ünï": 2,
    }
    for name, value in values.items():
        group.attrs[name] = value
    group.attrs.create("ascii", "abc", dtype=h5py.string_dtype("ascii"))
    group.attrs.create("enum", np.array([1, 0], "i1"), dtype=h5py.enum_dtype({"A": 0, "B": 1}, "i1"))


@file("attributes of other types than their values")
def _(out: h5py.File) -> None:
    out.attrs.create("utf-8", "bü".encode(), dtype=h5py.string_dtype("utf-8", 6))
    out.attrs.create("array", np.arange(6).reshape(2, 3), dtype=np.dtype(("<i4", (3,))))


@file("attributes of sequences")
def _(out: h5py.File) -> None:
    lists = objects(np.array([1, 2], "<i4"), np.array([3], "<i4"))
    out.attrs.create("lists", lists, dtype=h5py.vlen_dtype(np.dtype("<i4")))


@file("dimension scales")
def _(out: h5py.File) -> None:
    data = out.create_dataset("data", data=np.arange(12.0).reshape(3, 4))
    for place, name in enumerate(("time", "place")):
        out[name] = np.arange(data.shape[place])
        out[name].make_scale(name)
        data.dims[place].label = name
        data.dims[place].attach_scale(out[name])
    out["other"] = np.arange(4) * 10
    out["other"].make_scale()
    data.dims[1].attach_scale(out["other"])


@file("user block")
def _(out: h5py.File) -> None:
    out["x"] = np.arange(3)
