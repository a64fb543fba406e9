"""What is put into domains through h5pyd and REST: a chapter for each kind of thing, each a domain of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import h5pyd
import numpy as np

from tests.interchange.place import HOME, Json, Peer

Write = Callable[[Peer, str], None]

FIXED = ["i1", "<u2", ">i4", "<i8", ">u8", "<f2", ">f4", "<f8", "?", "S7", "<c8", "<c16"]
RECORD = np.dtype([("id", "<i4"), ("xyz", "<f8", (3,)), ("name", "S5"), ("in", [("a", "u1"), ("b", ">f4")])])
ROWS = 300
"""Of 1024 elements of 4 bytes: more than one MiB, which is two chunks of the least size that HSDS makes."""


def numbers(kind: str, *shape: int) -> Any:
    """Return an array in which the elements differ, as far as the type can tell them apart."""
    count = np.arange(np.prod(shape)).reshape(shape)
    return (count % 2 if kind == "?" else count % 100).astype(kind)


def records(count: int) -> Any:
    data = np.zeros(count, RECORD)
    data["id"], data["name"] = np.arange(count), b"abc"
    data["xyz"] = np.arange(3 * count).reshape(count, 3) / 7
    data["in"]["a"], data["in"]["b"] = 7, np.arange(count)
    return data


def write_types(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        for kind in FIXED:
            file.create_dataset(f"plain {kind}", data=numbers(kind, 4, 6))
            file.create_dataset(f"chunked {kind}", data=numbers(kind, 50, 60), chunks=(10, 60))
        file.create_dataset("record", data=records(10))
        file.create_dataset("record chunked", data=records(1000), chunks=(100,), compression="gzip")
        colour = h5pyd.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, basetype="<i2")
        file.create_dataset("enum", data=np.array([0, 1, 42], "<i2"), dtype=colour)
        file.create_dataset("scalar", data=np.float64(2.5))
        file.create_dataset("scalar text", data=np.bytes_(b"hello"))
        file.create_dataset("not a number", data=np.array([np.nan, np.inf, -np.inf, 0]))


def change_types(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        for kind in FIXED:
            file[f"plain {kind}"][1:3, 2:5] = numbers(kind, 2, 3)
            file[f"chunked {kind}"][::7, 3] = numbers(kind, 8)
        file["record"][2:4] = records(10)[6:8]
        file["scalar"][()] = -1.0


def write_arrays(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        file.create_dataset("array", (3,), np.dtype(("<i4", (2, 5))))[...] = np.arange(30).reshape(3, 2, 5)


def change_arrays(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["array"][1] = np.arange(10).reshape(2, 5) + 100


def write_spaces(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        file.create_dataset("contiguous", data=numbers("<i4", 30, 40))
        file.create_dataset("null", data=h5pyd.Empty("<f8"))
        file.create_dataset("no rows", (0, 4), "<i4", maxshape=(None, 4), chunks=(8, 4))
        file.create_dataset("never written", (20, 20), "<f4", fillvalue=1.5)
        file.create_dataset("never a number", (20, 20), "<f4", fillvalue=np.nan)
        file.create_dataset("never written chunked", (700, 1024), "<f4", chunks=(256, 1024), fillvalue=1.5)
        edges = file.create_dataset("edges", (ROWS, 1000), "<i4", chunks=(256, 1024 - 24))
        edges[...] = numbers("<i4", ROWS, 1000)
        some = file.create_dataset("some chunks", (2000, 1024), "<i4", chunks=(256, 1024), fillvalue=-7)
        some[300:310, 5:9] = 1
        some[1999, 1023] = 2
        for name, shape in (("one", (5000,)), ("three", (9, 10, 11)), ("five", (2, 3, 4, 5, 6))):
            chunks = tuple(max(1, dim // 2) for dim in shape)
            file.create_dataset(name, data=numbers("<u2", *shape), chunks=chunks)
        grown = file.create_dataset("grown", data=numbers("<i4", 8, 5), chunks=(3, 3), maxshape=(None, 10))
        file.flush()
        grown.resize((20, 10))
        grown[15:, 5:] = 3
        shrunk = file.create_dataset("shrunk", data=numbers("<i4", 40), chunks=(10,), maxshape=(None,))
        file.flush()
        shrunk.resize((13,))
        long = file.create_dataset("long", data=numbers("<f8", 300000), chunks=(131072,), maxshape=(None,))
        file.flush()
        long.resize((300001,))
        long[-1] = 5
    ids = HOME + domain
    root = peer.send("GET", "/", ids)["root"]
    for name, layout in (
        ("compact", {"class": "H5D_COMPACT"}),
        ("asked contiguous", {"class": "H5D_CONTIGUOUS"}),
    ):
        body = {
            "type": "H5T_STD_I32LE",
            "shape": [12],
            "creationProperties": {"layout": layout, "fillValue": 3},
            "link": {"id": root, "name": name},
        }
        made = peer.send("POST", "/datasets", ids, body)["id"]
        peer.send("PUT", f"/datasets/{made}/value", ids, {"start": 2, "stop": 4, "value": [8, 9]})


def change_spaces(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["contiguous"][3:5, ::3] = -1
        file["never written"][4, 5] = 8
        file["edges"][250:, 990:] = -5
        file["some chunks"][700:702] = 11
        file["three"][::2, 3, ::5] = 1
        file["grown"].resize((25, 10))
        file["grown"][24] = numbers("<i4", 10)
        file["shrunk"].resize((30,))
        file["long"].resize((200000,))
        file["no rows"].resize((3, 4))
        file["no rows"][1] = 4
        file["compact"][5] = 77


FILTERS = {
    "gzip": ("H5Z_FILTER_DEFLATE", 1),
    "shuffle": ("H5Z_FILTER_SHUFFLE", 2),
    "fletcher32": ("H5Z_FILTER_FLETCHER32", 3),
    "nbit": ("H5Z_FILTER_NBIT", 5),
    "scaleoffset": ("H5Z_FILTER_SCALEOFFSET", 6),
    "blosclz": ("H5Z_FILTER_BLOSC", 32001),
    "lz4": ("H5Z_FILTER_LZ4", 32004),
    "lz4hc": ("H5Z_FILTER_LZ4HC", 32005),
    "bitshuffle": ("H5Z_FILTER_BITSHUFFLE", 32008),
    "zstd": ("H5Z_FILTER_ZSTD", 32015),
}
COMPRESSIONS = ["gzip", "lz4", "lz4hc", "zstd", "blosclz"]


def write_filters(peer: Peer, domain: str) -> None:
    peer.send("PUT", "/", HOME + domain, {})
    data = numbers("<i4", ROWS, 1024)
    for name in COMPRESSIONS:
        filtered(peer, domain, data, name)
        filtered(peer, domain, data, "shuffle", name)
        filtered(peer, domain, data, "shuffle", "fletcher32", name)
        filtered(peer, domain, data, name, "fletcher32")
        filtered(peer, domain, data, name, "shuffle")
        filtered(peer, domain, noise(), "shuffle", name, title=f"{name} of noise")
    filtered(peer, domain, data, "gzip", title="gzip 9", level=9)
    filtered(peer, domain, data, "lz4", title="lz4 1", level=1)
    filtered(peer, domain, data, "fletcher32")
    for spelling in ("gzip", 32015, {"class": "H5Z_FILTER_USER", "id": 32004}, "lzf", "nbit"):
        if peer.name == "hsparse":  # HSDS takes filters with class, id and name only
            path, title = HOME + domain, f"spelled {spelling}"
            body = {"shape": [5], "value": [5, 4, 3, 2, 1]}
            body["creationProperties"] = {
                "filters": [spelling],
                "layout": {"class": "H5D_CHUNKED", "dims": [5]},
            }
            _dataset(peer, path, title, body)


def write_bitshuffle(peer: Peer, domain: str) -> None:
    peer.send("PUT", "/", HOME + domain, {})
    data = numbers("<i4", ROWS, 1024)
    filtered(peer, domain, data, "bitshuffle")
    for name in COMPRESSIONS:
        filtered(peer, domain, data, "bitshuffle", name)


def write_no_filters(peer: Peer, domain: str) -> None:
    """Write what HSDS takes and does nothing with."""
    peer.send("PUT", "/", HOME + domain, {})
    data = numbers("<i4", ROWS, 1024)
    for name in ("scaleoffset", "nbit"):
        filtered(peer, domain, data, name)
        filtered(peer, domain, data, name, "gzip")


def write_shuffle(peer: Peer, domain: str) -> None:
    peer.send("PUT", "/", HOME + domain, {})
    filtered(peer, domain, numbers("<i4", ROWS, 1024), "shuffle")


SMALL: dict[str, tuple[str, ...]] = {
    ", ".join(names) or "bare": names
    for names in (
        (),
        *((name,) for name in COMPRESSIONS),
        *(("shuffle", name) for name in COMPRESSIONS),
        ("shuffle", "fletcher32", "gzip"),
        ("zstd", "fletcher32"),
        ("fletcher32",),
        ("nbit", "gzip"),
        ("scaleoffset", "gzip"),
    )
}
"""Titles and filters of a small domain whose objects are recorded."""


def small_data() -> Any:
    return numbers("<i4", 20, 30)


def write_small(peer: Peer, domain: str) -> None:
    """Write by REST alone: h5pyd 1.0.0 cannot create objects in HSDS 0.9.4."""
    path = HOME + domain
    root = peer.send("PUT", "/", path, {})["root"]
    floats = {"type": "H5T_IEEE_F64LE", "shape": [2], "value": ["nan", 1.5]}
    peer.send("PUT", f"/groups/{root}/attributes/numbers", path, floats)
    peer.send("PUT", f"/groups/{root}/links/soft", path, {"h5path": "/bare"})
    away = {"h5path": "/x", "h5domain": "/home/bench/other.h5"}
    peer.send("PUT", f"/groups/{root}/links/away", path, away)
    group = peer.send("POST", "/groups", path, {"link": {"id": root, "name": "g"}})["id"]
    text = {
        "class": "H5T_STRING",
        "length": "H5T_VARIABLE",
        "charSet": "H5T_CSET_UTF8",
        "strPad": "H5T_STR_NULLTERM",
    }
    peer.send("PUT", f"/groups/{group}/attributes/note", path, {"type": text, "value": "hé"})
    kind = {"class": "H5T_COMPOUND", "fields": [{"name": "n", "type": "H5T_STD_I32LE"}]}
    peer.send("POST", "/datatypes", path, {"type": kind, "link": {"id": root, "name": "record"}})
    _dataset(peer, path, "unwritten", {"shape": [3], "creationProperties": {"fillValue": 7}})
    grows = {"layout": {"class": "H5D_CHUNKED", "dims": [5]}, "fillValue": -1}
    made = _dataset(peer, path, "grows", {"shape": [5], "maxdims": [0], "creationProperties": grows})
    peer.send("PUT", f"/datasets/{made}/value", path, {"value": numbers("<i4", 5).tolist()})
    peer.send("PUT", f"/datasets/{made}/shape", path, {"shape": [9]})
    for title, names in SMALL.items():
        filtered(peer, domain, small_data(), *names, title=title, chunk=[20, 30])


def change_small(peer: Peer, domain: str) -> None:
    for title in SMALL:
        poke(peer, domain, title, [3, 0], [5, 30], [[-9] * 30] * 2)
    poke(peer, domain, "unwritten", [1], [2], [8])


def poke(peer: Peer, domain: str, title: str, start: list[int], stop: list[int], value: Any) -> None:
    """Write a region of the dataset that the root group has as `title`."""
    path = HOME + domain
    root = peer.send("GET", "/", path)["root"]
    id = peer.send("GET", f"/groups/{root}/links/{title}", path)["link"]["id"]
    peer.send("PUT", f"/datasets/{id}/value", path, {"start": start, "stop": stop, "value": value})


def _dataset(peer: Peer, path: str, title: str, body: Json) -> str:
    link = {"id": peer.send("GET", "/", path)["root"], "name": title}
    made: str = peer.send("POST", "/datasets", path, {"type": "H5T_STD_I32LE", "link": link, **body})["id"]
    return made


def noise() -> Any:
    return np.random.default_rng(7).integers(0, 2**31, (ROWS, 1024), "<i4")


def filtered(
    peer: Peer,
    domain: str,
    data: Any,
    *names: str,
    title: str = "",
    chunk: Sequence[int] = (256, 1024),
    **options: int,
) -> None:
    """Create a dataset of `data` with filters that h5pyd has no word for."""
    path = HOME + domain
    root = peer.send("GET", "/", path)["root"]
    filters = [{"class": FILTERS[name][0], "id": FILTERS[name][1], "name": name, **options} for name in names]
    body = {
        "type": "H5T_STD_I32LE",
        "shape": data.shape,
        "creationProperties": {"layout": {"class": "H5D_CHUNKED", "dims": list(chunk)}, "filters": filters},
        "link": {"id": root, "name": title or ", ".join(names)},
    }
    made = peer.send("POST", "/datasets", path, body)["id"]
    peer.put_bytes(f"/datasets/{made}/value", path, data.tobytes())


def change_filters(peer: Peer, domain: str) -> None:
    root = peer.send("GET", "/", HOME + domain)["root"]
    for link in peer.send("GET", f"/groups/{root}/links", HOME + domain)["links"]:
        title = link["title"]
        if title == "spelled lzf":
            continue  # HSDS reads it, but has no such compressor to write with
        if title.startswith("spelled"):
            poke(peer, domain, title, [1], [2], [7])
        else:
            poke(peer, domain, title, [250, 3], [260, 9], [[-3] * 6] * 10)
            poke(peer, domain, title, [ROWS - 1, 0], [ROWS, 1024], [list(range(1024))])


def write_links(peer: Peer, domain: str) -> None:
    with peer.open(
        domain,
        "w",
    ) as file:
        file.create_group("a/b/c")
        file.create_group("a/d")
        file.create_dataset("a/b/x", data=np.arange(3))
        file["hard"] = file["a/b/x"]
        file["a/d/up"] = file["a"]
        file["soft"] = h5pyd.SoftLink("/a/b/x")
        file["dangling"] = h5pyd.SoftLink("nowhere/at all")
        file["away"] = h5pyd.ExternalLink("/home/bench/other.h5", "/x")
        file["name with spaces, é and 日本"] = file["a/d"]
        ordered = file.create_group("ordered", track_order=True)
        for title in ("z", "y", "m", "a"):
            ordered.create_group(title)
            ordered.attrs[title] = title
        file.create_group("gone").create_dataset("with it", data=1)
        file.flush()
        del file["gone"]
        del file["a"]["b"]["c"]


def change_links(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["a/b"].create_dataset("new", data=np.arange(5))
        file["harder"] = file["a/b/new"]
        file["softer"] = h5pyd.SoftLink("/a/b/new")
        file["farther"] = h5pyd.ExternalLink("/home/bench/another.h5", "/y")
        file["ordered"].create_group("b")
        file.flush()
        del file["soft"]
        del file["hard"]


ATTRIBUTES: Json = {
    "text": "hé llo",
    "no text": "",
    "bytes": np.bytes_(b"abc"),
    "number": 42,
    "float": np.float32(1.5),
    "big endian": np.array([1, 2], ">i2"),
    "array": np.arange(6, dtype="<i2").reshape(2, 3),
    "strings": np.array([b"a", b"bcd"]),
    "flag": True,
    "flags": np.array([True, False]),
    "not a number": np.array([np.nan, np.inf, -np.inf]),
    "empty": h5pyd.Empty("<f4"),
    "complex": 1 + 2j,
    "record": records(1)[0],
    "records": records(3),
}


def write_attributes(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        group = file.create_group("g")
        file["type"] = np.dtype("<i4")
        for target in (file, group, file.create_dataset("d", data=1.0), file["type"]):
            for name, value in ATTRIBUTES.items():
                target.attrs[name] = value
            target.attrs.create("texts", ["one", "", "drei é"], dtype=h5pyd.string_dtype())
            target.attrs.create("enum", np.int16(3), dtype=h5pyd.enum_dtype({"A": 1, "B": 3}, basetype="<i2"))
            target.attrs["gone"] = 1
            target.attrs["number"] = 43
            del target.attrs["gone"]


def change_attributes(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        targets = [file, file["g"], file["d"], file["type"]]
        paths = [f"/{name}/{target.id.id}" for name, target in zip(OWNERS, targets, strict=True)]
        for target in targets:
            target.attrs["fresh"] = np.arange(4.0)
            del target.attrs["array"]
    # h5pyd 1.0.0 does not replace an attribute that another session made.
    text = {"type": {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_UTF8"}}
    text |= {"shape": "H5S_SCALAR", "value": "another"}
    for path in paths:
        peer.send("PUT", f"{path}/attributes/text", HOME + domain, text, replace=1)


OWNERS = ("groups", "groups", "datasets", "datatypes")


def write_references(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        data = file.create_dataset("data", data=numbers("<i4", 10))
        file.create_group("g")
        file.attrs.create("to data", data.ref, dtype=h5pyd.special_dtype(ref=h5pyd.Reference))
        file.attrs.create("to all", [data.ref, file["g"].ref], dtype=h5pyd.special_dtype(ref=h5pyd.Reference))
        refs = file.create_dataset("refs", (3,), dtype=h5pyd.special_dtype(ref=h5pyd.Reference))
        refs[0] = data.ref
        refs[2] = file["g"].ref


def change_references(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["refs"][1] = file["data"].ref


def write_committed(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        file["record"] = RECORD
        file["number"] = np.dtype("<f8")
        file["record"].attrs["note"] = "a type"
        file.create_dataset("x", (4,), file["record"])[:2] = records(2)
        file.create_dataset("y", data=np.arange(4.0), dtype=file["number"])


def change_committed(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["x"][3] = records(4)[3]
        file.create_dataset("z", (4,), file["record"])


def write_variable(peer: Peer, domain: str) -> None:
    with peer.open(domain, "w") as file:
        text = h5pyd.string_dtype()
        file.create_dataset("texts", data=np.array(["one", "", "drei é"], object), dtype=text)
        file.create_dataset("ascii", (5,), h5pyd.string_dtype("ascii"))[1:3] = ["a", "b"]
        file.create_dataset("scalar", data="one text", dtype=text)
        packed = file.create_dataset("packed", (100,), text, chunks=(100,), compression="gzip", shuffle=True)
        packed[...] = np.array([f"line {n}" * (n % 5) for n in range(100)], object)
        ragged = file.create_dataset("ragged", (4,), h5pyd.vlen_dtype(np.dtype("<i4")))
        ragged[0], ragged[2] = np.arange(3), np.arange(7)
        mixed = np.dtype([("n", "<i4"), ("s", text)])
        file.create_dataset("record", (3,), mixed)[...] = np.array([(1, "a"), (2, ""), (3, "ccc")], mixed)


def change_variable(peer: Peer, domain: str) -> None:
    with peer.open(domain, "a") as file:
        file["texts"][1] = "zwei"
        file["ragged"][1] = np.arange(2)
        file["packed"][::7] = np.array(["seven"] * 15, object)


def write_folders(peer: Peer, domain: str) -> None:
    folder = HOME + domain
    peer.send("PUT", "/", folder, {"folder": True})
    peer.send("PUT", "/", f"{folder}/deeper", {"folder": True})
    for name in ("one.h5", "two.h5", "deeper/three.h5", "name with spaces é.h5"):
        peer.send("PUT", "/", f"{folder}/{name}", {})
    rights = {"read": True, "create": False, "update": True, "delete": False}
    rights |= {"readACL": True, "updateACL": False}
    peer.send("PUT", "/acls/somebody", f"{folder}/one.h5", rights)
    peer.send("PUT", "/acls/default", f"{folder}/deeper", rights)
    peer.send("PUT", "/", f"{folder}/gone.h5", {})
    peer.send("DELETE", "/", f"{folder}/gone.h5")


def change_folders(peer: Peer, domain: str) -> None:
    folder = HOME + domain
    peer.send("PUT", "/", f"{folder}/deeper/four.h5", {})
    peer.send("PUT", "/", f"{folder}/another", {"folder": True})
    peer.send("PUT", "/acls/somebody", f"{folder}/one.h5", {"delete": True, "read": False})
    peer.send("DELETE", "/", f"{folder}/two.h5")


CHAPTERS: dict[str, tuple[Write, Write]] = {
    "small": (write_small, change_small),
    "types": (write_types, change_types),
    "arrays": (write_arrays, change_arrays),
    "spaces": (write_spaces, change_spaces),
    "filters": (write_filters, change_filters),
    "bitshuffle": (write_bitshuffle, change_filters),
    "no filters": (write_no_filters, change_filters),
    "shuffle": (write_shuffle, change_filters),
    "links": (write_links, change_links),
    "attributes": (write_attributes, change_attributes),
    "references": (write_references, change_references),
    "committed": (write_committed, change_committed),
    "variable": (write_variable, change_variable),
    "folders": (write_folders, change_folders),
}
"""What a chapter writes, and what the other server changes of it."""
